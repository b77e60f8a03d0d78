// Tells what this version of the wire offers.

import { ask } from "./wire.js";

let index = null;
const params = new Map();

// Returns whether the method exists, and takes this param.
export async function can(method, param = null) {
  index ||= ask("describe").then((answer) => new Set(answer.data.methods.map((row) => row.name)), () => new Set());
  if (!(await index).has(method)) return false;
  if (param === null) return true;
  if (!params.has(method)) params.set(method, ask("describe", { method }).then((answer) => Object.keys(answer.data.params), () => []));
  return (await params.get(method)).includes(param);
}
