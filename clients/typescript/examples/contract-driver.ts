// The client, judged: `kbproc contract client --exec "node contract-driver.js {server}"`.
import { createInterface } from "node:readline";
import { type Call, KbprocError, type MethodName, start } from "kbproc";

interface Task {
  task: number;
  do: "call" | "calls" | "stream";
  method: MethodName;
  params: object;
  requests: [MethodName, object][];
}

const [server = ""] = process.argv.slice(2);
const kb = start({ command: ["/bin/sh", "-c", `exec ${server}`] });

async function outcome(call: Call<MethodName>): Promise<object> {
  try {
    return { data: (await call).data };
  } catch (error) {
    if (!(error instanceof KbprocError)) throw error;
    return { error: error.type };
  }
}

async function carriedOut(task: Task): Promise<object> {
  if (task.do === "calls") {
    const calls = task.requests.map(([method, params]) => kb.call(method, params));
    return { results: await Promise.all(calls.map(outcome)) };
  }
  const call = kb.call(task.method, task.params);
  const events: string[] = [];
  try {
    for await (const event of call) events.push(event.type);
  } catch (error) {
    if (!(error instanceof KbprocError)) throw error; // the outcome tells
  }
  return { events, ...(await outcome(call)) };
}

for await (const line of createInterface({ input: process.stdin })) {
  const task = JSON.parse(line) as Task;
  console.log(JSON.stringify({ task: task.task, ...(await carriedOut(task)) }));
}
await kb.close();
