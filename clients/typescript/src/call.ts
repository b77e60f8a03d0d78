// What a request is to its caller: a promise of the answer, and the events until then.

import type { ItemEvent, Meta, Methods, StreamEvent } from "./generated.js";

export type MethodName = keyof Methods;
export type Params<Name extends MethodName> = Methods[Name]["params"];

/** `meta` has what is said of the data: `hint`, `notice`, `next_cursor`, `plan`, `duplicate`. */
export interface Answer<Data> {
  data: Data;
  meta: Meta;
}

export interface Options {
  /** Aborting cancels the request, also on the server. */
  signal?: AbortSignal;
  /** The server's `timeout_ms`, and kept on this side, too. */
  timeoutMs?: number;
}

/** An event of a stream; an `item` is of the kind that the method tells of. */
export type EventOf<Name extends MethodName> =
  | Exclude<StreamEvent, ItemEvent>
  | (Omit<ItemEvent, "item"> & { item: Methods[Name]["item"] });

type Arguments<P> = {} extends P ? [params?: P, options?: Options] : [params: P, options?: Options];

/** A method as it is called; in a dry run `data` is null, and `meta.plan` tells the rest. */
export type Ask<Name extends MethodName> = Methods[Name]["kind"] extends "read"
  ? Plain<Name>
  : DryRun<Name> & Plain<Name>;

interface Plain<Name extends MethodName> {
  (...given: Arguments<Params<Name>>): Call<Name>;
}

interface DryRun<Name extends MethodName> {
  (params: Params<Name> & { dry_run: true }, options?: Options): Call<Name, null>;
}

/** What the caller does not see of a call. */
export interface Wiring<Name extends MethodName, Data> {
  answer: Promise<Answer<Data>>;
  events: Events<EventOf<Name>>;
  token: string | undefined;
  cancel(reason?: unknown): void;
}

/**
 * A request under way. Await it for the answer; iterate it for the events, after which a failure
 * is thrown. Leaving the loop early cancels the request.
 */
export class Call<Name extends MethodName, Data = Methods[Name]["data"]>
  implements Promise<Answer<Data>>, AsyncIterable<EventOf<Name>>
{
  /** A write's `client_token`, given or made: the same request with it happens once. */
  readonly token: string | undefined;
  readonly [Symbol.toStringTag] = "Call";
  readonly #wiring: Wiring<Name, Data>;

  constructor(wiring: Wiring<Name, Data>) {
    this.#wiring = wiring;
    this.token = wiring.token;
  }

  then<One = Answer<Data>, Other = never>(
    done?: ((answer: Answer<Data>) => One | PromiseLike<One>) | null,
    failed?: ((error: unknown) => Other | PromiseLike<Other>) | null,
  ): Promise<One | Other> {
    return this.#wiring.answer.then(done, failed);
  }

  catch<Other = never>(
    failed?: ((error: unknown) => Other | PromiseLike<Other>) | null,
  ): Promise<Answer<Data> | Other> {
    return this.#wiring.answer.catch(failed);
  }

  finally(done?: (() => void) | null): Promise<Answer<Data>> {
    return this.#wiring.answer.finally(done);
  }

  /** Asks the server to end it; the promise is then rejected with Cancelled, or it was too late. */
  cancel(reason?: unknown): void {
    this.#wiring.cancel(reason);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<EventOf<Name>, void, undefined> {
    const { answer, events } = this.#wiring;
    if (events.isRead) throw new TypeError("The events of a call can be read once.");
    if (events.isDropped) throw new TypeError("So many events came unread that they were not kept.");
    events.isRead = true;
    answer.catch(() => undefined); // it is thrown here
    let ended = false;
    try {
      for (let event = await events.next(); event; event = await events.next()) yield event;
      ended = true;
    } finally {
      if (!ended) this.cancel();
    }
    await answer;
  }
}

/** Events on their way to whoever iterates them. */
export class Events<Event extends { type: string }> {
  /** Bytes of what waits. */
  held = 0;
  isRead = false;
  isDropped = false;
  #waiting: { event: Event; size: number }[] = [];
  #wake: (() => void) | undefined;
  #ended = false;
  readonly #onTaken: () => void;

  constructor(onTaken: () => void) {
    this.#onTaken = onTaken;
  }

  /** Of `progress` that nobody has read, the last is kept. */
  add(event: Event, size: number): void {
    if (event.type === "progress" && this.#waiting.at(-1)?.event.type === "progress") {
      this.held -= this.#waiting.pop()?.size ?? 0;
    }
    if (this.isDropped) return;
    this.#waiting.push({ event, size });
    this.held += size;
    this.#wake?.();
  }

  drop(): void {
    this.isDropped = true;
    this.#waiting = [];
    this.held = 0;
  }

  end(): void {
    this.#ended = true;
    this.#wake?.();
  }

  /** Undefined after the last. */
  async next(): Promise<Event | undefined> {
    while (!this.#waiting.length && !this.#ended) {
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    const first = this.#waiting.shift();
    this.held -= first?.size ?? 0;
    this.#onTaken();
    return first?.event;
  }
}
