"""The requests in flight of an attached process, tracked line by line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kbproc.base.values import without_halves
from kbproc.surfaces.sharing.attached import InFlightLines, InUse
from kbproc.surfaces.wire import jsonrpc


@pytest.fixture
def in_flight() -> InFlightLines:
    lines = InFlightLines()
    lines.writes = frozenset({"kb.create"})
    return lines


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def ask(in_flight: InFlightLines, id: int | str, method: str, **params: Any) -> dict[str, Any]:
    """Sends a request; returns the params that the owner gets."""
    sent, _ = in_flight.from_client(line(id=id, method=method, params=params), is_sent=True)
    return json.loads(sent)["params"]  # type: ignore[no-any-return]


def event(in_flight: InFlightLines, id: int | str, type: str, index: int, **more: Any) -> Any:
    """Passes an event on; returns the params that the client gets, or None."""
    params = {"type": type, "request_id": id, "index": index, **more}
    passed = in_flight.from_owner(line(method="event", params=params))
    assert len(passed) <= 1
    return json.loads(passed[0])["params"] if passed else None


def test_every_write_has_a_token_and_no_two_have_one(in_flight: InFlightLines) -> None:
    tokens = [ask(in_flight, id, "kb.create")["client_token"] for id in range(3)]
    assert len(set(tokens)) == 3
    assert ask(in_flight, 4, "kb.create", client_token="own")["client_token"] == "own"
    assert ask(in_flight, 5, "kb.create", dry_run=True) == {"dry_run": True}
    assert ask(in_flight, 6, "kb.list") == {}


def test_what_is_answered_is_not_asked_again(in_flight: InFlightLines) -> None:
    ask(in_flight, 1, "ping")
    ask(in_flight, 2, "ping")
    in_flight.from_client(line(method="$/cancel", params={"id": 2}))
    in_flight.from_owner(line(id=1, result={}))
    again = [json.loads(one) for one in in_flight.for_next_owner()]
    assert [one["method"] for one in again] == ["ping", "$/cancel"]
    in_flight.from_owner(line(id=2, result={}))
    assert not in_flight and in_flight.for_next_owner() == []


@pytest.mark.parametrize(
    ("method", "params", "works"),
    [
        ("ping", {}, True),
        ("ping", {"min_seq": 9}, False),
        ("events.subscribe", {}, False),
        ("events.subscribe", {"after_seq": 0}, True),
        ("kb.create", {}, True),
    ],
)
def test_a_request_that_only_waits_ends_no_owner(
    in_flight: InFlightLines, method: str, params: dict[str, Any], works: bool
) -> None:
    """A subscription from an earlier position makes the owner read the log."""
    ask(in_flight, 1, method, **params)
    for _ in range(2):
        in_flight.for_next_owner()
        refused = in_flight.owner_ended(died=True)
    assert bool(refused) == works


def test_only_owners_that_die_with_a_request_are_counted(in_flight: InFlightLines) -> None:
    ask(in_flight, 1, "kb.create")
    assert in_flight.owner_ended(died=False) == []
    for died in (True, False, False):
        in_flight.for_next_owner()
        assert in_flight.owner_ended(died=died) == []
        assert in_flight.owner_ended(died=True) == [], "another owner, which never had it"
    ask(in_flight, 2, "ping")
    in_flight.for_next_owner()
    assert [key for key, _ in in_flight.owner_ended(died=True)] == [1]
    in_flight.forget()
    assert len(in_flight) == 1


REFUSED = [
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"\xff"}', None),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","\xff":1}', None),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"\\ud800"}', 1),
    (b'{"jsonrpc":"2.0","id":1,"method":5}', 1),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"kb.create","params":{"slug":"\xff"}}', 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"events.subscribe","params":{"x":"\xff"}}', 1),
]


@pytest.mark.parametrize(("refused", "id"), REFUSED)
def test_what_is_refused_is_waited_for_under_the_id_that_it_has(
    in_flight: InFlightLines, refused: bytes, id: int | None
) -> None:
    """An attached process reads the id as the owner does, else it would wait for ever."""
    sent, is_pending = in_flight.from_client(refused)
    parsed = jsonrpc.parse(refused)
    refused = without_halves(refused)
    assert sent == refused and not isinstance(parsed, list) and parsed.id == id
    assert is_pending == (id is not None)
    assert in_flight.for_next_owner() == ([refused] if is_pending else [])
    in_flight.from_owner(line(id=id, error={}))
    assert not in_flight


def test_a_batch_with_members_that_are_refused_is_one_question(in_flight: InFlightLines) -> None:
    good = line(id="a", method="kb.create", params={})
    sent, is_pending = in_flight.from_client(b"[1," + good + b',{"id":2},' + REFUSED[0][0] + b"]")
    assert is_pending and b"client_token" in sent
    in_flight.from_owner(b'[{"id":null},{"id":"a"},{"id":2},{"id":null}]')
    assert not in_flight


def test_a_batch_is_one_question(in_flight: InFlightLines) -> None:
    members = [{"jsonrpc": "2.0", "id": id, "method": "kb.create", "params": {}} for id in "ab"]
    sent = json.loads(in_flight.from_client(json.dumps(members).encode())[0])
    assert all("client_token" in member["params"] for member in sent)
    assert [json.loads(one) for one in in_flight.for_next_owner()] == [sent]
    assert [key for key, _ in in_flight.give_up()] == [("a", "b")]
    assert not in_flight


def test_a_stream_goes_on_unbroken_under_the_next_owner(in_flight: InFlightLines) -> None:
    ask(in_flight, 1, "store.export")
    assert event(in_flight, 1, "init", 0)["index"] == 0
    assert event(in_flight, 1, "item", 1, item="one")["item"] == "one"
    in_flight.for_next_owner()
    assert event(in_flight, 1, "init", 0)["type"] == "warning"
    assert event(in_flight, 1, "item", 1, item="one") is None  # the client already has it
    two = event(in_flight, 1, "item", 2, item="two")
    assert (two["item"], two["index"]) == ("two", 3)


@pytest.mark.parametrize("params", [{"snapshot": True}, {"after": "a"}, {}])
def test_a_resumed_answer_goes_on_from_its_last_cursor(
    in_flight: InFlightLines, params: dict[str, Any]
) -> None:
    """A second snapshot would repeat text that the client already has."""
    where = {"session_id": 1, "message_id": 1}
    ask(in_flight, 1, "session.resume", **where, **params)
    event(in_flight, 1, "init", 0)
    event(in_flight, 1, "answer", 1, cursor="b", text="One ")
    event(in_flight, 1, "answer", 2, cursor="c", delta="two ")
    (again,) = in_flight.for_next_owner()
    assert json.loads(again)["params"] == {**where, "after": "c", "snapshot": False}
    event(in_flight, 1, "init", 0)
    assert event(in_flight, 1, "answer", 1, cursor="d", delta="three")["delta"] == "three"


def test_a_resumed_answer_that_told_nothing_is_asked_for_as_before(
    in_flight: InFlightLines,
) -> None:
    ask(in_flight, 1, "session.resume", session_id=1, message_id=1, snapshot=True)
    (again,) = in_flight.for_next_owner()
    assert json.loads(again)["params"] == {"session_id": 1, "message_id": 1, "snapshot": True}


def test_ready_is_passed_on_once(in_flight: InFlightLines) -> None:
    ready = line(method="event", params={"type": "ready", "seq": 7})
    assert in_flight.from_owner(ready) == [ready]
    assert in_flight.from_owner(ready) == []
    ask(in_flight, 1, "events.subscribe")
    (again,) = in_flight.for_next_owner()
    assert json.loads(again)["params"] == {"after_seq": 7}


def given_up(in_flight: InFlightLines) -> list[Any]:
    """Returns the ids that the owner is asked to cancel."""
    lasting = frozenset({"chat"})
    requests = [request for _, request in in_flight.give_up()]
    ids_of_each = [request.to_cancel(in_flight.writes | lasting, lasting) for request in requests]
    return [id for ids in ids_of_each for id in ids]


def test_what_was_given_up_is_withdrawn_unless_it_goes_on(in_flight: InFlightLines) -> None:
    for id, method in enumerate(("kb.list", "kb.create", "kb.create", "chat", "kb.list")):
        ask(in_flight, id, method)
    for id in (2, 4):
        event(in_flight, id, "init", 0)
    members = [
        {"jsonrpc": "2.0", "id": f"b{n}", "method": m} for n, m in enumerate(("chat", "ping"))
    ]
    in_flight.from_client(json.dumps(members).encode())
    assert given_up(in_flight) == [0, 1, 4, "b1"]


def test_an_id_is_in_use_until_the_owner_has_answered(in_flight: InFlightLines) -> None:
    ask(in_flight, 1, "kb.list")
    in_flight.give_up()
    with pytest.raises(InUse):
        ask(in_flight, 1, "ping")
    assert in_flight.from_owner(line(id=1, result="late")) == []
    ask(in_flight, 1, "ping")
    assert in_flight.from_owner(line(id=1, result="ping")) == [line(id=1, result="ping")]


def test_a_write_with_half_a_character_gets_its_token(in_flight: InFlightLines) -> None:
    """Also in a batch; without a token the next owner would write it once more."""
    in_flight.writes = frozenset({"kb.create"})
    write = b'{"jsonrpc":"2.0","id":%d,"method":"kb.create","params":{"slug":"\\ud83d"}}'
    for lines in (write % 1, b"[" + write % 2 + b"," + write % 3 + b"]"):
        sent, is_pending = in_flight.from_client(lines)
        assert is_pending and sent.count(b"client_token") == lines.count(b"slug")
