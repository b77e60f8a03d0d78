import { start } from "kbproc";

const kb = start(); // `kbproc serve`, on your own store
await kb.doc.create({ title: "Backup", text: "To restore a backup, open its folder." });
const { data } = await kb.search({ query: "how do I restore a backup" });
console.log(data.results[0]?.source.cite);
await kb.close();
