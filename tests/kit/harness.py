"""The Python client in tests: servers that are forked, and one way to ask for both kinds of it."""

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


def popen(command: Sequence[str], *, process_group: int, **given: Any) -> subprocess.Popen[Any]:
    """As Popen, forked where it can be; stderr goes where the test's goes."""
    if command[0] != sys.executable:
        return subprocess.Popen(command, process_group=process_group, **given)
    return start.start(command[1:], **given)


def serving(store: Path, **options: Any) -> list[str]:
    """The command of a server with the clocks of every day."""
    given = [f"{name}={value}" for name, value in {"real": 1, **options}.items()]
    return [sys.executable, "-m", "tests.kit.fixed", str(store), "hash", *given]


def running(program: str, *argv: str) -> list[str]:
    return [sys.executable, "-c", program, *argv]


class Waiting:
    """Kbproc, as the tests of both kinds ask it."""

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
        """As the end of a loop that is left early does."""
        events.close()

    def close(self) -> None:
        self.kb.close()


class Awaiting:
    """AsyncKbproc, whose loop runs in a thread of its own."""

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
