// Starts kbproc, sends requests, and starts it again where it ends with some unanswered.

import { existsSync } from "node:fs";
import { Asked, HELD, type Found, type RawEvent } from "./asked.js";
import { type Answer, Call, type MethodName, type Options, type Params } from "./call.js";
import { closed, errorOf, type KbprocError, notTheWire, serverEnded, tooLong, unknownMethod } from "./errors.js";
import { type Api, type ErrorData, METHODS, type Methods, type ProcessInitEvent, type ReadyEvent } from "./generated.js";
import { type Message, messagesIn, type Refusal, type Wrong } from "./messages.js";
import { type End, Server } from "./server.js";

const CLOSE_MS = 12_000; // kbproc takes ten seconds for what is in flight
const MOST_TRIES = 50; // of what was refused as one too many
const MOST_DELAY_MS = 2000;
const PARKED = new Set<MethodName>(["events.subscribe", "doc.wait", "session.resume"]);

export interface Settings {
  /** What kbproc is started with; `serve` and the flags below come after it. */
  command?: readonly string[];
  /** Folder of the store; the user's own if left out. */
  store?: string;
  /** Knowledge base that is added to and looked at. */
  kb?: string;
  /** The agent that acts; it sees and may do what was said of it. */
  agent?: string;
  /** What may be done, such as `["doc:read", "kb:read"]`; everything if left out. */
  scopes?: readonly string[];
  /** Folder that files are read below, and where relative paths start; `cwd` if left out. */
  root?: string;
  /** More flags of `kbproc serve`. */
  flags?: readonly string[];
  cwd?: string;
  /** The variables that kbproc gets; all of this process if left out. */
  env?: NodeJS.ProcessEnv;
  /** For each request that is given no time of its own. */
  timeoutMs?: number;
  /** How often in a row kbproc is started again while it answers nothing. */
  restarts?: number;
  /** Each line of kbproc's log. */
  onLog?: (line: string) => void;
}

/** The client without the methods' names. */
export class Client {
  readonly #settings: Settings;
  #server: Server | undefined;
  #init: ProcessInitEvent | undefined;
  #ready = deferred<ReadyEvent>();
  #seq = 0;
  #ids = 0;
  #failures = 0;
  #starts = 0;
  #looking = 0;
  readonly #inFlight = new Map<number, Asked>();
  readonly #queue: Asked[] = [];
  #closing: { done: Promise<void>; resolve: () => void } | undefined;

  constructor(settings: Settings) {
    this.#settings = settings;
    this.#start();
  }

  /** Of the process that runs now. */
  get pid(): number | undefined {
    return this.#server?.pid;
  }

  /** How often a server that had ended was started again. */
  get restarts(): number {
    return Math.max(0, this.#starts - 1);
  }

  /** What the server said first: its version, store, scopes and capabilities. */
  get init(): ProcessInitEvent | undefined {
    return this.#init;
  }

  /** Once the store is open; rejected where it can't be. Requests need not wait for it. */
  async ready(): Promise<ReadyEvent> {
    if (!this.#server && !this.#ready.settled) this.#start();
    this.#looking++;
    this.#hold();
    try {
      return await this.#ready.promise;
    } finally {
      this.#looking--;
      this.#hold();
    }
  }

  /** Any method by its name; the named ones (`kb.search`, `kb.doc.get`) lead here. */
  call<Name extends MethodName>(
    method: Name,
    params: Params<Name> = {} as Params<Name>,
    options: Options = {},
  ): Call<Name> {
    if (!Object.hasOwn(METHODS, method)) throw unknownMethod(method, Object.keys(METHODS));
    const timeoutMs = options.timeoutMs ?? this.#settings.timeoutMs;
    const timed = timeoutMs === undefined ? options : { timeoutMs, ...options };
    const asked = new Asked(++this.#ids, method, params, timed, {
      sendCancel: (one) => this.#cancel(one),
      forget: (one) => this.#forget(one),
      taken: () => this.#look(),
    });
    const call = new Call<Name>({
      answer: asked.answer as Promise<Answer<Methods[Name]["data"]>>,
      events: asked.events,
      token: asked.token,
      cancel: (reason) => asked.cancel(reason),
    });
    if (this.#closing) asked.fail(closed());
    else if (options.signal?.aborted) asked.cancel(options.signal.reason);
    else this.#take(asked);
    return call;
  }

  // ------------------------------------------------------------------------- requests out

  #take(asked: Asked): void {
    this.#queue.push(asked);
    this.#hold();
    this.#sendQueued();
  }

  /** In the order of the calls, as many as the server takes at once. */
  #sendQueued(): void {
    if (!this.#server && this.#queue.length && !this.#closing) this.#start();
    const most = this.#init?.capabilities?.max_in_flight ?? 64;
    while (this.#server && this.#queue.length) {
      const taken = [...this.#inFlight.values()].filter((one) => !PARKED.has(one.method));
      if (taken.length >= most) return;
      const asked = this.#queue.shift();
      if (asked) this.#send(asked);
    }
  }

  #send(asked: Asked): void {
    let line: string;
    try {
      line = asked.line(this.#seq);
    } catch (error) {
      return asked.fail(error as Error); // of what JSON can't say
    }
    const most = this.#init?.capabilities?.max_line_bytes ?? 1 << 24;
    const bytes = Buffer.byteLength(line);
    if (bytes > most) return asked.fail(tooLong(asked.method, bytes, most));
    asked.servers++;
    this.#inFlight.set(asked.id, asked);
    this.#server?.send(line);
    this.#look();
  }

  #cancel(asked: Asked): void {
    this.#look();
    if (!this.#inFlight.has(asked.id)) return;
    const notification = { jsonrpc: "2.0", method: "$/cancel", params: { id: asked.id } };
    this.#server?.send(JSON.stringify(notification));
  }

  #forget(asked: Asked): void {
    this.#inFlight.delete(asked.id);
    const at = this.#queue.indexOf(asked);
    if (at >= 0) this.#queue.splice(at, 1);
    this.#hold();
    this.#look();
    this.#sendQueued();
  }

  /** While no request's caller waits for what comes next, nothing is read. */
  #look(): void {
    const server = this.#server;
    if (!server) return;
    const held = server.isRead ? HELD.much : HELD.much / 2;
    const all = [...this.#inFlight.values()];
    const wanted = this.#closing !== undefined || !all.length || all.some((one) => one.hasRoom(held));
    if (wanted !== server.isRead) server.read(wanted);
  }

  get #waits(): boolean {
    return this.#inFlight.size + this.#queue.length + this.#looking > 0;
  }

  /** This process may end while nothing is asked; kbproc then ends with it. */
  #hold(): void {
    this.#server?.hold(this.#waits || this.#closing !== undefined);
  }

  // -------------------------------------------------------------------------- messages in

  #receive(line: string): void {
    let found: Message[];
    try {
      found = messagesIn(line, this.#ids);
    } catch (wrong) {
      return this.#garbled(line, wrong as Wrong);
    }
    for (const { id, event, ...answer } of found) {
      if (event) this.#event(event, line.length);
      else if (typeof id === "number") this.#answered(id, answer);
      else if (answer.error && this.#server) this.#server.refusal = answer.error;
    }
    this.#look();
  }

  #garbled(line: string, wrong: Wrong): void {
    this.#giveUp(() => notTheWire(line, wrong));
    this.#server?.kill();
  }

  #event(event: RawEvent, size: number): void {
    if (event.request_id !== undefined) {
      this.#inFlight.get(Number(event.request_id))?.take(event, size);
    } else if (event.type === "init") {
      this.#init = event as unknown as ProcessInitEvent;
      if (this.#server) this.#server.hasBegun = true;
    } else if (event.type === "ready") {
      this.#seq = Math.max(this.#seq, Number(event["seq"]));
      this.#ready.resolve(event as unknown as ReadyEvent);
    } else if (event.type === "error") {
      this.#ready.reject(errorOf({ data: event["error"] as ErrorData }));
    }
  }

  #answered(id: number, message: Message): void {
    const asked = this.#inFlight.get(id);
    if (!asked) return;
    this.#failures = 0;
    this.#seq = Math.max(this.#seq, message.result?.meta?.seq ?? 0);
    const error = message.error && errorOf(message.error);
    if (error?.type === "server.overloaded" && asked.tries < MOST_TRIES && !asked.isCancelled) {
      return this.#later(asked, error);
    }
    const done = error ? asked.refuse(error) : asked.finish(message.result as Found);
    if (!done) this.#send(asked);
  }

  /** Nothing was done of it. */
  #later(asked: Asked, error: KbprocError): void {
    const ms = Math.min((error.retryAfterMs ?? 100) * 1.2 ** asked.tries, MOST_DELAY_MS);
    asked.tries++;
    const { servers } = asked;
    setTimeout(() => {
      const isSame = asked.servers === servers; // none has been started again meanwhile
      if (isSame && this.#server && this.#inFlight.has(asked.id)) this.#send(asked);
    }, ms);
  }

  // ------------------------------------------------------------------- start, end, restart

  #start(): void {
    const { command = ["kbproc"], store, kb, agent, root, scopes, flags = [] } = this.#settings;
    const named = { store, kb, agent, root, scopes: scopes?.join(",") };
    const given = Object.entries(named).flatMap(([name, value]) =>
      value === undefined ? [] : [`--${name}`, value],
    );
    const { cwd, env, onLog } = this.#settings;
    const started = { command: [...command, "serve", ...given, ...flags], cwd, env, onLog };
    if (this.#ready.settled) this.#ready = deferred<ReadyEvent>();
    const server: Server = new Server(
      started,
      (line) => this.#receive(line),
      (end) => this.#ended(server, end),
    );
    this.#server = server;
    this.#starts++;
    this.#hold();
  }

  #ended(server: Server, end: End): void {
    if (this.#server !== server) return;
    this.#server = undefined;
    if (this.#closing) {
      this.#failAll(closed);
      return this.#closing.resolve();
    }
    for (const asked of this.#inFlight.values()) if (asked.isCancelled) asked.giveUp();
    const hopeless = !server.hasBegun && end.signal === null;
    if (hopeless || ++this.#failures > (this.#settings.restarts ?? 5)) {
      this.#giveUp(() => this.#whyEnded(end, server));
    }
    else if (this.#waits) this.#startAgain();
  }

  #startAgain(): void {
    const ms = this.#failures > 1 ? Math.min(50 * 2 ** this.#failures, MOST_DELAY_MS) : 0;
    setTimeout(() => {
      if (this.#closing || this.#server) return;
      this.#start();
      const again = [...this.#inFlight.values()].sort((one, other) => one.id - other.id);
      for (const asked of again) this.#send(asked);
      this.#sendQueued();
    }, ms);
  }

  #giveUp(why: () => KbprocError): void {
    this.#failures = 0;
    this.#ready.reject(why());
    this.#failAll(why);
  }

  #failAll(why: () => KbprocError): void {
    for (const asked of [...this.#inFlight.values(), ...this.#queue.splice(0)]) asked.fail(why());
  }

  #whyEnded(end: End, server: Server): KbprocError {
    const program = this.#settings.command?.join(" ") ?? "kbproc";
    if (end.error) return notStarted(program, this.#settings.cwd, end.error);
    const refusal = server.hasBegun ? undefined : (server.refusal ?? refusalIn(end.log));
    if (refusal) return errorOf(refusal);
    const how = end.signal ? `was ended by ${end.signal}` : `ended with exit code ${end.code}`;
    const said = end.log.map(saidIn).join(" ");
    const hint = server.hasBegun
      ? "Ask again: a write with its client_token happens once."
      : "Look at `command` and the settings of the client.";
    return serverEnded(`${program} ${how}${said ? `, and said: ${said}` : "."}`, hint);
  }

  /** What is in flight is answered, as far as ten seconds allow; then kbproc ends. */
  close(): Promise<void> {
    if (!this.#closing) {
      const { promise, resolve } = deferred<void>();
      this.#closing = { done: promise, resolve };
      for (const asked of this.#queue.splice(0)) asked.fail(closed());
      const server = this.#server;
      if (server) this.#end(server);
      else {
        this.#failAll(closed);
        resolve();
      }
    }
    return this.#closing.done;
  }

  #end(server: Server): void {
    this.#hold();
    this.#look();
    server.sendEnd();
    setTimeout(() => server.kill("SIGTERM"), CLOSE_MS).unref();
    setTimeout(() => server.kill(), CLOSE_MS + 3000).unref();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

function notStarted(program: string, cwd: string | undefined, error: Error): KbprocError {
  const hint =
    cwd === undefined || existsSync(cwd)
      ? 'Is it installed (`pip install kbproc`)? Else name it: `command: ["/path/to/kbproc"]`.'
      : `There is no folder ${cwd}: name another as cwd.`;
  return serverEnded(`${program} could not be started: ${error.message}.`, hint, error);
}

interface LogLine {
  msg?: string;
  error?: Partial<ErrorData>;
}

/** A line of its log is JSON, but for what Python itself says. */
function logLine(line: string): LogLine {
  try {
    return JSON.parse(line) as LogLine;
  } catch {
    return { msg: line };
  }
}

function saidIn(line: string): string {
  return logLine(line).msg ?? line;
}

/** What it says of its flags. */
function refusalIn(log: string[]): Refusal | undefined {
  const data = log.map((line) => logLine(line).error).findLast(Boolean);
  return data && { data };
}

interface Deferred<Value> {
  promise: Promise<Value>;
  resolve: (value: Value) => void;
  reject: (error: unknown) => void;
  settled: boolean;
}

/** Nobody needs to wait for it. */
function deferred<Value>(): Deferred<Value> {
  const made = { settled: false } as Deferred<Value>;
  made.promise = new Promise((resolve, reject) => {
    made.resolve = (value) => ((made.settled = true), resolve(value));
    made.reject = (error) => ((made.settled = true), reject(error));
  });
  made.promise.catch(() => undefined);
  return made;
}

/** A kbproc of one's own, with every method under its name. */
export type Kbproc = Client & Api;

/** Starts kbproc; requests may be sent at once. */
export function start(settings: Settings = {}): Kbproc {
  const client = new Client(settings);
  for (const name of Object.keys(METHODS) as MethodName[]) {
    const [noun = "", verb] = name.split(".");
    const ask = (params?: object, options?: Options) => client.call(name, params as never, options);
    const place = client as unknown as Record<string, Record<string, unknown>>;
    if (verb === undefined) Object.assign(client, { [noun]: ask });
    else (place[noun] ??= {})[verb] = ask;
  }
  return client as Kbproc;
}
