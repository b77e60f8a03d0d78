// Asks the wire: one JSON-RPC request a POST; what is live comes as one stream of events.

export const about = { key: null, read_only: false, store: "", actor: "", version: "" };
export const live = new EventTarget(); // "record", "plans", "lost", "state"
export const time = { at: null, head: 0 }; // at: the position that everything is shown as of

const WINDOW = Array.from(crypto.getRandomValues(new Uint8Array(8)), (n) => n.toString(16).padStart(2, "0")).join("");
const PAST = new Set(["chunk.get", "chunk.list", "doc.download", "doc.get", "doc.history", "doc.list",
  "knowledge.get", "knowledge.list", "note.get", "note.history", "note.list", "review.list", "search",
  "session.get", "session.list", "tag.list", "watch.list"]);
const listeners = new Map();
let lastId = 0;

// Names a field as the page does, and leaves out advice for programs.
function inWords(text) {
  const words = text.replace(/\$\.params\.(?=\w)/g, "").replace("Correct the field that is named and send the request again.", "");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

export class WireError extends Error {
  constructor(data) {
    super([data.message, data.hint].filter(Boolean).map(inWords).join(" "));
    this.data = data;
    this.type = data.type;
  }
}

function headers() {
  return { "Content-Type": "application/json", "X-Kbproc-Key": about.key || "", "X-Kbproc-Window": WINDOW };
}

async function refusal(response) {
  const body = await response.json().catch(() => ({}));
  if (response.status === 401) forget();
  return new WireError({ type: `http.${response.status}`, message: body.error || "The page's server refused it." });
}

// Returns data and meta. `onEvent` gets the events of the request.
export async function ask(method, params = {}, { signal, onEvent } = {}) {
  const id = ++lastId;
  const past = time.at !== null && PAST.has(method) && !("as_of" in params) ? { as_of: time.at } : {};
  const body = { jsonrpc: "2.0", id, method, params: clean({ ...past, ...params }) };
  if (onEvent) listeners.set(id, onEvent);
  try {
    const response = await reached(fetch("/api", { method: "POST", headers: headers(), body: JSON.stringify(body), signal }));
    if (!response.ok) throw await refusal(response);
    const answer = await response.json();
    if (answer.error) throw new WireError(answer.error.data || { type: "internal.error", message: answer.error.message });
    const seq = answer.result.meta && answer.result.meta.seq;
    if (seq > time.head) setHead(seq);
    return answer.result;
  } finally {
    if (onEvent) setTimeout(() => listeners.delete(id), 5000); // the stream may lag behind the response
  }
}

// Returns the answer; null where there is no such thing. Every other error is the caller's to show.
export function find(method, params, options) {
  return ask(method, params, options).catch((error) => {
    if (error.type !== "resource.not_found") throw error;
    return null;
  });
}

// Returns the response, and shows whether the program answers.
async function reached(request) {
  try {
    const response = await request;
    state(true);
    return response;
  } catch (error) {
    if (error instanceof TypeError) state(false);
    throw error;
  }
}

export const token = () => `page-${crypto.randomUUID()}`;

function clean(params) {
  return Object.fromEntries(Object.entries(params).filter(([, value]) => value !== null && value !== undefined));
}

export function setHead(seq) {
  time.head = Math.max(time.head, seq);
  live.dispatchEvent(new Event("head"));
}

// ------------------------------------------------------------------------------ the key

const NAME = "kbproc";
const others = "BroadcastChannel" in window ? new BroadcastChannel(NAME) : null;

function remember(login) {
  Object.assign(about, login);
  sessionStorage.setItem(NAME, JSON.stringify(about));
}

function forget() {
  about.key = null;
  sessionStorage.removeItem(NAME);
  live.dispatchEvent(new Event("forgotten"));
}

// Other windows of this origin get the key; it never leaves the origin.
if (others) {
  others.onmessage = (event) => {
    if (event.data === "key?" && about.key) others.postMessage(about);
    else if (event.data && event.data.key && !about.key) remember(event.data);
  };
}

// Returns true once this window has the key: from the address, from before a reload, or from another window.
export async function login() {
  const match = /^#token=([0-9a-f]+)$/.exec(location.hash);
  if (match) {
    history.replaceState(null, "", "/"); // so that no copy of the address holds it
    const response = await fetch("/login", { method: "POST", headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ token: match[1] }) });
    if (!response.ok) throw await refusal(response);
    remember(await response.json());
    return true;
  }
  const stored = sessionStorage.getItem(NAME);
  if (stored) remember(JSON.parse(stored));
  for (let tries = 0; others && !about.key && tries < 10; tries++) {
    others.postMessage("key?");
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
  return about.key !== null;
}

// --------------------------------------------------------------------------- what is live

let isConnected = true;

function state(connected) {
  if (connected !== isConnected) {
    isConnected = connected;
    live.dispatchEvent(new CustomEvent("state", { detail: connected }));
  }
}

function hear(message) {
  if (message.type === "event") {
    const listener = listeners.get(message.event.request_id);
    if (listener) listener(message.event);
  } else {
    if (message.type === "record") setHead(message.record.seq);
    live.dispatchEvent(new CustomEvent(message.type, { detail: message }));
  }
}

// Reads the stream of events, again after each end.
export async function follow() {
  while (about.key) {
    try {
      const response = await fetch("/events", { headers: headers() });
      if (!response.ok) throw await refusal(response);
      state(true);
      await read(response.body.pipeThrough(new TextDecoderStream()).getReader());
    } catch (error) {
      if (error instanceof WireError && !about.key) return;
    }
    state(false);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

async function read(reader) {
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) hear(JSON.parse(part.slice(6)));
  }
}
