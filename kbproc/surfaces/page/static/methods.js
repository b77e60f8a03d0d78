// Tells what this version of the wire offers.

import { ask, find } from "./wire.js";

const known = new Map(); // what was asked → the names

function names(key, load) {
  if (!known.has(key)) {
    const loading = load();
    known.set(key, loading);
    loading.catch(() => known.delete(key)); // so that the next view asks again
  }
  return known.get(key);
}

// Returns whether the method exists, and takes this param.
export async function can(method, param = null) {
  const methods = await names("", () => ask("describe").then(({ data }) => data.methods.map((row) => row.name)));
  if (!methods.includes(method)) return false;
  if (param === null) return true;
  const params = await names(method, () => find("describe", { method }).then((answer) => Object.keys(answer ? answer.data.params : {})));
  return params.includes(param);
}
