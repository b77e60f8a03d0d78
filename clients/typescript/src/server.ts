// One kbproc process: lines in, lines out, and how it ended.

import { type ChildProcess, spawn } from "node:child_process";
import type { Socket } from "node:net";

const LATE_MS = 1000; // for the exit code after the last line, or the last line after it
const KEPT_LINES = 20;

export interface Started {
  command: readonly string[];
  cwd: string | undefined;
  env: NodeJS.ProcessEnv | undefined;
  onLog: ((line: string) => void) | undefined;
}

export interface End {
  /** Undefined where it could not be started: `error` says why. */
  code: number | null | undefined;
  signal: NodeJS.Signals | null;
  error?: Error;
  /** The last lines of its log. */
  log: string[];
}

export class Server {
  /** Whether its `init` has come. */
  hasBegun = false;
  isRead = true;
  /** Why it won't begin. */
  refusal: { message?: string } | undefined;
  readonly #child: ChildProcess;
  readonly #log: string[] = [];
  #ended = false;
  #isHeld = true; // as a process begins
  readonly #timers: NodeJS.Timeout[] = [];
  readonly #onEnd: (end: End) => void;

  constructor(started: Started, onLine: (line: string) => void, onEnd: (end: End) => void) {
    const [program = "kbproc", ...args] = started.command;
    this.#onEnd = onEnd;
    this.#child = spawn(program, args, {
      cwd: started.cwd,
      env: started.env,
      stdio: ["pipe", "pipe", "pipe"],
    });
    const { stdin, stdout, stderr } = this.#child;
    this.#child.once("error", (error) => this.#end({ error }));
    this.#child.once("exit", () => this.#later(() => this.#end()));
    this.#child.once("close", () => this.#end());
    stdin?.on("error", () => this.kill()); // it reads no more
    if (stdout) {
      readLines(stdout, onLine);
      stdout.once("end", () => this.#later(() => this.kill()));
    }
    if (stderr) readLines(stderr, (line) => this.#keep(line, started.onLog));
  }

  /** Undefined once it has ended, though somebody may hold its pipes for a while yet. */
  get pid(): number | undefined {
    const { pid, exitCode, signalCode } = this.#child;
    return exitCode === null && signalCode === null ? pid : undefined;
  }

  #keep(line: string, onLog: ((line: string) => void) | undefined): void {
    this.#log.push(line);
    if (this.#log.length > KEPT_LINES) this.#log.shift();
    onLog?.(line);
  }

  #later(then: () => void): void {
    if (!this.#ended) this.#timers.push(setTimeout(then, LATE_MS));
  }

  #end(more: { error?: Error } = {}): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#timers.forEach(clearTimeout);
    const { exitCode, signalCode } = this.#child;
    this.#onEnd({ code: more.error ? undefined : exitCode, signal: signalCode, log: this.#log, ...more });
  }

  send(line: string): void {
    if (this.#child.stdin?.writable) this.#child.stdin.write(`${line}\n`);
  }

  /** One that is not read holds its streams back. */
  read(wanted: boolean): void {
    this.isRead = wanted;
    if (wanted) this.#child.stdout?.resume();
    else this.#child.stdout?.pause();
  }

  /** No more lines will come: it answers what it has, and ends. */
  sendEnd(): void {
    this.#child.stdin?.end();
  }

  kill(signal: NodeJS.Signals = "SIGKILL"): void {
    if (!this.#ended) this.#child.kill(signal);
  }

  /** A process that waits for nothing may end although this one runs. */
  hold(needed: boolean): void {
    if (needed === this.#isHeld) return; // a pipe that is being opened would gather listeners
    this.#isHeld = needed;
    const pipes = [this.#child.stdin, this.#child.stdout, this.#child.stderr] as (Socket | null)[];
    for (const one of [this.#child, ...pipes]) {
      if (needed) one?.ref();
      else one?.unref();
    }
  }
}

/** Whole lines; what comes after the last newline was torn off, and is dropped. */
function readLines(stream: NodeJS.ReadableStream, onLine: (line: string) => void): void {
  let parts: string[] = [];
  stream.setEncoding("utf8");
  stream.on("data", (chunk: string) => {
    const lines = chunk.split("\n");
    const rest = lines.pop() ?? "";
    for (const line of lines) {
      onLine(parts.length ? parts.join("") + line : line);
      parts = [];
    }
    if (rest) parts.push(rest);
  });
}
