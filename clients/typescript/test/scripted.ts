// A client of a scripted server.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { type Settings, start } from "kbproc";
import type { Start } from "./fake.js";

export const FAKE = fileURLToPath(new URL("./fake.js", import.meta.url));

export interface Heard {
  id?: number;
  method: string;
  params: Record<string, unknown>;
}

/** A client of a scripted server, and what that one has heard. */
export function scripted(t: TestContext, starts: Start[], settings: Settings = {}) {
  const folder = mkdtempSync(join(tmpdir(), "kbproc-fake-"));
  writeFileSync(join(folder, "script.json"), JSON.stringify(starts));
  writeFileSync(join(folder, "starts"), "0");
  writeFileSync(join(folder, "heard.ndjson"), "");
  const kb = start({ command: [process.execPath, FAKE, folder], ...settings });
  t.after(async () => {
    await kb.close();
    rmSync(folder, { recursive: true });
  });
  const heard = (): Heard[] =>
    readFileSync(join(folder, "heard.ndjson"), "utf8")
      .split("\n")
      .filter(Boolean)
      .map((line) => JSON.parse(line) as Heard);
  return { kb, folder, heard, starts: () => Number(readFileSync(join(folder, "starts"), "utf8")) };
}
