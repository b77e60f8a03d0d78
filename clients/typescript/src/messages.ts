// What a line of the server says: messages of the protocol, or why they are none.

import type { Found, RawEvent } from "./asked.js";
import type { ErrorData } from "./generated.js";

export interface Refusal {
  message?: string;
  data?: Partial<ErrorData>;
}

/** What it is, by what is there; of what is unknown there is nothing. */
export interface Message {
  id?: number | null;
  event?: RawEvent;
  result?: Found;
  error?: Refusal;
}

/** Its `message` ends the sentence "it said". */
export class Wrong extends Error {}

type Members = Record<string, unknown>;

/** `lastId`: of the requests so far. Throws Wrong. */
export function messagesIn(line: string, lastId: number): Message[] {
  let said: unknown;
  try {
    said = JSON.parse(line);
  } catch (cause) {
    throw new Wrong("what is no JSON", { cause });
  }
  const all: unknown[] = Array.isArray(said) && said.length ? said : [said];
  return all.map((one) => messageIn(one, lastId));
}

/** A later version may say more: what is unknown is right. */
function messageIn(said: unknown, lastId: number): Message {
  if (!isObject(said)) throw new Wrong("what is no message of JSON-RPC");
  const { method, id, params } = said;
  if (method === "event") return { event: eventIn(params) };
  if (method !== undefined) return {};
  const isScalar = id === undefined || id === null || typeof id === "string" || Number.isInteger(id);
  if (!isScalar || !("result" in said || "error" in said)) throw new Wrong("what is no message of JSON-RPC");
  const content = "error" in said ? { error: refusalIn(said["error"]) } : { result: foundIn(said["result"]) };
  if (id === undefined || id === null) {
    if ("result" in content) throw new Wrong("a result without the id of a request");
    return content;
  }
  // One to what was given up, or was answered before, comes late and is right.
  if (typeof id !== "number" || id < 1 || id > lastId) throw new Wrong("an answer to what was not asked");
  return { id, ...content };
}

function eventIn(event: unknown): RawEvent {
  if (!isObject(event) || typeof event["type"] !== "string") throw new Wrong("an event without a type");
  const { type, request_id: id, capabilities = {} } = event;
  if (typeof id === "object" && id !== null) throw new Wrong("an event of a request that can't be");
  if (type === "init" && id === undefined && !isObject(capabilities)) {
    throw new Wrong("an event whose capabilities are no object");
  }
  return event as RawEvent;
}

function foundIn(result: unknown): Found {
  if (!isObject(result) || !("data" in result)) throw new Wrong("a result without data");
  if (!isObject(result["meta"])) throw new Wrong("a result without meta");
  return result as unknown as Found;
}

function refusalIn(error: unknown): Refusal {
  if (!isObject(error)) throw new Wrong("an error that is no object");
  const { data } = error;
  if (data === undefined || data === null) return { message: String(error["message"] ?? "") };
  if (!isObject(data) || typeof (data["type"] ?? "") !== "string") throw new Wrong("an error whose data has no type");
  for (const number of [data["exit_code"], data["retry_after_ms"]]) {
    if (typeof (number ?? 0) !== "number") throw new Wrong("an error whose numbers are none");
  }
  return error as Refusal;
}

function isObject(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
