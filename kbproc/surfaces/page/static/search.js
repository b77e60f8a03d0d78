// Search as a person does it: results while typing, why each was found, and its document beside it.

import { act, address, button, count, empty, failed, field, fill, h, link, marked, notice, select, typing, verbatim } from "./dom.js";
import { reader } from "./reader.js";
import { ask } from "./wire.js";

const WORDS_AFTER_MS = 80; // results by words alone, if those by meaning take longer
const LIMIT = 20;
const KNOWS = {
  likely: "The store probably knows this: the best passage is likely an answer.",
  related: "The store has something related. Read it first; it may not be the answer.",
  none: "The store does not know this. What follows only shares words with it.",
};

export async function searchView(main, { query, replace }) {
  const state = { q: query.q || "", mode: query.mode || "hybrid", kb: query.kb || "", type: query.type || "",
    superseded: query.superseded === "1" };
  const { run, soon } = typing(load);
  const results = h("div", { class: "results" });
  const summary = h("p", { class: "summary", role: "status" });
  const beside = h("section", { class: "beside", "aria-label": "The document", hidden: true });
  const input = h("input", { type: "search", id: "query", value: state.q, placeholder: "Ask, or name what you look for",
    "aria-label": "Search", spellcheck: "false",
    oninput: () => { state.q = input.value; soon(); } });
  const again = (name) => (value) => { state[name] = value; soon(); };
  const none = (error) => { notice(error.message, "bad"); return []; };
  const [kbs, types] = await Promise.all([ask("kb.list", { limit: 1000 }).then((answer) => answer.data).catch(none),
    ask("status").then((answer) => Object.keys(answer.data.documents)).catch(none)]);
  fill(main, h("h1", { class: "hidden" }, "Search"),
    h("form", { class: "search", role: "search", onsubmit: (event) => { event.preventDefault(); soon(); } }, input,
      h("div", { class: "filters" },
        field("By", select([["hybrid", "words and meaning"], ["fts", "words"], ["vector", "meaning"]], state.mode, again("mode"))),
        field("In", select([["", "all knowledge bases"], ...kbs.map((kb) => [kb.slug, kb.name])], state.kb, again("kb"))),
        field("Type", select([["", "all types"], ...types.map((type) => [type, type])], state.type, again("type"))),
        h("label", { class: "check" }, h("input", { type: "checkbox", checked: state.superseded,
          onchange: (event) => again("superseded")(event.target.checked) }), " superseded too"))),
    summary, h("div", { class: "columns" }, results, beside));
  input.focus();

  function params(more = {}) {
    return { query: state.q, limit: LIMIT, mode: state.mode, kb: state.kb || null, types: state.type ? [state.type] : null,
      include_superseded: state.superseded || null, ...more };
  }

  async function load(signal) {
    replace({ q: state.q, mode: state.mode === "hybrid" ? "" : state.mode, kb: state.kb, type: state.type,
      superseded: state.superseded ? "1" : "" });
    results.removeAttribute("aria-busy");
    if (!state.q.trim()) {
      fill(summary);
      fill(results, empty("Type a question or some words. “A phrase in quotes”, and -word to leave a word out."));
      return;
    }
    results.setAttribute("aria-busy", "true");
    let isDone = false;
    const early = state.mode === "hybrid" && setTimeout(async () => {
      const answer = await ask("search", params({ mode: "fts" }), { signal }).catch(() => null);
      if (answer && !isDone && !signal.aborted) show(answer, "By words; meaning follows…");
    }, WORDS_AFTER_MS);
    try {
      const answer = await ask("search", params(), { signal });
      isDone = true;
      show(answer);
    } catch (error) {
      isDone = true;
      if (error.name !== "AbortError") {
        fill(summary);
        fill(results, failed(error));
      }
    } finally {
      clearTimeout(early);
      if (!signal.aborted) results.removeAttribute("aria-busy");
    }
  }

  function show({ data, meta }, note = "") {
    const found = data.total_is_exact ? count(data.total_matches, "match", "matches") : `about ${count(data.total_matches, "match", "matches")}`;
    fill(summary, h("span", { class: `confidence ${data.confidence}` }, data.confidence), " ", note || KNOWS[data.confidence],
      h("span", { class: "quiet" }, ` ${found} · ${Math.round(meta.took_ms)} ms`),
      (meta.notice || []).map((text) => h("span", { class: "quiet" }, ` · ${text}`)));
    fill(results, data.results.length ? h("ol", { class: "hits" }, data.results.map(hit)) : empty("Nothing was found."),
      meta.has_more && act("More results", async () => {
        const answer = await ask("search", params({ offset: results.querySelectorAll(".hit").length }));
        results.querySelector(".hits").append(...answer.data.results.map(hit));
        if (!answer.meta.has_more) results.querySelector(":scope > button").remove();
      }));
  }

  function hit(found) {
    const { source } = found;
    const more = h("div", { class: "more" });
    const entry = source.type === "knowledge";
    const to = entry ? address(`entry/${source.document_id}`) : address(`doc/${source.document_id}`, { chunk: found.chunk_id });
    return h("li", { class: "hit", tabindex: -1 },
      h("h2", {}, h("a", { href: to }, source.title), found.superseded_by && h("span", { class: "tag bad" }, "superseded"),
        found.source_changed && h("span", { class: "tag bad", title: found.source_changed.map((one) => one.cite).join(", ") }, "source changed"),
        found.conflicts && h("span", { class: "tag bad", title: found.conflicts.map((one) => one.says).join("; ") }, found.conflicts[0].older ? "older" : "differs")),
      bar(found),
      h("p", { class: "snippet" }, marked(found.snippet, found.highlights)),
      h("p", { class: "quiet" }, `${source.cite} · ${source.dated} · ${source.kb} · ${source.type} `, source.tags.map((tag) => h("span", { class: "tag" }, tag))),
      h("p", { class: "row" },
        act("Beside", () => open(found), { "aria-label": `Show ${source.title} beside the results` }),
        toggle("Why", more, () => why(found)), toggle("Neighbours", more, () => neighbours(found)),
        link("Open", entry ? `entry/${source.document_id}` : `doc/${source.document_id}`, entry ? {} : { chunk: found.chunk_id })),
      more);
  }

  async function why(found) {
    const { data } = await ask("search", params({ explain: true, limit: 50, text: false }));
    const same = data.results.find((other) => other.chunk_id === found.chunk_id);
    return same && same.explain ? explained(same) : h("p", {}, "This hit is not among the first 50.");
  }

  async function neighbours(found) {
    const { data } = await ask("chunk.get", { id: found.chunk_id, before: 1, after: 1 });
    return h("div", { class: "chunks" }, [...data.before, data.chunk, ...data.after].map((chunk) =>
      h("section", { class: `chunk${chunk.id === found.chunk_id ? " found" : ""}` },
        h("p", { class: "place" }, `chunk ${chunk.chunk_index + 1} of ${data.total_chunks}`), h("div", { class: "text" }, verbatim(chunk.text)))));
  }

  async function open(found) {
    beside.hidden = false;
    const text = h("div", { class: "scroll", tabindex: 0 });
    fill(beside, h("p", { class: "row" }, h("strong", {}, found.source.title), h("span", { class: "quiet" }, found.source.cite),
      button("Close", () => { beside.hidden = true; fill(beside); })), text);
    await reader(text, found.source.document_id, { around: found.chunk_id, passage: found.text });
  }

  await run();
}

function toggle(text, place, load) {
  const node = act(text, async () => {
    const isShown = node.getAttribute("aria-expanded") === "true";
    for (const other of node.parentNode.querySelectorAll("[aria-expanded]")) other.setAttribute("aria-expanded", "false");
    fill(place);
    if (isShown) return;
    fill(place, await load());
    node.setAttribute("aria-expanded", "true");
  }, { "aria-expanded": "false" });
  return node;
}

// The score as a bar: what words gave, and what meaning gave.
function bar(found) {
  const { fts, vector, rerank } = found.score_breakdown;
  const words = rerank === undefined ? fts || 0 : 0;
  const parts = rerank === undefined ? [["words", fts], ["meaning", vector]] : [["cross-encoder", rerank]];
  const told = parts.filter(([, value]) => value !== null).map(([name, value]) => `${name} ${value.toFixed(2)}`).join(", ");
  const piece = (name, value) => {
    const node = h("span", { class: name });
    node.style.width = `${Math.max(0, Math.min(1, value || 0)) * 100}%`;
    return node;
  };
  return h("p", { class: "score" }, h("span", { class: "bar", role: "img", "aria-label": `score ${found.score.toFixed(2)}: ${told}` },
    piece("words", words), piece("meaning", rerank === undefined ? vector : rerank)),
    h("span", { class: "quiet" }, `${found.score.toFixed(2)} (${told})`));
}

function explained(found) {
  const { fts, vector, evidence } = found.explain;
  const rows = [];
  if (evidence && evidence.chance !== null && evidence.chance !== undefined) rows.push(["chance that it is an answer", percent(evidence.chance)]);
  if (fts && fts.bm25 !== null) rows.push(["words", `BM25 ${number(fts.bm25)} of at most ${number(fts.bound)}; rank ${fts.rank ?? "–"}`]);
  if (vector && vector.cosine !== null) rows.push(["meaning", `cosine ${number(vector.cosine)}; rank ${vector.rank ?? "–"}`]);
  for (const term of (fts && fts.terms) || []) rows.push([`“${term.word}” (${term.form})`, `weight ${number(term.weight)}, rarity ${number(term.idf)}`]);
  return h("table", { class: "facts" }, h("tbody", {}, rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value)))));
}

const number = (value) => (typeof value === "number" ? value.toFixed(3) : "–");
const percent = (value) => `${Math.round(value * 100)} %`;
