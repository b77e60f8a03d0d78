"""Many processes on one store: clients that record every message, and the store's owner."""

from __future__ import annotations

import contextlib
import http.server
import itertools
import json
import os
import signal
import subprocess
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kbproc.base.settings.config import SCOPES, approvals_file
from kbproc.base.settings.trust import Trust
from kbproc.engine.log.lease import FileLease
from kbproc.engine.store.folder import write_settings
from tests.kit.patience import LIVES, PATIENCE, until
from tests.kit.start import REPO, start
from tests.kit.talk import Message, Process, as_bytes, request


class Client:
    """A `serve` with any number of requests in flight; records every answer and event."""

    def __init__(self, store: Path, *, cwd: Path, **options: Any) -> None:
        self.process = Process(store, cwd=cwd, **options)
        self.pid = self.process.process.pid
        self.sent: dict[int | str, Message] = {}
        self.answers: dict[Any, list[Message]] = defaultdict(list)
        self.events: dict[Any, list[Message]] = defaultdict(list)
        self.batches: list[list[Message]] = []
        self.ended = False
        self.peers = [self]
        self._ids = itertools.count(1)
        self._sending = threading.Lock()
        self._heard = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __repr__(self) -> str:
        return f"client {self.pid}"

    def _read(self) -> None:
        for line in self.process.stdout:
            if not line.endswith(b"\n"):
                break  # torn by a kill
            with self._heard:
                self._keep(json.loads(line))
                self._heard.notify_all()
        with self._heard:
            self.ended = True
            self._heard.notify_all()

    def _keep(self, message: Any) -> None:
        if isinstance(message, list):
            self.batches.append(message)
        elif "id" in message:
            self.answers[message["id"]].append(message)
        else:
            self.events[message["params"].get("request_id")].append(message["params"])

    # ---------------------------------------------------------------- asking

    def start(self, method: str, /, **params: Any) -> int:
        """Sends a request; returns its id at once. Raises OSError if the process has ended."""
        with self._sending:
            id = next(self._ids)
            self.sent[id] = request(id, method, **params)
            self.process.send(as_bytes(self.sent[id]))
        return id

    def send(self, line: Any) -> None:
        with self._sending:
            self.process.send(as_bytes(line))

    def answer(self, id: int | str) -> Message:
        self.wait_for(lambda: self.answers[id], f"the answer to {self.sent.get(id, id)}")
        return self.answers[id][0]

    def ask(self, method: str, /, **params: Any) -> Message:
        return self.answer(self.start(method, **params))

    def data(self, method: str, /, **params: Any) -> Any:
        answer = self.ask(method, **params)
        assert "result" in answer, (answer, self.told())
        return answer["result"]["data"]

    def error(self, method: str, /, **params: Any) -> Message:
        answer = self.ask(method, **params)
        assert "error" in answer, answer
        data: Message = answer["error"]["data"]
        return data

    def create(self, title: str, /, **params: Any) -> int:
        return self.start("doc.create", title=title, text=f"words of {title}", **params)

    def cancel(self, id: int | str) -> None:
        self.send({"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": id}})

    # -------------------------------------------------------------- hearing

    def hear(self, id: int) -> None:
        """Waits until this request is answered or the process has ended."""
        with self._heard:
            self._heard.wait_for(lambda: self.answers[id] or self.ended, PATIENCE)

    def wait_for(self, condition: Callable[[], Any], what: str) -> None:
        with self._heard:
            came = self._heard.wait_for(lambda: condition() or self.ended, PATIENCE)
        if not came:
            for peer in self.peers:
                peer.kill(signal.SIGABRT)  # faulthandler then prints the stacks of all threads
        assert condition(), f"{what} did not reach {self}; stderr: {self.told()}"

    def ready(self) -> Client:
        self.wait_for(lambda: "ready" in self.types(), "ready")
        assert self.types() == ["init", "ready"], self.events[None]
        return self

    def types(self, id: int | None = None) -> list[str]:
        return [event["type"] for event in self.events[id]]

    def acknowledged(self) -> list[int | str]:
        """Returns the ids of successful requests; a copy, because the reader thread continues."""
        with self._heard:
            return [id for id, got in self.answers.items() if got and "result" in got[0]]

    def told(self) -> str:
        return self.process.told()

    # --------------------------------------------------------------- ending

    @property
    def alive(self) -> bool:
        return self.process.process.poll() is None

    def end(self) -> int:
        """Closes stdin and reads the rest; returns the exit code."""
        self.leave()
        return self.gone()

    def leave(self) -> None:
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def kill(self, signum: int = signal.SIGKILL) -> None:
        if self.alive:
            self.process.process.send_signal(signum)

    def gone(self) -> int:
        """Waits for the end; returns the exit code, negative after a signal."""
        try:
            code = self.process.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self} does not end; stderr: {self.told()}") from None
        self._reader.join(PATIENCE)
        self.process.stop()
        return code


class Said(NamedTuple):
    code: int
    out: str
    err: str


class Crowd:
    """Clients and commands on the store of one folder; it ends them all."""

    def __init__(self, folder: Path, store: Path | None = None) -> None:
        self.folder = folder
        self.store = store or folder / "store"
        self.clients: list[Client] = []
        self._commands: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *wrong: object) -> None:
        for client in self.clients:
            client.kill()
            client.gone()
            if stderr := client.told():
                print(f"--- {client}:\n{stderr}")
        for command in self._commands:
            command.kill()
            command.communicate()
        until(lambda: not processes_in(self.folder), "the end of all processes")

    def spawn(self, *, cwd: Path | None = None, **options: Any) -> Client:
        """Starts a client without waiting until it is ready."""
        client = Client(self.store, cwd=cwd or self.folder, real=1, **options)
        self.clients.append(client)
        client.peers = self.clients
        return client

    def join(self, **options: Any) -> Client:
        return self.spawn(**options).ready()

    def together(self, count: int, **options: Any) -> list[Client]:
        """Starts clients at the same time; waits until all are ready."""
        clients = [self.spawn(**options) for _ in range(count)]
        return [client.ready() for client in clients]

    @property
    def living(self) -> list[Client]:
        return [client for client in self.clients if client.alive]

    def owner(self, unlike: Iterable[Client] = ()) -> Client:
        """Waits for an owner that is not in `unlike`; returns its client."""
        others = list(unlike)  # compared by identity, because the system reuses pids
        owners: list[Client] = []

        def holds() -> bool:
            pids = set(holders(self.store))
            living = [client for client in self.living if client not in others]
            owners[:] = [client for client in living if client.pid in pids]
            return bool(owners)

        until(holds, "somebody who holds the store", self.told)
        return owners[0]

    def told(self) -> str:
        return "\n".join(f"{client}: {client.told()}" for client in self.clients)

    def command(
        self, *argv: str, cwd: Path | None = None, program: str = "", **env: str
    ) -> subprocess.Popen[str]:
        """`program`: Python to run instead of `kbproc`."""
        command = start(
            [*(["-c", program] if program else ["-m", "kbproc"]), *argv],
            cwd=cwd or self.folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={
                "PYTHONPATH": str(REPO),
                "PATH": "/usr/bin:/bin",
                "HOME": str(self.folder),
                "KBPROC_STORE": str(self.store),
                **env,
            },
        )
        self._commands.append(command)
        return command

    def run(self, *argv: str, cwd: Path | None = None, program: str = "", **env: str) -> Said:
        return said(self.command(*argv, cwd=cwd, program=program, **env))


def said(command: subprocess.Popen[str]) -> Said:
    out, err = command.communicate(timeout=PATIENCE)
    return Said(command.returncode, out, err)


# ------------------------------------------------------------------------ looking


def holders(store: Path) -> list[int]:
    """Returns the pids that hold the store's lock, from the kernel."""
    try:
        inode = (store / "lock").stat().st_ino
    except FileNotFoundError:
        return []
    rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return [
        int(row[4]) for row in rows if row[1] == "FLOCK" and row[5].rpartition(":")[2] == str(inode)
    ]


def socket_of(store: Path) -> Path:
    """Returns the socket that the store's owner has published."""
    address = FileLease(store).holder().address
    assert address is not None, "nobody has said where it listens"
    return address


def processes_in(folder: Path) -> dict[int, str]:
    """Returns pid → command line of live processes that name the folder or work in it."""
    commands = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            here = (path / "cwd").readlink()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if int(path.name) != os.getpid() and (
            here.is_relative_to(folder) or f"{folder}/" in command
        ):
            commands[int(path.name)] = command
    return commands


def maps(pid: int, library: str) -> bool:
    """Returns True if the process has loaded the library."""
    return library in Path(f"/proc/{pid}/maps").read_text()


def titles(client: Client) -> Counter[str]:
    """Returns the number of documents for each title."""
    counts: Counter[str] = Counter()
    more: dict[str, Any] = {}
    while True:
        result = client.ask("doc.list", limit=1000, **more)["result"]
        counts.update(document["title"] for document in result["data"])
        if not result["meta"].get("next_cursor"):
            return counts
        more = {"cursor": result["meta"]["next_cursor"]}


def check_once(client: Client, *, acknowledged: Iterable[str], sent: Iterable[str]) -> None:
    """Asserts that acknowledged titles exist, none twice, and none that was not sent."""
    counts, expected = titles(client), list(acknowledged)
    assert [title for title in expected if title not in counts] == [], "acknowledged, but lost"
    assert {title: n for title, n in counts.items() if n > 1} == {}, "written twice"
    assert sorted(counts.keys() - set(sent)) == [], "written by nobody"


def check_answers(client: Client) -> None:
    """Asserts one answer per request, and no gap in any stream's index."""
    counts = {id: len(client.answers[id]) for id in client.sent}
    wrong = {id: n for id, n in counts.items() if n != 1}
    assert wrong == {}, ([client.sent[id] for id in wrong], client.told())
    odd = {id: got for id, got in list(client.answers.items()) if id not in client.sent}
    assert odd == {}, (odd, client.told())
    for id, events in list(client.events.items()):
        if id is not None:
            indexes = [event["index"] for event in events]
            assert indexes == list(range(len(events))), (client.sent[id], indexes[:50])
            assert client.types(id).count("init") == 1, client.sent[id]


def all_scopes_but(*without: str) -> str:
    return ",".join(scope for scope in SCOPES if scope not in without)


def held_after(sources: int) -> str:
    """Returns a program for `join`: a serve whose ingests block after this number of sources.

    So the progress of its ingests does not depend on the speed of the machine.
    """
    return f"""
import itertools, threading
from kbproc.base import failpoints
from kbproc.base.pipes import leave
from tests.kit import fixed

kept = itertools.count(1)

def hold(reached):
    if reached == "blob.write" and next(kept) > {sources}:
        threading.Event().wait()

failpoints.arm(hold)
leave(fixed.main())
"""


def held_at(point: str) -> str:
    """Returns a program for `join`: a serve that blocks at this failpoint during `holding`."""
    return f"""
import pathlib, time
from kbproc.base import failpoints
from kbproc.base.pipes import leave
from tests.kit import fixed

def hold(reached):
    while reached == {point!r} and pathlib.Path("hold").exists():
        pathlib.Path("held").touch()
        time.sleep(0.005)

failpoints.arm(hold)
leave(fixed.main())
"""


@contextlib.contextmanager
def holding(crowd: Crowd) -> Iterator[Callable[[], bool]]:
    """Blocks processes made with `held_at`; yields a function that returns True once one is."""
    (crowd.folder / "hold").touch()
    try:
        yield (crowd.folder / "held").exists
    finally:
        (crowd.folder / "hold").unlink()


# -------------------------------------------------------------- slow embeddings


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    released: threading.Event
    longest: float

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores the error: the client was killed."""


class _Embeddings(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        self.server.released.wait(self.server.longest)
        vectors = [[1.0, len(text) / 1000] for text in texts]
        items = [{"index": n, "embedding": vector} for n, vector in enumerate(vectors)]
        body = json.dumps({"data": items}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def slow_embeddings(store: Path, longest: float = LIVES) -> Iterator[threading.Event]:
    """Gives a new store a model whose requests take until the event is set, at most `longest` s."""
    server = _Server(("127.0.0.1", 0), _Embeddings)
    server.released, server.longest = threading.Event(), longest
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    store.mkdir(mode=0o700)
    url = f"http://127.0.0.1:{server.server_port}/v1"
    settings = {"kind": "openai", "name": "slow", "dim": 2, "url": url, "timeout_s": LIVES}
    write_settings(store / "store.toml", settings)
    home = store.parent
    for approved in (home / "trusted.json", approvals_file({"HOME": str(home)})):
        Trust(approved).add_model(store, settings)
    try:
        yield server.released
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
