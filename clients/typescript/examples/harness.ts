// A harness: reads a folder, searches, streams an answer, cancels, outlives a killed server, and
// writes exactly once. `node harness.js FOLDER`
import { Cancelled, NeedsPerson, start } from "kbproc";

const [folder = "docs"] = process.argv.slice(2);
const kb = start({ cwd: folder, timeoutMs: 120_000 }); // `kbproc serve`, on your own store

// A long write tells how far it is.
const ingest = kb.doc.ingest({ paths: ["."] });
for await (const event of ingest) {
  if (event.type === "progress") console.error(`${event.stage} ${event.current}/${event.total ?? "?"}`);
}
console.log("read:", (await ingest).data.added, "files");
await kb.doc.wait(); // until what was read is found by meaning, too

const { data: found } = await kb.search({ query: "how do I restore a backup", limit: 3 });
for (const hit of found.results) console.log(`[${hit.score.toFixed(3)}] ${hit.source.cite}`);

// An answer comes in pieces; what was said before `restarted` is void.
const answer = kb.chat({ question: "How do I restore a backup?" });
for await (const event of answer) {
  if (event.type === "answer") process.stdout.write(event.delta ?? "");
  if (event.type === "warning") process.stdout.write(`\n(${event.message})\n`);
}
console.log("\nanswer:", (await answer).data.status);

// Aborting ends a request on the server, too. Leaving the loop does the same.
const control = new AbortController();
try {
  for await (const event of kb.events.subscribe({ after_seq: 0 }, { signal: control.signal })) {
    if (event.type === "item") control.abort();
  }
} catch (error) {
  if (!(error instanceof Cancelled)) throw error;
  console.log("cancelled: the feed of events");
}

// A server that is killed is started again, and what was in flight is sent once more with its token.
const write = kb.doc.create({ title: "Decision", text: "Backups are tried out on Mondays." });
if (kb.pid !== undefined) process.kill(kb.pid, "SIGKILL");
const { data: made } = await write;
const token = write.token ?? "";
const text = "Backups are tried out on Mondays.";
const again = await kb.doc.create({ title: "Decision", text, client_token: token });
const same = "id" in made && "id" in again.data && made.id === again.data.id;
console.log("written once:", same, "duplicate:", again.meta.duplicate);

// What destroys shows a plan first, and a person confirms it.
try {
  await kb.doc.delete({ ids: found.results.map((hit) => hit.source.document_id) });
} catch (error) {
  if (!(error instanceof NeedsPerson)) throw error;
  console.log("a person is asked:", error.plan?.changes.join("; "));
}

await kb.close();
