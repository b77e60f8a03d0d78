// A module.
import { a } from "b";
/* many
   lines */
export class Shop extends Base {
  #items = new Map();
  add(item, count = 1) { this.#items.set(item, `${count} of ${item}`); return /[/"']+/.test(item); }
}
export const total = (xs) => xs.reduce((a, b) => a + b, 0);
function* walk(tree) { for (const t of tree) yield* t; }
