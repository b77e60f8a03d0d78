"""The two clients: Kbproc, which blocks, and AsyncKbproc, which is awaited."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .calls import Awaits, Mode, Waits
from .flights import EventHook
from .methods import Methods
from .server import Server
from .streams import AsyncStream, Result, Stream

if TYPE_CHECKING:
    from pathlib import Path


class _Client(Methods[Mode]):
    """A client with a `kbproc serve` of its own."""

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
        on_event: EventHook | None = None,
        on_log: Callable[[str], None] | None = None,
    ) -> None:
        """Starts kbproc without waiting for it; requests queue.

        `store`, `kb`, `agent`, `scopes`, `root` and `profile` are the flags of `kbproc serve`;
        `flags` holds more of them. `command` runs instead of all these. `timeout`: seconds for each
        request without one. `on_event` gets the events that belong to no request, such as `ready`;
        `on_log` gets each line of stderr, which by default goes to this process's stderr. A thread
        of the client calls both, so they must not block.
        """
        super().__init__(self)
        flag_values = {
            "--store": store,
            "--kb": kb,
            "--agent": agent,
            "--scopes": scopes if scopes is None or isinstance(scopes, str) else ",".join(scopes),
            "--root": root,
            "--profile": profile,
        }
        named = [str(part) for pair in flag_values.items() if pair[1] is not None for part in pair]
        self.command = [*command] if command else [*_program(), "serve", *named, *flags]
        self.timeout = timeout
        self._server = Server(self.command, cwd=cwd, env=env, on_event=on_event, on_log=on_log)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({' '.join(self.command)!r})"

    @property
    def server(self) -> dict[str, Any]:
        """Returns the server's event `init`; empty until it has come."""
        return self._server.flights.events.get("init", {})

    @property
    def pid(self) -> int | None:
        """Returns the current server's process id."""
        process = self._server.process
        return process.pid if process else None

    @property
    def in_flight(self) -> int:
        """Returns how many requests wait for their answers."""
        return len(self._server.flights)

    @property
    def restarts(self) -> int:
        """Returns how often a server that had died was started again."""
        return max(0, self._server.servers - 1)

    def _with_timeout(
        self, params: Mapping[str, Any] | None, more: dict[str, Any]
    ) -> tuple[dict[str, Any], float | None]:
        """Returns the params of the wire, and the timeout, which the client keeps, too."""
        values = {**(params or {}), **more}
        timeout = values.pop("timeout", None)
        return values, self.timeout if timeout is None else timeout


class Kbproc(_Client[Waits]):
    """A client that runs kbproc as a coprocess. Any thread may use it; `with` ends it.

    with Kbproc("notes") as kb:
        kb.doc.create(title="Tides", text="High tide is at noon.")
        for hit in kb.search("when is high tide").data["results"]:
            print(hit["score"], hit["source"]["cite"])
    """

    def call(self, method: str, params: Any = None, /, **more: Any) -> Result[Any]:
        """Calls a method by its name; `timeout` in seconds. Raises KbprocError."""
        values, timeout = self._with_timeout(params, more)
        return Stream[Any](self._server, method, values, timeout, events=False).result()

    def stream(self, method: str, params: Any = None, /, **more: Any) -> Stream[Any]:
        """Calls a method and streams its events: iterate over them, then take the `result()`."""
        values, timeout = self._with_timeout(params, more)
        return Stream(self._server, method, values, timeout)

    def ready(self, timeout: float | None = None) -> dict[str, Any]:
        """Waits until the store is open; returns the event `ready`. Raises the error if it can't
        open.
        """
        self.ping(timeout=timeout)
        return self._server.flights.events.get("ready", {})

    def close(self) -> None:
        """Lets the server finish the requests in flight, and waits for its end."""
        self._server.close()

    def __enter__(self) -> Kbproc:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncKbproc(_Client[Awaits]):
    """The same client, awaited: `async with AsyncKbproc("notes") as kb: await
    kb.search("tides")`.
    """

    async def call(self, method: str, params: Any = None, /, **more: Any) -> Result[Any]:
        values, timeout = self._with_timeout(params, more)
        return await AsyncStream[Any](self._server, method, values, timeout, events=False).result()

    def stream(self, method: str, params: Any = None, /, **more: Any) -> AsyncStream[Any]:
        values, timeout = self._with_timeout(params, more)
        return AsyncStream(self._server, method, values, timeout)

    async def ready(self, timeout: float | None = None) -> dict[str, Any]:
        await self.ping(timeout=timeout)
        return self._server.flights.events.get("ready", {})

    async def close(self) -> None:
        import asyncio

        await asyncio.to_thread(self._server.close)

    async def __aenter__(self) -> AsyncKbproc:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def _program() -> list[str]:
    """Returns this Python's own kbproc if this is a part of it; else the one on PATH."""
    if __name__.startswith("kbproc."):
        return [sys.executable, "-P", "-m", "kbproc"]
    import shutil

    return [shutil.which("kbproc") or "kbproc"]
