"""Scripted conversations: what is sent, and every byte that comes back.

`over_pipes` runs a real process, `in_memory` the same server on a list; both
send a line, wait until it is answered, and send the next.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kbproc import registry as reg
from kbproc import rpc
from kbproc.config import MAX_IN_FLIGHT, MAX_LINE_BYTES, Config
from kbproc.methods import registry as all_methods
from kbproc.serve import Opened, _init, _tell_ready, peer_of
from kbproc.server import Connection, Service
from kbproc.store import Store
from tests.fixed import FixedHost

REPO = Path(__file__).parents[1]
Line = str | bytes | dict[str, Any] | list[Any]


def as_bytes(line: Line) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)).encode()


def awaited(line: bytes) -> object:
    """The id whose answer ends the wait; a list for a batch; None if nothing will come."""
    try:
        message = json.loads(line)
    except ValueError:
        return "error"
    if isinstance(message, list):
        named = [m for m in message if not isinstance(m, dict) or "id" in m]
        return [] if named or not message else None
    if not isinstance(message, dict):
        return "error"
    if message.get("method") == "$/cancel":
        return ("cancelled", message.get("params", {}).get("id"))
    if "id" not in message and "method" in message:
        return None
    return ("id", message.get("id"))


def ends(line: bytes, waiting: object) -> bool:
    message = json.loads(line)
    if isinstance(message, list):
        return True
    if "method" in message:
        return False
    if isinstance(waiting, tuple):
        return bool(message["id"] == waiting[1] or message["id"] is None)
    return True


class Transcript:
    """Lines sent (`> `) and received (`< `), raw."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.received: list[bytes] = []

    def sent(self, line: bytes) -> None:
        shown = line if len(line) < 2000 else line[:80] + f"…({len(line)} bytes)".encode()
        self.lines.append(b"> " + shown)

    def got(self, line: bytes) -> None:
        self.lines.append(b"< " + line)
        self.received.append(line)

    def text(self) -> str:
        return b"\n".join(self.lines).decode("utf-8", "backslashreplace") + "\n"


def over_pipes(
    script: Iterable[Line], *, cwd: Path, model: str = "hash", options: Iterable[str] = (),
    parked: Iterable[int] = (),
) -> Transcript:  # fmt: skip
    """`parked`: ids that nobody waits for, since something else will end them."""
    command = [sys.executable, "-m", "tests.fixed", str(cwd / "store"), model, *options]
    process = subprocess.Popen(
        command, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert process.stdin and process.stdout and process.stderr
    stdout, transcript = process.stdout, Transcript()

    def receive() -> bytes:
        line = stdout.readline()
        transcript.got(line.rstrip(b"\n"))
        return line

    first = receive()
    if b'"init"' in first:
        receive()
    for line in script:
        _step(as_bytes(line), transcript, process.stdin, receive, set(parked))
    process.stdin.close()
    for line in stdout:
        transcript.got(line.rstrip(b"\n"))
    transcript.lines.append(f"exit {process.wait(20)}".encode())
    told = process.stderr.read().decode()
    process.stdout.close()
    process.stderr.close()
    assert "Traceback" not in told, told
    return transcript


def _step(
    data: bytes,
    transcript: Transcript,
    stdin: Any,
    receive: Callable[[], bytes],
    parked: set[int],
) -> None:
    transcript.sent(data)
    stdin.write(data + b"\n")
    stdin.flush()
    waiting = awaited(data)
    if waiting is None or (
        isinstance(waiting, tuple) and waiting[0] == "id" and waiting[1] in parked
    ):
        return
    while not ends(receive(), waiting):
        pass


class _List:
    """An outbox that keeps what it is sent."""

    congested = False

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._changed = threading.Condition()

    def send(self, line: bytes) -> None:
        with self._changed:
            self._lines.append(line)
            self._changed.notify_all()

    def take(self) -> bytes:
        with self._changed:
            assert self._changed.wait_for(lambda: bool(self._lines), 20), "no answer came"
            return self._lines.pop(0)

    def rest(self) -> list[bytes]:
        return self._lines

    def flush(self, timeout_s: float) -> None:
        pass

    def wait_for_room(self, given_up: Callable[[], bool]) -> None:
        pass


class Session:
    """An open store and one connection to it, in this process."""

    def __init__(
        self, store: Path, *, cwd: Path, model: str = "hash", registry: reg.Registry | None = None,
        scopes: str | None = None, max_line_bytes: int = MAX_LINE_BYTES,
        max_in_flight: int = MAX_IN_FLIGHT, allow_private: bool = False,
    ) -> None:  # fmt: skip
        host = FixedHost()
        config = Config(store=store, cache=store.parent / "cache")
        methods = registry or all_methods()
        self.opened = Opened()
        self.outbox: Any = _List()
        self.wire = rpc.Wire(max_line_bytes)
        peer = peer_of(config, host, methods, root=str(cwd), scopes=scopes)
        peer = reg.Peer(actor=peer.actor, scopes=peer.scopes, cwd=cwd, root=cwd, kb=peer.kb)
        self.outbox.send(self.wire.plain_event("init", _init(config, peer)))
        self.opened.store = Store.open(
            store, host=host, cache=config.cache, model={"kind": model, "name": model}
        )
        service = Service(
            registry=methods, host=host, open_store=self.opened.get, wire=self.wire,
            max_in_flight=max_in_flight, settings={"allow_private_addresses": allow_private},
        )  # fmt: skip
        _tell_ready(self.opened, self.outbox, self.wire)
        self.connection = Connection(service, peer, self.outbox)

    @property
    def store(self) -> Store:
        return self.opened.get()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer's message; events are passed over."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self.connection.receive(as_bytes(request))
        while True:
            message: dict[str, Any] = json.loads(self.outbox.take())
            if "method" not in message:
                return message

    def data(self, method: str, **params: Any) -> Any:
        answer = self.ask(method, **params)
        assert "result" in answer, answer
        return answer["result"]["data"]

    def error(self, method: str, **params: Any) -> dict[str, Any]:
        answer = self.ask(method, **params)
        assert "error" in answer, answer
        data: dict[str, Any] = answer["error"]["data"]
        return data

    def embedded(self) -> None:
        """Waits until every chunk has its vector."""
        self.data("doc.wait", timeout_ms=20_000)

    def close(self) -> None:
        self.connection.end(5)
        self.connection.service.close()
        self.store.close()


def in_memory(
    script: Iterable[Line], *, cwd: Path, parked: Iterable[int] = (), **options: Any
) -> Transcript:
    session = Session(cwd / "store", cwd=cwd, **options)
    transcript = Transcript()

    def receive() -> bytes:
        line: bytes = session.outbox.take()
        transcript.got(line)
        return line

    receive(), receive()
    for line in script:
        data = as_bytes(line)
        transcript.sent(data)
        session.connection.receive(data)
        waiting = awaited(data)
        skip = isinstance(waiting, tuple) and waiting[0] == "id" and waiting[1] in set(parked)
        while waiting is not None and not skip and not ends(receive(), waiting):
            pass
    session.close()
    for line in session.outbox.rest():
        transcript.got(line)
    transcript.lines.append(b"exit 0")
    return transcript
