"""A plan's hash is bound to everything that a person approves, and to nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.base.params import DestructiveParams
from kbproc.engine.events.document import DocDeleted
from kbproc.engine.store.decision import Decision, WriteRequest
from kbproc.engine.store.plan import confirm, plan_of
from kbproc.engine.store.target import Target


class Delete(DestructiveParams, kw_only=True, frozen=True):
    ids: list[int]


REQUEST = WriteRequest(
    method="doc.delete",
    actor="ann",
    params=Delete(ids=[1, 2]),
    destructive=True,
    now="2026-01-01T00:00:00.000Z",
)
DECISION = Decision(
    events=[DocDeleted(id=1), DocDeleted(id=2)],
    data=None,
    targets=[Target(kind="document", id=n, name="T", revision=n) for n in (1, 2)],
    changes=["hide “T”"],
    bound=["7"],
)


def hash_of(request: WriteRequest = REQUEST, decision: Decision = DECISION) -> str:
    return plan_of(request, decision).plan_hash


def test_whatever_changes_the_write_changes_the_hash() -> None:
    first, second = DECISION.targets
    others = [
        hash_of(replace(REQUEST, method="doc.restore")),
        hash_of(replace(REQUEST, actor="bob")),
        hash_of(replace(REQUEST, params=Delete(ids=[1]))),
        hash_of(decision=replace(DECISION, targets=[first])),
        hash_of(decision=replace(DECISION, targets=[first, replace(second, revision=3)])),
        hash_of(decision=replace(DECISION, targets=[first, replace(second, kind="entry")])),
        hash_of(decision=replace(DECISION, bound=["8"])),
    ]
    assert len({hash_of(), *others}) == len(others) + 1


def test_what_does_not_change_the_write_leaves_the_hash() -> None:
    """The preview and the confirmed request differ in common params; names are for people."""
    repeated = Delete(ids=[1, 2], dry_run=True, client_token="t", confirm="x", timeout_ms=1)
    first, second = DECISION.targets
    same = [
        hash_of(replace(REQUEST, params=repeated)),
        hash_of(replace(REQUEST, now="2027-01-01T00:00:00.000Z")),
        hash_of(decision=replace(DECISION, targets=[second, first])),
        hash_of(decision=replace(DECISION, targets=[first, replace(second, name="U")])),
        hash_of(decision=replace(DECISION, changes=[])),
    ]
    assert set(same) == {hash_of()}


def test_targets_beyond_those_that_are_listed_are_bound_too() -> None:
    targets = [Target(kind="document", id=n, name="T", revision=1) for n in range(150)]
    changed = [*targets[:-1], replace(targets[-1], revision=2)]
    decision = replace(DECISION, targets=targets, events=[DocDeleted(id=n) for n in range(150)])
    plan = plan_of(REQUEST, decision)
    assert (len(plan.targets), len(plan.events.items), plan.events.total) == (100, 100, 150)
    assert plan.plan_hash != hash_of(decision=replace(decision, targets=changed))


@pytest.mark.parametrize(
    "destructive, decides, is_final, bulk, level",
    [
        (False, False, False, False, "low"),
        (True, False, False, False, "medium"),
        (False, True, False, False, "medium"),
        (True, False, True, False, "high"),
        (True, False, True, True, "bulk"),
    ],
)
def test_the_risk_follows_from_method_and_decision(
    destructive: bool, decides: bool, is_final: bool, bulk: bool, level: str
) -> None:
    decision = replace(DECISION, destructive=decides, bulk=bulk)
    request = replace(REQUEST, destructive=destructive, is_final=is_final)
    assert plan_of(request, decision).risk.level == level


def refused(confirmation: str | None, decision: Decision = DECISION) -> str | None:
    """Returns the type of the refusal, whose plan must be the present one; None without one."""
    request = replace(REQUEST, params=Delete(ids=[1, 2], confirm=confirmation))
    try:
        confirm(request, decision)
    except KbprocError as error:
        plan: Any = error.plan
        assert plan.plan_hash == hash_of(request, decision)
        assert error.risk is not None
        return error.type
    return None


def test_only_the_hash_of_the_present_plan_confirms() -> None:
    assert refused(None) == "input.confirmation_required"
    assert refused("another") == "resource.plan_stale"
    assert refused(hash_of()) is None
    assert refused(hash_of(), replace(DECISION, bound=["8"])) == "resource.plan_stale"


def test_a_write_that_does_nothing_needs_no_confirmation() -> None:
    nothing = replace(DECISION, events=[])
    assert refused(None, nothing) is None
    assert refused(None, replace(nothing, destructive=True)) == "input.confirmation_required"
    assert refused("another", nothing) == "resource.plan_stale"
