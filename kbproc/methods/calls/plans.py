"""Keeps the plans of requests without a confirmation, until a person decides.

They are in the owner's memory only: a plan is made again with the next request. A client may let
its request wait for the decision; a request that has ended is carried out by the approval itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.params import COMMON_WRITE_FIELDS
from kbproc.base.values import NOT_READABLE
from kbproc.engine.store.plan import Plan

if TYPE_CHECKING:
    from kbproc.methods.calls.reply import Answer

PlanHash = Annotated[
    str, Meta(min_length=32, max_length=32, description="plan, by its plan_hash from plan.list")
]
_MOST = 100  # plans whose requests have ended
_MOST_BYTES = 1 << 20  # the longest params of an ended request
_MOST_SHOWN = 1 << 14  # bytes of params that a list shows


class Waiter:
    """A request that waits for a decision. `outcome`: its end, once it has one."""

    def __init__(self) -> None:
        self.decided_by: str | None = None
        self.is_approved = False
        self.outcome: Answer | KbprocError | None = None


class PendingPlan(Struct, kw_only=True, eq=False):
    """A plan and its request. `raw`: the request's params. `peer`: the asker, a Peer."""

    plan: Plan
    method: str
    raw: bytes
    peer: Any
    asked_at: str
    waiters: list[Waiter] = []

    @property
    def params(self) -> dict[str, Any]:
        """Returns the params as a list shows them; none of a long request."""
        try:
            params: dict[str, Any] = msgspec.json.decode(self.raw)
        except NOT_READABLE:
            return {}
        if len(self.raw) > _MOST_SHOWN:
            return {}
        return {name: value for name, value in params.items() if name not in COMMON_WRITE_FIELDS}

    def confirmed(self) -> bytes:
        """Returns the params that confirm this plan."""
        return with_confirmation(self.raw, self.plan.plan_hash)


def with_confirmation(raw: bytes, plan_hash: str) -> bytes:
    """Returns a request's params with the confirmation of its plan."""
    return msgspec.json.encode({**msgspec.json.decode(raw), "confirm": plan_hash})


class PendingPlans:
    """The plans of one owner, by their hashes. Any thread may use it."""

    def __init__(self, owner: str, on_change: Callable[[], None]) -> None:
        """`owner` tells one owner's versions from another's."""
        self._owner = owner
        self._on_change = on_change
        self._plans: dict[str, PendingPlan] = {}
        self._changes = 0
        self._lock = threading.Lock()

    @property
    def version(self) -> str:
        """Returns a text that differs after each change."""
        return f"{self._owner}-{self._changes}"

    def all(self) -> list[PendingPlan]:
        """Returns the plans, the oldest first."""
        with self._lock:
            return list(self._plans.values())

    def find(self, plan_hash: str) -> PendingPlan:
        """Returns the plan. Raises resource.not_found."""
        plan = self._plans.get(plan_hash)
        if plan is None:
            raise KbprocError(
                "resource.not_found",
                "No plan with this hash waits: it was decided, or its request has gone.",
                field="$.params.plan_hash",
                hint="See plan.list for those that wait.",
            )
        return plan

    def add(self, pending: PendingPlan, waiter: Waiter | None) -> None:
        """Adds a plan, in place of one of the same hash; `waiter`: of a request that waits."""
        plan_hash = pending.plan.plan_hash
        with self._lock:
            same = self._plans.get(plan_hash)
            if same is None and waiter is None and len(pending.raw) > _MOST_BYTES:
                return
            if same is not None:
                pending.waiters = same.waiters
            if waiter is not None:
                pending.waiters = [*pending.waiters, waiter]
            self._plans[plan_hash] = pending
            ended = [key for key, plan in self._plans.items() if not plan.waiters]
            for key in ended[: max(0, len(ended) - _MOST)]:
                del self._plans[key]
        self._changed()

    def confirmed(self, plan_hash: str) -> None:
        """Removes a plan that was carried out, unless a request still waits with it."""
        with self._lock:
            plan = self._plans.get(plan_hash)
            if plan is None or plan.waiters:
                return
            del self._plans[plan_hash]
        self._changed()

    def decide(self, plan_hash: str, by: str, *, is_approved: bool) -> list[Waiter]:
        """Removes the plan and tells the requests that wait; returns them.

        Raises resource.not_found.
        """
        with self._lock:
            pending = self.find(plan_hash)
            del self._plans[plan_hash]
            for waiter in pending.waiters:
                waiter.is_approved, waiter.decided_by = is_approved, by
        self._changed()
        return pending.waiters

    def leave(self, waiter: Waiter, outcome: Answer | KbprocError) -> None:
        """Notes the end of a request that waited, decided or not."""
        waiter.outcome = outcome
        with self._lock:
            for plan_hash, pending in list(self._plans.items()):
                if waiter in pending.waiters:
                    pending.waiters = [other for other in pending.waiters if other is not waiter]
                    if not pending.waiters:
                        del self._plans[plan_hash]
        self._changed()

    def _changed(self) -> None:
        with self._lock:
            self._changes += 1
        self._on_change()


def refused(by: str) -> KbprocError:
    """Returns the error of a request whose plan a person has refused."""
    return KbprocError(
        "operation.cancelled",
        f"{by} has refused the plan: nothing was changed.",
        hint="Leave it as it is. Ask the person before you propose it again.",
        detail={"refused_by": by},
        lasting=True,
    )
