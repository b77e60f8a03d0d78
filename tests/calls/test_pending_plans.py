"""Plans wait in their order until a person decides, and those of ended requests are bounded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.store.plan import EventList, Plan, PlanRisk
from kbproc.methods.calls.plans import (
    PendingPlan,
    PendingPlans,
    Waiter,
    refused,
    with_confirmation,
)


def pending(number: int = 1, raw: bytes = b'{"ids":[1]}') -> PendingPlan:
    plan = Plan(
        action="doc.delete",
        targets=[],
        changes=[],
        events=EventList(items=[], total=0),
        risk=PlanRisk(level="medium", action="doc.delete"),
        plan_hash=f"{number:032x}",
    )
    return PendingPlan(
        plan=plan, method="doc.delete", raw=raw, peer=None, asked_at="2026-01-01T00:00:00.000Z"
    )


def hashes(plans: PendingPlans) -> list[int]:
    return [int(one.plan.plan_hash, 16) for one in plans.all()]


@pytest.fixture
def changes() -> list[str]:
    return []


@pytest.fixture
def plans(changes: list[str]) -> PendingPlans:
    return PendingPlans("owner", lambda: changes.append("changed"))


@pytest.mark.parametrize(
    ("raw", "params"),
    [
        (b'{"ids":[1],"dry_run":false,"confirm":"x","client_token":"t","timeout_ms":1}', [1]),
        (b"\xff", None),
        (b"[" * 100_000, None),
    ],
)
def test_a_list_shows_the_params_of_the_method_alone(raw: bytes, params: list[int] | None) -> None:
    assert pending(raw=raw).params == ({} if params is None else {"ids": params})


def test_a_list_shows_no_params_of_a_long_request() -> None:
    longest = b'{"a":"' + b"x" * ((1 << 14) - 8) + b'"}'
    assert len(longest) == 1 << 14
    assert pending(raw=longest).params.keys() == {"a"}
    assert pending(raw=longest + b" ").params == {}


def test_a_confirmation_replaces_an_earlier_one_and_keeps_the_rest() -> None:
    raw = b'{"ids":[1],"confirm":"old"}'
    assert msgspec.json.decode(with_confirmation(raw, "new")) == {"ids": [1], "confirm": "new"}
    assert msgspec.json.decode(pending(5, raw).confirmed())["confirm"] == f"{5:032x}"


def test_plans_are_listed_oldest_first_and_each_change_has_a_version(
    plans: PendingPlans, changes: list[str]
) -> None:
    assert plans.version == "owner-0"
    plans.add(pending(2), None)
    plans.add(pending(1), None)
    assert (hashes(plans), plans.version, len(changes)) == ([2, 1], "owner-2", 2)
    assert plans.find(f"{1:032x}").plan.plan_hash == f"{1:032x}"
    with pytest.raises(KbprocError) as refusal:
        plans.find("0" * 32)
    error = refusal.value
    assert (error.type, error.field) == ("resource.not_found", "$.params.plan_hash")
    assert error.hint == "See plan.list for those that wait."


def test_the_same_plan_again_keeps_the_requests_that_wait_with_it(plans: PendingPlans) -> None:
    first, second = Waiter(), Waiter()
    plans.add(pending(), first)
    plans.add(pending(), second)
    (plan,) = plans.all()
    assert plan.waiters == [first, second]
    plans.add(pending(), None)
    assert plans.all()[0].waiters == [first, second]


def test_a_hundred_plans_of_ended_requests_are_kept_and_all_that_wait(plans: PendingPlans) -> None:
    plans.add(pending(1000), Waiter())
    for number in range(101):
        plans.add(pending(number), None)
    assert hashes(plans) == [1000, *range(1, 101)]


def test_a_huge_request_is_kept_only_while_it_waits(
    plans: PendingPlans, changes: list[str]
) -> None:
    huge = b" " * ((1 << 20) + 1)
    plans.add(pending(1, huge), None)
    assert (plans.all(), changes) == ([], [])
    plans.add(pending(1, huge), Waiter())
    plans.add(pending(2, huge[1:]), None)
    assert hashes(plans) == [1, 2]


def test_a_decision_reaches_every_request_and_removes_the_plan(plans: PendingPlans) -> None:
    waiters = [Waiter(), Waiter()]
    for waiter in waiters:
        plans.add(pending(), waiter)
    assert plans.decide(f"{1:032x}", "ann", is_approved=True) == waiters
    assert [(one.decided_by, one.is_approved) for one in waiters] == [("ann", True)] * 2
    assert plans.all() == []
    with pytest.raises(KbprocError):
        plans.decide(f"{1:032x}", "ann", is_approved=False)


def test_a_plan_that_was_carried_out_goes_unless_a_request_waits(
    plans: PendingPlans, changes: list[str]
) -> None:
    plans.add(pending(1), None)
    plans.add(pending(2), Waiter())
    for number in (1, 2, 3):
        plans.confirmed(f"{number:032x}")
    assert (hashes(plans), len(changes)) == ([2], 3)


def test_the_last_request_that_leaves_takes_its_plan_along(plans: PendingPlans) -> None:
    first, second = Waiter(), Waiter()
    plans.add(pending(), first)
    plans.add(pending(), second)
    plans.add(pending(2), None)
    error = KbprocError("operation.timeout", "late")
    plans.leave(first, error)
    assert (hashes(plans), first.outcome) == ([1, 2], error)
    plans.leave(second, error)
    assert hashes(plans) == [2]


def test_a_refusal_names_the_person_and_forbids_another_try() -> None:
    error = refused("ann")
    facts: tuple[Any, ...] = (error.type, error.retryable, error.detail)
    assert facts == ("operation.cancelled", False, {"refused_by": "ann"})
    assert error.message == "ann has refused the plan: nothing was changed."
