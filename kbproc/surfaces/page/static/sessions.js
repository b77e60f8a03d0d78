// Conversations: answers as they are made, with references that lead to their passages.

import { act, address, count, empty, fill, h, link, notice, numberIn, when } from "./dom.js";
import { pages } from "./documents.js";
import { markdown } from "./markdown.js";
import { withPlan } from "./plan.js";
import { about, ask, time, token } from "./wire.js";

const writable = () => !about.read_only && time.at === null;

export async function sessionsView(main, { go }) {
  const list = h("div", {});
  fill(main, h("h1", {}, "Sessions"), writable() && h("p", {}, act("New session", async () => {
    const { data } = await ask("session.create", { client_token: token() });
    go(`session/${data.id}`);
  })), list);
  await pages(list, "session.list", { limit: 100 }, (sessions) => h("ul", { class: "history" }, sessions.map((session) => h("li", {},
    link(session.title || `session ${session.id}`, `session/${session.id}`), h("span", { class: "quiet" }, ` ${count(session.message_count, "question")} · `, when(session.updated_at))))));
}

export async function sessionView(main, { path, go }) {
  const id = numberIn(path);
  const { data: session, meta } = await ask("session.get", { session_id: id });
  const messages = h("div", { class: "messages", "aria-live": "polite" });
  const question = h("textarea", { rows: 2, placeholder: "Ask a question", "aria-label": "Question" });
  fill(main, h("h1", {}, session.title || `Session ${id}`), meta.has_more && h("p", { class: "quiet" }, "Earlier messages are not shown."), messages,
    writable() && h("form", { class: "ask", onsubmit: (event) => { event.preventDefault(); send(); } }, question, h("p", { class: "row" }, h("button", {}, "Ask"),
      act("Delete session…", async () => {
        if (await withPlan("Delete this session?", "session.delete", { session_ids: [id] }, "Deleted.")) go("sessions");
      }, { class: "danger" }))));
  question.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      send();
    }
  });
  for (const message of session.messages) {
    const node = new Answer(id, message.question, message);
    messages.append(node.node);
    if (message.status === null) node.run();
  }

  function send() {
    const text = question.value.trim();
    if (!text) return;
    question.value = "";
    const answer = new Answer(id, text);
    messages.append(answer.node);
    answer.node.scrollIntoView({ block: "end" });
    answer.run();
  }
}

// One question and its answer, which survives a reload by its cursor.
class Answer {
  constructor(session, question, message = null) {
    this.session = session;
    this.question = question;
    this.id = message ? message.message_id : null;
    this.token = message ? null : token();
    this.text = message ? message.text : "";
    this.references = message ? [...message.references, ...message.see_also] : [];
    this.body = h("div", { class: "answer" });
    this.foot = h("p", { class: "row quiet" });
    this.node = h("article", { class: "message" }, h("h2", {}, question), this.body, this.foot);
    if (message && message.status !== null) this.end(message);
    else this.draw();
  }

  get stored() { return `answer-${this.session}-${this.id}`; }

  draw() { fill(this.body, this.cited(markdown(this.text || "…"))); }

  // A question that this page asks keeps its token, so that it is asked once, however often it is sent.
  request() {
    this.text = "";
    if (this.token) return ["session.ask", { session_id: this.session, question: this.question, client_token: this.token }];
    const kept = JSON.parse(sessionStorage.getItem(this.stored) || "null");
    if (kept) this.text = kept.text;
    return ["session.resume", { session_id: this.session, message_id: this.id, ...(kept ? { after: kept.cursor } : { snapshot: true }) }];
  }

  async run() {
    const mine = this.turn = (this.turn || 0) + 1; // events of an earlier request may still come
    const [method, params] = this.request();
    fill(this.foot, "answering…", act("Stop", () => ask("session.stop", { session_id: this.session, message_id: this.id, client_token: token() })));
    try {
      const { data } = await ask(method, params, { onEvent: (event) => mine === this.turn && this.hear(event) });
      this.end(data);
    } catch (error) {
      fill(this.foot, h("span", { class: "bad" }, error.message), act("Ask again", () => this.run()));
      notice(error.message, "bad");
    }
  }

  hear(event) {
    if (this.isEnded) return;
    if (event.message_id) this.id = event.message_id;
    if (event.type === "references") this.references = event.references;
    if (event.type === "answer") {
      if (event.references) this.references = event.references;
      if (event.text !== undefined) this.text = event.text;
      if (event.delta) this.text += event.delta;
      this.draw();
    }
    if (event.type === "warning" && event.kind === "restarted") this.text = "";
    if (event.cursor && this.id) sessionStorage.setItem(this.stored, JSON.stringify({ cursor: event.cursor, text: this.text }));
  }

  end(message) {
    this.isEnded = true;
    if (this.id) sessionStorage.removeItem(this.stored);
    this.text = message.text;
    this.references = [...message.references, ...message.see_also];
    if (this.text) this.draw();
    else fill(this.body, empty(message.hint || "The store does not know."));
    const told = { finished: "", refused: "the store does not know", stopped: "stopped", failed: "failed", interrupted: "interrupted" };
    fill(this.foot, told[message.status], message.failure && h("span", { class: "bad" }, message.failure.message),
      message.references.map((reference) => this.lead(reference, `[${reference.n}] ${reference.cite}`)));
  }

  lead(reference, text) {
    if (!reference.document_id) return h("span", { title: reference.cite }, text);
    return h("a", { href: address(`doc/${reference.document_id}`, { chunk: reference.chunk_id }), title: reference.cite, class: "reference" }, text);
  }

  // Turns each [n] of the answer into a link to its passage.
  cited(node) {
    const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
    const texts = [];
    while (walker.nextNode()) if (/\[\d+\]/.test(walker.currentNode.data) && !walker.currentNode.parentNode.closest("code, a")) texts.push(walker.currentNode);
    for (const text of texts) {
      text.replaceWith(...text.data.split(/(\[\d+\])/).map((part) => {
        const match = /^\[(\d+)\]$/.exec(part);
        const reference = match && this.references.find((one) => one.n === Number(match[1]));
        return reference ? this.lead(reference, part) : part;
      }));
    }
    return node;
  }
}
