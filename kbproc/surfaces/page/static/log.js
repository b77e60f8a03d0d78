// The log: who did what; what changed between two moments; undo as a plan.

import { act, address, empty, field, fill, h, link, when } from "./dom.js";
import { diffView } from "./diff.js";
import { withPlan } from "./plan.js";
import { about, ask, live, time } from "./wire.js";

const PART = 100;

export function recordRows(records) {
  if (!records.length) return empty("No record is here.");
  return h("ol", { class: "records" }, records.map(recordView));
}

function recordView(record) {
  const shown = record.events.slice(0, 20);
  const more = record.events.length - shown.length + (record.more_events || 0);
  const canUndo = !about.read_only && time.at === null && record.events.length > 0;
  return h("li", { id: `record-${record.seq}` },
    h("p", {}, h("strong", { class: "number" }, record.seq), " ", when(record.ts), " ", link(record.actor, "log", { actor: record.actor }), " ", h("code", {}, record.method), " ",
      link("as of then", "docs", { at: record.seq })),
    h("ul", {}, shown.map((event) => h("li", {}, summary(event), event.revision > 1 && event.document_id !== null && difference(event, record.seq))), more > 0 && h("li", {}, `and ${more} more`)),
    canUndo && h("p", { class: "row" },
      act("Undo this…", () => withPlan(`Undo record ${record.seq}?`, "events.revert", { seqs: [record.seq] }, "Undone.")),
      act(`Undo all that ${record.actor} did since…`, () => withPlan(`Undo all that ${record.actor} did since record ${record.seq}?`, "events.revert",
        { actor: record.actor, since: record.seq }, "Undone."))));
}

function summary(event) {
  if (event.document_id !== null) return link(event.summary, `doc/${event.document_id}`);
  if (event.session_id) return link(event.summary, `session/${event.session_id}`);
  return event.summary;
}

function difference(event, seq) {
  const place = h("div", {});
  return [" ", act("before → after", async () => {
    const texts = await Promise.all([seq - 1, seq].map((at) => ask("doc.get", { id: event.document_id, text: true, as_of: at }).then(({ data }) => data.text || "", () => "")));
    fill(place, diffView(...texts));
  }), place];
}

export async function logView(main, { query, go, onLeave }) {
  const list = h("div", {});
  const input = (name, props) => h("input", { value: query[name] || "", ...props, onchange: (event) => go("log", { ...query, [name]: event.target.value }) });
  fill(main, h("h1", {}, "Log"), h("div", { class: "filters" }, field("By", input("actor", { placeholder: "actor" })),
    field("After record", input("from", { type: "number", min: 0 })), field("up to record", input("to", { type: "number", min: 0 }))), list);
  if (query.from || query.to) return between(list, Number(query.from || 0), Number(query.to || time.head), query.actor || null);
  if (query.actor) return byActor(list, query.actor);
  await newest(list, (time.at ?? time.head));
  const fresh = (event) => {
    if (time.at === null) list.querySelector(".records")?.prepend(recordView(event.detail.record));
  };
  live.addEventListener("record", fresh);
  onLeave(() => live.removeEventListener("record", fresh));
  return undefined;
}

// Shows the records up to `last`, the newest first; the wire has them in their order.
async function newest(list, last) {
  const after = Math.max(0, last - PART);
  const { data } = await ask("events.read", { after_seq: after, limit: PART });
  const records = data.filter((record) => record.seq <= last).reverse();
  list.append(recordRows(records));
  if (after > 0) {
    const more = h("p", {}, act("Show earlier records", async () => {
      more.remove();
      await newest(list, after);
    }));
    list.append(more);
  }
}

async function byActor(list, actor, cursor = null) {
  const { data, meta } = await ask("events.read", { actor, limit: PART, cursor });
  list.append(recordRows(data));
  if (meta.has_more) {
    const more = h("p", {}, act("Show later records", async () => {
      more.remove();
      await byActor(list, actor, meta.next_cursor);
    }));
    list.append(more);
  }
}

// What changed between two moments: each document once, with how its text became another.
async function between(list, from, to, actor) {
  const records = [];
  for (let cursor = null; records.length < 1000; ) {
    const { data, meta } = await ask("events.read", { after_seq: from, actor, limit: 500, cursor });
    records.push(...data.filter((record) => record.seq <= to));
    if (!meta.has_more || data.at(-1).seq > to) break;
    cursor = meta.next_cursor;
  }
  const documents = new Map();
  for (const record of records) for (const event of record.events) if (event.document_id !== null) documents.set(event.document_id, event);
  fill(list, h("p", {}, `${records.length} records, ${documents.size} documents, from ${from} to ${to}.`),
    h("ul", { class: "history" }, [...documents].slice(0, 500).map(([id, event]) => {
      const place = h("div", {});
      return h("li", {}, h("a", { href: address(`doc/${id}`) }, event.summary), " ", act("before → after", async () => {
        const texts = await Promise.all([from, to].map((at) => (at === 0 ? "" : ask("doc.get", { id, text: true, as_of: at }).then(({ data }) => data.text || "", () => ""))));
        fill(place, diffView(...texts));
      }), place);
    })), h("h2", {}, "Records"), recordRows(records.slice(-200).reverse()));
}
