"""The asker: what each link is sent, and where what comes back goes."""

from __future__ import annotations

import threading
from typing import Any

from kbproc.client.asker import Asker, cancellation
from tests.kit.patience import PATIENCE

Message = dict[str, Any]


def answer(id: int | None, result: Any = None) -> Message:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def item(id: int, number: int) -> Message:
    params = {"type": "item", "request_id": id, "index": number, "item": {"seq": number}}
    return {"jsonrpc": "2.0", "method": "event", "params": params}


def test_the_next_link_gets_what_is_in_flight_in_its_order() -> None:
    asker = Asker("again")
    sent: list[Message] = []
    events: list[Message] = []
    answers: list[Message] = []
    first = asker.ask("doc.ingest", {}, answers.append, events.append)
    second = asker.ask("search", {"query": "x"}, answers.append)
    asker.begin(sent.append)
    asker.ask("ping", {}, answers.append)
    assert [message["method"] for message in sent] == ["doc.ingest", "search", "ping"]
    asker.hear(item(first.id, 0))
    asker.hear(answer(second.id))
    asker.cancel(first.id)
    asker.cancel(first.id)
    assert sent.pop() == cancellation(first.id)
    assert "$/cancel" not in [message["method"] for message in sent], "it is sent once"
    asker.end()
    dropped = asker.ask("status", {}, answers.append)
    asker.drop(dropped)
    sent.clear()
    asker.begin(sent.append)
    assert [message["method"] for message in sent] == ["doc.ingest", "ping", "$/cancel"]
    init = {"type": "init", "request_id": first.id, "index": 0}
    asker.hear({"jsonrpc": "2.0", "method": "event", "params": init})
    asker.hear(item(first.id, 0))
    asker.hear(item(first.id, 1))
    asker.hear(answer(first.id))
    asker.hear(answer(None, "to the only one"))
    asker.hear(answer(first.id, "late"))
    assert len(asker) == 0
    assert [(event["type"], event["index"]) for event in events] == [
        ("item", 0),
        ("warning", 1),
        ("item", 2),
    ]
    assert [one["result"] for one in answers] == [None, None, "to the only one"]


def test_a_signal_handler_cancels_while_its_own_thread_sends() -> None:
    """The handler runs in the middle of `begin`, as this link does; its line comes afterwards."""
    asker = Asker()
    request = asker.ask("doc.ingest", {}, lambda response: None)
    lines: list[Message] = []

    def send(message: Message) -> None:
        asker.cancel(request.id)
        lines.append(message)

    begun = threading.Thread(target=asker.begin, args=(send,), daemon=True)
    begun.start()
    begun.join(PATIENCE)
    assert [message["method"] for message in lines] == ["doc.ingest", "$/cancel"]


def test_answers_are_taken_while_a_link_takes_no_line() -> None:
    asker = Asker()
    came = threading.Event()
    is_blocked, goes_on = threading.Event(), threading.Event()
    request = asker.ask("ping", {}, lambda response: came.set())

    def send(message: Message) -> None:
        is_blocked.set()
        assert goes_on.wait(PATIENCE)

    begun = threading.Thread(target=asker.begin, args=(send,))
    begun.start()
    assert is_blocked.wait(PATIENCE)
    asker.hear(answer(request.id))
    asker.cancel(request.id)
    assert came.is_set()
    goes_on.set()
    begun.join()
