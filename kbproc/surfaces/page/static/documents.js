// Lists documents with facets, and shows one: text, revisions with diffs, tags, restore, erase.

import { act, button, count, dialog, empty, failed, field, fill, h, link, notice, select, size, when } from "./dom.js";
import { diffView } from "./diff.js";
import { withPlan } from "./plan.js";
import { download, reader } from "./reader.js";
import { inOrder, textAt } from "./log.js";
import { about, ask, find, time, token } from "./wire.js";

export async function documentsView(main, { query, go }) {
  const filters = { kb: query.kb || null, types: query.type ? [query.type] : null, tags: query.tag ? [query.tag] : null,
    title_contains: query.title || null, status: query.status || null };
  const set = (name) => (value) => go("docs", { ...query, [name]: value });
  const title = h("input", { type: "search", value: query.title || "", onchange: () => set("title")(title.value) });
  const list = h("div", {});
  fill(main, h("h1", {}, "Documents"),
    h("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); set("title")(title.value); } },
      field("Title contains", title),
      field("Embedding", select([["", "all"], ["ready", "ready"], ["pending", "pending"], ["failed", "failed"]], query.status || "", set("status")))),
    await facets(query), list);
  await pages(list, "doc.list", { ...filters, limit: 100 }, table);
}

async function facets(query) {
  const group = (name, key, rows) => rows.length > 0 && h("div", { class: "facet", role: "group", "aria-label": name },
    h("span", { class: "quiet" }, name), rows.map(([value, text]) => {
      const isOn = query[key] === value;
      return link(text, "docs", { ...query, [key]: isOn ? "" : value }, { class: `tag${isOn ? " on" : ""}`, "aria-current": isOn ? "true" : null });
    }));
  const total = (type, number) => (time.at === null ? `${type} ${number}` : type); // the wire counts only what is there now
  return h("div", { class: "facets" }, await Promise.all([
    ask("status").then(({ data }) => group("Type", "type", Object.entries(data.documents).map(([type, number]) => [type, total(type, number)]))),
    ask("kb.list", { limit: 1000 }).then(({ data }) => data.length > 1 && group("Knowledge base", "kb", data.map((kb) => [kb.slug, kb.name]))),
    ask("tag.list", { order: "count", limit: 30, kb: query.kb || null }).then(({ data, meta }) =>
      group(meta.has_more ? "Most used tags" : "Tag", "tag", data.map((tag) => [tag.name, `${tag.name} ${tag.count}`]))),
  ].map((part) => part.catch(failed))));
}

// Shows a list page by page.
export async function pages(node, method, params, build, cursor = null) {
  const { data, meta } = await ask(method, { ...params, cursor });
  if (cursor === null) fill(node);
  else node.lastElementChild.remove();
  if (!data.length && cursor === null) node.append(empty("Nothing is here."));
  else node.append(build(data));
  node.append(h("p", { class: "row" }, meta.total !== undefined && h("span", { class: "quiet" }, `${meta.total.toLocaleString()} in all`),
    meta.has_more && act("Show more", () => pages(node, method, params, build, meta.next_cursor))));
}

function table(documents) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Documents" }, h("table", {},
    h("thead", {}, h("tr", {}, ["Title", "Type", "Knowledge base", "Tags", "Chunks", "Size", "Updated"].map((name) => h("th", { scope: "col", class: name === "Chunks" || name === "Size" ? "number" : null }, name)))),
    h("tbody", {}, documents.map((document) => h("tr", {},
      h("td", {}, link(document.title || `document ${document.id}`, document.type === "knowledge" ? `entry/${document.id}` : `doc/${document.id}`)),
      h("td", {}, document.type), h("td", {}, document.kb), h("td", {}, document.tags.map((tag) => h("span", { class: "tag" }, tag))),
      h("td", { class: "number" }, document.chunk_count), h("td", { class: "number" }, size(document.size_bytes)), h("td", {}, when(document.updated_at)))))));
}

export async function documentView(main, { path, query, go }) {
  const id = Number(path[1]);
  const [found, history] = await Promise.all([find("doc.get", { id }), find("doc.history", { id, limit: 100 })]);
  const past = history || { data: [], meta: {} };
  if (found === null) return gone(main, id, past, go);
  const document = found.data;
  const body = h("div", {});
  const tabs = { text: "Text", revisions: `Revisions (${document.revision})`, log: "Records" };
  const tab = tabs[query.tab] ? query.tab : "text";
  fill(main, h("h1", {}, document.title), facts(document),
    h("p", { class: "row" }, act("Download source", () => download(id)), ...edits(document, go)),
    h("nav", { class: "tabs", "aria-label": "Document" }, Object.entries(tabs).map(([name, text]) =>
      link(text, `doc/${id}`, { tab: name }, { "aria-current": name === tab ? "page" : null }))), body);
  if (tab === "text") await reader(body, id, { around: query.chunk ? Number(query.chunk) : null });
  else if (tab === "revisions") revisions(body, document, past, go);
  else await inOrder(body, { document_id: id });
  return undefined;
}

function facts(document) {
  const { source } = document;
  const from = source.path || source.url || source.source_id || "made by hand";
  return h("div", { class: "facts" }, [["From", from], ["Type", document.type], ["Knowledge base", document.kb],
    ["Revision", document.revision], ["Size", `${size(document.size_bytes)}, ${count(document.chunk_count, "chunk")}`],
    ["Embedding", document.index_status], ["Updated", when(document.updated_at)], ["Origin", document.origin],
    ["Tags", document.tags.map((tag) => link(tag, "docs", { tag }, { class: "tag" }))],
    ["Metadata", Object.entries(document.metadata).map(([name, value]) => h("span", { class: "tag" }, `${name}: ${value}`))]]
    .filter(([, value]) => value !== undefined && value !== null && value.length !== 0)
    .map(([name, value]) => h("dl", {}, h("dt", {}, name), h("dd", {}, value))));
}

function edits(document, go) {
  if (about.read_only || time.at !== null) return [];
  const isNote = document.type === "note";
  return [!isNote && act("Edit tags", () => editTags(document, go)),
    !isNote && document.type !== "knowledge" && act("Delete…", async () => {
      if (await withPlan("Delete this document?", "doc.delete", { ids: [document.id] }, "Deleted. It can be restored.")) go(`doc/${document.id}`);
    }),
    act("Erase for good…", async () => {
      if (await withPlan("Erase this document for good?", "store.purge", { document_ids: [document.id] }, "Erased.")) go("docs");
    }, { class: "danger" })];
}

async function editTags(document, go) {
  const input = h("input", { value: document.tags.join(", "), "aria-label": "Tags, with commas" });
  const isSaved = await dialog("Tags", (close) => [h("p", {}, "With commas between them."), input,
    h("div", { class: "row end" }, button("Cancel", () => close(null)), act("Save", async () => {
      const tags = input.value.split(",").map((tag) => tag.trim()).filter(Boolean);
      close(await ask("doc.update", { id: document.id, tags, expected_revision: document.revision, client_token: token() }));
    }))]);
  if (isSaved) {
    notice("Saved.");
    go(`doc/${document.id}`);
  }
}

function revisions(body, document, { data: history, meta }, go) {
  const shown = h("div", {});
  const rows = history.filter((record) => record.revision !== null);
  const pick = (name, at) => h("select", { "aria-label": name }, rows.map((row, index) =>
    h("option", { value: index, selected: index === at }, `revision ${row.revision} (record ${row.seq}, ${row.actor})`)));
  const older = pick("Older revision", Math.min(1, rows.length - 1));
  const newer = pick("Newer revision", 0);
  fill(body, rows.length > 1 && h("p", { class: "row" }, "From ", older, " to ", newer, act("Compare", async () => {
    const texts = await Promise.all([older, newer].map((node) => textAt(document.id, rows[node.value].seq)));
    fill(shown, diffView(...texts));
  })), shown, h("div", { class: "scroll", tabindex: 0 }, h("table", {},
    h("thead", {}, h("tr", {}, ["When", "Who", "What", "Revision", "Title", ""].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, history.map((record) => h("tr", {}, h("td", {}, when(record.ts)), h("td", {}, record.actor),
      h("td", {}, `${record.action}: ${record.summary}`), h("td", { class: "number" }, record.revision), h("td", {}, record.title),
      h("td", { class: "row" }, link("as of then", `doc/${document.id}`, { at: record.seq }),
        !about.read_only && time.at === null && record.revision !== null && record.revision !== document.revision && restore(document.id, record.revision, go))))))),
  meta.has_more && h("p", {}, act("Show earlier revisions", async () => {
    const more = await ask("doc.history", { id: document.id, limit: 100, cursor: meta.next_cursor });
    revisions(body, document, { data: [...history, ...more.data], meta: more.meta }, go);
  })));
}

function restore(id, revision, go) {
  return act("Restore", async () => {
    const params = revision === null ? { ids: [id] } : { ids: [id], revision };
    if (await withPlan("Restore?", "doc.restore", params, "Restored.")) go(`doc/${id}`);
  }, { "aria-label": revision === null ? "Restore" : `Restore revision ${revision}` });
}

function gone(main, id, { data: history, meta }, go) {
  const last = history.find((record) => record.title);
  fill(main, h("h1", {}, last ? last.title : `Document ${id}`), empty(time.at === null ? "This document is deleted, or never was." : "It is not there at this moment of the past."),
    history.length > 0 && time.at === null && !about.read_only && h("p", {}, restore(id, null, go)),
    h("ul", {}, history.map((record) => h("li", {}, when(record.ts), ` ${record.actor}: ${record.action} ${record.summary} `,
      link("as of then", `doc/${id}`, { at: record.seq })))), meta.has_more && h("p", { class: "quiet" }, "Earlier records are not shown; see the log."));
}
