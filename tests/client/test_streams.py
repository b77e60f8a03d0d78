"""A stream yields its events, then its result or error; leaving it early cancels the request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kbproc.client import data
from kbproc.client.errors import KbprocError
from kbproc.client.kbproc import AsyncKbproc, Kbproc
from kbproc.client.methods import Methods
from kbproc.client.request import PendingRequest
from kbproc.client.server import Server
from kbproc.client.streams import AsyncStream, Result, Stream

META: Any = {"seq": 1}
END = {"data": 7, "meta": META}
FAILURE = KbprocError({"type": "quota.exceeded", "message": "Full."})


class FakeServer:
    """An server whose requests get these events, of ten bytes each, and this end."""

    def __init__(
        self,
        events: int = 0,
        end: dict[str, Any] | KbprocError | None = None,
        *,
        ends: bool = True,
    ) -> None:
        self.ends = ends
        self.events = [cast(data.Event, {"type": "item", "index": n}) for n in range(events)]
        self.end = END if end is None else end
        self.requests: list[tuple[str, dict[str, Any], float | None]] = []
        self.bytes_read = 0
        self.cancels = 0
        self.is_closed = False
        self.flights: Any = SimpleNamespace(events={})
        self.process: Any = None
        self.servers = 0

    def ask(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float | None,
        on_end: Callable[[Any], None],
        on_event: Callable[[Any, int], None] | None = None,
    ) -> PendingRequest:
        self.requests.append((method, params, timeout))

        def answer() -> None:
            for event in self.events if on_event else ():
                on_event(event, 10)  # type: ignore[misc]
            if self.ends:
                on_end(self.end)

        thread = threading.Thread(target=answer)  # because events come from the server's thread
        thread.start()
        thread.join()
        return cast(PendingRequest, None)

    def take(self, request: PendingRequest, size: int) -> None:
        self.bytes_read += size

    def cancel(self, request: PendingRequest) -> None:
        self.cancels += 1

    def close(self) -> None:
        self.is_closed = True


def stream(server: FakeServer, **more: Any) -> Stream[Any]:
    return Stream(cast(Server, server), "search", {"query": "x"}, None, **more)


def test_events_come_in_order_and_then_the_result() -> None:
    server = FakeServer(events=3)
    one = stream(server)
    assert [event["index"] for event in one] == [0, 1, 2]
    assert one.result() == Result(7, META)
    assert (server.bytes_read, server.cancels) == (30, 0)
    assert list(one) == [], "what was read does not come again"


def test_the_result_alone_takes_all_events() -> None:
    server = FakeServer(events=2)
    assert stream(server).result().data == 7
    assert (server.bytes_read, server.cancels) == (20, 0)
    silent = FakeServer(events=2)
    assert stream(silent, events=False).result().data == 7
    assert silent.bytes_read == 0


@pytest.mark.parametrize("events", [0, 2])
def test_an_error_comes_after_the_events(events: int) -> None:
    one = stream(FakeServer(events, FAILURE))
    indices = []
    with pytest.raises(KbprocError) as error:
        for event in one:
            indices.append(event["index"])
    assert (error.value, indices) == (FAILURE, [*range(events)])
    with pytest.raises(KbprocError):
        one.result()


def test_leaving_early_cancels_once_the_end_has_not_come() -> None:
    server = FakeServer(events=3)
    for _ in stream(server):
        break
    with stream(server) as one:
        next(iter(one))
    assert server.cancels >= 2
    cancels = server.cancels
    with stream(server) as one:
        one.result()
    assert server.cancels == cancels


def test_an_awaited_stream_gives_the_same() -> None:
    async def read(server: FakeServer) -> tuple[list[int], Any]:
        async with AsyncStream[Any](cast(Server, server), "search", {}, 1.0) as one:
            indices = [event["index"] async for event in one]
            return indices, (await one.result()).data

    server = FakeServer(events=2)
    assert asyncio.run(read(server)) == ([0, 1], 7)
    assert (server.requests, server.bytes_read, server.cancels) == ([("search", {}, 1.0)], 20, 0)
    with pytest.raises(KbprocError):
        asyncio.run(read(FakeServer(1, FAILURE)))


def test_a_cancelled_task_cancels_the_request() -> None:
    async def give_up(server: FakeServer) -> None:
        one = AsyncStream[Any](cast(Server, server), "search", {}, None)
        task = asyncio.create_task(one.result())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    server = FakeServer(ends=False)
    asyncio.run(give_up(server))
    assert server.cancels == 1


# ---------------------------------------------------------------------- clients


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """Puts a fake server in the place of the one that clients start."""
    fake = FakeServer()
    monkeypatch.setattr("kbproc.client.kbproc.Server", lambda command, **more: fake)
    return fake


def test_arguments_become_the_flags_of_the_server(server: FakeServer) -> None:
    client = Kbproc(Path("/kb"), kb="birds", scopes=["doc:read", "kb:read"], flags=["--thin"])
    words = ["serve", "--store", "/kb", "--kb", "birds", "--scopes", "doc:read,kb:read", "--thin"]
    assert client.command[1:] == ["-P", "-m", "kbproc", *words]
    assert Kbproc(scopes="doc:read", agent="gull").command[4:] == [
        "serve",
        "--agent",
        "gull",
        "--scopes",
        "doc:read",
    ]
    own = Kbproc("/kb", command=["my", "server"])
    assert (own.command, repr(own)) == (["my", "server"], "Kbproc('my server')")


def test_a_call_keeps_its_timeout_and_otherwise_that_of_the_client(server: FakeServer) -> None:
    client = Kbproc(timeout=9.0)
    assert client.call("doc.get", {"id": 1}, timeout=0).data == 7
    assert client.call("doc.get", id=2) == Result(7, META)
    answer: Any = client.search("x", limit=3)
    assert answer.data == 7
    client.stream("doc.get", timeout=None).result()
    assert server.requests == [
        ("doc.get", {"id": 1}, 0),
        ("doc.get", {"id": 2}, 9.0),
        ("search", {"query": "x", "limit": 3}, 9.0),
        ("doc.get", {}, 9.0),
    ]


def test_a_client_says_which_server_it_talks_to(server: FakeServer) -> None:
    client = Kbproc()
    assert (client.server, client.pid, client.restarts) == ({}, None, 0)
    server.flights = SimpleNamespace(events={"init": {"pid": 5}, "ready": {"seq": 3}})
    server.process, server.servers = SimpleNamespace(pid=5), 3
    assert (client.server, client.pid, client.restarts) == ({"pid": 5}, 5, 2)
    assert client.ready() == {"seq": 3}
    assert server.requests == [("ping", {}, None)]
    with client as same:
        assert same is client and not server.is_closed
    assert server.is_closed


def test_an_awaited_client_calls_and_closes(server: FakeServer) -> None:
    server.flights = SimpleNamespace(events={"ready": {"seq": 3}})

    async def use() -> tuple[Any, ...]:
        async with AsyncKbproc() as client:
            answer = await client.doc.get(id=1)
            indices = [event async for event in client.stream("search")]
            return answer.data, indices, await client.ready()

    assert asyncio.run(use()) == (7, [], {"seq": 3})
    assert server.is_closed


def test_types_of_params_are_dicts_at_run_time() -> None:
    types: Any = data
    assert types.Hit == types.Anything == dict[str, Any]
    for name in ("hit", "_Hit"):
        with pytest.raises(AttributeError):
            getattr(types, name)
    assert issubclass(Kbproc, Methods)
