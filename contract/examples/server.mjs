// A server of kbproc's wire in Node without packages: `node server.mjs STORE`.
// It has the methods of the part `core`; wire.mjs has what they share.

import { destroy, main, read, Refusal, wait, write, wrong } from "./wire.mjs";

const shown = ({ deleted, ...row }) => row;
const brief = ({ deleted, text, ...row }) => row;
const normal = (tags) => (tags ?? []).map((tag) => tag.toLowerCase().replaceAll(" ", "-"));

/** Returns the documents that the filters let through. */
function filtered({ store, params }) {
  const kbs = params.kb == null ? [] : [params.kb].flat();
  for (const kb of kbs) store.get("kb", kb, "kb");
  const tags = normal(params.tags);
  const enough = params.tags_mode === "any" ? "some" : "every";
  return store
    .all("doc")
    .filter((doc) => !kbs.length || kbs.includes(doc.kb))
    .filter((doc) => !tags.length || tags[enough]((tag) => doc.tags.includes(tag)))
    .filter((doc) => !params.types || params.types.includes(doc.type));
}

read("ping", ({ store }) => ({ seq: store.seq }));
read("version", () => ({ protocol: "1.0", schema: 1 }));

write("kb.create", (call) => {
  const { slug, name, description } = call.params;
  if (call.store.all("kb").some((row) => row.slug === slug))
    throw new Refusal("resource.already_exists", "This slug is taken.", "slug");
  return shown(call.put("kb.created", "kb", slug, { slug, name: name ?? slug, description }));
});

read("kb.get", (call) => shown(call.store.get("kb", call.params.slug, "slug")));
read("kb.list", (call) => call.page(call.store.all("kb"), (row) => row.slug).map(shown));

write("kb.update", (call) => {
  const row = call.store.get("kb", call.params.slug, "slug");
  return shown(call.change("kb.updated", "kb", row.slug, row, ["name", "description"]));
});

destroy("kb.delete", (call) => {
  const row = call.store.get("kb", call.params.slug, "slug");
  if (row.slug === "default") throw wrong("slug", "default stays.");
  call.remove("kb.deleted", "kb", row.slug, row, "kb");
  const own = call.store.all("doc").filter((doc) => doc.kb === row.slug);
  for (const doc of own) call.remove("doc.deleted", "doc", doc.id, doc, "document");
  return { slug: row.slug, documents: own.length };
});

write("doc.create", (call) => {
  if (!call.params.documents) return brief(added(call, call.params));
  const documents = [];
  call.params.documents.forEach((one, index) => {
    try {
      const row = added(call, { ...one, kb: one.kb ?? call.params.kb });
      documents.push({ index, id: row.id, kb: row.kb, title: row.title });
    } catch (refusal) {
      if (!(refusal instanceof Refusal)) throw refusal;
      const { type, message, hint, field } = refusal.error.data;
      const place = field.replace("$.params", `$.params.documents[${index}]`);
      call.failures.push({ index, type, message, hint, field: place });
    }
  });
  const counts = { added: documents.length, failed: call.failures.length };
  return { ...counts, documents, failures: call.failures };
});

function added(call, { kb, title, text, type, tags, metadata, source_id }) {
  call.store.get("kb", kb, "kb");
  if (!title?.trim()) throw wrong("title", "title is blank.");
  if (!text?.trim()) throw wrong("text", "text is blank.");
  const own = [...call.store.all("doc"), ...call.puts.map((put) => put[2])];
  if (source_id && own.some((doc) => doc.kb === kb && doc.source.source_id === source_id))
    throw new Refusal("resource.already_exists", "This source_id is taken.", "source_id");
  const id = ++call.last;
  const row = { id, kb, title, text, type, tags: normal(tags), metadata: metadata ?? {} };
  row.source = { path: null, url: null, source_id: source_id ?? null };
  return call.put("doc.written", "doc", id, row);
}

read("doc.get", (call) => {
  const { id, text, offset, length } = call.params;
  const row = call.store.get("doc", id, "id");
  if (!text) return { ...shown(row), text: null, text_length: null };
  const characters = [...row.text];
  call.meta.has_more = offset + length < characters.length;
  const piece = characters.slice(offset, offset + length).join("");
  return { ...shown(row), text: piece, text_length: characters.length };
});

read("doc.list", (call) => {
  const { title_contains: part, source_id: source } = call.params;
  const docs = filtered(call)
    .filter((doc) => doc.title.toLowerCase().includes((part ?? "").toLowerCase()))
    .filter((doc) => source == null || doc.source.source_id === source);
  return call.page(docs).map(brief);
});

write("doc.update", (call) => {
  const { id, tags, text } = call.params;
  const row = call.store.get("doc", id, "id");
  if (tags) call.params.tags = normal(tags);
  const event = text == null ? "doc.changed" : "doc.written";
  return brief(call.change(event, "doc", id, row, ["title", "text", "tags", "metadata"]));
});

destroy("doc.delete", (call) => {
  const { ids } = call.params;
  if (!ids) throw wrong("", "ids is required.");
  for (const id of ids)
    call.remove("doc.deleted", "doc", id, call.store.get("doc", id, "ids"), "document");
  return { deleted: ids.length, ids };
});

write("doc.restore", (call) => {
  const documents = [];
  const unchanged = [];
  for (const id of call.params.ids) {
    const row = call.store.tables.doc.get(id) ?? call.store.get("doc", id, "ids");
    if (row.deleted) {
      call.store.get("kb", row.kb, "ids");
      documents.push(brief(call.put("doc.written", "doc", id, row, { deleted: false })));
    } else unchanged.push(id);
  }
  return { restored: documents.length, documents, unchanged };
});

read("tag.list", (call) => {
  const counts = new Map();
  for (const tag of filtered(call).flatMap((doc) => doc.tags))
    counts.set(tag, (counts.get(tag) ?? 0) + 1);
  const rows = [...counts].map(([name, count]) => ({ name, count }));
  return call.page(rows, (row) => row.name);
});

wait("events.subscribe", (call) => {
  const { types, actor, document_id: document } = call.params;
  const after = call.params.after_seq ?? call.store.seq;
  call.params.after_seq = Math.max(after, call.store.seq);
  const records = [];
  for (const record of call.store.records.slice(after)) {
    const events = record.events
      .filter((one) => !types || types.includes(one.type))
      .filter((one) => document == null || one.document_id === document);
    const { seq, ts, actor: writer, method, token } = record;
    if ((actor == null || actor === writer) && (events.length || !(types || document)))
      records.push({ seq, ts, actor: writer, method, token, events });
  }
  return records;
});

main();
