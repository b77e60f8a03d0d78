// kbproc's wire in Node without packages; server.mjs has the methods.
//
// A write decides, appends one record to STORE/log.ndjson, syncs it and folds it into rows in
// memory; a read looks at the rows; a request that waits is parked.

import { createHash } from "node:crypto";
import * as fs from "node:fs";
import * as path from "node:path";
import { fileURLToPath } from "node:url";

const LINE = 16 * 1024 * 1024;
const UNCOUNTED = ["client_token", "dry_run", "confirm", "timeout_ms"];
const HERE = path.dirname(fileURLToPath(import.meta.url));
const KIT = [path.join(HERE, ".."), path.join(HERE, "../..")].find((one) =>
  fs.existsSync(path.join(one, "schemas/v1")),
);
const json = (file) => JSON.parse(fs.readFileSync(file, "utf8"));
const ERRORS = Object.fromEntries(
  json(path.join(HERE, "../errors.json")).map((row) => [row.type, row]),
);
// Params that this server does not know what to do with; the schemas have them.
const LATER = new Set(
  "fields budget_tokens status path_prefix url where created_after created_before updated_after origin revision full".split(
    " ",
  ),
);

export class Refusal extends Error {
  constructor(type, message, field, more = {}) {
    super(message);
    const row = ERRORS[type];
    const data = { schema: "error/1", type, message, exit_code: row.exit_code };
    Object.assign(data, { retryable: row.retryable, hint: row.hint, detail: {} });
    Object.assign(data, { doc_url: `docs/errors.md#${type.replace(".", "")}` }, more);
    if (field !== undefined) data.field = field ? `$.params.${field}` : "$.params";
    this.error = { code: row.code, message, data };
  }
}

// ------------------------------------------------------------------ params
export const wrong = (place, why) => new Refusal("input.invalid_params", why, place);
const isObject = (value) =>
  value !== null && typeof value === "object" && !Array.isArray(value);
const KINDS = {
  object: isObject,
  array: Array.isArray,
  string: (value) => typeof value === "string",
  integer: Number.isSafeInteger,
  // JSON.parse rounds integers of more than 53 bits.
  number: (value) => Number.isSafeInteger(value) || (typeof value === "number" && value % 1 !== 0),
  boolean: (value) => typeof value === "boolean",
  null: (value) => value === null,
};

function checked(method, params) {
  const schema = json(path.join(KIT, "schemas/v1", `${method}.params.json`));
  const later = isObject(params) && Object.keys(params).find((name) => LATER.has(name));
  if (later) throw wrong(later, "This server does not know it.");
  return fit(params, schema, schema.$defs ?? {}, "");
}

/** Returns the value with defaults filled in, where it fits a schema as those of params are. */
function fit(value, schema, defs, place) {
  if (schema.$ref) schema = defs[schema.$ref.split("/").pop()];
  if (schema.anyOf) {
    let first;
    for (const variant of schema.anyOf) {
      try {
        return fit(value, variant, defs, place);
      } catch (refusal) {
        first ??= refusal;
      }
    }
    throw first;
  }
  const kind = schema.type;
  const size = typeof value === "string" ? [...value].length : (value?.length ?? 0);
  const least = Math.max(schema.minLength ?? 0, schema.minItems ?? 0);
  const most = Math.min(schema.maxLength ?? Infinity, schema.maxItems ?? Infinity);
  const isFit =
    (!kind || KINDS[kind](value)) &&
    (!schema.enum || schema.enum.includes(value)) &&
    !(value < schema.minimum || value > schema.maximum) &&
    (kind === "object" || (size >= least && size <= most)) &&
    (kind !== "string" || !schema.pattern || new RegExp(schema.pattern).test(value));
  if (!isFit) throw wrong(place, `${place || "params"} is of another kind.`);
  if (kind === "array")
    return value.map((item, n) => fit(item, schema.items ?? {}, defs, `${place}[${n}]`));
  return kind === "object" ? members(value, schema, defs, place ? `${place}.` : "") : value;
}

function members(value, schema, defs, place) {
  const known = schema.properties ?? {};
  const rest = schema.additionalProperties ?? {};
  for (const name of Object.keys(value))
    if (!Object.hasOwn(known, name) && rest === false)
      throw wrong(place + name, `There is no ${name}.`);
  for (const name of schema.required ?? [])
    if (value[name] == null) throw wrong(place + name, `${name} is required.`);
  const whole = {};
  for (const [name, one] of Object.entries(known)) whole[name] = one.default ?? null;
  for (const [name, one] of Object.entries(value))
    if (one !== null || !Object.hasOwn(known, name))
      whole[name] = fit(one, known[name] ?? rest, defs, place + name);
  return whole;
}

// ------------------------------------------------------------------- store
const now = () => new Date().toISOString();

/** Returns JSON in which members have one order. */
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical)}]`;
  if (!isObject(value)) return JSON.stringify(value);
  const names = Object.keys(value).sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`)}}`;
}

const digest = (value) =>
  createHash("sha256").update(canonical(value)).digest("hex").slice(0, 32);

class Store {
  constructor(folder) {
    fs.mkdirSync(folder, { recursive: true });
    const file = path.join(folder, "log.ndjson");
    const whole = fs.existsSync(file) ? fs.readFileSync(file) : Buffer.alloc(0);
    const end = whole.lastIndexOf(10) + 1; // a record that the machine's end cut in half goes
    this.file = fs.openSync(file, "a", 0o600);
    if (end < whole.length) fs.ftruncateSync(this.file, end);
    this.tables = { kb: new Map(), doc: new Map() };
    this.last = 0;
    this.records = [];
    this.tokens = new Map();
    for (const line of whole.subarray(0, end).toString().split("\n"))
      if (line) this.take(JSON.parse(line));
    if (!this.records.length) {
      const call = new Call(this, "store.create", {});
      call.put("kb.created", "kb", "default", {
        slug: "default",
        name: "Default",
        description: "",
      });
      this.commit(call, "kbproc", null);
    }
  }

  get seq() {
    return this.records.length;
  }

  take(record) {
    this.records.push(record);
    for (const [table, key, row] of record.puts) {
      this.tables[table].set(key, row);
      if (table === "doc") this.last = Math.max(this.last, key);
    }
    if (record.token) this.tokens.set(`${record.method} ${record.token}`, record);
  }

  commit(call, actor, result) {
    const record = { seq: this.seq + 1, ts: now(), actor, method: call.method };
    Object.assign(record, { token: call.params.client_token ?? null, params: call.counted });
    Object.assign(record, { events: call.events, puts: call.puts, result });
    fs.writeSync(this.file, `${JSON.stringify(record)}\n`);
    fs.fsyncSync(this.file);
    this.take(record);
  }

  all(table) {
    return [...this.tables[table].values()].filter((row) => !row.deleted);
  }

  get(table, key, field) {
    const row = this.tables[table].get(key);
    if (!row || row.deleted)
      throw new Refusal("resource.not_found", `There is no ${table} ${key}.`, field);
    return row;
  }
}

/** One request: its params, and what it is about to write. */
class Call {
  constructor(store, method, params) {
    Object.assign(this, { store, method, params, last: store.last ?? 0 });
    Object.assign(this, { puts: [], events: [], targets: [], failures: [] });
    this.meta = { schema: `${method}/1`, seq: store.seq };
    const counted = Object.entries(params).filter(([name]) => !UNCOUNTED.includes(name));
    this.counted = Object.fromEntries(counted);
    if (params.as_of != null) throw wrong("as_of", "This server knows no past.");
  }

  put(event, table, key, row, changes = {}) {
    const time = now();
    const whole = { deleted: false, created_at: time, ...row, ...changes, updated_at: time };
    whole.revision = (row.revision ?? 0) + 1;
    this.puts.push([table, key, whole]);
    const isDocument = table === "doc";
    this.events.push({
      type: event,
      summary: `${event}: ${key}`,
      kb: whole.kb ?? null,
      document_id: isDocument ? key : null,
      revision: isDocument ? whole.revision : null,
    });
    return whole;
  }

  remove(event, table, key, row, kind) {
    const name = String(row.title ?? key);
    this.targets.push({ kind, id: key, name, revision: row.revision });
    this.put(event, table, key, row, { deleted: true });
  }

  change(event, table, key, row, names) {
    const expected = this.params.expected_revision;
    if (expected != null && expected !== row.revision) {
      const problem = `It is at revision ${row.revision}.`;
      throw new Refusal("resource.conflict", problem, "expected_revision");
    }
    const given = names.filter((name) => this.params[name] != null);
    if (!given.length) throw wrong("", "There is nothing to change.");
    const blank = ["title", "text", "name"].find((name) => this.params[name]?.trim() === "");
    if (blank) throw wrong(blank, `${blank} is blank.`);
    const changes = Object.fromEntries(given.map((name) => [name, this.params[name]]));
    return this.put(event, table, key, row, changes);
  }

  page(items, place = (item) => item.id) {
    const { cursor, limit } = this.params;
    this.meta.total = items.length;
    let rest = [...items].sort((a, b) => (place(a) < place(b) ? -1 : 1));
    if (cursor != null) {
      try {
        const after = JSON.parse(Buffer.from(cursor, "base64").toString());
        rest = rest.filter((item) => place(item) > after);
      } catch {
        throw wrong("cursor", "This is no cursor.");
      }
    }
    const some = rest.slice(0, limit);
    Object.assign(this.meta, { count: some.length, has_more: rest.length > limit });
    if (this.meta.has_more) {
      const last = JSON.stringify(place(some.at(-1)));
      this.meta.next_cursor = Buffer.from(last).toString("base64");
    }
    return some;
  }

  done(data) {
    if (this.failures.length) {
      const message = `${this.failures.length} items failed.`;
      this.meta.partial = { type: "operation.partial", exit_code: 3, message };
    }
    return { data, meta: this.meta };
  }
}

// -------------------------------------------------------------------- wire
const methods = new Map();
export const read = (name, run) => methods.set(name, { kind: "read", run });
export const write = (name, run) => methods.set(name, { kind: "write", run });
export const destroy = (name, run) => methods.set(name, { kind: "destructive", run });
export const wait = (name, run) => methods.set(name, { kind: "wait", run });

const parked = new Map(); // id → { call, reply, timer }
const indexes = new Map();
let store;

function say(message) {
  let data = Buffer.from(`${JSON.stringify(message)}\n`);
  while (data.length) {
    try {
      data = data.subarray(fs.writeSync(1, data));
    } catch (error) {
      if (error.code === "EPIPE") process.exit(0); // nobody reads any more
      if (error.code !== "EAGAIN") throw error;
    }
  }
}

const answer = (body) => say({ jsonrpc: "2.0", ...body });

function event(id, type, members = {}) {
  const index = (indexes.get(id) ?? -1) + 1;
  indexes.set(id, index);
  const params = { type, ...(id === undefined ? {} : { request_id: id, index }), ...members };
  say({ jsonrpc: "2.0", method: "event", params });
}

const refuse = (type, message) => answer({ id: null, error: new Refusal(type, message).error });

/** Returns the value with U+FFFD for each half of a character. */
function whole(value) {
  if (typeof value === "string") return value.toWellFormed();
  if (Array.isArray(value)) return value.map(whole);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [whole(k), whole(v)]));
}

function takeLine(line) {
  let value;
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(line);
    if (!text.trim() && !text.startsWith("\uFEFF")) return undefined;
    value = whole(JSON.parse(text));
  } catch {
    return refuse("input.invalid_json", "The line is not JSON in UTF-8.");
  }
  if (!Array.isArray(value)) return take(value, answer);
  if (!value.length) return refuse("input.invalid_request", "The batch is empty.");
  const answers = [];
  const due = value.filter((one) => !isObject(one) || Object.hasOwn(one, "id")).length;
  for (const one of value)
    take(one, (body) => {
      answers.push({ jsonrpc: "2.0", ...body });
      if (answers.length === due) say(answers);
    });
  return undefined;
}

function take(request, reply) {
  let id = null;
  let isRequest = true;
  try {
    const odd = (why) => new Refusal("input.invalid_request", why);
    if (!isObject(request)) throw odd("A request is an object.");
    isRequest = Object.hasOwn(request, "id");
    const { id: given, method, params = {}, jsonrpc, ...rest } = request;
    // JSON.parse rounds an integer of more than 53 bits, so it can't come back as it was sent.
    if (isRequest && typeof given !== "string" && !Number.isSafeInteger(given))
      throw odd("An id is a string or an integer of at most 53 bits.");
    id = given;
    if (jsonrpc !== "2.0" || typeof method !== "string" || Object.keys(rest).length)
      throw odd("This is no request of JSON-RPC 2.0.");
    if (isRequest && parked.has(id)) throw odd("This id is in flight.");
    if (method === "$/cancel" && !isRequest) cancel(params.id, "operation.cancelled");
    else run(method, params, id, isRequest ? reply : () => {});
  } catch (refusal) {
    if (!(refusal instanceof Refusal)) throw refusal;
    if (isRequest) reply({ id, error: refusal.error });
  }
}

/** Returns how many pairs of letters two names do not share. */
function distance(a, b) {
  const pairs = (name) => new Set([...name].map((letter, n) => letter + name[n + 1]));
  const [one, other] = [pairs(a), pairs(b)];
  return [...one].filter((pair) => !other.has(pair)).length + Math.abs(one.size - other.size);
}

function run(method, params, id, reply) {
  if (!methods.has(method)) {
    const near = [...methods.keys()].sort((a, b) => distance(method, a) - distance(method, b));
    const more = { valid_values: near.slice(0, 20), retry: { method: near[0], params } };
    throw new Refusal("input.unknown_method", `There is no method ${method}.`, undefined, more);
  }
  const call = new Call(store, method, checked(method, params));
  call.id = id;
  indexes.delete(id);
  if ((call.params.min_seq ?? 0) > store.seq) park(call, reply);
  else finish(call, reply);
}

function park(call, reply) {
  const wait = call.params.timeout_ms;
  const late = () => cancel(call.id, "operation.timeout");
  parked.set(call.id, { call, reply, timer: wait == null ? null : setTimeout(late, wait) });
}

function cancel(id, type) {
  const one = parked.get(id);
  if (!one) return;
  parked.delete(id);
  clearTimeout(one.timer);
  const detail = { seq: store.seq };
  one.reply({ id, error: new Refusal(type, `The request ended: ${type}.`, undefined, { detail }).error });
}

function finish(call, reply) {
  const { kind, run: work } = methods.get(call.method);
  if (kind === "wait") {
    event(call.id, "init");
    if ((call.params.after_seq ?? 0) > store.seq)
      event(call.id, "warning", { message: `The log ends at ${store.seq}.` });
    park(call, reply);
  } else {
    const result = kind === "read" ? call.done(work(call)) : written(call, kind, work);
    reply({ id: call.id, result });
  }
  pump();
}

/** Returns the result of a write: of this one, or of the one that its token stands for. */
function written(call, kind, work) {
  const { method, counted, params } = call;
  const first = store.tokens.get(`${method} ${params.client_token}`);
  if (first) {
    if (canonical(first.params) !== canonical(counted))
      throw new Refusal("resource.conflict", "It came with other params.", "client_token");
    return { data: first.result.data, meta: { ...first.result.meta, duplicate: true } };
  }
  const data = work(call);
  const risk = { level: kind === "write" ? "low" : "medium", action: method };
  const events = { items: call.events, total: call.events.length };
  const plan = { action: method, targets: call.targets, changes: [method], events, risk };
  plan.plan_hash = digest([method, counted, call.targets]);
  if (params.dry_run) {
    Object.assign(call.meta, { dry_run: true, plan });
    return call.done(null);
  }
  if (kind === "destructive" && params.confirm == null)
    throw new Refusal("input.confirmation_required", "A person has to approve.", undefined, {
      plan,
      risk,
    });
  if (kind === "destructive" && params.confirm !== plan.plan_hash) {
    const retry = { method, params: { ...counted, dry_run: true } };
    throw new Refusal("resource.plan_stale", "Ask anew.", "confirm", { plan, risk, retry });
  }
  if (call.events.length) {
    call.meta.seq = store.seq + 1;
    store.commit(call, "user", call.done(data));
  }
  return call.done(data);
}

/** Sends what subscriptions have not had, and ends waits whose position has come. */
function pump() {
  for (const [id, { call, reply, timer }] of [...parked]) {
    const { kind, run: work } = methods.get(call.method);
    if (kind === "wait") for (const item of work(call)) event(id, "item", { item });
    else if (call.params.min_seq <= store.seq) {
      parked.delete(id);
      clearTimeout(timer);
      finish(Object.assign(new Call(store, call.method, call.params), { id }), reply);
    }
  }
}

function end(code) {
  for (const id of [...parked.keys()]) cancel(id, "operation.cancelled");
  process.exit(code);
}

/** Takes lines until stdin or a signal ends it. */
function serve() {
  let pieces = [];
  let size = 0;
  let isLong = false;
  const finishLine = () => {
    if (isLong || size > LINE) refuse("input.too_large", `A line has at most ${LINE} bytes.`);
    else takeLine(Buffer.concat(pieces));
    [pieces, size, isLong] = [[], 0, false];
  };
  process.stdin.on("data", (data) => {
    let begin = 0;
    for (let at = data.indexOf(10); at >= 0; at = data.indexOf(10, begin)) {
      pieces.push(data.subarray(begin, at));
      size += at - begin;
      finishLine();
      begin = at + 1;
    }
    pieces.push(data.subarray(begin));
    size += data.length - begin;
    if (size > LINE) [pieces, size, isLong] = [[], 0, true];
  });
  process.stdin.on("end", () => {
    if (size || isLong) finishLine();
    end(0);
  });
}

/** Serves the methods that were named, on the store that the command line names. */
export function main() {
  const [folder, ...more] = process.argv.slice(2);
  const pinned = more.find((one) => one.startsWith("--protocol="))?.slice(11) ?? "1";
  if (!["1", "1.0"].includes(pinned)) {
    const valid = { valid_values: ["1", "1.0"] };
    answer({ id: null, error: new Refusal("input.invalid_params", "Not spoken.", undefined, valid).error });
    process.exit(1);
  }
  for (const [name, code] of [["SIGTERM", 0], ["SIGHUP", 0], ["SIGINT", 130]])
    process.on(name, () => end(code));
  const can = { batch: true, cancel: true, streams: true, dry_run: true, confirm: true };
  const limits = { max_line_bytes: LINE, max_in_flight: 64 };
  event(undefined, "init", {
    protocol: "1.0",
    server: { name: "minimal", version: "1" },
    capabilities: { ...can, client_token: true, modes: [], parts: ["core"], ...limits },
    scopes: ["admin"],
  });
  store = new Store(folder);
  const { seq } = store;
  const freshness = { seq, fulltext_seq: seq, vector_seq: seq, pending_embeddings: 0 };
  event(undefined, "ready", { seq, freshness });
  serve();
}
