// Shows how one text became another, line by line.

import { h } from "./dom.js";

const MOST = 2000; // lines that are compared; more of them are shown as replaced

// Returns [kind, line] pairs: "same", "gone", "new".
export function diff(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const middle = between(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  return [...a.slice(0, head).map((line) => ["same", line]), ...middle,
    ...a.slice(a.length - tail).map((line) => ["same", line])];
}

function between(a, b) {
  if (a.length > MOST || b.length > MOST) return [...a.map((line) => ["gone", line]), ...b.map((line) => ["new", line])];
  const width = b.length + 1;
  const longest = new Uint16Array((a.length + 1) * width); // of the common subsequence, from there on
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1
        : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const rows = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      rows.push(["same", a[i++]]);
      j++;
    } else if (j >= b.length || (i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) rows.push(["gone", a[i++]]);
    else rows.push(["new", b[j++]]);
  }
  return rows;
}

const SIGN = { same: " ", gone: "−", new: "+" };
const WORD = { gone: "removed: ", new: "added: " };
const AROUND = 3; // unchanged lines beside each change

export function diffView(before, after) {
  const rows = diff(before, after);
  if (rows.every(([kind]) => kind === "same")) return h("p", {}, "The texts are equal.");
  const near = rows.map((_, at) => rows.slice(Math.max(0, at - AROUND), at + AROUND + 1).some(([kind]) => kind !== "same"));
  const shown = [];
  rows.forEach(([kind, line], at) => {
    if (near[at]) {
      shown.push(h("div", { class: kind }, h("span", { "aria-hidden": "true" }, SIGN[kind]),
        WORD[kind] && h("span", { class: "hidden" }, WORD[kind]), line));
    } else if (near[at - 1] || at === 0) shown.push(h("div", { class: "gap" }, "⋯"));
  });
  return h("div", { class: "diff", tabindex: 0 }, shown);
}
