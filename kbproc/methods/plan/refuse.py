"""plan.refuse: leave undone what an agent asked for."""

from __future__ import annotations

from msgspec import Struct

from kbproc.base.params import WriteParams
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.plans import PlanHash
from kbproc.methods.calls.run import check_person


class RefusePlan(WriteParams, kw_only=True, frozen=True):
    plan_hash: PlanHash


class PlanRefused(Struct, kw_only=True, frozen=True):
    """`answered`: how many requests waited, and got the refusal."""

    plan_hash: str
    actor: str
    method: str
    answered: int


@method(
    "plan.refuse",
    kind="write",
    undone_by=(),
    scope="admin",
    params=RefusePlan,
    result=PlanRefused,
    summary="Refuse a plan that waits.",
    when_to_use="When a person does not want what a plan says. A request that waits gets the "
    "refusal as its answer; of one that has ended the plan only leaves the list.",
    errors=["resource.not_found"],
    positional=["plan_hash"],
    examples=[
        Example(params={"plan_hash": "0" * 32}, what="a plan that is not there", exit=5),
    ],
)
def refuse(call: Call, params: RefusePlan) -> Decide:
    check_person(call)

    def decide(here: DecisionState) -> Decision:
        pending = call.plans.find(params.plan_hash)
        data = PlanRefused(
            plan_hash=params.plan_hash,
            actor=pending.peer.actor,
            method=pending.method,
            answered=len(pending.waiters),
        )

        def effect() -> None:
            call.plans.decide(params.plan_hash, call.peer.actor, is_approved=False)

        changes = [f"refuse {pending.method} of {pending.peer.actor}"]
        return Decision(events=[], data=data, changes=changes, effect=effect)

    return decide
