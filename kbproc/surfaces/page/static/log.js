// The log: who did what; what changed between two moments; undo as a plan.

import { act, address, count, empty, field, fill, h, link, parted, typing, when } from "./dom.js";
import { diffView } from "./diff.js";
import { withPlan } from "./plan.js";
import { about, ask, find, live, time } from "./wire.js";

const PART = 100;
const MOST_BETWEEN = 1000; // records that one step reads

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
    const texts = await Promise.all([seq - 1, seq].map((at) => textAt(event.document_id, at)));
    fill(place, diffView(...texts));
  }), place];
}

// Returns the text of a document as it was; "" where it was not there.
export async function textAt(id, seq) {
  const answer = seq > 0 && await find("doc.get", { id, text: true, as_of: seq });
  return answer ? answer.data.text || "" : "";
}

export async function logView(main, { query, replace, onLeave }) {
  const list = h("div", {});
  const state = { ...query };
  const waiting = []; // records that come while the others are read
  const isFiltered = () => Boolean(state.from || state.to || state.actor);
  const add = (record) => {
    const records = list.querySelector(".records");
    if (records && !records.querySelector(`#record-${record.seq}`)) records.prepend(recordView(record));
  };
  let loads = 0;
  const load = async (signal) => {
    const part = h("div", {});
    loads++;
    try {
      await read(part);
      signal.throwIfAborted();
      fill(list, part);
    } finally {
      loads--;
    }
    if (!isFiltered()) waiting.forEach(add);
    waiting.length = 0;
  };
  const read = async (part) => {
    if (state.from || state.to) await between(part, Number(state.from || 0), Number(state.to || (time.at ?? time.head)), state.actor || null);
    else if (state.actor) await inOrder(part, { actor: state.actor });
    else await newest(part, time.at ?? time.head);
  };
  const { run, soon } = typing((signal) => { replace(state); return load(signal); });
  const input = (name, props) => h("input", { value: state[name] || "", ...props, oninput: (event) => { state[name] = event.target.value; soon(); } });
  fill(main, h("h1", {}, "Log"), h("div", { class: "filters" }, field("By", input("actor", { placeholder: "actor" })),
    field("After record", input("from", { type: "number", min: 0 })), field("Up to record", input("to", { type: "number", min: 0 }))), list);
  const fresh = ({ detail: { record } }) => {
    if (time.at !== null || isFiltered()) return;
    if (loads) waiting.push(record);
    else add(record);
  };
  live.addEventListener("record", fresh);
  onLeave(() => live.removeEventListener("record", fresh));
  await run();
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

// Shows the records that fit, in the order of the wire, part by part.
export async function inOrder(list, filter, cursor = null) {
  const { data, meta } = await ask("events.read", { ...filter, limit: PART, cursor });
  const shown = data.filter((record) => time.at === null || record.seq <= time.at);
  if (shown.length || cursor === null) list.append(recordRows(shown));
  if (!meta.has_more || shown.length < data.length) return;
  const more = h("p", {}, act("Show later records", async () => {
    await inOrder(list, filter, meta.next_cursor);
    more.remove();
  }));
  list.append(more);
}

// What changed between two moments: each document once, with how its text became another.
async function between(list, from, to, actor, records = [], cursor = null) {
  const most = records.length + MOST_BETWEEN;
  let isCut = true;
  while (isCut && records.length < most) {
    const { data, meta } = await ask("events.read", { after_seq: from, actor, limit: 500, cursor });
    records.push(...data.filter((record) => record.seq <= to));
    isCut = meta.has_more && !(data.length && data.at(-1).seq >= to);
    cursor = meta.next_cursor;
  }
  const documents = new Map();
  for (const record of records) for (const event of record.events) if (event.document_id !== null) documents.set(event.document_id, event);
  const end = isCut && records.length ? records.at(-1).seq : to;
  fill(list, h("p", { role: "status" }, `${count(records.length, "record")}, ${count(documents.size, "document")}, from ${from} to ${end}.`, isCut && ` Those up to ${to} are not all read yet. `,
    isCut && act("Read on", () => between(list, from, to, actor, records, cursor))),
  parted([...documents], 500, (part) => h("ul", { class: "history" }, part.map(([id, event]) => {
    const place = h("div", {});
    return h("li", {}, h("a", { href: address(`doc/${id}`) }, event.summary), " ", act("before → after", async () => {
      fill(place, diffView(...await Promise.all([from, end].map((at) => textAt(id, at)))));
    }), place);
  }))), h("h2", {}, "Records"), parted([...records].reverse(), 200, recordRows));
}
