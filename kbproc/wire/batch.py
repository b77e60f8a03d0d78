"""The answers of one batch, gathered into one line.

Owns: their order, and what gives way where the line would be too long.
Refuses to know: how a request is answered, and which thread answers it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from msgspec import UNSET, UnsetType

from kbproc.wire import messages


class Batch:
    """Gathers the responses of one batch into one array, in the order of its requests."""

    def __init__(self, size: int, wire: messages.Wire, send: Callable[[bytes], None]) -> None:
        """`send` gets the array, once each of the `size` messages is dealt with."""
        self._wire = wire
        self._send = send
        self._open = size
        self._answers: dict[int, tuple[messages.Id | None, bytes]] = {}
        self._lock = threading.Lock()

    def answer(self, place: int, id: messages.Id | UnsetType | None, line: bytes | None) -> None:
        """The message at `place` is dealt with; `line` is None if it has no answer."""
        with self._lock:
            self._open -= 1
            if line is not None:
                self._answers[place] = (None if id is UNSET else id, line)
            done = self._open == 0
        if done and self._answers:
            self._shrink()
            lines = [line for _, (_, line) in sorted(self._answers.items())]
            self._send(b"[" + b",".join(lines) + b"]")

    def _shrink(self) -> None:
        """Where the array would be longer than a line may be, its longest answers go."""
        size = 1 + sum(len(line) + 1 for _, line in self._answers.values())
        for place in sorted(self._answers, key=lambda place: -len(self._answers[place][1])):
            if size <= self._wire.max_line_bytes:
                return
            id, line = self._answers[place]
            short = self._wire.too_long(id, len(line))
            if len(short) < len(line):
                self._answers[place] = (id, short)
                size -= len(line) - len(short)
