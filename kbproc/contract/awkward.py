"""A server that keeps to the protocol and is awkward about it: what clients are judged with.

Run as `python awkward.py SCRIPT RECORD`, with the standard library alone: it begins at once.
Owns: saying what its script says when it says so, and writing down what it is told.
Refuses to know: what the client should make of it.
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


class Server:
    """One life of it; `lives` are the scripts of one process after the other."""

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
        """False at the end of what it is told."""
        for _ in range(step.get("take", 0)):
            while (asked := self._take()) is not None and "id" not in asked:
                pass
            if asked is None:
                return False
        messages = [self._message(one) for one in step.get("say", ())]
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
        """`answer: N` and `event: N` are short for messages about the Nth request."""
        rest = {name: value for name, value in short.items() if name not in {"answer", "event"}}
        if "answer" in short:
            return {"jsonrpc": "2.0", "id": self._ids[short["answer"] - 1], **rest}
        if "event" in short:
            return _event({"request_id": self._ids[short["event"] - 1], **rest})
        return short

    def _take(self) -> Message | None:
        """The next message of the client's, None at the end."""
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
        """All of them in one write."""
        data = b"".join(map(_line, messages))
        while data:
            data = data[os.write(1, data) :]

    def _say_slowly(self, messages: list[Message]) -> None:
        for piece in _pieces(b"".join(map(_line, messages))):
            os.write(1, piece)
            time.sleep(_PAUSE)

    def _note(self, **what: Any) -> None:
        with self._record.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"life": self._life, **what}) + "\n")


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
    Server(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2])).run()
