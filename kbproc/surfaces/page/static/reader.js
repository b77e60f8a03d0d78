// Shows a document's text as its chunks, from its start or around one of them.

import { act, empty, fill, h, link, verbatim } from "./dom.js";
import { ask } from "./wire.js";

const PART = 40;

function place(chunk) {
  const parts = [`chunk ${chunk.chunk_index + 1}`];
  if (chunk.page !== null) parts.push(chunk.page_end && chunk.page_end !== chunk.page ? `pages ${chunk.page}–${chunk.page_end}` : `page ${chunk.page}`);
  if (chunk.start_line) parts.push(`lines ${chunk.start_line}–${chunk.end_line}`);
  if (chunk.section) parts.push(`§ ${chunk.section}`);
  return parts.join(" · ");
}

function chunkView(chunk, marks) {
  const isMarked = marks && marks.id === chunk.id;
  return h("section", { class: `chunk${isMarked ? " found" : ""}`, id: `chunk-${chunk.id}`, "aria-label": place(chunk) },
    h("p", { class: "place" }, place(chunk)),
    h("div", { class: "text" }, isMarked ? markedText(chunk.text, marks) : verbatim(chunk.text)));
}

// Marks the passage; the whole text where it is not in there as it stands.
function markedText(text, marks) {
  const from = marks.passage ? text.indexOf(marks.passage) : -1;
  if (from < 0) return h("mark", {}, verbatim(text));
  return [verbatim(text.slice(0, from)), h("mark", {}, verbatim(marks.passage)), verbatim(text.slice(from + marks.passage.length))];
}

// `around`: a chunk's id. `passage`: the part of its text to mark.
export async function reader(node, documentId, { around = null, passage = null, signal } = {}) {
  fill(node, h("p", { class: "quiet" }, "Loading…"));
  const list = h("div", { class: "chunks" });
  const before = h("p", {});
  const after = h("p", {});
  const marks = around === null ? null : { id: around, passage };
  if (around === null) {
    await fromStart(documentId, list, after, signal);
  } else {
    const { data } = await ask("chunk.get", { id: around, before: 5, after: PART }, { signal });
    list.append(...[...data.before, data.chunk, ...data.after].map((chunk) => chunkView(chunk, marks)));
    moreBefore(before, list, data.before[0] || data.chunk);
    moreAfter(after, list, data.after.at(-1) || data.chunk, data.total_chunks);
  }
  fill(node, before, list.childElementCount ? list : empty("This document has no text."), after);
  const found = node.querySelector(".found");
  if (!found) return;
  if (node.scrollHeight > node.clientHeight + 1 && getComputedStyle(node).overflowY === "auto") node.scrollTop = found.offsetTop - node.offsetTop - 60;
  else found.scrollIntoView({ block: "center" });
}

async function fromStart(documentId, list, after, signal, cursor = null) {
  const { data, meta } = await ask("chunk.list", { document_id: documentId, limit: PART, cursor }, { signal });
  list.append(...data.map((chunk) => chunkView(chunk, null)));
  fill(after, meta.has_more && act("Show more", () => fromStart(documentId, list, after, undefined, meta.next_cursor)));
}

function moreBefore(node, list, first) {
  fill(node, first.chunk_index > 0 && act("Show what stands before", async () => {
    const { data } = await ask("chunk.get", { id: first.id, before: PART });
    list.prepend(...data.before.map((chunk) => chunkView(chunk, null)));
    moreBefore(node, list, data.before[0] || { chunk_index: 0 });
  }));
}

function moreAfter(node, list, last, total) {
  fill(node, last.chunk_index + 1 < total && act("Show more", async () => {
    const { data } = await ask("chunk.get", { id: last.id, after: PART });
    list.append(...data.after.map((chunk) => chunkView(chunk, null)));
    moreAfter(node, list, data.after.at(-1) || { chunk_index: total }, total);
  }));
}

// Saves the source, which is never shown as a page of this origin.
export async function download(id) {
  const parts = [];
  let name = "";
  for (let offset = 0, more = true; more; ) {
    const { data, meta } = await ask("doc.download", { id, offset });
    name = data.name;
    parts.push(Uint8Array.from(atob(data.content), (char) => char.charCodeAt(0)));
    offset += data.length;
    more = meta.has_more && data.length > 0;
  }
  const url = URL.createObjectURL(new Blob(parts, { type: "application/octet-stream" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

export const readerLink = (text, source, chunkId) => link(text, `doc/${source.document_id}`, { chunk: chunkId });
