// The golden transcripts through the client: what is asked there gets the answer, the events or the
// error that stand there.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { type MethodName, METHODS, KbprocError } from "kbproc";
import { INIT, READY, type Step } from "./fake.js";
import { scripted } from "./scripted.js";

const GOLDEN = join(process.env["KBPROC_REPO"] ?? "../..", "golden", "test_golden");

interface Message {
  id?: unknown;
  method?: string;
  params?: { request_id?: unknown; type?: string; [name: string]: unknown };
  result?: unknown;
  error?: { data: { type: string } };
}

interface Told {
  method: MethodName;
  params: object;
  said: Message[];
}

function parsed(line: string): Message | undefined {
  try {
    return JSON.parse(line) as Message;
  } catch {
    return undefined; // meant to be no JSON, or cut
  }
}

/** Requests with what was said to them, each alone on its line, and answered. */
function toldIn(transcript: string): Told[] {
  const open = new Map<unknown, Told>();
  const found: Told[] = [];
  for (const line of transcript.split("\n")) {
    const message = parsed(line.slice(2));
    if (!message || Array.isArray(message)) continue;
    const told = open.get(message.id ?? message.params?.request_id);
    if (line.startsWith("> ") && message.id !== undefined && Object.hasOwn(METHODS, message.method ?? "")) {
      if (message.params && typeof message.params === "object" && !Array.isArray(message.params)) {
        open.set(message.id, { method: message.method as MethodName, params: message.params, said: [] });
      }
    } else if (line.startsWith("< ") && told) {
      told.said.push(message);
      if (message.method) continue;
      open.delete(message.id);
      if (message.error?.data.type !== "server.overloaded") found.push(told);
    }
  }
  return found;
}

function asStep(message: Message): Step {
  return message.params
    ? { ...message, params: { ...message.params, request_id: "$id" } }
    : { ...message, id: "$id" };
}

test("what stands in the goldens is what the client tells", async (t) => {
  const files = readdirSync(GOLDEN).filter((name) => name.startsWith("test_over_pipes"));
  const told = files.flatMap((name) => toldIn(readFileSync(join(GOLDEN, name), "utf8")));
  const on: Record<string, Step[][]> = {};
  for (const one of told) (on[one.method] ??= []).push(one.said.map(asStep));
  for (const steps of Object.values(on)) steps.push([]); // the last one is not for ever
  const roomy = { ...INIT, params: { ...INIT.params, capabilities: { max_in_flight: 64, max_line_bytes: 1 << 24 } } };
  const { kb } = scripted(t, [{ begin: [roomy, READY], on }]);
  await kb.ready();
  for (const one of told) {
    const last = one.said.at(-1);
    const call = kb.call(one.method, one.params as never);
    const events: object[] = [];
    try {
      for await (const event of call) events.push({ ...event, request_id: 0 });
      assert.ok(isDeepStrictEqual(await call, last?.result), one.method);
    } catch (error) {
      if (!(error instanceof KbprocError)) throw error;
      assert.equal(error.type, last?.error?.data.type);
    }
    const expected = one.said.slice(0, -1).map((message) => ({ ...message.params, request_id: 0 }));
    if (!expected.some((event) => event.type === "progress")) assert.deepEqual(events, expected);
  }
  assert.ok(told.length > 300, `${told.length} requests`);
});
