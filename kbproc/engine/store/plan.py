"""Makes plans, the previews of writes, and checks their confirmations.

A confirmation is bound to the hash of the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, Struct, UnsetType

from kbproc.base.errors import KbprocError, Risk
from kbproc.base.values import canonical
from kbproc.engine.store.target import Target

if TYPE_CHECKING:
    from kbproc.engine.store.decision import Decision, WriteRequest

MOST_SUMMARIES = 100


def confirm(request: WriteRequest, decision: Decision) -> None:
    """Checks a destructive write's confirmation.

    Raises input.confirmation_required or resource.plan_stale.
    """
    confirmation = getattr(request.params, "confirm", None)
    if not _is_destructive(request, decision) or (
        confirmation is None and not (decision.events or decision.destructive)
    ):
        return
    plan = plan_of(request, decision)
    risk = Risk(level=plan.risk.level, action=plan.risk.action)
    if confirmation is None:
        raise KbprocError(
            "input.confirmation_required",
            f"{request.method} {_reason(request, decision)}needs a person's approval.",
            risk=risk,
            plan=plan,
        )
    if confirmation != plan.plan_hash:
        raise KbprocError(
            "resource.plan_stale",
            "The confirmed plan is not what would happen now.",
            field="$.params.confirm",
            risk=risk,
            plan=plan,
        )


def plan_of(request: WriteRequest, decision: Decision) -> Plan:
    """Returns the plan; its hash binds method, actor, params and every target's revision."""
    from hashlib import blake2b  # not above: an answer's meta names plans, and few have one

    bound = [
        request.method,
        request.actor,
        request.params_hash,
        sorted([t.kind, str(t.id), t.revision] for t in decision.targets),
        *decision.bound,
    ]
    return Plan(
        action=request.method,
        targets=decision.targets[:MOST_SUMMARIES],
        changes=decision.changes[:MOST_SUMMARIES],
        counts=decision.counts or UNSET,
        events=EventList(
            items=[
                EventSummary(type=event.tag(), summary=event.summary())
                for event in decision.events[:MOST_SUMMARIES]
            ],
            total=len(decision.events),
        ),
        risk=PlanRisk(level=_level(request, decision), action=request.method),
        plan_hash=blake2b(canonical(bound), digest_size=16).hexdigest(),
    )


def _level(request: WriteRequest, decision: Decision) -> Literal["low", "medium", "high", "bulk"]:
    """Returns medium for what a person approves and can undo, such as hiding documents."""
    if decision.bulk:
        return "bulk"
    if not _is_destructive(request, decision):
        return "low"
    return "high" if request.is_final else "medium"


def _reason(request: WriteRequest, decision: Decision) -> str:
    """Returns why a write needs approval; "" where it destroys nothing."""
    destroys = request.destructive or bool(decision.deleted)
    return "is destructive and " if destroys else ""


def _is_destructive(request: WriteRequest, decision: Decision) -> bool:
    return request.destructive or decision.destructive


class EventSummary(Struct, kw_only=True, frozen=True):
    type: str
    summary: str


class EventList(Struct, kw_only=True, frozen=True):
    """The first hundred, and how many there are."""

    items: list[EventSummary]
    total: int


class PlanRisk(Struct, kw_only=True, frozen=True):
    level: Literal["low", "medium", "high", "bulk"]
    action: str


class Plan(Struct, kw_only=True, frozen=True):
    """What a write would do, in sentences and in numbers. `plan_hash` confirms exactly this.

    `targets` and `changes` are the first hundred.
    """

    action: str
    targets: list[Target]
    changes: list[str]
    counts: dict[str, int] | UnsetType = UNSET
    events: EventList
    risk: PlanRisk
    plan_hash: str
