"""A request in flight is asked again of the next server, and its stream stays unbroken."""

from __future__ import annotations

from typing import Any

import pytest

from kbproc.client import in_flight
from kbproc.client.in_flight import InFlight, renumbered, with_token


def received(request: InFlight, *events: dict[str, Any]) -> list[tuple[int, str]]:
    """Returns index and text of each event that the reader gets."""
    passed = []
    for event in events:
        index = request.index_of(event["type"], event.get("cursor"), event.get("seq"))
        if index is not None:
            passed_on = renumbered(event, index, "again")
            text = passed_on.get("message") or passed_on.get("text", "")
            passed.append((passed_on["index"], text))
    return passed


def piece(cursor: str) -> dict[str, Any]:
    return {"type": "answer", "cursor": cursor, "text": cursor}


def item(text: str, seq: int | None = None) -> dict[str, Any]:
    return {"type": "item", "text": text, "seq": seq}


INIT = {"type": "init", "request_id": 1}


def test_only_a_write_that_happens_gets_a_token() -> None:
    assert with_token({"a": 1}, "t") == {"a": 1, "client_token": "t"}
    assert with_token({"client_token": "own"}, "t") == {"client_token": "own"}
    assert with_token({"dry_run": True}, "t") == {"dry_run": True}


def test_the_first_server_is_asked_as_the_caller_asked() -> None:
    request = InFlight("events.subscribe", 5.0)
    params = {"timeout_ms": 5000}
    request.begin(7)
    assert request.params_now(params) is params and request.was_sent


@pytest.mark.parametrize(
    ("after_seq", "items", "expected"), [(0, [], 0), (None, [], 7), (3, [], 3), (3, [4, 5], 5)]
)
def test_where_a_subscription_continues(
    after_seq: int | None, items: list[int], expected: int
) -> None:
    """A subscription continues after its last event, else after_seq, else the first position."""
    request = InFlight("events.subscribe")
    request.begin(None)
    request.note_position(7)
    for seq in items:
        received(request, item("x", seq))
    request.note_position(9)  # a later owner's
    request.begin(9)
    params = {} if after_seq is None else {"after_seq": after_seq}
    assert request.params_now(params) == {"after_seq": expected}
    request.begin(12)
    assert request.params_now(params) == {"after_seq": expected}


def test_items_repeat_and_have_one_numbering() -> None:
    request = InFlight("store.export")
    request.begin(None)
    assert received(request, INIT, item("a"), item("b")) == [(0, ""), (1, "a"), (2, "b")]
    for next_text, index in (("c", 4), ("d", 6)):  # each server's `init` is a warning
        request.begin(None)
        repeated = [item(text) for text in "abc"[: index // 2]]
        assert received(request, INIT, *repeated, item(next_text)) == [
            (index - 1, "again"),
            (index, next_text),
        ]


def test_an_answer_repeats_up_to_its_last_cursor() -> None:
    request = InFlight("session.ask")
    request.begin(None)
    received(request, INIT, piece("a"), piece("b"))
    request.begin(None)
    assert received(request, INIT, piece("b"), piece("c")) == [(3, "again"), (4, "c")]


def test_a_resumed_answer_continues_at_its_cursor() -> None:
    request = InFlight("session.resume")
    request.begin(None)
    received(request, INIT, piece("a"))
    request.begin(None)
    assert request.params_now({"snapshot": True}) == {"snapshot": False, "after": "a"}
    assert received(request, piece("b")) == [(2, "b")]


def test_a_later_server_gets_the_rest_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([100.0, 101.5, 110.0])
    monkeypatch.setattr(in_flight.time, "monotonic", lambda: next(moments))
    request = InFlight("search", 5.0)
    request.begin(None)
    request.begin(None)
    assert request.params_now({"timeout_ms": 5000}) == {"timeout_ms": 3500}
    assert request.params_now({"timeout_ms": 5000}) == {"timeout_ms": 1}
    assert request.due(1.0) == 106.0
