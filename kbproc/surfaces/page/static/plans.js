// Plans that wait: what agents asked for and nobody has confirmed.

import { act, empty, fill, form, h, notice, when } from "./dom.js";
import { confirmation, planView } from "./plan.js";
import { about, ask, live, token } from "./wire.js";

export const plans = { list: [] };

live.addEventListener("plans", (event) => {
  const known = new Set(plans.list.map((plan) => plan.plan_hash));
  plans.list = event.detail.plans;
  for (const plan of plans.list) if (!known.has(plan.plan_hash)) notice(`${plan.actor} asks for ${plan.method}: see Plans.`);
  live.dispatchEvent(new Event("plans shown"));
});

export async function plansView(main, { onLeave }) {
  const list = h("div", {});
  fill(main, h("h1", {}, "Plans that wait"), h("p", { class: "quiet" },
    "What agents asked for, and what nobody has confirmed. Approve does exactly what the plan says, in the agent's name; the log names you beside it."), list);
  const cards = new Map();
  const keyOf = (plan) => `${plan.plan_hash} ${plan.waits}`; // a card says whether the request waits
  const show = () => {
    for (const [key, card] of cards) if (!plans.list.some((plan) => keyOf(plan) === key)) { card.remove(); cards.delete(key); }
    for (const plan of plans.list) {
      if (cards.has(keyOf(plan))) continue;
      cards.set(keyOf(plan), planCard(plan));
      list.append(cards.get(keyOf(plan)));
    }
    list.querySelector(".empty")?.remove();
    if (!cards.size) list.append(empty("No plan waits."));
  };
  show();
  live.addEventListener("plans shown", show);
  onLeave(() => live.removeEventListener("plans shown", show));
}

function planCard(waiting) {
  const state = h("p", { role: "status" });
  return h("article", { class: "card", "aria-label": `Plan of ${waiting.actor}` },
    h("h2", {}, `${waiting.actor} asks for ${waiting.method}`),
    h("p", { class: "quiet" }, when(waiting.asked_at), ` over ${waiting.surface} · `, waiting.waits ? "the request waits for your answer" : "the request has ended without an answer; approving does it all the same"),
    planView(waiting.plan),
    h("details", {}, h("summary", {}, "The request"), h("pre", { tabindex: 0 }, JSON.stringify(waiting.params, null, 1))),
    !about.read_only && form([confirmation(waiting.plan, "Approve", () => decide("plan.approve", waiting, state)),
      act("Refuse", () => decide("plan.refuse", waiting, state))], { class: "row" }), state);
}

async function decide(method, waiting, state) {
  try {
    await ask(method, { plan_hash: waiting.plan_hash, client_token: token() });
    notice(method === "plan.refuse" ? "Refused." : "Done.");
  } catch (error) {
    fill(state, h("span", { class: "bad" }, error.type === "resource.plan_stale" ? "The store has changed since: nothing was done. The plan as it is now stands below." : error.message));
    throw error;
  }
}
