// Agents' notes: rendered, edited with the revision that was read, and their history.

import { act, empty, field, fill, h, link, LostError, notice, rows, select, size, when } from "./dom.js";
import { diffView } from "./diff.js";
import { sourceChanges } from "./entries.js";
import { pages } from "./documents.js";
import { markdown } from "./markdown.js";
import { can } from "./methods.js";
import { withPlan } from "./plan.js";
import { about, ask, time, token } from "./wire.js";

export async function notesView(main, { path, query, go }) {
  const { data: agents } = await ask("agent.list", { limit: 1000 });
  if (!agents.length) {
    fill(main, h("h1", {}, "Notes"), empty("There is no agent yet, and so no notes."));
    return;
  }
  const agent = agents.some((row) => row.slug === path[1]) ? path[1] : agents[0].slug;
  const list = h("div", {});
  const hasStale = await can("note.list", "stale");
  fill(main, h("h1", {}, "Notes"), field("Of agent", select(agents.map((row) => [row.slug, row.slug]), agent, (slug) => go(`notes/${slug}`))),
    hasStale && h("label", { class: "check" }, h("input", { type: "checkbox", checked: query.stale === "1",
      onchange: (event) => go(`notes/${agent}`, { stale: event.target.checked ? "1" : "" }) }), " source changed only"),
    h("p", { class: "quiet" }, agents.find((row) => row.slug === agent).description), list);
  await pages(list, "note.list", { agent, limit: 100, ...(hasStale && query.stale === "1" ? { stale: true } : {}) }, (notes) => rows("Notes", [["Note", "title"], ["Revision", "number"], ["Size", "number"], ["Updated"]], notes.map((note) => [
    [link(note.title, `note/${agent}/${note.slug}`), " ", note.tags.map((tag) => h("span", { class: "tag" }, tag)), note.source_changed && h("span", { class: "tag bad" }, "source changed")], note.revision, size(note.size_bytes), when(note.updated_at)])));
}

export async function noteView(main, { path, query, go }) {
  const [, agent, slug] = path;
  if (path.length !== 3) throw new LostError();
  const { data: note } = await ask("note.get", { agent, slug });
  const body = h("div", {});
  const tabs = { read: "Read", edit: "Edit", history: "History" };
  if (about.read_only || time.at !== null) delete tabs.edit;
  const tab = Object.hasOwn(tabs, query.tab) ? query.tab : "read";
  fill(main, h("h1", {}, note.title), h("p", { class: "quiet" }, `${agent} · ${slug}.md · revision ${note.revision} · by ${note.updated_by} · `, when(note.updated_at)),
    h("nav", { class: "tabs", "aria-label": "Note" }, Object.entries(tabs).map(([name, text]) => link(text, `note/${agent}/${slug}`, { tab: name }, { "aria-current": name === tab ? "page" : null }))),
    sourceChanges(note, "Its sources count as they are now once it is edited."), body);
  if (tab === "read") fill(body, markdown(note.text.replace(/^---\n[\s\S]*?\n---\n/, "")));
  else if (tab === "edit") edit(body, note, go);
  else await past(body, agent, slug);
}

function edit(body, note, go) {
  const { agent, slug } = note;
  const text = h("textarea", { rows: 24, value: note.text, "aria-label": "The note's Markdown" });
  const preview = h("div", { class: "preview", "aria-label": "Preview" }, markdown(note.text));
  const problem = h("div", {});
  let revision = note.revision;
  text.addEventListener("input", () => fill(preview, markdown(text.value)));
  fill(body, problem, h("div", { class: "columns" }, text, preview), h("p", { class: "row" },
    act("Save", async () => {
      try {
        await ask("note.put", { agent, slug, text: text.value, expected_revision: revision, client_token: token() });
      } catch (error) {
        if (error.type !== "resource.conflict") throw error;
        const { data: newer } = await ask("note.get", { agent, slug });
        revision = newer.revision;
        fill(problem, h("p", { class: "bad" }, `${newer.updated_by} has changed this note meanwhile. This is how yours differs; Save writes yours over it.`),
          diffView(newer.text, text.value));
        return;
      }
      notice("Saved.");
      go(`note/${agent}/${slug}`);
    }),
    act("Delete…", async () => {
      if (await withPlan("Delete this note?", "note.delete", { agent, slug }, "Deleted.")) go(`notes/${agent}`);
    }, { class: "danger" })));
}

async function past(body, agent, slug, earlier = [], cursor = null) {
  const page = await ask("note.history", { agent, slug, limit: 100, cursor });
  const data = [...earlier, ...page.data];
  const shown = h("div", {});
  const text = async (seq) => (await ask("note.get", { agent, slug, as_of: seq })).data.text;
  fill(body, shown, h("ul", { class: "history" }, data.map((record, at) => h("li", {}, when(record.ts), ` ${record.actor}: ${record.action} ${record.summary} `,
    data[at + 1] && record.revision !== null && act("Compare with the one before", async () => {
      fill(shown, diffView(...await Promise.all([text(data[at + 1].seq), text(record.seq)])));
    })))), page.meta.has_more && h("p", {}, act("Show earlier changes", () => past(body, agent, slug, data, page.meta.next_cursor))));
}
