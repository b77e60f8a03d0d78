"""plan.list: list the plans without a confirmation."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.layout import Table
from kbproc.base.params import ReadParams
from kbproc.engine.store.plan import Plan
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.plans import PendingPlan
from kbproc.methods.calls.reply import Reply, Wait, once


class ListPlans(ReadParams, kw_only=True, frozen=True):
    after: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=100,
                description="version of an earlier answer: wait until the plans differ from it",
            ),
        ]
        | None
    ) = None


class WaitingPlan(Struct, kw_only=True, frozen=True):
    """A plan, who asked for it, and over which surface. `waits`: the request is still open, and the
    decision answers it. `params` is empty where the request is long.
    """

    plan_hash: str
    actor: str
    method: str
    params: dict[str, Any]
    surface: str
    asked_at: str
    waits: bool
    plan: Plan


class WaitingPlans(Struct, kw_only=True, frozen=True):
    """The plans, the oldest first. `version` changes with each of them."""

    version: str
    plans: list[WaitingPlan]


_COLUMNS = ("plan_hash", "actor", "method", "asked_at", "changes")


def _table(data: dict[str, Any], params: dict[str, Any]) -> Table:
    """Returns the plans for people, each with the first thing that it would change."""
    rows = [{**row, "changes": next(iter(row["plan"]["changes"]), "")} for row in data["plans"]]
    return Table(rows=rows, columns=_COLUMNS)


@method(
    "plan.list",
    scope="admin",
    params=ListPlans,
    result=WaitingPlans,
    summary="List plans that wait for a person.",
    when_to_use="For a person who looks after agents: each plan says what would be done. With "
    "after it waits for the next change. The owner of the store keeps them while it lives.",
    examples=[
        Example(params={}, what="the plans that wait"),
    ],
    layout=_table,
)
def list_plans(call: Call, params: ListPlans) -> Reply | Wait:
    plans = call.plans

    def answer() -> Reply:
        # The version is read before the plans, so that a later change shows in the next answer.
        version = plans.version
        rows = [_row(pending) for pending in plans.all()]
        return Reply(data=WaitingPlans(version=version, plans=rows))

    def expired() -> KbprocError:
        return KbprocError(
            "operation.timeout",
            f"The plans did not change in {params.timeout_ms} ms.",
            field="$.params.timeout_ms",
        )

    return once(
        lambda: params.after != plans.version,
        answer,
        timeout_ms=params.timeout_ms,
        expired=expired,
    )


def _row(pending: PendingPlan) -> WaitingPlan:
    return WaitingPlan(
        plan_hash=pending.plan.plan_hash,
        actor=pending.peer.actor,
        method=pending.method,
        params=pending.params,
        surface=pending.peer.surface,
        asked_at=pending.asked_at,
        waits=bool(pending.waiters),
        plan=pending.plan,
    )
