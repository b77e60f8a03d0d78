// Lists documents with facets, and shows one: text, revisions with diffs, tags, restore, erase.

import { act, address, button, count, dialog, empty, failed, field, fill, h, link, notice, numberIn, rows, select, size, typing, when } from "./dom.js";
import { diffView } from "./diff.js";
import { withPlan } from "./plan.js";
import { download, reader } from "./reader.js";
import { inOrder, textAt } from "./log.js";
import { about, ask, find, time, token } from "./wire.js";

const COLUMNS = [["Title", "title"], ["Type"], ["Knowledge base", "words"], ["Tags", "words"], ["Chunks", "number"], ["Size", "number"], ["Updated"]];

export async function documentsView(main, { query, replace }) {
  const state = { ...query };
  const load = async (signal) => {
    const filters = { kb: state.kb || null, types: state.type ? [state.type] : null, tags: state.tag ? [state.tag] : null,
      title_contains: state.title || null, status: state.status || null };
    await pages(list, "doc.list", { ...filters, limit: 100 }, table, { signal });
  };
  const { run, soon } = typing((signal) => {
    replace(state);
    for (const choice of main.querySelectorAll(".facet a")) choice.lead();
    return load(signal);
  });
  const title = h("input", { type: "search", value: state.title || "", oninput: () => { state.title = title.value; soon(); } });
  const list = h("div", {});
  fill(main, h("h1", {}, "Documents"),
    h("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); soon(); } },
      field("Title contains", title),
      field("Embedding", select([["", "all"], ["ready", "ready"], ["pending", "pending"], ["failed", "failed"]], state.status || "", (value) => { state.status = value; soon(); }))),
    await facets(state), list);
  await run();
}

// Returns the choices; `state` has what is chosen, and each choice leads to the others beside it.
async function facets(state) {
  const group = (name, key, choices) => choices.length > 0 && h("div", { class: "facet", role: "group", "aria-label": name },
    h("span", { class: "quiet" }, name), choices.map(([value, text]) => {
      const isOn = state[key] === value;
      const choice = link(text, "docs", {}, { class: `tag${isOn ? " on" : ""}`, "aria-current": isOn ? "true" : null });
      choice.lead = () => { choice.href = address("docs", { ...state, [key]: isOn ? "" : value }); };
      choice.lead();
      return choice;
    }));
  const total = (type, number) => (time.at === null ? `${type} ${number}` : type); // the wire counts only what is there now
  return h("div", { class: "facets" }, await Promise.all([
    ask("status").then(({ data }) => group("Type", "type", Object.entries(data.documents).map(([type, number]) => [type, total(type, number)]))),
    ask("kb.list", { limit: 1000 }).then(({ data }) => data.length > 1 && group("Knowledge base", "kb", data.map((kb) => [kb.slug, kb.name]))),
    ask("tag.list", { order: "count", limit: 30, kb: state.kb || null }).then(({ data, meta }) =>
      group(meta.has_more ? "Most used tags" : "Tag", "tag", data.map((tag) => [tag.name, `${tag.name} ${tag.count}`]))),
  ].map((part) => part.catch(failed))));
}

// Shows a list page by page.
export async function pages(node, method, params, build, { cursor = null, signal } = {}) {
  const { data, meta } = await ask(method, { ...params, cursor }, { signal });
  if (cursor === null) fill(node);
  else node.lastElementChild.remove();
  if (!data.length && cursor === null) node.append(empty("Nothing is here."));
  else node.append(build(data));
  node.append(h("p", { class: "row" }, meta.total !== undefined && h("span", { class: "quiet" }, `${meta.total.toLocaleString()} in all`),
    meta.has_more && act("Show more", () => pages(node, method, params, build, { cursor: meta.next_cursor }))));
}

function table(documents) {
  return rows("Documents", COLUMNS, documents.map((document) => [
    link(document.title || `document ${document.id}`, document.type === "knowledge" ? `entry/${document.id}` : `doc/${document.id}`),
    document.type, document.kb, document.tags.map((tag) => h("span", { class: "tag" }, tag)), document.chunk_count, size(document.size_bytes), when(document.updated_at)]));
}

export async function documentView(main, { path, query, go }) {
  const id = numberIn(path);
  const [found, history] = await Promise.all([find("doc.get", { id }), find("doc.history", { id, limit: 100 })]);
  const past = history || { data: [], meta: {} };
  if (found === null) return gone(main, id, past, go);
  const document = found.data;
  const body = h("div", {});
  const tabs = { text: "Text", revisions: `Revisions (${document.revision})`, log: "Records" };
  const tab = Object.hasOwn(tabs, query.tab) ? query.tab : "text";
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
  const isOwn = document.type !== "note" && document.type !== "knowledge"; // these are changed in their own views
  return [isOwn && act("Edit…", () => edit(document, go)),
    isOwn && act("Delete…", async () => {
      if (await withPlan("Delete this document?", "doc.delete", { ids: [document.id] }, "Deleted. It can be restored.")) go(`doc/${document.id}`);
    }),
    act("Erase for good…", async () => {
      if (await withPlan("Erase this document for good?", "store.purge", { document_ids: [document.id] }, "Erased.")) go("docs");
    }, { class: "danger" })];
}

async function edit(document, go) {
  const title = h("input", { value: document.title, required: true, maxlength: 300, autofocus: true });
  const tags = h("input", { value: document.tags.join(", ") });
  const isSaved = await dialog("Edit", (close) => [field("Title", title), field("Tags, with commas between them", tags),
    document.source.path && h("p", { class: "quiet" }, "If the file changes, its next version brings its own title back."),
    h("div", { class: "row end" }, button("Cancel", () => close(null)), act("Save", async () => {
      const params = { title: title.value, tags: tags.value.split(",").map((tag) => tag.trim()).filter(Boolean) };
      close(await ask("doc.update", { id: document.id, ...params, expected_revision: document.revision, client_token: token() }));
    }, { type: "submit" }))]);
  if (isSaved) {
    notice("Saved.");
    go(`doc/${document.id}`);
  }
}

function revisions(body, document, { data: history, meta }, go) {
  const shown = h("div", {});
  const past = history.filter((record) => record.revision !== null);
  const pick = (name, at) => h("select", { "aria-label": name }, past.map((row, index) =>
    h("option", { value: index, selected: index === at }, `revision ${row.revision} (record ${row.seq}, ${row.actor})`)));
  const older = pick("Older revision", Math.min(1, past.length - 1));
  const newer = pick("Newer revision", 0);
  fill(body, past.length > 1 && h("p", { class: "row" }, "From ", older, " to ", newer, act("Compare", async () => {
    const texts = await Promise.all([older, newer].map((node) => textAt(document.id, past[node.value].seq)));
    fill(shown, diffView(...texts));
  })), shown, rows("Revisions", [["When"], ["Who", "words"], ["What", "title"], ["Revision", "number"], ["Title", "title"], [""]], history.map((record) => [
    when(record.ts), record.actor, `${record.action}: ${record.summary}`, record.revision, record.title,
    [link("as of then", `doc/${document.id}`, { at: record.seq }), " ",
      !about.read_only && time.at === null && record.revision !== null && record.revision !== document.revision && restore(document.id, record.revision, go)]])),
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
