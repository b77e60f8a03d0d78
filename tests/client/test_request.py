"""One request: its line for each server, and the bytes of its events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kbproc.client.asker import cancellation
from kbproc.client.request import PendingRequest, line_of


def pending(method: str, heard: list[Any] | None = None, /, **params: Any) -> PendingRequest:
    timeout = params.pop("timeout", None)
    return PendingRequest(
        5,
        method,
        params,
        timeout=timeout,
        on_event=None if heard is None else lambda event, size: heard.append((event, size)),
        on_end=lambda end: None,
    )


def hear(request: PendingRequest, event: dict[str, Any], size: int) -> None:
    """Hears an event of a server, as the asker does."""
    if (new := request.new_event(event, "again")) is not None:
        request.pass_on(new, size)


def test_a_line_is_one_json_object_in_utf_8() -> None:
    request = pending("search", query="é\n", kb=None)
    request.begin(None)
    line = line_of(request.message())
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert "é".encode() in line
    message = {"jsonrpc": "2.0", "id": 5, "method": "search", "params": {"query": "é\n"}}
    assert json.loads(line) == message
    with pytest.raises(ValueError):
        line_of(pending("search", query=float("nan")).message())
    notification = {"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": 5}}
    assert json.loads(line_of(cancellation(5))) == notification


@pytest.mark.parametrize(
    "method, params, has_token",
    [
        ("doc.create", {}, True),
        ("doc.create", {"dry_run": True}, False),
        ("search", {}, False),
        ("unknown.method", {}, False),
    ],
)
def test_only_a_write_gets_a_token(method: str, params: dict[str, Any], has_token: bool) -> None:
    first, second = pending(method, **params), pending(method, **params)
    assert ("client_token" in first.params) == has_token
    assert not has_token or first.params["client_token"] != second.params["client_token"]
    first.begin(None)
    line = line_of(first.message())
    first.begin(None)
    assert line_of(first.message()) == line, "another server gets the same token"
    assert pending("doc.create", client_token="own").params["client_token"] == "own"


@pytest.mark.parametrize("timeout, ms", [(None, None), (1.5, 1500), (0, 0), (-1, 0)])
def test_a_timeout_is_sent_in_milliseconds(timeout: float | None, ms: int | None) -> None:
    assert pending("search", timeout=timeout).params.get("timeout_ms") == ms


def test_a_request_that_the_client_does_not_know_is_sent_once() -> None:
    for method, is_repeatable in (("search", True), ("doc.create", True), ("new.one", False)):
        request = pending(method)
        assert request.is_repeatable
        request.begin(None)
        assert request.is_repeatable == is_repeatable


def test_bytes_count_from_when_an_event_is_passed_on_until_it_is_read() -> None:
    heard: list[Any] = []
    request = pending("doc.ingest", heard)
    request.begin(None)
    hear(request, {"type": "item", "request_id": 5}, 30)
    hear(request, {"type": "item", "request_id": 5}, 12)
    assert [(event["index"], size) for event, size in heard] == [(0, 30), (1, 12)]
    assert request.unread_bytes == 42
    request.read_bytes += 30
    assert request.unread_bytes == 12
    request.begin(None)  # the next server repeats both
    hear(request, {"type": "item", "request_id": 5}, 30)
    hear(request, {"type": "item", "request_id": 5}, 12)
    assert request.unread_bytes == 12
    silent = pending("doc.ingest")
    silent.begin(None)
    hear(silent, {"type": "item", "request_id": 5}, 30)
    assert silent.unread_bytes == 0, "events without a reader fill no memory"


def test_a_subscription_continues_after_the_last_record_that_was_heard() -> None:
    request = pending("events.subscribe", [], after_seq=3)
    request.begin(10)
    hear(request, {"type": "item", "request_id": 5, "item": {"seq": 7}}, 1)
    hear(request, {"type": "heartbeat", "request_id": 5}, 1)
    request.begin(10)
    assert json.loads(line_of(request.message()))["params"] == {"after_seq": 7}
