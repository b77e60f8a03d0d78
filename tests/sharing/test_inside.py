"""The client inside this process: each answer goes to its request, whatever a callback does."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kbproc.surfaces.sharing.inside import Inside
from tests.kit.patience import PATIENCE

Message = dict[str, Any]


class Wire:
    """The other end of the client's pipes; `client.run` runs in a thread."""

    def __init__(self) -> None:
        (answers, self.answering), (self.asked, writer) = os.pipe(), os.pipe()
        self.client = Inside(answers, writer)
        self.answers = answers
        self.thread = threading.Thread(target=self.client.run)
        self.thread.start()

    def say(self, *messages: Message, size: int = 1 << 16) -> None:
        """Writes the messages in pieces of `size` bytes."""
        data = b"".join(json.dumps(one).encode() + b"\n" for one in messages)
        for at in range(0, len(data), size):
            os.write(self.answering, data[at : at + size])

    def end(self) -> None:
        """Closes the answers' end and waits until the client has read everything."""
        os.close(self.answering)
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        os.close(self.answers)

    def lines(self) -> list[Message]:
        """Returns the messages that the client has sent, once it has closed its end."""
        with os.fdopen(self.asked, "rb") as file:
            return [json.loads(line) for line in file]


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    if wire.thread.is_alive():
        wire.end()


def event(**params: Any) -> Message:
    return {"jsonrpc": "2.0", "method": "event", "params": params}


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_answers_and_events_go_to_their_requests(wire: Wire, size: int) -> None:
    heard: list[Any] = []
    client = wire.client
    first = client.ask("a", {}, lambda m: heard.append(("first", m["result"]))).id
    second = client.ask("b", {}, lambda m: heard.append(("second", m["error"])), heard.append).id
    wire.say(
        event(request_id=second, type="item", text="é"),
        {"id": second, "error": 1},
        event(request_id=second, type="late"),
        {"id": first, "result": 2},
        {"id": first, "result": 3},
        {"id": 99, "result": 4},
        size=size,
    )
    wire.end()
    item = {"request_id": second, "type": "item", "text": "é", "index": 0}
    assert heard == [item, ("second", 1), ("first", 2)]


def test_a_callback_that_fails_holds_up_no_other_answer(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(message: Message) -> None:
        raise RuntimeError("a bug")

    heard: list[Message] = []
    first = wire.client.ask("a", {}, fail).id
    second = wire.client.ask("b", {}, heard.append).id
    with caplog.at_level(logging.ERROR):
        wire.say({"id": first, "result": 1}, {"id": second, "result": 2})
        wire.end()
    assert heard == [{"id": second, "result": 2}]
    assert "a bug" in caplog.text


def test_requests_are_sent_in_order_once_the_other_end_reads(wire: Wire) -> None:
    client = wire.client
    id = client.ask("a", {"x": 1}, lambda message: None).id
    client.cancel(id)
    client.open()
    client.ask("b", {}, lambda message: None)
    client.close()
    client.ask("c", {}, lambda message: None)
    client.close()
    assert [(line["method"], line["params"]) for line in wire.lines()] == [
        ("a", {"x": 1}),
        ("$/cancel", {"id": id}),
        ("b", {}),
    ]


def test_a_client_that_ends_before_it_opens_still_sends_its_requests(wire: Wire) -> None:
    wire.client.ask("a", {}, lambda message: None)
    wire.client.close()
    wire.client.open()
    assert [line["method"] for line in wire.lines()] == ["a"]


@pytest.mark.parametrize(
    "params, scopes",
    [
        ({"type": "ready", "scopes": ["doc:read"]}, frozenset({"doc:read"})),
        ({"type": "error"}, None),
    ],
)
def test_waiting_callbacks_run_once_there_is_a_store_or_an_error(
    wire: Wire, params: Message, scopes: Any
) -> None:
    begun: list[str] = []
    wire.client.when_begun(lambda: begun.append("early"))
    assert begun == []
    wire.say(event(type="init"), event(**params), event(**params))
    wire.end()
    wire.client.when_begun(lambda: begun.append("late"))
    assert begun == ["early", "late"]
    assert wire.client.scopes == scopes
