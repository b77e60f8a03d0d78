// What goes wrong, as exceptions: one class an exit code, and all that the server says of it.

import type { ErrorData, ErrorRetry, Plan } from "./generated.js";

/** Named types, and any other text: a later server may have more. */
export type ErrorType = ErrorData["type"] | "client.server_ended" | "client.closed";

const SHOWN = 100; // characters of a line
// Errors whose hints name flags of `kbproc serve`, which are options of `start`.
const ABOUT_THE_START = new Set<string>(["path.outside_root", "auth.insufficient_scope"]);

type Told = Partial<ErrorData> & { type: string; message: string };

/**
 * A request that failed. Decide by the class or by `type`; `hint` says what to do, and `retry` is
 * the one request that leads on, where there is one. `retryable`: whether the same request may
 * work later; null: `detail` tells.
 */
export class KbprocError extends Error {
  readonly type: ErrorType;
  readonly hint: string;
  readonly retryable: boolean | null;
  readonly exitCode: number;
  readonly detail: Record<string, unknown>;
  readonly field: string | undefined;
  readonly validValues: unknown[] | undefined;
  readonly retry: ErrorRetry | undefined;
  readonly retryAfterMs: number | undefined;
  readonly plan: Plan | undefined;
  readonly docUrl: string | undefined;

  constructor(told: Told, options?: ErrorOptions) {
    super(told.message, options);
    this.name = new.target.name;
    this.type = told.type;
    this.hint = told.hint ?? "";
    this.retryable = told.retryable ?? null;
    this.exitCode = told.exit_code ?? 2;
    this.detail = told.detail ?? {};
    this.field = told.field;
    this.validValues = told.valid_values;
    this.retry = told.retry;
    this.retryAfterMs = told.retry_after_ms;
    this.plan = told.plan;
    this.docUrl = told.doc_url;
  }

  /** The type, the message, the nearest valid values and the hint, on one line. */
  override toString(): string {
    const message = /[.!?…]$/.test(this.message) ? this.message : `${this.message}.`;
    const valid = this.validValues?.length ? ` Valid: ${this.validValues.slice(0, 10).join(", ")}.` : "";
    return `${this.type}: ${message}${valid}${this.hint ? ` ${this.hint}` : ""}`;
  }
}

/** The caller's mistake: `field` and `validValues` say which. */
export class BadRequest extends KbprocError {}

/** The environment's or kbproc's own: disk, model, network. */
export class Failed extends KbprocError {}

/** Some items worked, others failed. */
export class Partially extends KbprocError {}

/** The time was over first; `detail` says what had been done by then. */
export class Timeout extends KbprocError {}

/** There is no such thing. */
export class NotFound extends KbprocError {}

/** A scope, an owner or a root forbids it. */
export class NotAllowed extends KbprocError {}

/** The name is taken, or what was read has changed since. */
export class Conflict extends KbprocError {}

/** A quota is used up. */
export class LimitReached extends KbprocError {}

/** Too many requests at the same time, and still so after many tries. */
export class Overloaded extends LimitReached {}

/** The request was cancelled; `detail` says what had been done by then. */
export class Cancelled extends KbprocError {}

/** A destructive request: show `plan` to a person, who confirms its `plan_hash`. */
export class NeedsPerson extends KbprocError {}

/** kbproc ended, or could not be started, and the client could not mend it. */
export class ServerEnded extends Failed {}

/** This client was closed. */
export class Closed extends Failed {}

const BY_EXIT: Record<number, typeof KbprocError> = {
  1: BadRequest,
  2: Failed,
  3: Partially,
  4: Timeout,
  5: NotFound,
  6: NotAllowed,
  7: Conflict,
  8: LimitReached,
  9: Cancelled,
  10: NeedsPerson,
};

/** From the `error` of a response; another server's may have no `data`. */
export function errorOf(error: { message?: string; data?: Partial<ErrorData> }): KbprocError {
  const told = { type: "internal.error", message: error.message ?? "", ...error.data };
  if (told.hint && ABOUT_THE_START.has(told.type)) {
    told.hint = told.hint.replaceAll(/--(root|scopes)\b/g, "$1");
  }
  if (told.type === "server.overloaded") return new Overloaded(told);
  return new (BY_EXIT[told.exit_code ?? 2] ?? KbprocError)(told);
}

const AGAIN = "A write that had begun may still be done: ask again with the same client_token";

export function timedOut(method: string, ms: number, token: string | undefined): Timeout {
  return new Timeout({
    type: "operation.timeout",
    message: `${method} was not answered within ${ms} ms.`,
    hint: token ? `${AGAIN}, ${token}.` : "kbproc may be stopped, or busy: give it more time.",
    exit_code: 4,
    retryable: true,
    detail: token ? { client_token: token } : {},
  });
}

export function cancelled(method: string, token: string | undefined, cause: unknown): Cancelled {
  return new Cancelled(
    {
      type: "operation.cancelled",
      message: `${method} was cancelled, and kbproc has not said what it had done by then.`,
      hint: token ? `${AGAIN}, ${token}.` : "",
      exit_code: 9,
      retryable: false,
      detail: token ? { client_token: token } : {},
    },
    { cause },
  );
}

export function tooLong(method: string, bytes: number, most: number): BadRequest {
  return new BadRequest({
    type: "input.too_large",
    message: `The request ${method} has ${bytes} bytes; a line may have ${most}.`,
    hint: "Send less at once; documents on disk are read by doc.ingest.",
    exit_code: 1,
    retryable: false,
    detail: { bytes, max_line_bytes: most },
  });
}

export function unknownMethod(method: string, known: readonly string[]): BadRequest {
  const near = nearest(method, known);
  const first = near[0] === undefined ? "" : `Did you mean ${near[0]}? `;
  return new BadRequest({
    type: "input.unknown_method",
    message: `There is no method ${method}.`,
    hint: `${first}\`await kb.describe()\` lists all of them.`,
    exit_code: 1,
    retryable: false,
    ...(near.length ? { valid_values: near } : {}),
  });
}

/** The names that differ in a third of their letters at most, the nearest first. */
function nearest(name: string, known: readonly string[]): string[] {
  return known
    .map((other) => ({ other, steps: distance(name.toLowerCase(), other) }))
    .filter(({ other, steps }) => steps <= Math.max(2, Math.floor(other.length / 3)))
    .sort((one, two) => one.steps - two.steps)
    .slice(0, 3)
    .map(({ other }) => other);
}

/** How many letters must be put in, taken out or replaced; two that changed places count as two. */
function distance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, n) => n);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (one[i - 1] === other[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[other.length] ?? 0;
}

export function unread(method: string, most: number): LimitReached {
  return new LimitReached({
    type: "client.unread",
    message: `${method} was cancelled: ${most >> 20} MiB of its events were not read, and other requests wait for what comes behind them.`,
    hint: "Read the events as they come, or ask in a client of its own, which then waits.",
    exit_code: 8,
    retryable: false,
  });
}

export function serverEnded(message: string, hint: string, cause?: unknown, retryable = true): ServerEnded {
  return new ServerEnded(
    { type: "client.server_ended", message, hint, exit_code: 2, retryable },
    { cause },
  );
}

/** `wrong`: what the line is, as the object of a sentence. */
export function notTheWire(line: string, wrong: Error): ServerEnded {
  const begins = line.length > SHOWN ? `${line.slice(0, SHOWN)}…` : line;
  const hint = "`command` must start kbproc, and nothing else may write to its stdout.";
  const message = `What was started does not speak kbproc's protocol. It said ${wrong.message}: “${begins}”.`;
  return serverEnded(message, hint, wrong, false);
}

export function closed(): Closed {
  return new Closed({
    type: "client.closed",
    message: "This client was closed.",
    hint: "Start another; a write that was under way can be asked again with its client_token.",
    exit_code: 2,
    retryable: false,
  });
}
