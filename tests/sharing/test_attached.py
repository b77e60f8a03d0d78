"""Clients of an owner: fast calls, commands, malformed lines, and takeovers."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import failpoints
from kbproc.base.errors import KbprocError
from kbproc.base.settings import config
from kbproc.engine.store import folder
from kbproc.surfaces.sharing import link, reach
from kbproc.surfaces.sharing.link import Gone, Link
from tests.conftest import OpenSession
from tests.kit.patience import PATIENCE
from tests.kit.processes import Crowd, check_answers, said
from tests.kit.talk import REPO

pytestmark = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs /proc")

Answer = Callable[[dict[str, Any]], dict[str, Any] | None]


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    with Crowd(tmp_path) as crowd:
        yield crowd


class FakeOwner:
    """An owner that answers as the test says."""

    def __init__(self, store: Path, answer: Answer, **welcome: Any) -> None:
        store.mkdir(mode=0o700, exist_ok=True)
        path = store / "kbproc.sock"
        (store / "lock").touch()  # like a store that is being created
        self._welcome = {"share": 1, "ok": True, "pid": 1, **welcome}
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb", buffering=0) as file:
                file.readline()
                file.write(json.dumps(self._welcome).encode() + b"\n")
                for line in file:
                    answer = self._answer(json.loads(line))
                    if answer is not None:
                        file.write(json.dumps({"jsonrpc": "2.0", **answer}).encode() + b"\n")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def scripted(crowd: Crowd) -> Iterator[Callable[..., FakeOwner]]:
    owners: list[FakeOwner] = []

    def start(answer: Answer, **welcome: Any) -> FakeOwner:
        owners.append(FakeOwner(crowd.store, answer, **welcome))
        return owners[-1]

    yield start
    for owner in owners:
        owner.close()


# ----------------------------------------------------------------------- fast calls


def test_a_stream_is_not_asked_the_quick_way(crowd: Crowd) -> None:
    """A fast call would drop the items of a stream, so nothing would be printed."""
    owner = crowd.join()
    follows = crowd.command("call", "events.subscribe", '{"after_seq": 0}')
    assert follows.stdout is not None
    assert json.loads(follows.stdout.readline())["seq"] == 1
    follows.send_signal(signal.SIGINT)
    assert said(follows).code == 130
    waited = crowd.run("call", "doc.wait", "{}")
    assert waited.code == 0, waited
    assert owner.data("ping")["seq"] == 1


def test_what_the_quick_way_may_ask(crowd: Crowd) -> None:
    """A fast call may use plain reads, as the owner lists them."""
    crowd.join()
    connection = reach.connect(crowd.store)
    assert connection is not None
    with closing(connection):
        settings = config.Config(store=crowd.store, cache=crowd.folder)
        welcome = Link(connection).greet(link.hello(settings, crowd.folder), lambda: None)
    assert {"ping", "search", "doc.get", "events.read"} <= set(welcome.reads)
    assert not {"events.subscribe", "doc.wait", "store.export"} & set(welcome.reads)
    assert not set(welcome.writes) & set(welcome.reads)


@pytest.mark.parametrize("words", [["min_seq=99"], ['{"min_seq": 99}']])
def test_interrupted(crowd: Crowd, scripted: Callable[..., FakeOwner], words: list[str]) -> None:
    """Fast and ordinary calls end alike."""
    pids: list[int] = []
    started = threading.Event()

    def answer(message: dict[str, Any]) -> None:
        started.wait(PATIENCE)
        os.kill(pids[0], signal.SIGINT)

    scripted(answer, reads=["ping"])
    command = crowd.command("call", "ping", *words)
    pids.append(command.pid)
    started.set()
    done = said(command)
    assert (done.code, done.out) == (130, ""), done
    assert json.loads(done.err)["error"]["type"] == "operation.cancelled"
    assert json.loads(done.err)["error"]["exit_code"] == 130


def test_a_long_answer_comes_whole(crowd: Crowd, scripted: Callable[..., FakeOwner]) -> None:
    text = "word " * 1_000_000
    result = {"data": {"text": text}, "meta": {"schema": "doc.get/1", "seq": 1}}
    scripted(lambda message: {"id": message["id"], "result": result}, reads=["doc.get"])
    for words in (["id=1"], ['{"id": 1}']):
        done = crowd.run("call", "doc.get", *words)
        assert done.code == 0, done.err
        assert json.loads(done.out)["data"]["text"] == text


# --------------------------------------------------------------------------- commands


def test_interrupted_while_the_owner_embeds(
    crowd: Crowd, scripted: Callable[..., FakeOwner]
) -> None:
    """The command names the pending chunks although its wait is still in flight at the owner."""
    in_flight: set[int] = set()
    pids: list[int] = []
    started = threading.Event()

    def answer(message: dict[str, Any]) -> dict[str, Any] | None:
        id, method = message.get("id"), message["method"]
        if id in in_flight:
            error = {"type": "input.invalid_request", "message": "in flight", "exit_code": 1}
            return {"id": id, "error": {"code": -32600, "message": "in flight", "data": error}}
        if method == "doc.wait":
            in_flight.add(message["id"])
            started.wait(PATIENCE)
            os.kill(pids[0], signal.SIGINT)
            return None
        data = {"id": 1, "title": "x", "freshness": {}, "total_chunks": 7}
        meta = {"schema": f"{method}/1", "seq": 2, "freshness": {"pending_embeddings": 3}}
        return None if id is None else {"id": id, "result": {"data": data, "meta": meta}}

    scripted(answer, writes=["doc.create"])
    command = crowd.command("call", "doc.create", "title=x", "text=words")
    pids.append(command.pid)
    started.set()
    done = said(command)
    assert done.code == 0, done
    assert "3 of 7 passages are found by words only as yet" in done.err


def test_the_socket_is_closed_where_the_owner_refuses(
    crowd: Crowd, scripted: Callable[..., FakeOwner]
) -> None:
    scripted(lambda message: None, ok=False, error={"type": "store.incompatible", "message": "no"})
    connection = reach.connect(crowd.store)
    assert connection is not None
    settings = config.Config(store=crowd.store, cache=crowd.folder)
    with pytest.raises(KbprocError, match="no"):
        Link(connection).greet(link.hello(settings, crowd.folder), lambda: None)
    assert connection.fileno() == -1
    ours, theirs = socket.socketpair()
    theirs.close()
    with pytest.raises(Gone):
        Link(ours).greet(link.hello(settings, crowd.folder), lambda: None)
    assert ours.fileno() == -1


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_an_owner_of_another_user(crowd: Crowd) -> None:
    """The owner refuses other users: a command says so, and does not retry for ever."""
    crowd.store.mkdir()
    path = crowd.store / "kbproc.sock"
    (crowd.store / "lock").touch()
    listening = socket.socket(socket.AF_UNIX)
    with listening:
        listening.bind(str(path))
        other = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import os, socket, sys\n"
                "s = socket.socket(fileno=int(sys.argv[1]))\n"
                "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
                "s.listen(); print(flush=True); sys.stdin.read()\n",
                str(listening.fileno()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[listening.fileno()],
        )
        with other:
            assert other.stdout is not None
            other.stdout.readline()
            for words in (["ping", "{}"], ["ping"]):
                done = crowd.run("call", *words)
                assert json.loads(done.err)["error"]["type"] == "store.locked", done
                assert "another user" in done.err


# -------------------------------------------------------------------- malformed lines

STRANGE = [
    b'{"jsonrpc":"2.0","method":"$/cancel"}',
    b'{"jsonrpc":"2.0","method":"$/cancel","params":{}}',
    b'{"jsonrpc":"2.0","method":"$/cancel","params":[1]}',
    b'{"jsonrpc":"2.0","method":"$/cancel","params":{"id":[1]}}',
    b'{"jsonrpc":"2.0","method":"$/cancel","params":{"id":"\xff"}}',
    b"\x00too large",
    b"\x00too large ",
    b"\x00too large abc",
    b"\x00too large -1",
    b"\x00too large " + b"9" * 5000,
    b'{"jsonrpc":"2.0","id":1,"method":"doc.create","params":{"title":"\xff","text":"x"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"doc.create","params":{"title":"\\ud800","text":1}}',
    b'{"jsonrpc":"2.0","id":1,"method":"doc.create","params":{"title":1e999,"text":"x"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"doc.create","params":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"jsonrpc":"2.0","id":1,"method":"doc.create","params":[]}',
    b'{"jsonrpc":"2.0","id":1,"method":"events.subscribe","params":{"after_seq":"x"}}',
    b'[{"jsonrpc":"2.0","id":1,"method":"doc.create","params":{"title":"\xff","text":"x"}}]',
    b'[1,{"jsonrpc":"2.0","id":1,"method":"ping"}]',
]


def test_strange_lines(crowd: Crowd) -> None:
    """After any malformed line the next line is answered, by owner and attached client."""
    owner, guest = crowd.join(), crowd.join()
    for client in (owner, guest):
        for n, line in enumerate(STRANGE):
            client.process.send(line)
            client.process.send(b'{"jsonrpc":"2.0","id":"after %d","method":"ping"}' % n)
            assert client.answer(f"after {n}")["result"]["data"]["seq"] == 1, line
            assert client.alive, line
    assert (guest.end(), owner.end()) == (0, 0)  # no client waits for a line without an id


# ----------------------------------------------------------------------- taking over


class CountingClock:
    """A clock that gains one second with each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1
        return self.now


def test_each_owner_gets_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow owner ends; the next owner has not announced its socket yet."""
    monkeypatch.setattr(reach, "time", CountingClock())
    lease = folder.take_folder(tmp_path, 0)
    wait = reach.Waiting(tmp_path)
    lease.announce(tmp_path / "kbproc.sock")
    for _ in range(14):  # each round looks at the clock twice
        wait.for_owner()
    lease.release()
    lease = folder.take_folder(tmp_path, 0)
    wait.for_owner()
    with pytest.raises(KbprocError, match="open in another process"):
        for _ in range(4):  # an owner that never announces its socket
            wait.for_owner()
    lease.release()


def test_a_runtime_folder_is_made_where_it_is_needed(crowd: Crowd) -> None:
    (crowd.folder / "file").touch()
    owner = crowd.join(runtime=str(crowd.folder / "file" / "runtime"))
    assert owner.data("ping")["seq"] == 1
    other = crowd.folder / "runtime"
    assert crowd.join(runtime=str(other)).data("ping")["seq"] == 1
    assert not other.exists()


def test_no_place_for_a_socket(tmp_path: Path) -> None:
    store = tmp_path / ("long" * 20) / ("path" * 20) / "store"
    store.parent.mkdir(parents=True)
    (tmp_path / "file").touch()
    with Crowd(tmp_path, store) as crowd:
        client = crowd.spawn(runtime=str(tmp_path / "file" / "runtime"))
        client.wait_for(lambda: "error" in client.types(), "the error")
        error = client.events[None][-1]["error"]
        assert (error["type"], error["detail"].get("exception")) == ("store.io", None), error


def test_nobody_can_open_the_store_any_more(crowd: Crowd) -> None:
    """Requests and batches in flight get the error."""
    owner, guest = crowd.join(), crowd.join()
    waits = guest.start("ping", min_seq=99)
    guest.send(
        [
            {"jsonrpc": "2.0", "id": f"b{n}", "method": "ping", "params": {"min_seq": 99}}
            for n in range(2)
        ]
    )
    guest.data("ping")
    (crowd.store / "store.toml").write_text("format = 99\n")
    owner.kill()
    assert guest.answer(waits)["error"]["data"]["type"] == "store.incompatible"
    guest.wait_for(lambda: guest.batches, "the batch's answer")
    assert [answer["id"] for answer in guest.batches[0]] == ["b0", "b1"]
    assert {a["error"]["data"]["type"] for a in guest.batches[0]} == {"store.incompatible"}
    (crowd.store / "store.toml").write_text('format = 2\n\n[model]\nkind = "hash"\n')
    check_answers(guest)


# --------------------------------------------------------------------------- switches


def test_the_settings_that_are_shown_follow_a_switch(open_session: OpenSession) -> None:
    session = open_session()
    session.data("doc.create", title="x", text="words")
    session.data("model.use", name="other", kind="hash", dim=24)
    assert session.store.settings["model"]["name"] == "other"


def test_what_failed_is_what_is_told(open_session: OpenSession) -> None:
    """After a disk error, a model switch blames store.toml only if writing that file failed."""
    session = open_session()
    session.data("doc.create", title="x", text="words")
    for point, blamed in (("model.settings", True), ("model.embedded", False)):

        def refuse(reached: str, point: str = point) -> None:
            if reached == point:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        failpoints.arm(refuse)
        try:
            error = session.error("model.use", name="other", kind="hash", dim=24)
        finally:
            failpoints.arm(None)
        assert error["type"] == "store.io"
        assert ("store.toml" in error["message"]) is blamed
        assert "Input/output error" in error["message"]


# -------------------------------------------------------------------- other platforms

ELSEWHERE = """
import os, sys
import kbproc.surfaces.shell.cli
from kbproc.base.settings import config
for name in ("base.settings.config", "surfaces.shell.fastpath", "surfaces.sharing.reach"):
    sys.modules.pop(f"kbproc.{name}", None)
sys.platform = "freebsd14"
sys.modules["fcntl"] = None
del os.getuid
from kbproc.base.settings import config
config.load(os.environ)
try:
    config.check_platform(sys.platform)
except Exception as error:
    assert error.type == "store.incompatible"
kbproc.surfaces.shell.cli.main = lambda argv, pipes: 7
sys.argv = ["kbproc", "call", "ping"]
from kbproc.__main__ import main
main()
"""


def test_a_platform_without_locks_comes_as_far_as_its_refusal(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(REPO), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    assert (done.returncode, done.stderr) == (7, "")


def test_the_runtime_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path(f"/tmp/kbproc-{os.getuid()}")
    assert config.Config(store=Path("s"), cache=Path("c")).runtime == own
    assert config.load({"HOME": "/h"}).runtime == own
    assert config.load({"HOME": "/h", "XDG_RUNTIME_DIR": "/run/x"}).runtime == Path("/run/x/kbproc")
