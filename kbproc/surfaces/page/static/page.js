// The page: its frame, the moment that it shows, and which view stands in it.

import { address, button, count, dialog, fill, h, link, LostError, notice, when } from "./dom.js";
import { documentView, documentsView } from "./documents.js";
import { entriesView, entryView } from "./entries.js";
import { healthView } from "./health.js";
import { logView } from "./log.js";
import { noteView, notesView } from "./notes.js";
import { plans, plansView } from "./plans.js";
import { searchView } from "./search.js";
import { sessionView, sessionsView } from "./sessions.js";
import { about, ask, follow, live, login, time } from "./wire.js";

const VIEWS = { search: searchView, docs: documentsView, doc: documentView, entries: entriesView, entry: entryView, notes: notesView,
  note: noteView, sessions: sessionsView, session: sessionView, log: logView, plans: plansView, health: healthView };
const TABS = [["search", "Search"], ["docs", "Documents"], ["entries", "Entries"], ["notes", "Notes"], ["sessions", "Sessions"],
  ["log", "Log"], ["plans", "Plans"], ["health", "Health"]];
const WITHIN = { doc: "docs", entry: "entries", note: "notes", session: "sessions" };
const KEYS = [["/", "search"], ["1 … 8", "the views"], ["j, k", "next and previous hit or row"], ["[ and ]", "one record back and on"],
  ["Home of the slider", "the beginning; End: now"], ["Esc", "close a dialog"], ["?", "this list"]];

let leaving = [];
let turn = 0;

function where() {
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?");
  const query = Object.fromEntries(new URLSearchParams(search || ""));
  const at = query.at === undefined ? null : Number(query.at);
  delete query.at;
  return { path: (path || "search").split("/").map(decoded), query, at: Number.isSafeInteger(at) && at >= 0 ? at : null };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch { // it ends within a character
    return part;
  }
}

function lostView(main) {
  fill(main, h("h1", {}, "There is no such page"), h("p", {}, "The address leads nowhere: it may be cut short, or mistyped."),
    h("p", {}, link("Go to the search", "search", { at: "" })));
}

function go(path, query = {}) {
  const next = address(path, query);
  if (next === location.hash) render();
  else location.hash = next;
}

async function render() {
  const mine = ++turn;
  for (const leave of leaving) leave();
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close(); // it asks about the view that ends
  leaving = [];
  const { path, query, at } = where();
  time.at = at;
  drawTime();
  const name = Object.hasOwn(VIEWS, path[0]) ? path[0] : "lost";
  for (const tab of document.querySelectorAll("nav.main a")) {
    if (tab.dataset.view === (WITHIN[name] || name)) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
    tab.href = address(tab.dataset.view);
  }
  const main = document.getElementById("main");
  const view = h("div", { class: `view ${name}` });
  const replace = (more) => {
    if (mine !== turn) return;
    history.replaceState(null, "", address(path.join("/"), more));
    if (main.dataset.shown) main.dataset.shown = location.hash;
  };
  delete main.dataset.shown;
  main.setAttribute("aria-busy", "true");
  fill(main, view);
  try {
    await (VIEWS[name] || lostView)(view, { path, query, go, replace, onLeave: (leave) => leaving.push(leave) });
  } catch (error) {
    if (error instanceof LostError) lostView(view);
    else if (mine === turn && error.name !== "AbortError") fill(view, h("h1", {}, "That did not work"), h("p", { class: "bad" }, error.message), button("Try again", render));
  }
  if (mine !== turn) return;
  countReview();
  main.removeAttribute("aria-busy");
  main.dataset.shown = location.hash;
  const title = view.querySelector("h1");
  document.title = `${title ? title.textContent : "kbproc"} · kbproc`;
  if (name !== "search" && !main.contains(document.activeElement)) main.focus({ preventScroll: true });
}

// ------------------------------------------------------------------------------- time

let slider;
let inReview;
let told;

// Shows beside the tab how many entries wait for an approval.
async function countReview() {
  const { data } = await ask("status").catch(() => ({ data: {} }));
  inReview.hidden = !data.in_review;
  inReview.textContent = String(data.in_review || "");
  inReview.setAttribute("aria-label", `${data.in_review} in review`);
}

function drawTime() {
  if (!slider) return;
  slider.max = time.head;
  if (document.activeElement !== slider || time.at === null) slider.value = time.at ?? time.head;
  document.body.classList.toggle("past", time.at !== null);
  if (time.at === null) fill(told, "now");
  else tell(time.at);
}

async function tell(seq) {
  slider.setAttribute("aria-valuetext", `record ${seq}`);
  fill(told, `record ${seq}`);
  const record = seq && await ask("events.read", { after_seq: seq - 1, limit: 1 }).catch((error) => {
    if (time.at === seq) fill(told, `record ${seq}: ${error.message}`);
    return { data: [] };
  }).then(({ data }) => data[0]);
  if (record && time.at === seq) fill(told, `record ${seq}: `, when(record.ts), ` ${record.actor} ${record.method} `, link("what changed since", "log", { at: "", from: seq }));
}

function moveTo(seq) {
  const { path, query } = where();
  const at = seq >= time.head ? "" : Math.max(0, seq);
  location.hash = address(path.join("/"), { ...query, at });
}

function timeBar() {
  let timer = null;
  slider = h("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Show the store as of this record",
    oninput: () => {
      const seq = Number(slider.value);
      fill(told, seq >= time.head ? "now" : `record ${seq}`);
      clearTimeout(timer);
      timer = setTimeout(() => moveTo(seq), 150);
    } });
  told = h("output", {});
  return h("div", { class: "time", role: "group", "aria-label": "Time" }, h("span", { "aria-hidden": "true" }, "As of"), slider, told,
    button("Now", () => moveTo(time.head), { class: "now" }));
}

// ------------------------------------------------------------------------------- frame

function frame() {
  const badge = h("span", { class: "badge", hidden: true });
  inReview = h("span", { class: "badge", hidden: true });
  live.addEventListener("plans shown", () => {
    badge.hidden = !plans.list.length;
    badge.textContent = String(plans.list.length);
    badge.setAttribute("aria-label", count(plans.list.length, "plan waits", "plans wait"));
  });
  fill(document.body, h("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault(); document.getElementById("main").focus(); } }, "Skip to the content"),
    h("header", {}, h("p", { class: "name" }, h("strong", {}, "kbproc"), h("span", { class: "quiet", title: about.store }, about.store.split("/").at(-1)),
      about.read_only && h("span", { class: "tag" }, "read only"), button("?", keys, { "aria-label": "Keys", class: "keys" })),
    h("nav", { class: "main", "aria-label": "Views" }, TABS.map(([name, text]) => h("a", { href: address(name), "data-view": name }, text, name === "plans" && badge, name === "entries" && inReview))), timeBar()),
    h("div", { id: "state", role: "status" }), h("main", { id: "main", tabindex: -1 }), h("div", { id: "notices", role: "log", "aria-label": "Notices" }));
}

function keys() {
  return dialog("Keys", (close) => [h("table", { class: "facts" }, h("tbody", {}, KEYS.map(([key, text]) => h("tr", {}, h("th", { scope: "row" }, h("kbd", {}, key)), h("td", {}, text))))),
    h("p", { class: "row end" }, button("Close", () => close(null)))]);
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input:not([type=range]):not([type=checkbox]), textarea, select")) return;
  if (event.key === "/") {
    event.preventDefault();
    const input = document.getElementById("query");
    if (input) input.focus();
    else go("search");
  } else if (event.key === "?") keys();
  else if (/^[1-8]$/.test(event.key)) go(TABS[event.key - 1][0]);
  else if (event.key === "[") moveTo((time.at ?? time.head) - 1);
  else if (event.key === "]") moveTo((time.at ?? time.head) + 1);
  else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
}

function step(by) {
  const items = [...document.querySelectorAll("#main .hit h2 a, #main tbody td:first-child a, #main .history li > a, #main .records li > p:first-child a")];
  const at = items.findIndex((item) => item === document.activeElement);
  const next = items[Math.max(0, Math.min(items.length - 1, at + by))];
  if (next) {
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }
}

function closed(text) {
  fill(document.body, h("main", { class: "closed" }, h("h1", {}, "kbproc"), h("p", {}, text)));
}

async function start() {
  let reason = "Open the address that kbproc open prints. It opens the page once; other windows of this browser follow from an open one.";
  const isIn = await login().catch((error) => {
    reason = error.message;
    return false;
  });
  if (!isIn) {
    closed(reason);
    return;
  }
  frame();
  live.addEventListener("forgotten", () => closed("This window is not known any more. Start kbproc open again."));
  live.addEventListener("head", drawTime);
  live.addEventListener("state", (event) => fill(document.getElementById("state"), event.detail ? "" : h("p", { class: "bad" }, "kbproc open does not answer. This page goes on once it does; if it has ended, start it again.")));
  live.addEventListener("lost", () => notice("Some news did not arrive. Reload to see them.", "bad"));
  window.addEventListener("hashchange", render);
  document.addEventListener("keydown", pressed);
  follow();
  ask("ping").catch(() => null);
  await render();
}

start();
