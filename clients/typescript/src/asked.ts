// One request from its line to its answer, whichever server it comes to.

import { randomUUID } from "node:crypto";
import { type Answer, type EventOf, Events, type MethodName, type Options } from "./call.js";
import { cancelled, type KbprocError, timedOut, unread } from "./errors.js";
import { METHODS } from "./generated.js";

const GRACE_MS = 2000; // in which the server may say itself that the time is over, or what was done
const MOST_MS = 86_400_000;
const OF_AN_EVENT = 1024; // bytes that an object takes beside its line
/** Bytes of one stream's events that wait for their reader: from `much` on it is held back. */
export const HELD = { much: 1 << 22, most: 1 << 26 };
const ANEW = "kbproc ended and was started again; the request goes on.";
const HERE = new URL(".", import.meta.url).href;
const KNOWN = new Set(["init", "progress", "item", "warning", "references", "answer"]);

type Given = Record<string, unknown>;

/** An event as it comes: of a stream, or not yet known to be one. */
export interface RawEvent {
  type: string;
  request_id?: number | string;
  index?: number;
  [member: string]: unknown;
}

export interface Found {
  data: { status?: string } | null;
  meta?: { seq?: number };
}

const LISTENING = new WeakMap<AbortSignal, Set<Asked>>();

/** One listener a signal, however many requests have it: more than ten would be warned of. */
function listeners(signal: AbortSignal): Set<Asked> {
  const found = LISTENING.get(signal) ?? new Set<Asked>();
  if (!LISTENING.has(signal)) {
    LISTENING.set(signal, found);
    signal.addEventListener("abort", () => [...found].forEach((one) => one.cancel(signal.reason)));
  }
  return found;
}

/** What a request asks of whoever sends it. */
export interface Sender {
  sendCancel(asked: Asked): void;
  forget(asked: Asked): void;
  /** An event was taken by its reader. */
  taken(): void;
}

/** A request, and what has come of it so far. */
export class Asked {
  readonly events = new Events<EventOf<MethodName>>(() => this.sender.taken());
  readonly answer: Promise<Answer<never>>;
  readonly token: string | undefined;
  readonly params: Given;
  /** How many servers it was sent to. */
  servers = 0;
  tries = 0;
  isCancelled = false;
  #cause: unknown;
  #resolve!: (answer: Answer<never>) => void;
  #reject!: (error: unknown) => void;
  #timeoutMs: number | undefined;
  #began = Date.now();
  #timers: NodeJS.Timeout[] = [];
  #index = 0;
  #items = 0;
  #toPass = 0;
  #cursor: string | undefined;
  #where: Given | undefined;
  #seq = -1;
  #since = 0;
  #resuming = false;
  #signal: AbortSignal | undefined;
  readonly #called = new Error(); // where it was asked

  constructor(
    readonly id: number,
    readonly method: MethodName,
    params: object,
    options: Options,
    private readonly sender: Sender,
  ) {
    this.params = { ...params };
    if (METHODS[method].kind !== "read" && !this.params["dry_run"]) {
      this.params["client_token"] ??= randomUUID();
      this.token = String(this.params["client_token"]);
    }
    this.answer = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    const ms = options.timeoutMs ?? this.params["timeout_ms"];
    if (options.timeoutMs !== undefined) this.params["timeout_ms"] = ms;
    if (typeof ms === "number" && ms >= 0 && ms <= MOST_MS) {
      this.#timeoutMs = ms; // any other one the server refuses
      this.#after(ms + GRACE_MS, () => this.fail(timedOut(method, ms, this.token), true));
    }
    this.#signal = options.signal;
    if (this.#signal) listeners(this.#signal).add(this);
  }

  #after(ms: number, then: () => void): void {
    this.#timers.push(setTimeout(then, ms).unref());
  }

  // ------------------------------------------------------------------------------ to the server

  /** For the next server, which knows nothing of the one before. `seq`: the last that is known. */
  line(seq: number): string {
    const again = this.servers > 0;
    if (!again) this.#since = seq;
    const { method, params } = again ? this.#goesOn() : this;
    const left = this.#timeoutMs === undefined ? {} : { timeout_ms: this.#left(this.#timeoutMs) };
    return JSON.stringify({ jsonrpc: "2.0", id: this.id, method, params: { ...params, ...left } });
  }

  #left(ms: number): number {
    return Math.max(0, this.servers > 0 ? ms - (Date.now() - this.#began) : ms);
  }

  #goesOn(): { method: string; params: Given } {
    const after = this.#cursor;
    this.#resuming = METHODS[this.method].answer && after !== undefined && this.#where !== undefined;
    this.#toPass = this.#resuming ? 0 : this.#items;
    if (this.method === "events.subscribe") {
      this.#toPass = 0;
      const asked = this.params["after_seq"];
      const from = Math.max(this.#seq, typeof asked === "number" ? asked : this.#since);
      return { method: this.method, params: { ...this.params, after_seq: from } };
    }
    if (this.#resuming) return { method: "session.resume", params: { ...this.#where, after } };
    return this;
  }

  // ---------------------------------------------------------------------------- from the server

  /** Whether its caller waits for what comes next: who reads its events, and has many left, does not. */
  hasRoom(held: number): boolean {
    return this.isCancelled || !this.events.isRead || this.events.held < held;
  }

  /** A stream that another server began is told as one, with a warning where it went on. `size`: of
   * its line. */
  take(event: RawEvent, size: number): void {
    if (this.events.held >= HELD.most) return this.#leaveUnread();
    if (event.type === "init" && event["session_id"] !== undefined) {
      const { session_id, message_id } = event;
      this.#where = { session_id, message_id };
    }
    if (event.type === "item" || event["cursor"] !== undefined) {
      if (this.#toPass > 0) {
        this.#toPass--;
        return;
      }
      this.#items++;
      if (typeof event["cursor"] === "string") this.#cursor = event["cursor"];
      const item = event["item"] as { seq?: number } | undefined;
      if (this.method === "events.subscribe") this.#seq = Math.max(this.#seq, item?.seq ?? -1);
    }
    const index = this.#index++;
    if (event.type === "init" && index > 0) {
      this.#tell({ type: "warning", request_id: this.id, index, message: ANEW }, size);
    } else if (KNOWN.has(event.type)) {
      this.#tell({ ...event, index }, size);
    }
  }

  #tell(event: RawEvent, size: number): void {
    this.events.add(event as unknown as EventOf<MethodName>, size + OF_AN_EVENT);
  }

  /** Others wait for what comes after its events, and it can't be held back alone. Who only awaits
   * the answer gets that. */
  #leaveUnread(): void {
    if (!this.events.isRead) this.events.drop();
    else if (!this.isCancelled) this.fail(unread(this.method, HELD.most), true);
  }

  /** False: what was interrupted is to be asked for once more. */
  finish(found: Found): boolean {
    if (this.#resuming && this.method !== "session.resume" && found.data?.status === "interrupted") {
      this.#cursor = undefined; // the same token asks again, in the same message
      return false;
    }
    this.#end();
    this.#resolve(found as unknown as Answer<never>);
    return true;
  }

  /** False: what could not be read on is to be asked for once more. */
  refuse(error: KbprocError): boolean {
    const final = ["operation.cancelled", "operation.timeout"].includes(error.type);
    if (this.#resuming && this.method !== "session.resume" && !final) {
      this.#cursor = undefined;
      return false;
    }
    this.fail(error);
    return true;
  }

  fail(error: Error, tell = false): void {
    if (tell) this.sender.sendCancel(this);
    this.#end();
    const from = this.#called.stack?.split("\n").slice(1) ?? [];
    const theirs = from.filter((frame) => !frame.includes(HERE));
    error.stack = [`${error.name}: ${error.message}`, ...theirs].join("\n");
    this.#reject(error);
  }

  #end(): void {
    this.#timers.forEach(clearTimeout);
    if (this.#signal) listeners(this.#signal).delete(this);
    this.sender.forget(this);
    this.events.end();
  }

  // ------------------------------------------------------------------------------------ its end

  /** The server says what had been done by then; one that says nothing is not waited for. */
  cancel(reason?: unknown): void {
    if (this.isCancelled) return;
    this.isCancelled = true;
    this.#cause = reason;
    if (this.servers === 0) return this.giveUp();
    this.sender.sendCancel(this);
    this.#after(GRACE_MS, () => this.giveUp());
  }

  giveUp(): void {
    this.fail(cancelled(this.method, this.servers > 0 ? this.token : undefined, this.#cause));
  }
}
