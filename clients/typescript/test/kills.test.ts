// kill -9 at random moments, while many write: what was acknowledged is there, as it was, and once.

import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { type Kbproc, start } from "kbproc";

const WRITERS = 6;
const KILLS = Number(process.env["KBPROC_TEST_KILLS"] ?? 3);
const LATEST_MS = 60; // after another server has begun to answer

/** The same numbers for the same seed, from 0 to 1. */
function chances(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Title → how many documents have it, the id of one, and the latest revision of any. */
async function held(kb: Kbproc): Promise<Map<unknown, unknown[]>> {
  const found = new Map<unknown, unknown[]>();
  const sql =
    "select title, count(*), min(id), max(revision) from documents group by 1 order by 1 limit 1000 offset ?";
  for (;;) {
    const { data } = await kb.sql.query({ sql, params: [found.size], limit: 1000 });
    for (const [title, ...rest] of data.rows) found.set(title, rest);
    if (data.rows.length < 1000) return found;
  }
}

test("killed at random while six write", async () => {
  const warned: string[] = [];
  process.on("warning", ({ message }) => warned.push(message));
  const store = mkdtempSync(join(tmpdir(), "kbproc-kills-"));
  writeFileSync(join(store, "store.toml"), 'format = 2\n\n[model]\nkind = "hash"\nname = "hash"\n');
  const kb = start({ store });
  await kb.ready();
  const chance = chances(1);
  const acknowledged = new Map<string, number>();
  let [enough, noted] = [false, () => {}];
  const write = async (writer: number) => {
    for (let number = 0; !enough; number++) {
      const title = `${writer}.${number}`;
      const named = number % 2 ? { source_id: title } : {}; // one without would be added once more
      const { data } = await kb.doc.create({ title, text: `Text of ${title}.`, ...named });
      acknowledged.set(title, "id" in data ? data.id : assert.fail());
      noted();
    }
  };
  const writers = Array.from({ length: WRITERS }, (_, writer) => write(writer));
  const killer = async () => {
    for (let kills = 0; kills < KILLS; kills++) {
      await new Promise<void>((resolve) => (noted = resolve));
      await new Promise((resolve) => setTimeout(resolve, chance() * LATEST_MS));
      if (kb.pid !== undefined) process.kill(kb.pid, "SIGKILL");
    }
  };
  const ends = () => (enough = true); // also where it fails: nobody writes for ever
  await Promise.all([killer().finally(ends), ...writers]);
  const expected = [...acknowledged].map(([title, id]) => [title, [1, id, 1]] as const).sort();
  assert.deepEqual([...(await held(kb))].sort(), expected);
  assert.equal(new Set(acknowledged.values()).size, acknowledged.size);
  assert.ok(acknowledged.size > KILLS);
  assert.deepEqual(warned, []);
  await kb.close();
});
