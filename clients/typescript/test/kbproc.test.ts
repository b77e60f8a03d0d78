// Against a real `kbproc serve`; PATH has it, and KBPROC_STORE names a store with a small model.

import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Cancelled, Conflict, type Kbproc, NeedsPerson, start } from "kbproc";

let kb: Kbproc;

before(() => {
  kb = start();
});
after(() => kb.close());

function kill(pid: number | undefined): void {
  assert.ok(pid);
  process.kill(pid, "SIGKILL");
}

test("the main job: read, search, ask, change, confirm", async () => {
  const folder = mkdtempSync(join(tmpdir(), "kbproc-docs-"));
  writeFileSync(join(folder, "git.md"), "# Git\n\nTo install git, run make install. It takes a minute.\n");
  const ready = await kb.ready();
  assert.ok(ready.seq >= 1 && kb.init?.server.name === "kbproc");
  const other = start({ root: folder, kb: "default" });
  const stages = new Set<string>();
  const read = other.doc.ingest({ paths: [folder] });
  for await (const event of read) if (event.type === "progress") stages.add(event.stage);
  assert.equal((await read).data.added, 1);
  assert.ok(stages.size > 0);
  await other.close();

  const { data } = await kb.search({ query: "how is git installed", mode: "fts" });
  assert.match(data.results[0]?.source.cite ?? "", /Git|git\.md/);
  const document_id = data.results[0]?.source.document_id ?? 0;
  const { data: shown } = await kb.doc.get({ id: document_id });
  assert.equal(shown.id, document_id);
  const stale = kb.doc.update({ id: document_id, title: "Git!", expected_revision: 99 });
  await assert.rejects(stale, Conflict);
  const planned = await kb.doc.delete({ ids: [document_id], dry_run: true });
  assert.equal(planned.data, null);
  const asked = await kb.doc.delete({ ids: [document_id] }).catch((error: unknown) => error);
  assert.ok(asked instanceof NeedsPerson && asked.plan);
  assert.equal(asked.plan.plan_hash, planned.meta.plan?.plan_hash);
});

test("what is followed goes on until it is cancelled", async () => {
  const control = new AbortController();
  const feed = kb.events.subscribe({ after_seq: 0 }, { signal: control.signal });
  const seen: number[] = [];
  await assert.rejects(async () => {
    for await (const event of feed) {
      if (event.type !== "item") continue;
      seen.push(event.item.seq);
      control.abort();
    }
  }, Cancelled);
  assert.ok(seen.includes(1));
});

test("killed while many write: all are answered, and each is written once", async () => {
  const before = (await kb.tag.list()).data.find((tag) => tag.name === "many")?.count ?? 0;
  assert.equal(before, 0);
  const titles = Array.from({ length: 30 }, (_, number) => `Note ${number}`);
  const calls = titles.map((title) => kb.doc.create({ title, text: `${title}.`, tags: ["many"] }));
  await calls[3];
  kill(kb.pid);
  const answers = await Promise.all(calls);
  const ids = new Set(answers.map(({ data }) => ("id" in data ? data.id : assert.fail())));
  assert.equal(ids.size, titles.length);
  const tags = (await kb.tag.list()).data;
  assert.equal(tags.find((tag) => tag.name === "many")?.count, titles.length);
  const again = await kb.doc.create({ title: "Note 0", text: "Note 0.", tags: ["many"], client_token: calls[0]?.token ?? "" });
  assert.equal(again.meta.duplicate, true);
});

test("two on one store: the owner is killed, and the other's feed goes on", async () => {
  const other = start();
  const feed = other.events.subscribe({ after_seq: 0 });
  const seen: number[] = [];
  let late;
  for await (const event of feed) {
    if (event.type !== "item") continue;
    seen.push(event.item.seq);
    if (seen.length === 1) {
      kill(kb.pid);
      late = kb.doc.create({ title: "Late", text: "Late." });
    }
    if (event.item.events.some(({ summary }) => summary.includes("Late"))) break;
  }
  const made = await late;
  await other.close();
  assert.deepEqual(seen, seen.map((_, at) => at + 1));
  assert.equal(made?.meta.seq, seen.length);
});

test("killed while it answers: the answer is told to its end, once", async () => {
  const llm = process.env["KBPROC_TEST_LLM"];
  assert.ok(llm, "KBPROC_TEST_LLM names an endpoint that says one word after the other");
  const env = { ...process.env, KBPROC_LLM_URL: llm, KBPROC_LLM_MODEL: "toy", KBPROC_LLM_API_KEY: "key" };
  await kb.close();
  kb = start({ env });
  const call = kb.chat({ question: "How is git installed by make?" });
  const [indexes, kinds]: [number[], string[]] = [[], []];
  let [text, pieces] = ["", 0];
  for await (const event of call) {
    indexes.push(event.index);
    if (event.type === "warning") kinds.push(event.kind ?? "anew");
    if (event.type === "warning" && event.kind === "restarted") text = "";
    if (event.type !== "answer") continue;
    text += event.delta ?? "";
    if (++pieces === 2) kill(kb.pid);
  }
  const { data } = await call;
  assert.equal(data.status, "finished");
  assert.equal(text, data.text);
  assert.equal(text.split(" ").filter(Boolean).length, 40);
  assert.deepEqual(indexes, indexes.map((_, at) => at));
  assert.ok(kinds.includes("restarted") && kinds.includes("anew"), kinds.join());
});
