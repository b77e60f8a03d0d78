// A server that follows a script: `node fake.js FOLDER serve`. FOLDER/script.json has one entry for
// each start, FOLDER/heard.ndjson gets what was heard.

import { spawn } from "node:child_process";
import { appendFileSync, closeSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

/** A line to write, in which "$id" becomes the request's id; or what else is done. */
export type Step =
  | object
  | { raw: string }
  | { log: string }
  | { exit: number }
  | { die: true }
  | { dieHeld: true }
  | { stopReading: true }
  | { items: number };

const KILOBYTES = 64; // of an item
const HELD_MS = 300; // that another process holds the pipes of one that has died

/** What is done at the start, and for the first, second… request of each method. */
export interface Start {
  begin?: Step[];
  on?: Record<string, Step[][]>;
}

export const INIT = {
  jsonrpc: "2.0",
  method: "event",
  params: { type: "init", protocol: "1.0", capabilities: { max_in_flight: 4, max_line_bytes: 1000 } },
};
export const READY = { jsonrpc: "2.0", method: "event", params: { type: "ready", seq: 3 } };

/** FOLDER/said has a byte for each that was taken. */
async function sayItems(count: number, id: unknown): Promise<void> {
  for (let index = 0; index < count; index++) {
    const params = { type: "item", request_id: id, index, item: "x".repeat(KILOBYTES << 10) };
    const line = JSON.stringify({ jsonrpc: "2.0", method: "event", params });
    await new Promise((taken) => process.stdout.write(`${line}\n`, taken));
    appendFileSync(join(process.argv[2] ?? ".", "said"), "!");
  }
}

/** Its pipes stay open for a while. */
async function dieHeld(): Promise<void> {
  const holder = spawn(process.execPath, ["-e", `setTimeout(() => {}, ${HELD_MS})`], { stdio: "inherit" });
  await new Promise((begun) => holder.once("spawn", begun));
  process.kill(process.pid, "SIGKILL");
}

async function take(step: Step, id: unknown): Promise<void> {
  if ("raw" in step) process.stdout.write(step.raw);
  else if ("log" in step) process.stderr.write(`${String(step.log)}\n`);
  else if ("exit" in step) process.exit(Number(step.exit));
  else if ("die" in step) process.kill(process.pid, "SIGKILL");
  else if ("dieHeld" in step) await dieHeld();
  else if ("stopReading" in step) closeSync(0);
  else if ("items" in step) await sayItems(Number(step.items), id);
  else process.stdout.write(`${JSON.stringify(step).replaceAll('"$id"', JSON.stringify(id))}\n`);
}

async function takeAll(steps: Step[], id: unknown): Promise<void> {
  for (const step of steps) await take(step, id);
}

function main(folder: string): void {
  const script = JSON.parse(readFileSync(join(folder, "script.json"), "utf8")) as Start[];
  const heard = join(folder, "heard.ndjson");
  const startsFile = join(folder, "starts");
  const before = Number(readFileSync(startsFile, "utf8"));
  writeFileSync(startsFile, String(before + 1));
  const { begin = [INIT, READY], on = {} } = script[Math.min(before, script.length - 1)] ?? {};
  let said = takeAll(begin, null);
  if (begin.some((step) => "stopReading" in step)) {
    setInterval(() => undefined, 1 << 30); // it goes on all the same
    return;
  }
  createInterface({ input: process.stdin })
    .on("line", (line) => {
      appendFileSync(heard, `${line}\n`);
      const { id, method } = JSON.parse(line) as { id?: unknown; method: string };
      const steps = on[method] ?? [];
      const next = (steps.length > 1 ? steps.shift() : steps[0]) ?? [];
      said = said.then(() => takeAll(next, id));
    })
    .on("close", () => process.exit(0));
}

if (process.argv[3] === "serve") main(process.argv[2] ?? ".");
