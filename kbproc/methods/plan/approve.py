"""plan.approve: carry out what an agent asked for, as its plan says."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.base.params import WriteParams
from kbproc.engine.store.decision import Decide, Decision
from kbproc.engine.store.pipeline import LongWrite
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.plans import PendingPlan, PlanHash, Waiter
from kbproc.methods.calls.reply import Answer, Reply, Wait
from kbproc.methods.calls.run import check_person, run


class ApprovePlan(WriteParams, kw_only=True, frozen=True):
    plan_hash: PlanHash


class PlanApproval(Struct, kw_only=True, frozen=True):
    """The approved request is done; its record `seq` names the asker and the approver."""

    plan_hash: str
    actor: str
    method: str
    status: Literal["done"]
    seq: int


def plan(call: Call, params: ApprovePlan) -> Decide:
    pending = call.plans.find(params.plan_hash)
    return lambda here: Decision(events=[], data=None, changes=pending.plan.changes)


@method(
    "plan.approve",
    kind="write",
    undone_by=(),
    scope="admin",
    params=ApprovePlan,
    result=PlanApproval,
    plan=plan,
    summary="Approve a plan that waits.",
    when_to_use="When a person has read the plan and wants exactly this. A request that waits is "
    "answered; one that has ended is carried out in its asker's name. Not for agents.",
    errors=["resource.not_found", "resource.plan_stale"],
    positional=["plan_hash"],
    examples=[
        Example(params={"plan_hash": "0" * 32}, what="a plan that is not there", exit=5),
    ],
)
def approve(call: Call, params: ApprovePlan, write: LongWrite) -> Reply | Wait:
    check_person(call)
    pending = call.plans.find(params.plan_hash)
    waiters = call.plans.decide(params.plan_hash, call.peer.actor, is_approved=True)
    if not waiters:
        return _reply(pending, _carry_out(call, pending), write)

    def expired() -> KbprocError:
        return KbprocError(
            "operation.timeout",
            f"The approved request was not done in {params.timeout_ms} ms; it goes on.",
            field="$.params.timeout_ms",
        )

    return Wait(
        ready=lambda: all(waiter.outcome is not None for waiter in waiters),
        resume=lambda: _reply(pending, _first(waiters), write),
        timeout_ms=params.timeout_ms,
        expired=expired,
    )


def _carry_out(call: Call, pending: PendingPlan) -> Answer | KbprocError:
    """Runs the request of a client that did not wait, under that client's name and scopes."""
    asker = call.for_peer(pending.peer, approved_by=call.peer.actor)
    try:
        outcome = run(asker, pending.method, pending.confirmed())
    except KbprocError as error:
        if error.type == "resource.plan_stale" and error.plan is not None:
            call.plans.add(replace(pending, plan=error.plan), None)
        return error
    if isinstance(outcome, Answer):
        return outcome
    return KbprocError("resource.conflict", f"{pending.method} can't be approved afterwards.")


def _first(waiters: list[Waiter]) -> Answer | KbprocError:
    """Returns the answer of the first request that was carried out, else the first error."""
    outcomes = [waiter.outcome for waiter in waiters if waiter.outcome is not None]
    answers = [outcome for outcome in outcomes if isinstance(outcome, Answer)]
    return (answers or outcomes)[0]


def _reply(pending: PendingPlan, outcome: Answer | KbprocError, write: LongWrite) -> Reply:
    """Returns the reply. Raises the error of a request that could not be carried out."""
    if isinstance(outcome, KbprocError):
        raise KbprocError(
            outcome.type,
            f"{pending.method} of {pending.peer.actor} was approved and not done: "
            f"{outcome.message}",
            hint=outcome.hint,
            plan=outcome.plan,
            risk=outcome.risk,
        )
    data = PlanApproval(
        plan_hash=pending.plan.plan_hash,
        actor=pending.peer.actor,
        method=pending.method,
        status="done",
        seq=outcome.meta.seq,
    )
    return Reply.ending(write.end(data), outcome.meta.seq)
