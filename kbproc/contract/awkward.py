"""A server that keeps to the protocol in awkward ways, so that clients can be judged.

Run as `python awkward.py SCRIPT RECORD`. It imports only the standard library, so that it starts at
once. It writes what its script says, and records every line that it reads.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PIECES, _PAUSE = 6, 0.05
Message = dict[str, Any]


class AwkwardServer:
    """One process of the server; `lives` holds the scripts of successive processes."""

    def __init__(self, lives: list[list[Message]], record: Path) -> None:
        self._record = record
        self._life = sum('"begins"' in line for line in _lines(record))
        self._script = lives[min(self._life, len(lives) - 1)]
        self._ids: list[Any] = []
        self._note(begins=True)

    def run(self) -> None:
        self._say([_event({"type": "init", **_INIT})])
        self._say([_event({"type": "ready", "seq": 1, "freshness": _FRESHNESS})])
        if all(self._do(step) for step in self._script):
            while self._take():
                pass

    def _do(self, step: Message) -> bool:
        """Carries out one step; returns False if the client's input has ended."""
        for _ in range(step.get("take", 0)):
            while (request := self._take()) is not None and "id" not in request:
                pass
            if request is None:
                return False
        messages = [self._message(message) for message in step.get("say", ())]
        if step.get("slowly"):
            self._say_slowly(messages)
        elif messages:
            self._say(messages)
        if "half" in step:
            line = _line(self._message(step["half"]))
            os.write(1, line[: len(line) // 2])
        if step.get("die"):
            os._exit(1)
        return True

    def _message(self, short: Message) -> Message:
        """Expands `answer: N` and `event: N` to messages about the Nth request."""
        rest = {name: value for name, value in short.items() if name not in {"answer", "event"}}
        if "answer" in short:
            return {"jsonrpc": "2.0", "id": self._ids[short["answer"] - 1], **rest}
        if "event" in short:
            return _event({"request_id": self._ids[short["event"] - 1], **rest})
        return short

    def _take(self) -> Message | None:
        """Returns the client's next message; None at the end."""
        line = sys.stdin.buffer.readline()
        self._note(line=line.decode("utf-8", "replace")) if line else self._note(ends=True)
        try:
            message = json.loads(line) if line else None
        except ValueError:
            message = {}
        if isinstance(message, dict) and "id" in message:
            self._ids.append(message["id"])
        return message if message is None or isinstance(message, dict) else {}

    def _say(self, messages: list[Message]) -> None:
        """Writes all messages at once."""
        data = b"".join(map(_line, messages))
        while data:
            data = data[os.write(1, data) :]

    def _say_slowly(self, messages: list[Message]) -> None:
        for piece in _pieces(b"".join(map(_line, messages))):
            os.write(1, piece)
            time.sleep(_PAUSE)

    def _note(self, **members: Any) -> None:
        with self._record.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"life": self._life, **members}) + "\n")


_INIT = {
    "protocol": "1.0",
    "server": {"name": "awkward", "version": "1.0.0"},
    "store": "/nowhere",
    "actor": "user",
    "scopes": [],
    "capabilities": {"max_line_bytes": 16777216, "max_in_flight": 64, "later": True},
}
_FRESHNESS = {"seq": 1, "fulltext_seq": 1, "vector_seq": 1, "pending_embeddings": 0}


def _event(params: Message) -> Message:
    return {"jsonrpc": "2.0", "method": "event", "params": params}


def _line(message: Message) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode() + b"\n"


def _pieces(data: bytes) -> Iterator[bytes]:
    size = max(1, len(data) // _PIECES)
    for at in range(0, len(data), size):
        yield data[at : at + size]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


if __name__ == "__main__":
    AwkwardServer(
        json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2])
    ).run()
