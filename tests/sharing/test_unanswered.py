"""What an attached process knows of its client's requests, line by line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kbproc.sharing.unanswered import Unanswered
from kbproc.wire import messages


@pytest.fixture
def unanswered() -> Unanswered:
    made = Unanswered()
    made.writes = frozenset({"kb.create"})
    return made


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def ask(unanswered: Unanswered, id: int | str, method: str, **params: Any) -> dict[str, Any]:
    """The params as the owner gets them."""
    sent, _ = unanswered.from_client(line(id=id, method=method, params=params))
    return json.loads(sent)["params"]  # type: ignore[no-any-return]


def event(unanswered: Unanswered, id: int | str, type: str, index: int, **more: Any) -> Any:
    """The params of the one event that the client gets; None if it gets none."""
    params = {"type": type, "request_id": id, "index": index, **more}
    passed = unanswered.from_owner(line(method="event", params=params))
    assert len(passed) <= 1
    return json.loads(passed[0])["params"] if passed else None


def test_every_write_has_a_token_and_no_two_have_one(unanswered: Unanswered) -> None:
    tokens = [ask(unanswered, id, "kb.create")["client_token"] for id in range(3)]
    assert len(set(tokens)) == 3
    assert ask(unanswered, 4, "kb.create", client_token="own")["client_token"] == "own"
    assert ask(unanswered, 5, "kb.create", dry_run=True) == {"dry_run": True}
    assert ask(unanswered, 6, "kb.list") == {}


def test_what_is_answered_is_not_asked_again(unanswered: Unanswered) -> None:
    ask(unanswered, 1, "ping")
    ask(unanswered, 2, "ping")
    unanswered.from_client(line(method="$/cancel", params={"id": 2}))
    unanswered.from_owner(line(id=1, result={}))
    again = [json.loads(one) for one in unanswered.to_ask_again()]
    assert [one["method"] for one in again] == ["ping", "$/cancel"]
    unanswered.from_owner(line(id=2, result={}))
    assert not unanswered and unanswered.to_ask_again() == []


REFUSED = [
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"\xff"}', None),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","\xff":1}', None),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"\\ud800"}', None),
    (b'{"jsonrpc":"2.0","id":1,"method":5}', 1),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"kb.create","params":{"slug":"\xff"}}', 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"events.subscribe","params":{"x":"\xff"}}', 1),
]


@pytest.mark.parametrize(("refused", "id"), REFUSED)
def test_what_is_refused_is_waited_for_under_the_id_that_it_has(
    unanswered: Unanswered, refused: bytes, id: int | None
) -> None:
    """As the owner reads it: what it refuses under no id would be waited for for ever."""
    sent, kept = unanswered.from_client(refused)
    parsed = messages.parse(refused)
    assert sent == refused and not isinstance(parsed, list) and parsed.id == id
    assert kept == (id is not None)
    assert unanswered.to_ask_again() == ([refused] if kept else [])
    unanswered.from_owner(line(id=id, error={}))
    assert not unanswered


def test_a_batch_with_members_that_are_refused_is_one_question(unanswered: Unanswered) -> None:
    good = line(id="a", method="kb.create", params={})
    sent, kept = unanswered.from_client(b"[1," + good + b',{"id":2},' + REFUSED[0][0] + b"]")
    assert kept and b"client_token" in sent
    unanswered.from_owner(b'[{"id":null},{"id":"a"},{"id":2},{"id":null}]')
    assert not unanswered


def test_a_batch_is_one_question(unanswered: Unanswered) -> None:
    members = [{"jsonrpc": "2.0", "id": id, "method": "kb.create", "params": {}} for id in "ab"]
    sent = json.loads(unanswered.from_client(json.dumps(members).encode())[0])
    assert all("client_token" in member["params"] for member in sent)
    assert [json.loads(one) for one in unanswered.to_ask_again()] == [sent]
    assert [key for key, _ in unanswered.give_up()] == [("a", "b")]
    assert not unanswered


def test_a_stream_goes_on_unbroken_under_the_next_owner(unanswered: Unanswered) -> None:
    ask(unanswered, 1, "store.export")
    assert event(unanswered, 1, "init", 0)["index"] == 0
    assert event(unanswered, 1, "item", 1, item="one")["item"] == "one"
    unanswered.to_ask_again()
    assert event(unanswered, 1, "init", 0)["type"] == "warning"
    assert event(unanswered, 1, "item", 1, item="one") is None  # the client has it already
    two = event(unanswered, 1, "item", 2, item="two")
    assert (two["item"], two["index"]) == ("two", 3)


@pytest.mark.parametrize("asked", [{"snapshot": True}, {"after": "a"}, {}])
def test_a_resumed_answer_goes_on_from_its_last_cursor(
    unanswered: Unanswered, asked: dict[str, Any]
) -> None:
    """A snapshot of the next owner's would hold what the client has got since its own."""
    where = {"session_id": 1, "message_id": 1}
    ask(unanswered, 1, "session.resume", **where, **asked)
    event(unanswered, 1, "init", 0)
    event(unanswered, 1, "answer", 1, cursor="b", text="One ")
    event(unanswered, 1, "answer", 2, cursor="c", delta="two ")
    (again,) = unanswered.to_ask_again()
    assert json.loads(again)["params"] == {**where, "after": "c", "snapshot": False}
    event(unanswered, 1, "init", 0)
    assert event(unanswered, 1, "answer", 1, cursor="d", delta="three")["delta"] == "three"


def test_a_resumed_answer_that_told_nothing_is_asked_for_as_before(unanswered: Unanswered) -> None:
    ask(unanswered, 1, "session.resume", session_id=1, message_id=1, snapshot=True)
    (again,) = unanswered.to_ask_again()
    assert json.loads(again)["params"] == {"session_id": 1, "message_id": 1, "snapshot": True}


def test_ready_is_passed_on_once(unanswered: Unanswered) -> None:
    ready = line(method="event", params={"type": "ready", "seq": 7})
    assert unanswered.from_owner(ready) == [ready]
    assert unanswered.from_owner(ready) == []
    ask(unanswered, 1, "events.subscribe")
    (again,) = unanswered.to_ask_again()
    assert json.loads(again)["params"] == {"after_seq": 7}
