// Shows a plan before a write, and carries it out once the person has confirmed exactly this plan.

import { act, button, count, dialog, h, notice } from "./dom.js";
import { about, ask, time, token } from "./wire.js";

const RISK = { medium: "It can be undone.", high: "It can't be undone.", bulk: "It removes much at once." };
const CONFIRMED = new Set(["doc.delete", "events.revert", "knowledge.delete", "note.delete", "session.delete", "store.purge"]);

export function planView(plan) {
  const more = plan.events.total - plan.events.items.length;
  return h("div", { class: "plan" },
    h("p", {}, h("span", { class: `risk ${plan.risk.level}` }, `risk: ${plan.risk.level}`), ` ${plan.action}. ${RISK[plan.risk.level] || ""}`),
    h("ul", { class: "changes" }, plan.changes.map((change) => h("li", {}, change))),
    plan.changes.length === 0 && h("p", {}, "Nothing would change."),
    plan.events.total > 0 && h("details", {}, h("summary", {}, `${count(plan.events.total, "event")} would be written`),
      h("ul", {}, plan.events.items.map((event) => h("li", {}, h("code", {}, event.type), ` ${event.summary}`)),
        more > 0 && h("li", {}, `and ${more} more`))),
    plan.targets.length > 0 && h("p", { class: "quiet" }, "Concerns: ",
      plan.targets.slice(0, 10).map((target) => `${target.kind} ${target.id} (revision ${target.revision ?? "–"})`).join(", "),
      plan.targets.length > 10 && ` and ${plan.targets.length - 10} more`));
}

// Returns the button that confirms a plan; of a bulk one the person types the word first.
export function confirmation(plan, text, action) {
  const isLow = plan.risk.level === "low";
  const confirm = act(text, action, { type: "submit", class: isLow ? null : "danger", autofocus: isLow });
  if (plan.risk.level !== "bulk") return confirm;
  confirm.disabled = true;
  const typed = h("input", { "aria-label": "Type bulk to confirm", placeholder: "type bulk",
    oninput: () => { confirm.disabled = typed.value !== "bulk"; } });
  return h("span", { class: "row" }, typed, confirm);
}

// Asks for the plan, shows it, and returns the result once it was confirmed; null if it was not.
export async function withPlan(title, method, params, done = "Done.") {
  if (about.read_only) {
    notice("This page was opened with --read-only.", "bad");
    return null;
  }
  if (time.at !== null) {
    notice("You are looking at the past. Return to now to change something.", "bad");
    return null;
  }
  let plan = (await ask(method, { ...params, dry_run: true })).meta.plan;
  for (;;) {
    const outcome = await dialog(title, (close) => [
      planView(plan),
      h("div", { class: "row end" }, button("Cancel", () => close(null), { autofocus: plan.risk.level !== "low" }),
        confirmation(plan, "Confirm", async () => {
          const more = CONFIRMED.has(method) ? { confirm: plan.plan_hash } : {};
          try {
            close({ result: await ask(method, { ...params, ...more, client_token: token() }) });
          } catch (error) {
            if (error.type !== "resource.plan_stale") throw error;
            close({ stale: error.data.plan });
          }
        })),
    ]);
    if (outcome === null) return null;
    if (outcome.result) {
      notice(done);
      return outcome.result;
    }
    plan = outcome.stale;
    notice("The store has changed meanwhile: look at the new plan.", "bad");
  }
}
