// Knowledge entries: their chains, their trust, and what a person does about them.

import { act, button, dialog, field, fill, h, link, notice, numberIn, rows, when } from "./dom.js";
import { pages } from "./documents.js";
import { markdown } from "./markdown.js";
import { withPlan } from "./plan.js";
import { can } from "./methods.js";
import { about, ask, time, token } from "./wire.js";

export async function entriesView(main, { query, go }) {
  const list = h("div", {});
  const box = (name, text) => h("label", { class: "check" }, h("input", { type: "checkbox", checked: query[name] === "1",
    onchange: (event) => go("entries", { ...query, [name]: event.target.checked ? "1" : "" }) }), ` ${text}`);
  const [hasDue, hasStale] = [await can("knowledge.list", "due"), await can("knowledge.list", "stale")];
  const waiting = h("div", {});
  fill(main, h("h1", {}, "Entries"), waiting, h("div", { class: "filters" }, box("superseded", "superseded too"), box("expired", "expired too"),
    hasDue && box("due", "due for review only"), hasStale && box("stale", "source changed only"), writable() && act("New entry", () => write(go))), list);
  if (await can("review.list")) await inReview(waiting, go);
  await pages(list, "knowledge.list", { limit: 100, include_superseded: query.superseded === "1", include_expired: query.expired === "1",
    tags: query.tag ? [query.tag] : null, ...(hasDue && query.due === "1" ? { due: true } : {}), ...(hasStale && query.stale === "1" ? { stale: true } : {}) }, table);
}

// Shows the entries that wait for an approval above the others, if there are any.
async function inReview(box, go) {
  const { data: entries, meta } = await ask("review.list", { limit: 50 });
  if (!entries.length) return;
  fill(box, h("section", { "aria-label": "In review" }, h("h2", {}, `In review: ${meta.total}`),
    h("p", { class: "quiet" }, "Nobody finds these before you approve them."),
    entries.map((entry) => h("article", { class: "card", "aria-label": entry.title }, h("h3", {}, link(entry.title, `entry/${entry.id}`)),
      h("p", { class: "quiet" }, `${entry.created_by}, ${trust(entry)}, `, when(entry.created_at)), h("p", {}, entry.text), writable() && judge(entry, () => go("entries"))))));
}

// The buttons by which a person approves, edits or rejects an entry in review.
function judge(entry, then) {
  const does = async (method, done) => {
    await ask(method, { ids: [entry.id], client_token: token() });
    notice(done);
    then();
  };
  return h("p", { class: "row" }, act("Approve", () => does("review.approve", "Approved.")), act("Edit…", () => edit(entry.id, then)), act("Reject", () => does("review.reject", "Rejected."), { class: "danger" }));
}

// Changes an entry in review, which stays there.
async function edit(id, then) {
  const { data: entry } = await ask("knowledge.get", { id }); // a list has the beginning of its text alone
  const [title, body] = [h("input", { value: entry.title, required: true, autofocus: true }), h("textarea", { rows: 10, value: entry.body })];
  const edited = await dialog("Edit this entry", (close) => [field("Title", title), field("What is known", body),
    h("div", { class: "row end" }, button("Cancel", () => close(null)), act("Save", async () => {
      close(await ask("review.edit", { id, title: title.value, body: body.value, client_token: token() }));
    }, { type: "submit" }))]);
  if (!edited) return;
  notice("Saved; it still waits.");
  then();
}

const COLUMNS = [["Entry", "title"], ["Confidence", "number"], ["Trust", "words"], ["By", "words"], ["Made"], ["Valid until"], ["State"]];
const writable = () => !about.read_only && time.at === null;

function table(entries) {
  return rows("Entries", COLUMNS, entries.map((entry) => [
    [link(entry.title, `entry/${entry.id}`), " ", entry.tags.map((tag) => link(tag, "entries", { tag }, { class: "tag" }))], entry.confidence, trust(entry),
    entry.created_by, when(entry.created_at), entry.expires_at ? when(entry.expires_at) : "–", stateOf(entry)]));
}

const trust = (entry) => [entry.origin, entry.verified_by && `verified by ${entry.verified_by}`].filter(Boolean).join(", ") || "–";

function stateOf(entry) {
  if (entry.in_review) return h("span", { class: "tag bad" }, "in review");
  if (entry.superseded_by) return h("span", { class: "tag bad" }, "superseded");
  if (entry.expired) return h("span", { class: "tag bad" }, "expired");
  if (entry.source_changed) return h("span", { class: "tag bad" }, "source changed");
  return h("span", { class: "tag" }, "holds");
}

// What an entry or a note was derived from and is no longer as it was then.
export function sourceChanges(item, advice) {
  return item.source_changed && h("section", { class: "chain", "aria-label": "Changed since" }, h("h2", {}, "Source changed since"),
    item.source_changed.map((one) => h("p", {}, one.document_id ? link(one.cite, `doc/${one.document_id}`) : one.cite,
      one.change === "changed" ? "" : ` is ${one.change}`, one.path ? `: ${one.path}` : "")),
    h("p", {}, advice));
}

export async function entryView(main, { path, go }) {
  const id = numberIn(path);
  const { data: entry } = await ask("knowledge.get", { id });
  fill(main, h("h1", {}, entry.title), h("p", {}, stateOf(entry), " ", entry.tags.map((tag) => link(tag, "entries", { tag }, { class: "tag" }))),
    markdown(entry.body),
    h("div", { class: "facts" }, [["Confidence", `${entry.confidence} of 100`], ["Trust", trust(entry)], ["Learned from", entry.source || "–"], ["By", entry.created_by],
      ["Made", when(entry.created_at)], ["Valid until", entry.expires_at ? when(entry.expires_at) : "no end"],
      ["Review after", entry.review_after ? when(entry.review_after) : "–"], ["Derived from", derivedFrom(entry)], ["Task", entry.task_ref ? `${entry.task_ref.task_id} (${entry.task_ref.kind})` : "–"]]
      .map(([name, value]) => h("dl", {}, h("dt", {}, name), h("dd", {}, value)))),
    sourceChanges(entry, "Where the entry still holds, verify it: its sources count as they are now."), chain(entry),
    writable() && entry.in_review && judge(entry, () => go("entries")),
    writable() && !entry.in_review && h("p", { class: "row" },
      (await can("knowledge.verify")) && act("Verify…", async () => {
        if (await withPlan("Does this entry hold?", "knowledge.verify", { ids: [id] }, "Verified.")) go(`entry/${id}`);
      }),
      !entry.superseded_by && act("Supersede…", () => supersede(entry, go)),
      entry.superseded_by && act("Let it hold again…", async () => {
        const params = { old_id: id, new_id: entry.superseded_by };
        if (await withPlan("Undo the supersession?", "knowledge.unsupersede", params)) go(`entry/${id}`);
      }),
      act("Delete…", async () => {
        if (await withPlan("Delete this entry?", "knowledge.delete", { ids: [id] }, "Deleted.")) go("entries");
      }, { class: "danger" }), link("Records", `doc/${id}`, { tab: "log" })));
}

function derivedFrom(entry) {
  const parts = [...entry.derived_from.map((id) => link(`document ${id}`, `doc/${id}`)), ...(entry.places || [])];
  return parts.length ? parts.map((part, at) => [at ? ", " : "", part]) : "–";
}

function chain(entry) {
  const entryLink = (id) => link(`entry ${id}`, `entry/${id}`);
  const parts = [];
  if (entry.supersedes.length) parts.push(h("p", {}, "It took the place of ", entry.supersedes.map((id, at) => [at ? ", " : "", entryLink(id)]), "."));
  if (entry.superseded_by) parts.push(h("p", {}, "Its place was taken by ", entryLink(entry.superseded_by), "."));
  if (entry.head !== entry.id) parts.push(h("p", {}, "What holds now is ", entryLink(entry.head), "."));
  return parts.length > 0 && h("section", { class: "chain", "aria-label": "Chain" }, h("h2", {}, "Chain"), parts);
}

function form(entry = {}) {
  const title = h("input", { value: entry.title || "", required: true, autofocus: true });
  const body = h("textarea", { rows: 6, value: entry.body || "" });
  const confidence = h("input", { type: "number", min: 0, max: 100, value: entry.confidence ?? 80 });
  const fields = [field("Title", title), field("What is known", body), field("Confidence, 0 to 100", confidence)];
  const params = () => ({ title: title.value, body: body.value, confidence: Number(confidence.value), kb: entry.kb || null, tags: entry.tags || null,
    source: "the page" });
  return { fields, params };
}

async function write(go) {
  const { fields, params } = form();
  const stored = await dialog("New entry", (close) => [fields, h("div", { class: "row end" }, button("Cancel", () => close(null)),
    act("Store", async () => close(await ask("knowledge.store", { ...params(), client_token: token() })), { type: "submit" }))]);
  if (stored) {
    notice("Stored.");
    go(`entry/${stored.data.id}`);
  }
}

async function supersede(entry, go) {
  const { fields, params } = form(entry);
  const other = h("input", { type: "number", min: 1, placeholder: "its number" });
  const by = await dialog("Supersede this entry", (close) => [
    h("p", {}, "Name the entry that takes its place, or write it: then it is stored, and holds, at once."), field("An entry that is there", other), h("hr"), fields,
    h("div", { class: "row end" }, button("Cancel", () => close(null)), act("Supersede", async () => {
      if (other.value) close({ named: Number(other.value) });
      else close({ written: await replace(entry, params()) });
    }, { type: "submit" }))]);
  if (!by) return;
  if (by.written) {
    notice("Superseded.");
    go(`entry/${by.written}`);
  } else if (await withPlan("Let the other entry hold?", "knowledge.supersede", { old_id: entry.id, new_id: by.named }, "Superseded.")) go(`entry/${by.named}`);
}

// Stores the new entry and lets it hold; where it can't, the error names what is stored.
async function replace(entry, params) {
  const { data } = await ask("knowledge.store", { ...params, client_token: token() });
  try {
    await ask("knowledge.supersede", { old_id: entry.id, new_id: data.id, client_token: token() });
  } catch (error) {
    throw new Error(`${error.message} The new entry is stored as entry ${data.id}, and both hold.`, { cause: error });
  }
  return data.id;
}
