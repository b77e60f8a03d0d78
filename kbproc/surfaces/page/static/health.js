// How the store is: findings, freshness, sizes, growth, and a map of its chunks by meaning.

import { act, count, empty, failed, field, fill, h, link, notice, size, svg } from "./dom.js";
import { can } from "./methods.js";
import { ask, find, time } from "./wire.js";

const COLOURS = ["#2f6fde", "#c2410c", "#15803d", "#9333ea", "#b45309", "#0e7490", "#be185d", "#4d7c0f"];

export async function healthView(main, { onLeave }) {
  const left = new AbortController();
  onLeave(() => left.abort());
  const parts = { status: h("section", {}), findings: h("section", {}), watched: h("section", {}), growth: h("section", {}), map: h("section", {}) };
  fill(main, h("h1", {}, "Health"), time.at !== null && h("p", { class: "quiet" }, "As it is now, whatever moment the page shows."), Object.values(parts));
  const show = (name, load) => load(parts[name], left.signal).catch((error) => parts[name].append(failed(error)));
  await Promise.all([show("status", statusPart), show("watched", watchedPart), show("map", mapPart)]);
  await show("growth", growthPart); // after the map, because these two read the whole log
  await show("findings", findingsPart);
}

async function statusPart(node) {
  const { data } = await ask("status");
  const { freshness } = data;
  const embedded = data.total_chunks ? 1 - freshness.pending_embeddings / data.total_chunks : 1;
  const progress = (label, value, text) => h("dl", {}, h("dt", {}, label), h("dd", {}, h("progress", { value, max: 1, "aria-label": label }), ` ${text}`));
  fill(node, h("h2", {}, "Store"), h("div", { class: "facts" },
    [["Folder", data.store], ["Documents", data.total_documents.toLocaleString()], ["Chunks", data.total_chunks.toLocaleString()],
      ["On disk", size(data.db_size_bytes)], ["Model", `${data.model_name || "none"} (${data.model_state})`], ["Log position", data.seq]]
      .map(([name, value]) => h("dl", {}, h("dt", {}, name), h("dd", {}, value))),
    progress("Words", data.seq ? freshness.fulltext_seq / data.seq : 1, `${freshness.fulltext_seq} of ${count(data.seq, "record")}`),
    progress("Meaning", embedded, `${count(freshness.pending_embeddings, "chunk")} without a vector`),
    data.model_change && changePart(data.model_change, progress)));
}

// The model in use answers until the other one has all vectors.
function changePart({ name, embedded, chunks, running, problem }, progress) {
  const state = problem || (running ? "it answers once all chunks have one" : "stopped: kbproc model use goes on, kbproc model use --undo ends it");
  return progress(`Change to ${name}`, chunks ? embedded / chunks : 1, `${embedded.toLocaleString()} of ${count(chunks, "chunk")} have a vector; ${state}`);
}

async function findingsPart(node, signal) {
  fill(node, h("h2", {}, "Doctor"), h("p", { class: "quiet" }, "Looking…"));
  const { data } = await ask("doctor", {}, { signal });
  fill(node, h("h2", {}, "Doctor"), h("ul", { class: "findings" }, data.findings.map((finding) =>
    h("li", {}, h("span", { class: `tag ${finding.status}` }, finding.status), " ", h("strong", {}, finding.name), ` ${finding.message}`,
      finding.hint && h("span", { class: "quiet" }, ` ${finding.hint}`)))));
}

async function watchedPart(node) {
  if (!(await can("watch.list"))) return;
  const { data } = await ask("watch.list");
  const folders = Array.isArray(data) ? data : data.folders || [];
  fill(node, h("h2", {}, "Watched folders"), folders.length ? h("ul", {}, folders.map((folder) => h("li", {}, Object.entries(folder)
    .filter(([, value]) => value !== null && typeof value !== "object").map(([name, value]) => h("span", { class: "tag" }, `${name}: ${value}`))))) : empty("No folder is watched."));
}

async function growthPart(node, signal) {
  const sql = "select substr(ts, 1, 10) as day, max(seq) as seq from events group by day order by day desc";
  const { data } = await ask("sql.query", { sql, limit: 1000 }, { signal });
  const rows = data.rows.reverse();
  fill(node, h("h2", {}, "Growth of the log"), rows.length ? chart(rows) : empty("The log is empty."));
}

function chart(rows) {
  const [width, height, most] = [600, 120, rows.at(-1)[1]];
  const days = rows.map(([day]) => Date.parse(day));
  const span = Math.max(1, days.at(-1) - days[0]);
  const points = rows.map(([, seq], at) => `${(rows.length === 1 ? 1 : (days[at] - days[0]) / span) * width},${height - (seq / most) * (height - 10)}`);
  return h("figure", {}, svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Records by day: ${most} until ${rows.at(-1)[0]}` },
    svg("polyline", { points: `0,${height} ${points.join(" ")} ${width},${height}`, class: "growth" })),
  h("figcaption", {}, `${count(most, "record")} from ${rows[0][0]} to ${rows.at(-1)[0]}`));
}

async function mapPart(node) {
  if (!(await can("chunk.map"))) return;
  const canvas = h("canvas", { width: 1000, height: 600, tabindex: 0, role: "img" });
  const chosen = h("div", { "aria-live": "polite" });
  const legend = h("p", { class: "legend" });
  const query = h("input", { type: "search", "aria-label": "A query to place on the map" });
  const state = { points: [], star: null, path: [] };
  const load = async () => {
    const { data } = await ask("chunk.map", query.value.trim() ? { query: query.value.trim() } : {});
    Object.assign(state, { points: data.points, star: data.query, kbs: data.kbs });
    canvas.setAttribute("aria-label", `${data.points.length} of ${count(data.total, "chunk")} in ${count(data.kbs.length, "knowledge base")}, near where they mean alike`);
    fill(legend, data.kbs.map((kb, at) => [dot(COLOURS[at % COLOURS.length]), ` ${kb} `]), `${data.points.length.toLocaleString()} of ${count(data.total, "chunk")}`);
    draw(canvas, state);
  };
  fill(node, h("h2", {}, "Map"), h("p", { class: "quiet" }, "Chunks as points: near ones mean alike. Draw around some to list them."),
    h("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); load().catch((error) => notice(error.message, "bad")); } },
      field("A query as a star", query), h("button", {}, "Place"), act("List all that are shown", () => list(chosen, state.points))), legend, canvas, chosen);
  lasso(canvas, state, chosen);
  await load().catch((error) => {
    if (error.type !== "model.unavailable") throw error;
    fill(node, h("h2", {}, "Map"), empty(error.message));
  });
}

function dot(colour) {
  const node = h("span", { class: "dot", "aria-hidden": "true" });
  node.style.background = colour;
  return node;
}

const placed = (canvas, { x, y }) => [20 + ((x + 1) / 2) * (canvas.width - 40), 20 + ((1 - y) / 2) * (canvas.height - 40)];

function draw(canvas, state) {
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, canvas.width, canvas.height);
  for (const point of state.points) {
    const [x, y] = placed(canvas, point);
    pen.fillStyle = COLOURS[point.kb % COLOURS.length];
    pen.globalAlpha = 0.6;
    pen.fillRect(x - 2, y - 2, 4, 4);
  }
  pen.globalAlpha = 1;
  pen.strokeStyle = pen.fillStyle = getComputedStyle(canvas).color;
  if (state.star) {
    pen.font = "28px sans-serif";
    pen.fillText("★", placed(canvas, state.star)[0] - 14, placed(canvas, state.star)[1] + 10);
  }
  if (state.path.length > 1) {
    pen.beginPath();
    state.path.forEach(([x, y], at) => (at ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.closePath();
    pen.stroke();
  }
}

function lasso(canvas, state, chosen) {
  let isDrawing = false;
  const at = (event) => [(event.offsetX / canvas.clientWidth) * canvas.width, (event.offsetY / canvas.clientHeight) * canvas.height];
  canvas.addEventListener("pointerdown", (event) => {
    isDrawing = true;
    canvas.setPointerCapture(event.pointerId);
    state.path = [at(event)];
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!isDrawing) return;
    state.path.push(at(event));
    draw(canvas, state);
  });
  canvas.addEventListener("pointerup", () => {
    isDrawing = false;
    list(chosen, state.points.filter((point) => inside(state.path, placed(canvas, point)))).catch((error) => notice(error.message, "bad"));
  });
}

export function inside(path, [x, y]) {
  let isInside = false;
  for (let at = 0, last = path.length - 1; at < path.length; last = at++) {
    const [[ax, ay], [bx, by]] = [path[at], path[last]];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) isInside = !isInside;
  }
  return isInside;
}

async function list(node, points) {
  const shown = points.slice(0, 30);
  const chunks = await Promise.all(shown.map((point) => find("chunk.get", { id: point.chunk_id }).then((answer) => answer && answer.data)));
  fill(node, h("p", {}, count(points.length, "chunk"), points.length > shown.length && `, the first ${shown.length}:`), h("ul", { class: "history" }, chunks.filter(Boolean).map(({ chunk, title }) =>
    h("li", {}, link(title, `doc/${chunk.document_id}`, { chunk: chunk.id }), ` ${chunk.text.slice(0, 140)}`))));
}

