"""The two clients: Kbproc, which waits, and AsyncKbproc, which is awaited.

Owns: the command that is started, calls by a method's name, and the client's beginning and end.
Refuses to know: what goes over the pipes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .calls import Awaits, Mode, Waits
from .engine import Engine
from .flights import Told
from .methods import Methods
from .streams import AsyncStream, Result, Stream

if TYPE_CHECKING:
    from pathlib import Path


class _Client(Methods[Mode]):
    """One `kbproc serve` and who speaks to it."""

    def __init__(
        self,
        store: str | Path | None = None,
        *,
        kb: str | None = None,
        agent: str | None = None,
        scopes: str | Sequence[str] | None = None,
        root: str | Path | None = None,
        profile: str | None = None,
        flags: Sequence[str] = (),
        command: Sequence[str] | None = None,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_event: Told | None = None,
        on_log: Callable[[str], None] | None = None,
    ) -> None:
        """Starts kbproc, and does not wait for it: requests queue.

        `store`, `kb`, `agent`, `scopes`, `root`, `profile`: as the flags of `kbproc serve`; more of
        them in `flags`. `command` runs instead of all these. `timeout`: seconds for each request
        that names none. `on_event` gets what belongs to no request, such as `ready`; `on_log` each
        line of stderr, which else goes where this process's goes. Both are called by a thread of
        the client's own, which must not be held up.
        """
        super().__init__(self)
        given = {
            "--store": store,
            "--kb": kb,
            "--agent": agent,
            "--scopes": scopes if scopes is None or isinstance(scopes, str) else ",".join(scopes),
            "--root": root,
            "--profile": profile,
        }
        named = [str(part) for pair in given.items() if pair[1] is not None for part in pair]
        self.command = [*command] if command else [*_program(), "serve", *named, *flags]
        self.timeout = timeout
        self._engine = Engine(self.command, cwd=cwd, env=env, on_event=on_event, on_log=on_log)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({' '.join(self.command)!r})"

    @property
    def server(self) -> dict[str, Any]:
        """What the server has said of itself in `init`; empty until it has come."""
        return self._engine.flights.events.get("init", {})

    @property
    def pid(self) -> int | None:
        """Of the server that answers now."""
        process = self._engine.process
        return process.pid if process else None

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answers."""
        return len(self._engine.flights)

    @property
    def restarts(self) -> int:
        """How often a server that had died was started again."""
        return max(0, self._engine.servers - 1)

    def _given(
        self, params: Mapping[str, Any] | None, more: dict[str, Any]
    ) -> tuple[dict[str, Any], float | None]:
        """The params of the wire, and the timeout, which the client keeps, too."""
        given = {**(params or {}), **more}
        timeout = given.pop("timeout", None)
        return given, self.timeout if timeout is None else timeout


class Kbproc(_Client[Waits]):
    """kbproc as a coprocess. Any thread may use it; `with` ends it.

    with Kbproc("notes") as kb:
        kb.doc.create(title="Tides", text="High tide is at noon.")
        for hit in kb.search("when is high tide").data["results"]:
            print(hit["score"], hit["source"]["cite"])
    """

    def call(self, method: str, params: Any = None, /, **more: Any) -> Result[Any]:
        """A request by the method's name; `timeout` in seconds. Raises KbprocError."""
        given, timeout = self._given(params, more)
        return Stream[Any](self._engine, method, given, timeout, events=False).result()

    def stream(self, method: str, params: Any = None, /, **more: Any) -> Stream[Any]:
        """The same as it goes on: iterate over its events, then take its `result()`."""
        given, timeout = self._given(params, more)
        return Stream(self._engine, method, given, timeout)

    def ready(self, timeout: float | None = None) -> dict[str, Any]:
        """Waits until the store is open; returns the event `ready`. Raises why it can't be."""
        self.ping(timeout=timeout)
        return self._engine.flights.events.get("ready", {})

    def close(self) -> None:
        """Lets the server end what is in flight, and waits for its end."""
        self._engine.close()

    def __enter__(self) -> Kbproc:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncKbproc(_Client[Awaits]):
    """The same, awaited: `async with AsyncKbproc("notes") as kb: await kb.search("tides")`."""

    async def call(self, method: str, params: Any = None, /, **more: Any) -> Result[Any]:
        given, timeout = self._given(params, more)
        return await AsyncStream[Any](self._engine, method, given, timeout, events=False).result()

    def stream(self, method: str, params: Any = None, /, **more: Any) -> AsyncStream[Any]:
        given, timeout = self._given(params, more)
        return AsyncStream(self._engine, method, given, timeout)

    async def ready(self, timeout: float | None = None) -> dict[str, Any]:
        await self.ping(timeout=timeout)
        return self._engine.flights.events.get("ready", {})

    async def close(self) -> None:
        import asyncio

        await asyncio.to_thread(self._engine.close)

    async def __aenter__(self) -> AsyncKbproc:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def _program() -> list[str]:
    """This Python's own kbproc, where this is a part of it; else the one that PATH leads to."""
    if __name__.startswith("kbproc."):
        return [sys.executable, "-P", "-m", "kbproc"]
    import shutil

    return [shutil.which("kbproc") or "kbproc"]
