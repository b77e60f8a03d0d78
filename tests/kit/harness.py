"""The Python client in tests: forked servers, and one interface to both of its classes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kbproc.client import AsyncKbproc, Event, Kbproc, Result
from tests.kit import start
from tests.kit.patience import PATIENCE

REPO = start.REPO
ENVIRONMENT = {"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin"}


def popen(command: Sequence[str], *, process_group: int, **options: Any) -> subprocess.Popen[Any]:
    """Starts a command like Popen, forked if possible; it shares the test's stderr."""
    if command[0] != sys.executable:
        return subprocess.Popen(command, process_group=process_group, **options)
    return start.start(command[1:], **options)


def serving(store: Path, **options: Any) -> list[str]:
    """Returns the command of a server with real clocks."""
    arguments = [f"{name}={value}" for name, value in {"real": 1, **options}.items()]
    return [sys.executable, "-m", "tests.kit.fixed", str(store), "hash", *arguments]


def running(program: str, *argv: str) -> list[str]:
    return [sys.executable, "-c", program, *argv]


class Waiting:
    """Kbproc behind the interface that tests of both classes use."""

    def __init__(self, **options: Any) -> None:
        self.kb: Any = Kbproc(**options)

    def ask(self, method: Callable[..., Any], *args: Any, **params: Any) -> Result[Any]:
        return method(*args, **params)  # type: ignore[no-any-return]

    def events(self, stream: Any) -> Iterator[Event]:
        return iter(stream)

    def result(self, stream: Any) -> Result[Any]:
        return stream.result()  # type: ignore[no-any-return]

    def stream(self, method: Any, *args: Any, **params: Any) -> Any:
        return method.stream(*args, **params)

    def leave(self, events: Any) -> None:
        """Closes the iterator, as leaving a loop early does."""
        events.close()

    def close(self) -> None:
        self.kb.close()


class Awaiting:
    """AsyncKbproc behind the same interface; its event loop runs in its own thread."""

    def __init__(self, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.kb: Any = AsyncKbproc(**options)

    def wait(self, awaited: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaited, self.loop).result(PATIENCE)

    def ask(self, method: Callable[..., Any], *args: Any, **params: Any) -> Result[Any]:
        return self.wait(method(*args, **params))  # type: ignore[no-any-return]

    def events(self, stream: Any) -> Iterator[Event]:
        events = aiter(stream)
        try:
            while True:
                yield self.wait(_next(events))
        except StopAsyncIteration:
            return
        finally:
            self.wait(events.aclose())

    def result(self, stream: Any) -> Result[Any]:
        return self.wait(stream.result())  # type: ignore[no-any-return]

    def stream(self, method: Any, *args: Any, **params: Any) -> Any:
        async def begin() -> Any:
            return method.stream(*args, **params)

        return self.wait(begin())

    def leave(self, events: Any) -> None:
        events.close()

    def close(self) -> None:
        self.wait(self.kb.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()


async def _next(events: Any) -> Event:
    return await anext(events)  # type: ignore[no-any-return]
