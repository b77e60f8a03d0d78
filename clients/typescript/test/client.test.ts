// Against a server that follows a script, and does what a lawful one may do, and what none should.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import {
  BadRequest,
  Cancelled,
  Closed,
  type EventOf,
  type Kbproc,
  KbprocError,
  LimitReached,
  NeedsPerson,
  NotFound,
  Overloaded,
  ServerEnded,
  Timeout,
  start,
} from "kbproc";
import { INIT, READY, type Step } from "./fake.js";
import { FAKE, scripted } from "./scripted.js";

function event(type: string, index: number, more: object = {}): Step {
  return { jsonrpc: "2.0", method: "event", params: { type, request_id: "$id", index, ...more } };
}

function result(data: unknown, more: object = {}): Step {
  return { jsonrpc: "2.0", id: "$id", result: { data, meta: { schema: "x/1", seq: 1, ...more } } };
}

function refusal(type: string, exit_code: number, more: object = {}): Step {
  const data = { schema: "error/1", type, message: "No.", exit_code, retryable: false, hint: "H.", doc_url: "", detail: {}, ...more };
  return { jsonrpc: "2.0", id: "$id", error: { code: exit_code * 100 + 1, message: "No.", data } };
}

async function all<Event>(events: AsyncIterable<Event>): Promise<Event[]> {
  const found: Event[] = [];
  for await (const one of events) found.push(one);
  return found;
}

/** Of what nobody tells; the run's limit ends what never comes. */
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5));
}

async function failure(call: PromiseLike<unknown>): Promise<KbprocError> {
  try {
    await call;
  } catch (error) {
    assert.ok(error instanceof KbprocError, String(error));
    return error;
  }
  return assert.fail("it did not fail");
}

// ------------------------------------------------------------------- what is lawful

test("answers in another order, unknown events and members, a takeover's warning", async (t) => {
  const later = { jsonrpc: "2.0", method: "later", params: {} };
  const weather = { jsonrpc: "2.0", method: "event", params: { type: "weather", sky: "blue" } };
  const { kb } = scripted(t, [
    {
      begin: [INIT, weather, later, READY],
      on: {
        ping: [
          [],
          [
            { ...(result({ seq: 2, new: true }) as object), extra: 1 },
            { jsonrpc: "2.0", id: 1, result: { data: { seq: 1 }, meta: { schema: "ping/1", seq: 1 } } },
          ],
        ],
        doctor: [
          [
            event("init", 0),
            event("shimmer", 1),
            event("warning", 2, { message: "another goes on" }),
            event("item", 3, { item: { name: "disk", later: 1 }, shape: "round" }),
            result({ healthy: true, findings: [] }),
          ],
        ],
      },
    },
  ]);
  const [one, two] = await Promise.all([kb.ping(), kb.ping()]);
  assert.deepEqual([one.data.seq, two.data.seq], [1, 2]);
  const call = kb.doctor();
  assert.deepEqual((await all(call)).map((one) => one.type), ["init", "warning", "item"]);
  assert.equal((await call).data.healthy, true);
});

test("what is said in pieces and in many lines at once is read as lines", async (t) => {
  const answer = JSON.stringify(result({ seq: 7, text: "naïve – 知" })).replaceAll('"$id"', "1");
  const { kb } = scripted(t, [
    { on: { ping: [[{ raw: answer.slice(0, 30) }, { raw: `${answer.slice(30)}\n\n` }]] } },
  ]);
  assert.equal(((await kb.ping()).data as { text?: string }).text, "naïve – 知");
});

test("errors are of a class of their own, and say what to do", async (t) => {
  const retry = { method: "kb.get", params: { slug: "docs" } };
  const { kb } = scripted(t, [
    {
      on: {
        "kb.get": [[refusal("resource.not_found", 5, { retry, valid_values: ["docs"] })]],
        "doc.delete": [[refusal("input.confirmation_required", 10, { plan: { plan_hash: "ab" } })]],
        ping: [[refusal("weather.bad", 77)]],
        status: [[{ jsonrpc: "2.0", id: "$id", error: { code: -32603, message: "Oh." } }]],
      },
    },
  ]);
  const missing = await failure(kb.kb.get({ slug: "dcos" }));
  assert.ok(missing instanceof NotFound);
  assert.deepEqual([missing.retry, missing.validValues, missing.hint], [retry, ["docs"], "H."]);
  assert.equal(missing.message, "No.");
  assert.equal(`${missing}`, "resource.not_found: No. Valid: docs. H.");
  assert.match(missing.stack ?? "", /client\.test/, "the stack leads to the caller");
  const asked = await failure(kb.doc.delete({ ids: [1] }));
  assert.ok(asked instanceof NeedsPerson);
  assert.equal(asked.plan?.plan_hash, "ab");
  assert.deepEqual([(await failure(kb.ping())).type, (await failure(kb.status())).type], ["weather.bad", "internal.error"]);
});

test("what is refused as one too many is sent again, and the client holds back", async (t) => {
  const full = refusal("server.overloaded", 8, { retryable: true, retry_after_ms: 1 });
  const { kb, heard } = scripted(t, [{ on: { ping: [[full], [full], [result({ seq: 1 })]] } }]);
  await kb.ready();
  await kb.ping();
  assert.equal(heard().length, 3);
  const many = Array.from({ length: 20 }, () => kb.ping());
  assert.equal((await Promise.all(many)).length, 20);
  const cancelled = { ...(refusal("operation.cancelled", 9) as object), id: 1 };
  const more = scripted(t, [{ on: { ping: [[]], "$/cancel": [[cancelled]] } }]);
  await more.kb.ready();
  const [first] = Array.from({ length: 9 }, () => {
    const call = more.kb.ping();
    call.catch(() => undefined);
    return call;
  });
  await until(() => more.heard().length === 4);
  first?.cancel();
  await until(() => more.heard().length === 6);
  const methods = more.heard().map((one) => one.method);
  assert.deepEqual(methods, ["ping", "ping", "ping", "ping", "$/cancel", "ping"]);
  assert.ok(new Overloaded({ type: "server.overloaded", message: "" }) instanceof KbprocError);
});

// ------------------------------------------------------------- cancel and time

test("a signal cancels on the server, whose answer says what was done", async (t) => {
  const { kb, heard } = scripted(t, [
    {
      on: {
        "doc.ingest": [[event("init", 0)]],
        "$/cancel": [[{ ...(refusal("operation.cancelled", 9, { detail: { added: 2 } }) as object), id: 1 }]],
      },
    },
  ]);
  const control = new AbortController();
  const call = kb.doc.ingest({ paths: ["docs"] }, { signal: control.signal });
  for await (const one of call) {
    assert.equal(one.type, "init");
    control.abort();
    break;
  }
  const error = await failure(call);
  assert.ok(error instanceof Cancelled);
  assert.deepEqual(error.detail, { added: 2 });
  assert.deepEqual(heard().map((one) => one.method), ["doc.ingest", "$/cancel"]);
});

test("leaving the loop cancels, and an aborted signal sends nothing", async (t) => {
  const { kb, heard } = scripted(t, [
    {
      on: {
        "events.subscribe": [[event("init", 0)]],
        "$/cancel": [[{ ...(refusal("operation.cancelled", 9) as object), id: 1 }]],
        ping: [[result({ seq: 1 })]],
      },
    },
  ]);
  for await (const one of kb.events.subscribe()) {
    assert.equal(one.type, "init");
    break;
  }
  const error = await failure(kb.search({ query: "a" }, { signal: AbortSignal.abort("enough") }));
  assert.ok(error instanceof Cancelled);
  assert.equal(error.cause, "enough");
  await kb.ping();
  assert.deepEqual(heard().map((one) => one.method), ["events.subscribe", "$/cancel", "ping"]);
});

test("time is kept on this side, where the server keeps none", async (t) => {
  const { kb, heard } = scripted(t, [{}], { timeoutMs: 1 });
  const error = await failure(kb.doc.create({ title: "A", text: "B", client_token: "t1" }));
  assert.ok(error instanceof Timeout);
  assert.match(error.message, /^doc\.create was not answered within 1 ms\.$/);
  assert.match(error.hint, /client_token, t1/);
  assert.equal(heard()[0]?.params["timeout_ms"], 1);
});

test("what was cancelled is not asked again where kbproc dies of it", async (t) => {
  const { kb, starts } = scripted(t, [{ on: { "$/cancel": [[{ die: true }]] } }]);
  const call = kb.doc.create({ title: "A", text: "B", client_token: "t2" });
  await kb.ready();
  call.cancel();
  call.cancel();
  const error = await failure(call);
  assert.ok(error instanceof Cancelled);
  assert.deepEqual([error.detail, starts()], [{ client_token: "t2" }, 1]);
});

test("a line that no server takes is refused here", async (t) => {
  const { kb, heard } = scripted(t, [{}]);
  await kb.ready();
  const error = await failure(kb.doc.create({ title: "A", text: "b".repeat(1000) }));
  assert.ok(error instanceof BadRequest);
  assert.match(error.message, /a line may have 1000/);
  assert.deepEqual(heard(), []);
});

// ------------------------------------------------------------- a server that dies

test("a write that was in flight is sent again with its token", async (t) => {
  const { kb, heard } = scripted(t, [
    { on: { "doc.create": [[{ die: true }]] } },
    { on: { "doc.create": [[result({ id: 1 }, { duplicate: true })]] } },
  ]);
  const call = kb.doc.create({ title: "A", text: "B" });
  assert.equal((await call).meta.duplicate, true);
  const [one, two] = heard();
  assert.ok(one && two);
  assert.deepEqual(one.params, two.params);
  assert.equal(one.params["client_token"], call.token);
});

test("a stream goes on unbroken, with a warning", async (t) => {
  const item = (index: number, name: string) => event("item", index, { item: { name } });
  const { kb } = scripted(t, [
    { on: { doctor: [[event("init", 0), item(1, "a"), item(2, "b"), { raw: '{"torn' }, { die: true }]] } },
    { on: { doctor: [[event("init", 0), item(1, "a"), item(2, "b"), item(3, "c"), result({ healthy: true })]] } },
  ]);
  const events = await all(kb.doctor());
  assert.deepEqual(
    events.map((one) => [one.index, one.type, one.type === "item" ? one.item.name : undefined]),
    [
      [0, "init", undefined],
      [1, "item", "a"],
      [2, "item", "b"],
      [3, "warning", undefined],
      [4, "item", "c"],
    ],
  );
});

test("a subscription goes on after the last record", async (t) => {
  const item = (index: number, seq: number) => event("item", index, { item: { seq } });
  const { kb, heard } = scripted(t, [
    { on: { "events.subscribe": [[event("init", 0), item(1, 5), item(2, 6), { die: true }]] } },
    { on: { "events.subscribe": [[event("init", 0), item(1, 7)]] } },
  ]);
  const seen: number[] = [];
  for await (const one of kb.events.subscribe({ after_seq: 4 })) {
    if (one.type === "item") seen.push(one.item.seq);
    if (seen.length === 3) break;
  }
  assert.deepEqual(seen, [5, 6, 7]);
  const asked = heard().filter((one) => one.method === "events.subscribe");
  assert.deepEqual(asked.map((one) => one.params["after_seq"]), [4, 6]);
});

const answer = (index: number, cursor: string, more: object) =>
  event("answer", index, { cursor, message_id: 2, ...more });
const begun = [
  event("init", 0, { session_id: 1, message_id: 2 }),
  event("references", 1, { cursor: "c1", message_id: 2, references: [] }),
  answer(2, "c2", { delta: "Ma" }),
];

function said(events: EventOf<"chat">[]): string {
  let text = "";
  for (const one of events) {
    if (one.type === "warning" && one.kind === "restarted") text = "";
    else if (one.type === "answer") text += one.delta ?? "";
  }
  return text;
}

test("an answer is read on from its last cursor", async (t) => {
  const { kb, heard } = scripted(t, [
    { on: { chat: [[...begun, { die: true }]] } },
    {
      on: {
        "session.resume": [
          [
            begun[0] as Step,
            answer(1, "c3", { delta: "ke." }),
            answer(2, "c4", { status: "finished" }),
            result({ status: "finished", text: "Make." }),
          ],
        ],
      },
    },
  ]);
  const call = kb.chat({ question: "How?" });
  const events = await all(call);
  assert.equal(said(events), "Make.");
  assert.deepEqual(events.map((one) => one.index), events.map((_, at) => at));
  assert.equal((await call).data.text, "Make.");
  assert.deepEqual(heard()[1]?.params, { session_id: 1, message_id: 2, after: "c2" });
});

test("an answer that was interrupted is asked for once more, with its token", async (t) => {
  const end = answer(3, "c3", { status: "interrupted" });
  const { kb, heard } = scripted(t, [
    { on: { chat: [[...begun, { die: true }]] } },
    {
      on: {
        "session.resume": [[begun[0] as Step, answer(1, "c3", { status: "interrupted" }), result({ status: "interrupted", text: "Ma" })]],
        chat: [
          [
            ...begun,
            end,
            event("warning", 4, { cursor: "c4", message_id: 2, kind: "restarted", message: "anew" }),
            answer(5, "c5", { delta: "Make." }),
            answer(6, "c6", { status: "finished" }),
            result({ status: "finished", text: "Make." }),
          ],
        ],
      },
    },
  ]);
  const call = kb.chat({ question: "How?" });
  const events = await all(call);
  assert.equal(said(events), "Make.");
  const cursors = events.flatMap((one) => ("cursor" in one && one.cursor ? [one.cursor] : []));
  assert.deepEqual(cursors, ["c1", "c2", "c3", "c4", "c5", "c6"]);
  assert.equal((await call).data.status, "finished");
  const [first, , again] = heard();
  assert.deepEqual(first?.params, again?.params);
});

test("a server whose pipes are dead is one that has ended", async (t) => {
  const { kb, starts } = scripted(t, [
    { begin: [INIT, { stopReading: true }, READY] },
    { on: { ping: [[result({ seq: 9 })]] } },
  ]);
  await kb.ready();
  assert.equal((await kb.ping()).data.seq, 9);
  assert.equal(starts(), 2);
});

function isGone(pid: number): boolean {
  try {
    return !process.kill(pid, 0);
  } catch {
    return true;
  }
}

test("a process that is gone is not told as the one that runs, though its pipes are held", async (t) => {
  const { kb } = scripted(t, [{ on: { ping: [[{ dieHeld: true }]] } }, { on: { ping: [[result({ seq: 9 })]] } }]);
  await kb.ready();
  const { pid } = kb;
  assert.ok(pid);
  const call = kb.ping();
  await until(() => isGone(pid));
  assert.notEqual(kb.pid, pid);
  assert.equal((await call).data.seq, 9);
});

test("one that always dies is given up, and the next request tries anew", async (t) => {
  const { kb, starts } = scripted(
    t,
    [{ on: { ping: [[{ log: '{"level":"error","msg":"the disk is on fire"}' }, { die: true }]] } }],
    { restarts: 2 },
  );
  const error = await failure(kb.ping());
  assert.ok(error instanceof ServerEnded);
  assert.match(error.message, /ended by SIGKILL.*the disk is on fire/);
  assert.equal(starts(), 3);
  await failure(kb.ping());
  assert.equal(starts(), 6);
});

test("one that answers now and then is not given up", async (t) => {
  const { kb, starts } = scripted(t, [{ on: { ping: [[result({ seq: 1 })], [{ die: true }]] } }], { restarts: 1 });
  for (let count = 0; count < 5; count++) assert.equal((await kb.ping()).data.seq, 1);
  assert.equal(starts(), 5);
  assert.equal(kb.restarts, 4);
});

test("a method that is none is refused with those that were probably meant", async (t) => {
  const { kb } = scripted(t, [{}]);
  for (const [name, near] of [
    ["doc.craete", "doc.create"],
    ["Doc.Create", "doc.create"],
    ["serach", "search"],
    ["knowledge.serch", "knowledge.search"],
  ] as const) {
    const refused = await failure(Promise.resolve().then(() => kb.call(name as "ping")));
    assert.ok(refused instanceof BadRequest && refused.validValues?.[0] === near, `${refused}`);
    assert.match(refused.hint, new RegExp(`^Did you mean ${near}\\?`));
  }
  const far = await failure(Promise.resolve().then(() => kb.call("weather.forecast" as "ping")));
  assert.deepEqual([far.validValues, far.hint.startsWith("`await")], [undefined, true]);
});

test("one that does not begin is not tried again", async (t) => {
  const { kb, starts } = scripted(t, [{ begin: [{ log: "no such flag" }, { exit: 1 }] }]);
  const error = await failure(kb.ping());
  assert.match(error.message, /ended with exit code 1, and said: no such flag/);
  assert.equal(starts(), 1);
  for (const [settings, said] of [
    [{ command: ["/nowhere/kbproc"] }, /could not be started.*ENOENT.*pip install/],
    [{ cwd: "/nowhere" }, /There is no folder \/nowhere/],
  ] as const) {
    const missing = start(settings);
    assert.match(`${await failure(missing.ready())}`, said);
    await missing.close();
  }
});

test("one that refuses its flags is told as it says it", async (t) => {
  const data = { type: "input.invalid_params", message: "No scope x.", exit_code: 1, field: "--scopes" };
  const onWire = { jsonrpc: "2.0", id: null, error: { code: -32602, message: "No scope x.", data } };
  const onLog = { log: JSON.stringify({ ok: false, error: data }) };
  for (const said of [onWire, onLog]) {
    const { kb, starts } = scripted(t, [{ begin: [said, { exit: 1 }] }]);
    const error = await failure(kb.ping());
    assert.ok(error instanceof BadRequest);
    assert.deepEqual([error.field, starts()], ["--scopes", 1]);
  }
});

test("what JSON can't say is refused, and the next request is sent", async (t) => {
  const { kb } = scripted(t, [{ on: { ping: [[result({ seq: 4 })]] } }]);
  const query = 1n as unknown as string;
  await assert.rejects(async () => kb.search({ query }), TypeError);
  assert.equal((await kb.ping()).data.seq, 4);
});

const WRONG: Record<string, unknown[]> = {
  "what is no message of JSON-RPC": [42, [], [1], null, "hello", { jsonrpc: "2.0" }, { id: [1], result: { data: 1, meta: {} } }],
  "a result without data": [{ id: 1, result: null }, { id: 1, result: [1] }, { id: 1, result: {} }],
  "a result without meta": [{ id: 1, result: { data: 1 } }],
  "a result without the id of a request": [{ id: null, result: { data: 1, meta: {} } }],
  "an answer to what was not asked": [{ id: 99, result: { data: 1, meta: {} } }, { id: "1", error: { message: "No." } }],
  "an error that is no object": [{ id: 1, error: "No." }],
  "an error whose data has no type": [{ id: 1, error: { data: [1] } }, { id: 1, error: { data: { type: 7 } } }],
  "an error whose numbers are none": [{ id: 1, error: { data: { type: "store.io", retry_after_ms: "soon" } } }],
  "an event without a type": [{ method: "event", params: [1] }, { method: "event", params: {} }],
  "an event of a request that can't be": [{ method: "event", params: { type: "item", request_id: [1] } }],
  "an event whose capabilities are no object": [{ method: "event", params: { type: "init", capabilities: null } }],
};

test("what no kbproc says is shown to all who wait", async (t) => {
  const lines = Object.entries(WRONG).flatMap(([wrong, all]) => all.map((one) => [wrong, JSON.stringify(one)] as const));
  lines.push(["what is no JSON", "Welcome!"], ["what is no JSON", '{"jsonrpc":']);
  const starts = lines.map(([, line]) => ({ on: { ping: [[{ raw: `${line}\n` }]] } }));
  const { kb } = scripted(t, starts);
  for (const [wrong, line] of lines) {
    for (const error of await Promise.all([failure(kb.ping()), failure(kb.ping())])) {
      assert.ok(error instanceof ServerEnded && error.type === "client.server_ended" && error.retryable === false);
      assert.ok(error.message.includes(`It said ${wrong}: “${line}”`), error.message);
    }
    await until(() => kb.pid === undefined);
  }
});

test("a long line is shown by its beginning, and an answer that comes late is right", async (t) => {
  const late = { ...(result({ seq: 1 }) as object), id: 1 };
  const { kb } = scripted(t, [{ on: { ping: [[result({ seq: 1 })], [late, result({ seq: 2 })], [{ raw: `"${"x".repeat(500)}"\n` }]] } }]);
  await kb.ping();
  assert.equal((await kb.ping()).data.seq, 2);
  assert.match(`${await failure(kb.ping())}`, /: “"x{99}…”\. `command` must/);
});

test("a store that can't be opened rejects ready, and requests say why", async (t) => {
  const data = { type: "store.corrupt", message: "Cut off.", exit_code: 2, hint: "kbproc doctor" };
  const failed = { jsonrpc: "2.0", method: "event", params: { type: "error", error: data } };
  const { kb } = scripted(t, [{ begin: [INIT, failed], on: { ping: [[refusal("store.corrupt", 2)]] } }]);
  assert.match(`${await failure(kb.ready())}`, /store\.corrupt: Cut off\. kbproc doctor/);
  assert.equal((await failure(kb.ping())).type, "store.corrupt");
});

test("after close nothing is asked, and what was is refused", async (t) => {
  const { kb } = scripted(t, [{}]);
  const before = failure(kb.ping());
  await kb.close();
  assert.ok((await before) instanceof Closed);
  assert.ok((await failure(kb.ping())) instanceof Closed);
  await kb.close();
});

test("a program that waits for nothing ends, and one that waits for ready does not", async (t) => {
  const { kb, starts } = scripted(t, [{ begin: [INIT, { die: true }] }, {}]);
  assert.equal((await kb.ready()).seq, 3);
  assert.equal(starts(), 2);
  const { folder } = scripted(t, [{ on: { ping: [[result({ seq: 5 })]] } }]);
  const program = `
    import { start } from ${JSON.stringify(import.meta.resolve("kbproc"))};
    const kb = start({ command: ${JSON.stringify([process.execPath, FAKE, folder])} });
    console.log((await kb.ready()).seq, (await kb.ping()).data.seq);`;
  const run = promisify(execFile);
  const { stdout } = await run(process.execPath, ["--input-type=module", "-e", program]);
  assert.equal(stdout, "3 5\n");
});

test("the events of a call are read once", async (t) => {
  const { kb } = scripted(t, [{ on: { doctor: [[event("init", 0), result({ healthy: true })]] } }]);
  const call = kb.doctor();
  assert.equal((await all(call)).length, 1);
  await assert.rejects(all(call), TypeError);
  const signal = new AbortController().signal;
  const warned: string[] = [];
  process.on("warning", (warning) => warned.push(warning.message));
  await Promise.all(Array.from({ length: 20 }, () => kb.doctor({}, { signal })));
  assert.deepEqual(warned, []);
});

test("a method that nobody knows is refused at once", (t) => {
  const { kb } = scripted(t, [{}]);
  assert.throws(() => kb.call("doc.raed" as "doc.get", { id: 1 }), /There is no method doc\.raed/);
});

// ------------------------------------------------------------- types, held by the compiler

export async function typed(kb: Kbproc): Promise<void> {
  const { data } = await kb.search({ query: "git", mode: "fts" });
  data.results.map((hit) => hit.source.cite.length + hit.score);
  const planned = await kb.doc.delete({ ids: [1], dry_run: true });
  planned.data satisfies null;
  // @ts-expect-error: no such param
  kb.search({ querry: "git" });
  // @ts-expect-error: no such mode
  kb.search({ query: "git", mode: "fuzzy" });
  // @ts-expect-error: it must be given
  kb.search();
  // @ts-expect-error: no such method
  kb.doc.raed({ id: 1 });
  for await (const event of kb.events.subscribe()) {
    if (event.type === "item") event.item.ts satisfies string;
  }
}

const ITEMS = 60; // some 4 MB
const many = (): Step[][] => [[{ items: ITEMS }, result({ read: ITEMS })], []];

/** Less is held than usual. */
async function holdLess(): Promise<void> {
  const inside = (await import(new URL("../../dist/asked.js", import.meta.url).href)) as { HELD: object };
  Object.assign(inside.HELD, { much: 1 << 18, most: 1 << 21 });
}

test("a stream that is not read on is held back, and loses nothing", async (t) => {
  await holdLess();
  const { kb, folder } = scripted(t, [{ on: { "events.read": many() } }]);
  const events = kb.events.read()[Symbol.asyncIterator]();
  const indexes = [(await events.next()).value?.index];
  const said = (): number => statSync(join(folder, "said"), { throwIfNoEntry: false })?.size ?? 0;
  await until(() => said() > 4);
  const other = scripted(t, [{ on: { ping: [[result({ seq: 1 })]] } }]).kb;
  for (let times = 0; times < 20; times++) await other.ping();
  assert.ok(said() < ITEMS, `${said()} items were said`);
  for await (const event of { [Symbol.asyncIterator]: () => events }) indexes.push(event.index);
  assert.deepEqual(indexes, [...Array(ITEMS).keys()]);
});

test("who reads a stream may ask meanwhile, and who reads none gets the answer", async (t) => {
  await holdLess();
  const few: Step[] = [{ items: 20 }, result({ read: 20 })];
  const { kb } = scripted(t, [{ on: { "events.read": [few, []], ping: [[result({ seq: 1 })]] } }]);
  for await (const event of kb.events.read()) if (event.index === 0) await kb.ping();
  const unread = scripted(t, [{ on: { "events.read": many() } }]).kb.events.read();
  assert.deepEqual((await unread).data, { read: ITEMS });
  await assert.rejects(all(unread), /not kept/);
});

test("a stream that is left unread gives way to other requests", async (t) => {
  await holdLess();
  const { kb } = scripted(t, [{ on: { "events.read": many(), ping: [[result({ seq: 1 })]] } }]);
  const call = kb.events.read();
  for await (const event of call) {
    if (event.index > 0) break;
    await kb.ping();
  }
  const error = await failure(call);
  assert.ok(error instanceof LimitReached && error.type === "client.unread");
});

test("hints name the options of start", async (t) => {
  const hint = "Use a path below the root, or start kbproc with another --root.";
  const { kb } = scripted(t, [{ on: { "doc.ingest": [[refusal("path.outside_root", 6, { hint })]] } }]);
  const error = await failure(kb.doc.ingest({ paths: [".."] }));
  assert.equal(error.hint, "Use a path below the root, or start kbproc with another root.");
  assert.equal(error.message, "No.");
});
