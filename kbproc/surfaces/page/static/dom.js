// Makes elements. Every text becomes a text node, so that nothing from a document is markup.

import { time } from "./wire.js";

const TYPING_MS = 120;

export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "selected") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...flat(children));
  return node;
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : plain(String(child))));
}

// Controls, and marks that turn the direction of what follows, could make a name look like another one.
const plain = (text) => text.replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");

// Keeps a text as it is, for an element that holds nothing else.
export const verbatim = (text) => document.createTextNode(text);

export function svg(tag, props = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) node.setAttribute(name, String(value));
  node.append(...flat(children));
  return node;
}

export function fill(node, ...children) {
  node.replaceChildren(...flat(children));
  return node;
}

export const button = (text, onclick, props = {}) => h("button", { type: "button", onclick, ...props }, text);

// Runs an action of a button once at a time, and shows its error. One of type submit also answers to Enter in its form.
export function act(text, action, props = {}) {
  const node = button(text, async () => {
    if (node.type === "submit" && node.form && !node.form.reportValidity()) return;
    const problem = node.closest("dialog")?.querySelector(".problem"); // a notice would stand behind the dialog
    if (problem) fill(problem);
    node.disabled = true;
    try {
      await action();
    } catch (error) {
      if (error.name === "AbortError") return;
      if (problem) fill(problem, failed(error));
      else notice(error.message, "bad");
    } finally {
      node.disabled = false;
    }
  }, props);
  return node;
}

export const link = (text, path, query = {}, props = {}) => h("a", { href: address(path, query), ...props }, text);

// Keeps the moment that is looked at, unless the query names another one.
export function address(path, query = {}) {
  const shown = Object.entries({ at: time.at, ...query }).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = new URLSearchParams(shown).toString();
  return `#/${path}${search ? `?${search}` : ""}`;
}

export function field(label, control, props = {}) {
  return h("label", { class: "field", ...props }, h("span", {}, label), control);
}

export function select(options, value, onchange) {
  return h("select", { onchange: (event) => onchange(event.target.value) },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
}

const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
export const when = (ts) => h("time", { datetime: ts, title: ts }, ts ? moment.format(new Date(ts)) : "–");
export const dateText = (ts) => moment.format(new Date(ts));

export const count = (number, noun, nouns = `${noun}s`) => `${number.toLocaleString()} ${number === 1 ? noun : nouns}`;

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (bytes < 1000 || unit === "GB") return `${unit === "B" ? bytes : bytes.toFixed(1)} ${unit}`;
    bytes /= 1000;
  }
  return "";
}

// Says something to the person, and to a screen reader.
export function notice(text, kind = "good") {
  const place = document.getElementById("notices");
  const node = h("p", { class: `notice ${kind}` }, text, button("×", () => node.remove(), { "aria-label": "Dismiss" }));
  place.append(node);
  while (place.children.length > 4) place.firstChild.remove();
  setTimeout(() => node.remove(), kind === "bad" ? 20000 : 6000);
}

// Shows a dialog; resolves with the value that `close` gets, null for Escape. Enter is a click on its submit button.
export function dialog(title, build) {
  return new Promise((resolve) => {
    let outcome = null;
    const node = h("dialog", { "aria-labelledby": "dialog-title" });
    const close = (value) => { outcome = value; node.close(); };
    node.addEventListener("close", () => { node.remove(); resolve(outcome); });
    node.append(h("h2", { id: "dialog-title" }, title), h("div", { class: "problem" }), form(build(close), {}));
    document.body.append(node);
    node.showModal();
  });
}

export function form(content, props) {
  const node = h("form", { novalidate: true, onsubmit: (event) => event.preventDefault(),
    onkeydown: (event) => {
      const isWritten = event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("textarea");
      if (isWritten) node.querySelector("[type=submit]:enabled")?.click();
    }, ...props }, content);
  return node;
}

// Runs `load` at once, or soon after a person has typed; what an earlier run finds is dropped.
export function typing(load) {
  let timer = null;
  let running = null;
  const run = () => {
    clearTimeout(timer);
    if (running) running.abort();
    running = new AbortController();
    return load(running.signal);
  };
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(() => run().catch((error) => error.name !== "AbortError" && notice(error.message, "bad")), TYPING_MS);
  };
  return { run, soon };
}

// Shows rows under their columns; on a narrow screen each row stands by itself, and its cells name their columns.
// `columns`: [name, class] pairs.
export function rows(label, columns, lines) {
  const cell = (content, at) => h("td", { role: "cell", class: columns[at][1], "data-name": columns[at][0] }, content);
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, h("table", { class: "rows", role: "table" },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(([name, kind]) => h("th", { scope: "col", role: "columnheader", class: kind }, name)))),
    h("tbody", { role: "rowgroup" }, lines.map((cells) => h("tr", { role: "row" }, cells.map(cell))))));
}

export function marked(text, ranges) {
  const points = Array.from(text); // offsets count characters, not UTF-16 units
  const parts = [];
  let at = 0;
  for (const [from, to] of ranges || []) {
    if (from < at) continue;
    parts.push(verbatim(points.slice(at, from).join("")), h("mark", {}, verbatim(points.slice(from, to).join(""))));
    at = to;
  }
  return [...parts, verbatim(points.slice(at).join(""))];
}

// Shows a long list part by part; `build` makes the node of a part.
export function parted(items, most, build) {
  const node = h("div", {});
  const show = (from) => {
    node.append(...flat([build(items.slice(from, from + most))]));
    const rest = items.length - from - most;
    if (rest <= 0) return;
    const more = h("p", { class: "row" }, button("Show more", () => { more.remove(); show(from + most); }), h("span", { class: "quiet" }, `${rest.toLocaleString()} more`));
    node.append(more);
  };
  show(0);
  return node;
}

// Returns the number in an address. Raises LostError for an odd one.
export function numberIn(path) {
  const id = Number(path[1]);
  if (path.length > 2 || !Number.isSafeInteger(id) || id < 1) throw new LostError();
  return id;
}

export class LostError extends Error {}

export const failed = (error) => h("p", { class: "bad", role: "alert" }, error.message);
export const empty = (text) => h("p", { class: "empty" }, text);
