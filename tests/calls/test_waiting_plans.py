"""A plan waits for a person, who approves or refuses it; the log names both."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kbproc.surfaces.wire.connection import Connection
from tests.kit.patience import until
from tests.kit.talk import Kept, Session, as_bytes, request


@pytest.fixture
def document(session: Session) -> int:
    return int(session.data("doc.create", title="One", text="the text")["id"])


def agent(session: Session, *, waits: bool = True, surface: str = "serve") -> Session:
    """Returns an agent's connection, whose requests wait for a person."""
    other = session.another("claude")
    peer = msgspec.structs.replace(
        other.connection.peer, awaits_approval=waits, surface=surface, named_by=None
    )
    other.outbox = Kept()
    other.connection = Connection(session.service, peer, other.outbox)
    return other


def waiting(session: Session) -> list[dict[str, Any]]:
    return session.data("plan.list")["plans"]  # type: ignore[no-any-return]


def asks(other: Session, method: str, **params: Any) -> None:
    other.send(as_bytes(request(7, method, **params)))


def hash_of(session: Session) -> str:
    until(lambda: waiting(session), "a plan that waits")
    (plan,) = waiting(session)
    return str(plan["plan_hash"])


def is_there(session: Session, id: int) -> bool:
    return "result" in session.ask("doc.get", id=id)


def last_record(session: Session) -> dict[str, Any]:
    records = session.data("events.read", actor="claude")
    return records[-1]  # type: ignore[no-any-return]


def test_a_request_waits_and_the_list_shows_its_plan(session: Session, document: int) -> None:
    asks(agent(session), "doc.delete", ids=[document])
    until(lambda: waiting(session), "a plan that waits")
    (plan,) = waiting(session)
    assert plan["actor"] == "claude" and plan["method"] == "doc.delete" and plan["waits"]
    assert plan["params"] == {"ids": [document]}
    assert any("One" in change for change in plan["plan"]["changes"])
    assert is_there(session, document)


def test_approve_answers_the_request_and_the_log_names_both(
    session: Session, document: int
) -> None:
    other = agent(session)
    asks(other, "doc.delete", ids=[document])
    done = session.data("plan.approve", plan_hash=hash_of(session))
    answer = json.loads(other.receive())
    assert answer["id"] == 7 and answer["result"]["meta"]["seq"] == done["seq"]
    record = last_record(session)
    assert record["seq"] == done["seq"] and record["method"] == "doc.delete"
    assert [event["summary"] for event in record["events"]][-1] == "approved by user"
    assert waiting(session) == [] and not is_there(session, document)


def test_refuse_answers_the_request_and_writes_nothing(session: Session, document: int) -> None:
    other = agent(session)
    asks(other, "doc.delete", ids=[document])
    before = session.data("ping")["seq"]
    refused = session.data("plan.refuse", plan_hash=hash_of(session))
    assert refused["answered"] == 1
    error = json.loads(other.receive())["error"]["data"]
    assert error["type"] == "operation.cancelled" and error["detail"] == {"refused_by": "user"}
    assert error["retryable"] is False
    assert session.data("ping")["seq"] == before and is_there(session, document)


def test_a_request_that_ended_is_carried_out_in_its_askers_name(
    session: Session, document: int
) -> None:
    error = agent(session, waits=False).error("doc.delete", ids=[document])
    (plan,) = waiting(session)
    assert not plan["waits"] and plan["plan_hash"] == error["plan"]["plan_hash"]
    done = session.data("plan.approve", plan_hash=plan["plan_hash"])
    assert done["actor"] == "claude" and not is_there(session, document)
    assert last_record(session)["seq"] == done["seq"]


@pytest.mark.parametrize("waits", [True, False])
def test_a_stale_plan_does_nothing_and_waits_as_it_is_now(
    session: Session, document: int, waits: bool
) -> None:
    other = agent(session, waits=waits)
    asks(other, "doc.delete", ids=[document])
    stale = hash_of(session)
    session.data("doc.update", id=document, title="Two")
    error = session.error("plan.approve", plan_hash=stale)
    assert error["type"] == "resource.plan_stale"
    (plan,) = waiting(session)
    assert plan["plan_hash"] == error["plan"]["plan_hash"] != stale and plan["waits"] == waits
    assert is_there(session, document)
    session.data("plan.approve", plan_hash=plan["plan_hash"])
    assert not is_there(session, document)


def test_a_cancelled_request_takes_its_plan_away(session: Session, document: int) -> None:
    other = agent(session)
    asks(other, "doc.delete", ids=[document])
    plan_hash = hash_of(session)
    other.send(as_bytes({"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": 7}}))
    assert json.loads(other.receive())["error"]["data"]["type"] == "operation.cancelled"
    assert waiting(session) == []
    assert session.error("plan.approve", plan_hash=plan_hash)["type"] == "resource.not_found"
    assert is_there(session, document)


def test_a_client_that_ends_takes_its_plan_away(session: Session, document: int) -> None:
    other = agent(session)
    asks(other, "doc.delete", ids=[document])
    plan_hash = hash_of(session)
    other.connection.end(1.0)
    assert waiting(session) == []
    assert session.error("plan.refuse", plan_hash=plan_hash)["type"] == "resource.not_found"


def test_a_timeout_ends_the_wait(session: Session, document: int) -> None:
    other = agent(session)
    asks(other, "doc.delete", ids=[document], timeout_ms=0)
    assert json.loads(other.receive())["error"]["data"]["type"] == "operation.timeout"
    assert waiting(session) == []


def test_a_plan_that_its_asker_has_confirmed_is_gone(session: Session, document: int) -> None:
    other = agent(session, waits=False)
    plan = other.error("doc.delete", ids=[document])["plan"]
    assert len(waiting(session)) == 1
    other.data("doc.delete", ids=[document], confirm=plan["plan_hash"])
    assert waiting(session) == []


def test_the_pages_own_plans_are_not_listed(session: Session, document: int) -> None:
    agent(session, waits=False, surface="page").error("doc.delete", ids=[document])
    assert waiting(session) == []


def test_the_list_waits_for_the_next_change(session: Session, document: int) -> None:
    first = session.data("plan.list")
    late = session.error("plan.list", after=first["version"], timeout_ms=0)
    assert late["type"] == "operation.timeout"
    watcher = session.another("user")
    watcher.send(as_bytes(request(3, "plan.list", after=first["version"])))
    agent(session, waits=False).error("doc.delete", ids=[document])
    answer = json.loads(watcher.receive())
    assert len(answer["result"]["data"]["plans"]) == 1
    assert answer["result"]["data"]["version"] != first["version"]


@pytest.mark.parametrize("method", ["plan.approve", "plan.refuse"])
def test_the_program_of_an_agent_decides_nothing(
    session: Session, document: int, method: str
) -> None:
    other = agent(session, waits=False, surface="mcp")
    other.error("doc.delete", ids=[document])
    error = other.error(method, plan_hash=hash_of(session))
    assert error["type"] == "auth.insufficient_scope"
    assert len(waiting(session)) == 1 and is_there(session, document)


def test_without_the_scope_nobody_sees_plans(session: Session) -> None:
    other = session.another("reader", scopes="doc:read,store:read")
    assert other.error("plan.list")["type"] == "auth.insufficient_scope"


def test_a_long_write_names_its_approver_once(session: Session, document: int) -> None:
    asks(agent(session), "store.purge", document_ids=[document])
    session.data("plan.approve", plan_hash=hash_of(session))
    records = session.data("events.read", types=["plan.approved"], limit=1000)
    assert [record["actor"] for record in records] == ["claude"]


def test_a_token_approves_once(session: Session, document: int) -> None:
    agent(session, waits=False).error("doc.delete", ids=[document])
    params = {"plan_hash": hash_of(session), "client_token": "once"}
    first = session.ask("plan.approve", **params)["result"]
    again = session.ask("plan.approve", **params)["result"]
    assert again["meta"]["duplicate"] and again["data"] == first["data"]


def test_an_approved_record_can_be_undone(
    session: Session, document: int, catch_up: Callable[[], None]
) -> None:
    agent(session, waits=False).error("doc.delete", ids=[document])
    done = session.data("plan.approve", plan_hash=hash_of(session))
    catch_up()
    plan = session.ask("events.revert", seqs=[done["seq"]], dry_run=True)["result"]["meta"]["plan"]
    assert not any("plan.approved" in change for change in plan["changes"])
    session.data("events.revert", seqs=[done["seq"]], confirm=plan["plan_hash"])
    assert is_there(session, document)


def test_a_preview_tells_what_would_be_done(session: Session, document: int) -> None:
    agent(session, waits=False).error("doc.delete", ids=[document])
    plan_hash = hash_of(session)
    preview = session.ask("plan.approve", plan_hash=plan_hash, dry_run=True)["result"]
    assert any("One" in change for change in preview["meta"]["plan"]["changes"])
    assert is_there(session, document) and len(waiting(session)) == 1
