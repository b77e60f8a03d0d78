"""Scripted conversations: the lines sent, and every byte received.

`Process` is kbproc behind real pipes, `Session` the same server in this
process; `converse` sends either of them a line, waits until it is answered,
and sends the next.
"""

from __future__ import annotations

import copy
import json
import signal
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple, Protocol

import msgspec

from kbproc.base.settings.config import MAX_IN_FLIGHT, MAX_LINE_BYTES, Config, Llm, Rerank
from kbproc.engine.store.store import Store
from kbproc.knowledge.app.library import Library
from kbproc.methods.all import registry as all_methods
from kbproc.methods.calls.registry import Registry
from kbproc.surfaces.sharing.owner import Owner
from kbproc.surfaces.sharing.serve import Serving, first_line, parse_scopes
from kbproc.surfaces.wire import messages
from kbproc.surfaces.wire.connection import Connection, too_large
from tests.kit.fixed import FixedHost, model_of
from tests.kit.llm import KEY
from tests.kit.patience import LIVES, PATIENCE
from tests.kit.start import REPO, start

Message = dict[str, Any]
Line = str | bytes | Message | list[Any]


class Until(NamedTuple):
    """A request; the script continues once this event of it has arrived."""

    line: Line
    event: str


class Both(NamedTuple):
    """A request that also ends another: waits for both answers, in any order.

    The transcript lists their lines in the order of `ids`.
    """

    line: Line
    ids: tuple[int, int]


# A line, or a function that makes it from the last message, for hashes and cursors.
Step = Line | Callable[[Message], Line] | Until | Both


def as_bytes(line: Line) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)).encode()


class Peer(Protocol):
    def send(self, line: bytes) -> None: ...

    def receive(self) -> bytes: ...

    def close(self) -> list[bytes]:
        """Ends the conversation; returns the lines that were not received yet."""
        ...


# --------------------------------------------------------------------------- peers


class Process:
    """kbproc behind real pipes; a watchdog kills it after LIVES seconds, when its test hangs."""

    def __init__(
        self, store: Path, *, cwd: Path, model: str = "hash", program: str = "", **options: Any
    ) -> None:
        """`program`: Python to run instead of tests.kit.fixed."""
        run = ["-c", program] if program else ["-m", "tests.kit.fixed"]
        arguments = [f"{name}={value}" for name, value in options.items()]
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = start(
            [*run, str(store), model, *arguments],
            cwd=cwd,
            stdin=PIPE,
            stdout=PIPE,
            stderr=self._stderr,
            env={"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin", "PYTHONFAULTHANDLER": "1"},
        )
        assert self.process.stdin and self.process.stdout
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self._watchdog = threading.Timer(LIVES, self.process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    def send(self, line: bytes) -> None:
        self.stdin.write(line + b"\n")
        self.stdin.flush()

    def receive(self) -> bytes:
        line = self.stdout.readline()
        assert line, f"no answer came; stderr: {self.told()}"
        return line.rstrip(b"\n")

    def message(self) -> Any:
        return json.loads(self.receive())

    def ready(self) -> Process:
        """Receives `init` and `ready`; returns the process."""
        assert self.message()["params"]["type"] == "init"
        assert self.message()["params"]["type"] == "ready"
        return self

    def ask(self, id: int | str, method: str, /, **params: Any) -> Message:
        """Sends a request; returns its answer and skips events and other answers."""
        self.send(as_bytes(request(id, method, **params)))
        while (message := self.message()).get("id") != id:
            pass
        return message  # type: ignore[no-any-return]

    def close(self) -> list[bytes]:
        self.stdin.close()
        rest = [line.rstrip(b"\n") for line in self.stdout]
        self.process.wait(PATIENCE)
        return rest

    def stop(self, signum: int = signal.SIGKILL) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signum)
        code = self.process.wait(PATIENCE)
        self._watchdog.cancel()
        for pipe in (self.stdin, self.stdout):
            try:
                pipe.close()
            except BrokenPipeError:
                continue
        self._told = self.told()
        self._stderr.close()
        return code

    def told(self) -> str:
        """Returns the text on stderr so far."""
        if not self._stderr.closed:
            self._stderr.seek(0)
            self._told = self._stderr.read().decode()
        return self._told


class Kept:
    """An outbox that stores the lines sent to it."""

    congested = False

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self._changed = threading.Condition()

    def send(self, line: bytes) -> None:
        with self._changed:
            self.lines.append(line)
            self._changed.notify_all()

    def take(self) -> bytes:
        with self._changed:
            assert self._changed.wait_for(lambda: bool(self.lines), PATIENCE), "no answer came"
            return self.lines.pop(0)

    def rest(self) -> list[bytes]:
        with self._changed:
            lines, self.lines = self.lines, []
            return lines

    def flush(self, timeout_s: float) -> None:
        pass

    def wait_for_room(self, given_up: Callable[[], bool]) -> None:
        pass


class Session:
    """An open store and one connection to it, in this process."""

    def __init__(
        self,
        store: Path,
        *,
        cwd: Path,
        model: str = "hash",
        registry: Registry | None = None,
        scopes: str | None = None,
        max_line_bytes: int = MAX_LINE_BYTES,
        max_in_flight: int = MAX_IN_FLIGHT,
        allow_private: bool = False,
        outbox: Any = None,
        actor: str = "user",
        agent_named: bool = False,
        llm: str | None = None,
        rerank: Rerank = Rerank(),  # noqa: B008  it holds nothing
    ) -> None:
        host = FixedHost()
        config = Config(
            store=store,
            cache=store.parent / "cache",
            approved=store.parent / "trusted.json",
            actor=actor,
            agent_named_by="--agent" if agent_named else None,
            llm=Llm() if llm is None else Llm(url=llm, model="toy", api_key=KEY),
            rerank=rerank,
        )
        methods = registry or all_methods()
        self.outbox: Any = outbox or Kept()
        self.wire = messages.Wire(max_line_bytes)
        serving = Serving(
            config=config,
            max_line_bytes=max_line_bytes,
            max_in_flight=max_in_flight,
            allow_private_addresses=allow_private,
        )
        allowed = parse_scopes(scopes, methods.scopes)
        self.outbox.send(first_line(serving, allowed, host))
        owner = Owner(config, host, model=model_of(model), registry=methods)
        owner.open()
        self.owner, self.service = owner, owner.service
        self.service.wire, self.service.max_in_flight = self.wire, max_in_flight
        hello = msgspec.structs.replace(
            serving.hello(host),
            cwd=str(cwd),
            root=str(cwd),
            scopes=sorted(allowed),
            scoped=scopes is not None,
        )
        self.connection = owner.connection(hello, self.outbox)
        owner.begin(self.connection)

    def another(
        self,
        actor: str,
        *,
        scopes: str | None = None,
        named: bool = False,
        self_named: bool = False,
    ) -> Session:
        """Returns a second connection to the same open store, for another actor.

        `named`: the process is bound to the agent. `self_named`: the client gave itself the name.
        """
        other = copy.copy(self)
        other.outbox = Kept()
        peer = msgspec.structs.replace(
            self.connection.peer,
            actor=actor,
            scopes=parse_scopes(scopes, self.service.registry.scopes),
            named_by="--agent" if named else None,
            is_self_named=self_named,
            scoped=scopes is not None,
        )
        other.connection = Connection(self.service, peer, other.outbox)
        return other

    @property
    def library(self) -> Library:
        return self.owner.open_library()

    @property
    def store(self) -> Store:
        return self.library.store

    def send(self, line: bytes) -> None:
        if len(line) > self.wire.max_line_bytes:
            self.outbox.send(too_large(self.wire, len(line)))
        else:
            self.connection.receive(line)

    def receive(self) -> bytes:
        line: bytes = self.outbox.take()
        return line

    def idle(self) -> None:
        """Waits until every sent message is processed, notifications too."""
        assert self.connection.wait_until_idle(PATIENCE)

    def ask(self, method: str, /, **params: Any) -> Message:
        """Sends a request; returns its answer and skips events."""
        self.send(as_bytes(request(1, method, **params)))
        while "method" in (message := json.loads(self.receive())):
            pass
        return message  # type: ignore[no-any-return]

    def data(self, method: str, /, **params: Any) -> Any:
        answer = self.ask(method, **params)
        assert "result" in answer, answer
        return answer["result"]["data"]

    def error(self, method: str, /, **params: Any) -> Message:
        answer = self.ask(method, **params)
        assert "error" in answer, answer
        data: Message = answer["error"]["data"]
        return data

    def embedded(self) -> None:
        """Waits until every chunk has its vector."""
        self.data("doc.wait", timeout_ms=int(PATIENCE * 1000))

    def close(self) -> list[bytes]:
        self.connection.end(PATIENCE)
        self.service.close()
        if self.owner.library is not None:
            self.owner.library.close()
        return self.outbox.rest()  # type: ignore[no-any-return]


# ------------------------------------------------------------------- conversations


def request(id: int | str, method: str, /, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def cancel(id: int | str) -> Message:
    return {"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": id}}


class Transcript:
    """Lines sent (`> `) and received (`< `), raw."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.sent: list[bytes] = []
        self.received: list[bytes] = []

    def add_sent(self, line: bytes) -> None:
        excerpt = line if len(line) < 2000 else line[:80] + f"…({len(line)} bytes)".encode()
        self.lines.append(b"> " + excerpt)
        self.sent.append(line)

    def add_received(self, line: bytes) -> None:
        self.lines.append(b"< " + line)
        self.received.append(line)

    def text(self) -> str:
        return b"\n".join(self.lines).decode("utf-8", "backslashreplace") + "\n"


def converse(peer: Peer, script: Iterable[Step], parked: Collection[int] = ()) -> Transcript:
    """Runs a script. `parked`: ids of requests without a wait, because a later step ends them."""
    transcript = Transcript()

    def receive() -> bytes:
        line = peer.receive()
        transcript.add_received(line)
        return line

    if b'"init"' in receive():
        receive()  # ready, or the reason why the store is not
    for step in script:
        if isinstance(step, Until | Both):
            transcript.add_sent(as_bytes(step.line))
            peer.send(as_bytes(step.line))
            if isinstance(step, Until):
                while json.loads(receive()).get("params", {}).get("type") != step.event:
                    pass
            else:
                _both(transcript, receive, step.ids)
            continue
        line = as_bytes(step(json.loads(transcript.received[-1])) if callable(step) else step)
        transcript.add_sent(line)
        peer.send(line)
        while _awaited(line, parked) and not _ends(receive(), line):
            pass
    for line in peer.close():
        transcript.add_received(line)
    return transcript


def _both(transcript: Transcript, receive: Callable[[], bytes], ids: Sequence[int]) -> None:
    first, open_ids = len(transcript.lines), set(ids)
    while open_ids:
        open_ids.discard(json.loads(receive()).get("id"))
    received = transcript.lines[first:]
    transcript.lines[first:] = sorted(received, key=lambda line: _of_request(json.loads(line[2:])))


def _of_request(message: Message) -> int:
    return int(message.get("id", message.get("params", {}).get("request_id", 0)))


def _awaited(line: bytes, parked: Collection[int]) -> bool:
    """Returns False for notifications and parked requests, which get no answer now."""
    sent = parsed(line)
    if isinstance(sent, list):
        return not sent or any(not isinstance(m, dict) or "id" in m for m in sent)
    if not isinstance(sent, dict) or "method" not in sent:
        return True
    if sent["method"] == "$/cancel":
        return sent["params"]["id"] in parked
    return "id" in sent and sent["id"] not in list(parked)


def _ends(received: bytes, line: bytes) -> bool:
    """Returns True if the received line is the answer; events precede it."""
    message, sent = json.loads(received), parsed(line)
    if isinstance(message, list) or "method" in message:
        return isinstance(message, list)
    if not isinstance(sent, dict):
        return True
    cancelled = sent.get("method") == "$/cancel"
    expected_id = sent["params"]["id"] if cancelled else sent.get("id")
    return message["id"] is None or message["id"] == expected_id


def parsed(line: bytes) -> Any:
    """Returns the line's value; None if it is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def assert_log_lines(stderr: str) -> None:
    """Asserts that stderr contains only log lines and no traceback."""
    for line in stderr.splitlines():
        assert list(json.loads(line))[:3] == ["ts", "level", "msg"]
    assert "Traceback" not in stderr
