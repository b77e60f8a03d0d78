"""What goes on between the kit and one implementation: lines out, lines in.

Owns: the processes of one conversation one after the other, what was asked of each and what it
said, and waiting for one message among others.
Refuses to know: what was to come; judge.py and always.py do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kbproc.client.contract.always import Message, Told, key, messages, parsed, shown
from kbproc.client.contract.expect import at, resolved
from kbproc.client.contract.peer import Late, Peer, command_of

END_SECONDS = 15.0  # the protocol gives ten
_MOST = 1 << 20  # characters of a line in a transcript


class Failed(Exception):
    """The conversation can't go on. `broke`: by what the step's own rule forbids."""

    def __init__(self, why: str, *, broke: bool = False) -> None:
        super().__init__(why)
        self.broke = broke


class Exchange:
    """`kept`: messages that later steps refer to by name, and `stream-ID`, events as they came."""

    def __init__(self, command: str, arguments: Sequence[str], folder: Path) -> None:
        self.told: list[Told] = []
        self.kept: dict[str, Any] = {}
        self.transcript: list[str] = []
        self.running, self.sent, self.deadline = False, "", 0.0
        self._command, self._arguments, self._folder = command, arguments, folder
        self._peer: Peer | None = None
        self._numbers = iter(range(1, 1 << 30))

    def start(self) -> None:
        """Anew, on the same store. Raises NotStarted."""
        self.stop()
        words = command_of(self._command, {"store": str(self._folder / "store")}, "KBPROC_STORE")
        self._peer = Peer([*words, *self._arguments])
        self._unread: list[Any] = []
        self.told.append(Told([], []))
        self.running = True

    def stop(self) -> None:
        if self._peer is not None:
            self._peer.kill()
            self._peer = None

    @property
    def _alive(self) -> Peer:
        if self._peer is None:
            raise Failed("no process is running")
        return self._peer

    def stderr(self) -> str:
        return "" if self._peer is None else self._peer.told()

    def number(self) -> int:
        return next(self._numbers)

    def asks(self, id: Any, method: str) -> None:
        self.told[-1].asked.append((id, method))

    def send(self, line: bytes) -> None:
        self.sent = shown(line)
        self.transcript.append(f"> {self.sent}")
        self._alive.send(line + b"\n")

    def wait(self, wanted: Callable[[Any], bool]) -> Any:
        """The next message that is wanted, whatever comes before it. Raises Failed and Late."""
        while True:
            for number, message in enumerate(self._unread):
                if wanted(message):
                    return self._unread.pop(number)
            if not self._read():
                if not any(told.lines for told in self.told):
                    raise Failed("it ended and had said nothing: is the command right?")
                raise Failed("it ended instead of answering", broke=True)

    def gone(self, signal: int | None) -> int:
        """Ends it by a signal, or by its stdin's end, and reads the rest; the exit code."""
        peer = self._alive
        self.deadline = time.monotonic() + END_SECONDS
        if signal is None:
            peer.end()
        else:
            peer.signal(signal)
        try:
            while self._read():
                pass
            code = peer.wait(self.deadline)
        except Late:
            raise Failed(f"it had not ended after {END_SECONDS:g} seconds", broke=True) from None
        self.running, self.told[-1].ended = False, signal is None
        self.transcript.append(f"exit {code}")
        return code

    def said(self) -> list[Message]:
        """By all of its processes, batches taken apart."""
        return [m for told in self.told for line in told.lines for m in messages(line)]

    def subject(self, of: Any) -> Any:
        """What an expectation looks at: a kept message, answers, or events of a stream."""
        if isinstance(of, str):
            return resolved(f"={of}", self.kept)
        if "answers" in of:
            wanted = key(of["answers"])
            return [m for m in self.said() if "method" not in m and key(m.get("id")) == wanted]
        events = [event_of(message) for message in self.said()]
        events = [e for e in events if e and key(e.get("request_id")) == key(of["events"])]
        if "type" in of:
            events = [e for e in events if e.get("type") in of["type"].split()]
        if "past" in of:
            pointer, least = resolved(of["past"], self.kept)
            events = [e for e in events if at(e, pointer) > least]
        if "lacking" in of:
            events = [e for e in events if of["lacking"] not in e]
        if "only" in of:
            events = [{name: e[name] for name in of["only"] if name in e} for e in events]
        return events[of.get("from", 0) :]

    def _read(self) -> bool:
        """False at the end of its stdout."""
        line = self._alive.line(self.deadline)
        if line is None:
            return False
        self.told[-1].lines.append(line)
        self.transcript.append(f"< {shown(line, _MOST)}")
        message = parsed(line)
        if isinstance(message, list | dict):
            self._unread.append(message)
        event = event_of(message)
        if "request_id" in event:
            self.kept.setdefault(f"stream-{event['request_id']}", []).append(event)
        elif event.get("type") in {"init", "ready"}:
            self.kept[event["type"]] = event
        for stranger in self._strangers(message):
            raise Failed(f"an answer came to an id that nobody asked with: {shown(stranger)}")
        return True

    def _strangers(self, message: Any) -> Iterator[Message]:
        asked = {key(id) for id, _ in self.told[-1].asked}
        for one in message if isinstance(message, list) else [message]:
            id = one.get("id") if isinstance(one, dict) and "method" not in one else None
            if id is not None and key(id) not in asked:
                yield one


def event_of(message: Any) -> Message:
    """Its params; empty for what is no event."""
    event = message.get("params") if isinstance(message, dict) else None
    return event if isinstance(event, dict) else {}
