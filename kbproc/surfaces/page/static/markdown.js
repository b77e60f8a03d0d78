// Renders Markdown by an allow-list: what is not made here, with its own tags, stays text.

import { h, verbatim } from "./dom.js";

const INLINE = /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|\*\*([^*\n]+?)\*\*|__([^_\n]+?)__|\*([^*\s][^*\n]*?)\*|\b_([^_\s][^_\n]*?)_\b|~~([^~\n]+?)~~|\[([^\]\n]*)\]\(([^()\s]+)(?:\s+"[^"\n]*")?\)|<(https?:\/\/[^>\s]+)>/;
const DEPTH = 6;
const LONGEST = 5000;

function safe(url) {
  try {
    const parsed = new URL(url);
    return parsed.protocol === "https:" || parsed.protocol === "http:" ? parsed.href : null;
  } catch {
    return null;
  }
}

function anchor(text, url, depth) {
  const href = safe(url);
  const shown = depth > DEPTH ? [text] : inline(text, depth + 1);
  if (href === null) return h("span", { title: url }, shown);
  return h("a", { href, rel: "noopener noreferrer nofollow", target: "_blank" }, shown);
}

export function inline(text, depth = 0) {
  if (text.length > LONGEST) return [verbatim(text)]; // because the pattern may look at all of it from each place
  const parts = [];
  let rest = text;
  for (let match; depth <= DEPTH && (match = INLINE.exec(rest)); ) {
    parts.push(verbatim(rest.slice(0, match.index)));
    const [whole, tick, code, strong, strong2, em, em2, struck, label, url, bare] = match;
    if (tick) parts.push(h("code", {}, code));
    else if (strong || strong2) parts.push(h("strong", {}, inline(strong || strong2, depth + 1)));
    else if (em || em2) parts.push(h("em", {}, inline(em || em2, depth + 1)));
    else if (struck) parts.push(h("s", {}, inline(struck, depth + 1)));
    else if (bare) parts.push(anchor(bare, bare, DEPTH + 1));
    else parts.push(anchor(label, url, depth));
    rest = rest.slice(match.index + whole.length);
  }
  return [...parts, verbatim(rest)];
}

const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const ROW = /^\s*\|.*\|\s*$/;

export function markdown(text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const root = h("div", { class: "markdown" });
  for (let at = 0; at < lines.length; ) at = block(root, lines, at);
  return root;
}

function block(root, lines, at) {
  const line = lines[at];
  const fence = /^\s*(`{3,}|~{3,})/.exec(line);
  if (fence) return fenced(root, lines, at, fence[1]);
  const heading = /^(#{1,6})\s+(.*?)\s*#*$/.exec(line);
  if (heading) {
    root.append(h(`h${Math.min(6, heading[1].length + 1)}`, {}, inline(heading[2])));
    return at + 1;
  }
  if (!line.trim()) return at + 1;
  if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
    root.append(h("hr"));
    return at + 1;
  }
  if (/^\s*>/.test(line)) return quoted(root, lines, at);
  if (ITEM.test(line)) return listed(root, lines, at);
  if (ROW.test(line) && /^\s*\|[\s:|-]+\|\s*$/.test(lines[at + 1] || "")) return tabled(root, lines, at);
  let end = at;
  while (end < lines.length && lines[end].trim() && (end === at || !/^(#{1,6}\s|\s*(`{3,}|~{3,}|>))/.test(lines[end])
    && !ITEM.test(lines[end]))) end++;
  root.append(h("p", {}, inline(lines.slice(at, end).join("\n"))));
  return end;
}

function fenced(root, lines, at, mark) {
  let end = at + 1;
  while (end < lines.length && !lines[end].trim().startsWith(mark)) end++;
  root.append(h("pre", { tabindex: 0 }, h("code", {}, lines.slice(at + 1, end).join("\n"))));
  return end + 1;
}

function quoted(root, lines, at) {
  let end = at;
  while (end < lines.length && /^\s*>/.test(lines[end])) end++;
  root.append(h("blockquote", {}, inline(lines.slice(at, end).map((line) => line.replace(/^\s*>\s?/, "")).join("\n"))));
  return end;
}

function listed(root, lines, at) {
  const stack = [];
  while (at < lines.length) {
    const item = ITEM.exec(lines[at]);
    if (!item) {
      if (!lines[at].trim() || !/^\s+/.test(lines[at])) break;
      stack.at(-1).list.lastChild.append(" ", ...inline(lines[at].trim()));
      at++;
      continue;
    }
    const indent = item[1].length;
    while (stack.length > 1 && stack.at(-1).indent > indent) stack.pop();
    if (!stack.length || (indent > stack.at(-1).indent && stack.length < DEPTH)) {
      const list = h(/\d/.test(item[2]) ? "ol" : "ul");
      (stack.length ? stack.at(-1).list.lastChild : root).append(list);
      stack.push({ indent, list });
    }
    const task = /^\[([ xX])\]\s+(.*)$/.exec(item[3]);
    stack.at(-1).list.append(task
      ? h("li", {}, task[1] === " " ? "☐ " : "☑ ", inline(task[2])) : h("li", {}, inline(item[3])));
    at++;
  }
  return at;
}

const cells = (line) => line.trim().slice(1, -1).split("|").map((cell) => cell.trim());

function tabled(root, lines, at) {
  let end = at + 2;
  while (end < lines.length && ROW.test(lines[end])) end++;
  root.append(h("div", { class: "scroll", tabindex: 0 }, h("table", {},
    h("thead", {}, h("tr", {}, cells(lines[at]).map((cell) => h("th", { scope: "col" }, inline(cell))))),
    h("tbody", {}, lines.slice(at + 2, end).map((line) => h("tr", {}, cells(line).map((cell) => h("td", {}, inline(cell)))))))));
  return end;
}
