"""Processes that never open a store: a separate owner does, and ends with its last client."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.base.settings.config import Config
from kbproc.surfaces.sharing import reach, takeover
from kbproc.surfaces.sharing.reach import state_of
from kbproc.surfaces.sharing.takeover import LOG_BYTES, OwnerStarter
from tests.kit.patience import LONG, until
from tests.kit.processes import Crowd, check_once, holders, processes_in
from tests.kit.start import REPO

# A fake interpreter: while the file `stop` exists, an owner stops itself before it starts; while
# the file `stop-end` exists, at its end, after it closed its connections.
HANGS = f"""#!{sys.executable}
import os, pathlib, signal, sys
folder = pathlib.Path.cwd()

def hang(name):
    if (folder / name).exists():
        os.kill(os.getpid(), signal.SIGSTOP)

hang("stop")
sys.path.insert(0, {str(REPO)!r})
from kbproc.base.pipes import leave
from kbproc.surfaces.sharing import reach, takeover
from kbproc.surfaces.sharing.owner import Listener

reach.STOPPED_SECONDS = 1.0
close = Listener.close

def close_and_hang(self):
    close(self)
    hang("stop-end")

Listener.close = close_and_hang
leave(takeover.main())
"""
STARTS_IT = """
import pathlib, sys
from kbproc.base.pipes import leave
from tests.kit import fixed

sys.executable = f"./{next(name for name in ('hangs', 'timeless') if pathlib.Path(name).exists())}"
leave(fixed.main())
"""
# A client with an open file that its children inherit.
INHERITED = """
import os
from kbproc.base.pipes import leave
from tests.kit import fixed

os.set_inheritable(os.open("inherited", os.O_WRONLY | os.O_CREAT), True)
leave(fixed.main())
"""
# A fake interpreter: while the file `stop` exists, an owner dies at each write, and notes it.
DIES = f"""#!{sys.executable}
import os, pathlib, signal, sys
stop = pathlib.Path("stop").absolute()
sys.path.insert(0, {str(REPO)!r})
from kbproc.base import failpoints
from kbproc.base.pipes import leave
from kbproc.surfaces.sharing import takeover

def die(reached):
    if reached == "log.write" and stop.exists():
        stop.write_text(stop.read_text() + "died\\n")
        os.kill(os.getpid(), signal.SIGKILL)

failpoints.arm(die)
leave(takeover.main())
"""
# A fake interpreter: the owner's clock stands still, so that no wait of its own ends.
TIMELESS = f"""#!{sys.executable}
import sys, types
sys.path.insert(0, {str(REPO)!r})
from kbproc.base.pipes import leave
from kbproc.surfaces.sharing import takeover

takeover.time = types.SimpleNamespace(monotonic=lambda: 0.0)
leave(takeover.main())
"""
# A client that takes each owner for a long-lived one.
LIVED_LONG = """
import pathlib, sys
from kbproc.base.pipes import leave
from kbproc.surfaces.sharing import takeover
from tests.kit import fixed

takeover.SOON_SECONDS = -1.0
if pathlib.Path("dies").exists():
    sys.executable = "./dies"
leave(fixed.main())
"""

pytestmark = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs /proc")


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    with Crowd(tmp_path) as crowd:
        try:
            yield crowd
        finally:
            for name in ("stop", "stop-end"):
                (tmp_path / name).unlink(missing_ok=True)
            for pid in owners(crowd):
                if state_of(pid) == "stopped":
                    os.kill(pid, signal.SIGKILL)


def owners(crowd: Crowd) -> list[int]:
    """Returns the pids of owner processes, and of those about to become owners."""
    processes = processes_in(crowd.folder).items()
    return [pid for pid, command in processes if takeover.__name__ in command]


def test_the_owner_is_another_process(crowd: Crowd) -> None:
    client = crowd.join(thin=1)
    assert "result" in client.answer(client.create("one"))
    assert owners(crowd) == sorted(set(holders(crowd.store)))
    assert client.pid not in holders(crowd.store)
    assert os.getsid(owners(crowd)[0]) == owners(crowd)[0]


def _end_owner(crowd: Crowd, signum: int) -> None:
    """Ends the one process that holds the store; a former owner may still be ending."""

    def is_ended() -> bool:
        pids = set(holders(crowd.store))
        if len(pids) != 1:
            return False
        with suppress(ProcessLookupError):
            os.kill(pids.pop(), signum)
            return True
        return False

    until(is_ended, "an owner")


def test_an_owner_that_dies_costs_no_session(crowd: Crowd) -> None:
    client, other = crowd.together(2, thin=1)
    sent = []
    signals = (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)
    for round, signum in enumerate(signals * (3 if LONG else 1)):
        ids = [client.create(f"a {round}"), other.create(f"b {round}")]
        sent += [f"a {round}", f"b {round}"]
        _end_owner(crowd, signum)
        assert "result" in client.answer(ids[0])
        assert "result" in other.answer(ids[1])
    check_once(client, acknowledged=sent, sent=sent)
    assert client.types() == ["init", "ready"]


@pytest.mark.parametrize("killed", [False, True])
def test_the_owner_ends_with_its_last_client(crowd: Crowd, killed: bool) -> None:
    """The owner does not inherit its clients' pipes, so a client's output ends with the client.

    It waits for no other client once the process that started it has gone, too.
    """
    (crowd.folder / "timeless").write_text(TIMELESS)
    (crowd.folder / "timeless").chmod(0o700)
    clients = crowd.together(2, thin=1, program=STARTS_IT)
    for client in clients:
        if killed:
            client.kill()
        else:
            client.leave()
        client.gone()
        if client is clients[0]:
            assert owners(crowd)
    until(lambda: not owners(crowd), "the owner's end")
    assert holders(crowd.store) == []


def test_of_many_that_begin_at_once_one_owner_stays(crowd: Crowd) -> None:
    clients = crowd.together(6, thin=1)
    until(lambda: len(owners(crowd)) == 1, "one owner")
    ids = [client.create(f"{n}") for n, client in enumerate(clients)]
    for client, id in zip(clients, ids, strict=True):
        assert "result" in client.answer(id)
    assert len(set(holders(crowd.store))) == 1


def test_where_a_server_has_the_store_open_none_is_started(crowd: Crowd) -> None:
    server = crowd.join()
    client = crowd.join(thin=1)
    assert "result" in client.answer(client.create("one"))
    assert owners(crowd) == []
    server.kill()
    server.gone()
    assert "result" in client.answer(client.create("two"))
    check_once(client, acknowledged=["one", "two"], sent=["one", "two"])


def test_why_there_is_no_store_is_answered(crowd: Crowd) -> None:
    crowd.store.write_text("no folder")
    client = crowd.spawn(thin=1)
    error = client.error("kb.list")
    assert error["type"] == "store.io" and "is a file" in error["message"], error
    crowd.store.unlink()
    assert "result" in client.answer(client.create("one"))


def test_a_store_that_becomes_read_only_is_refused(crowd: Crowd) -> None:
    """The next owner reports the error; the client does not start owner after owner."""
    client = crowd.join(thin=1)
    assert "result" in client.answer(client.create("one"))
    crowd.store.chmod(0o777)  # kbproc only reads a store that others may write
    os.kill(holders(crowd.store)[0], signal.SIGKILL)
    for _ in range(2):
        error = client.error("kb.list")
        assert (error["type"], error["detail"]["read_only"]) == ("store.io", True), error
        assert not error["retryable"]
        assert owners(crowd) == []
    crowd.store.chmod(0o700)
    assert "result" in client.answer(client.create("two"))
    check_once(client, acknowledged=["one", "two"], sent=["one", "two"])


def test_an_owner_that_hangs_at_its_end_is_told_of(crowd: Crowd) -> None:
    (crowd.folder / "hangs").write_text(HANGS)
    (crowd.folder / "hangs").chmod(0o700)
    client = crowd.join(thin=1, program=STARTS_IT, stopped_seconds=1)
    assert "result" in client.answer(client.create("one"))
    (owner,) = owners(crowd)
    (crowd.folder / "stop-end").touch()
    os.kill(owner, signal.SIGTERM)
    until(lambda: state_of(owner) == "stopped", "an owner that hangs")
    (crowd.folder / "stop-end").unlink()
    error = client.error("kb.list")
    assert error["type"] == "store.locked", error
    assert error["detail"] == {"pid": owner, "state": "stopped"}
    os.kill(owner, signal.SIGCONT)
    assert "result" in client.answer(client.create("two"))
    check_once(client, acknowledged=["one", "two"], sent=["one", "two"])


def test_a_request_that_ended_two_owners_is_not_asked_of_a_third(crowd: Crowd) -> None:
    (crowd.folder / "dies").write_text(DIES)
    (crowd.folder / "dies").chmod(0o700)
    client = crowd.join(thin=1, program=LIVED_LONG)
    assert "result" in client.answer(client.create("one"))
    (crowd.folder / "stop").touch()
    reads = [client.start("ping", min_seq=1_000_000), client.start("events.subscribe")]
    error = client.answer(client.create("two"))["error"]["data"]
    assert error["type"] == "internal.error" and "2 processes" in error["message"], error
    assert "doc.create" in error["message"] and "ask for less" in error["hint"]
    assert (crowd.folder / "stop").read_text().split() == ["died", "died"]
    assert not any(client.answers[id] for id in reads), "what only waits ends no owner"
    assert "result" in client.ask("ping")
    (crowd.folder / "stop").unlink()
    assert "result" in client.answer(client.create("three"))
    check_once(client, acknowledged=["one", "three"], sent=["one", "two", "three"])


def test_requests_that_only_wait_are_not_what_owners_die_of(crowd: Crowd) -> None:
    """An MCP client that watches always has such a request in flight."""
    client = crowd.join(thin=1, program=LIVED_LONG)
    waiting = [client.start("ping", min_seq=1_000_000), client.start("events.subscribe")]
    for _ in range(7 if LONG else 3):
        os.kill(holders(crowd.store)[0], signal.SIGKILL)
        assert "result" in client.ask("ping")
    assert not any(client.answers[id] for id in waiting)


def test_a_process_that_cannot_be_started_costs_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program does not exist, or ends before it has read its settings."""
    config = Config(store=tmp_path / "store", cache=tmp_path, runtime=tmp_path)
    settings = {"name": "x" * (1 << 20)}  # more than a pipe holds
    open_ones = []
    for program, type in (("/nowhere", "store.io"), ("/bin/false", "internal.error")) * 3:
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(KbprocError) as raised:
            OwnerStarter(config, Host(), settings).reach_owner(lambda: None)
        assert raised.value.type == type
        open_ones.append(len(list(Path("/proc/self/fd").iterdir())))
    assert len(set(open_ones)) == 1, open_ones


def test_the_owner_has_no_file_of_its_first_client(crowd: Crowd) -> None:
    client = crowd.join(thin=1, program=INHERITED)
    assert "result" in client.ask("ping")
    (owner,) = owners(crowd)
    files = {
        pid: [path.readlink() for path in Path(f"/proc/{pid}/fd").iterdir()]
        for pid in (client.pid, owner)
    }
    inherited = crowd.folder / "inherited"
    assert inherited in files[client.pid] and inherited not in files[owner]


def test_a_long_log_of_owners_begins_anew(crowd: Crowd) -> None:
    client = crowd.join(thin=1)
    (owner,) = owners(crowd)
    log = Path(f"/proc/{owner}/fd/2").readlink()

    for size in (LOG_BYTES, LOG_BYTES + 1):
        os.truncate(log, size)
        os.kill(holders(crowd.store)[0], signal.SIGKILL)
        assert "result" in client.ask("ping")
        assert (log.stat().st_size < size) == (size > LOG_BYTES)


def test_a_start_that_loses_leaves_the_log_of_the_live_owner(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd.join(thin=1)
    (owner,) = owners(crowd)
    log = Path(f"/proc/{owner}/fd/2").readlink()
    os.truncate(log, LOG_BYTES + 1)
    config = Config(store=crowd.store, cache=crowd.folder, runtime=log.parent)
    connect, looks_early = reach.connect, iter([True])

    def connect_late(store: Path) -> socket.socket | None:
        """Fails on the first call, as if the owner did not listen yet."""
        return None if next(looks_early, False) else connect(store)

    monkeypatch.setattr(reach, "connect", connect_late)
    OwnerStarter(config, Host(), None).reach_owner(lambda: None).close()
    until(lambda: owners(crowd) == [owner], "the end of the process that was slower")
    assert log.stat().st_size > LOG_BYTES


def test_an_owner_that_is_stopped_before_it_begins_is_named(crowd: Crowd) -> None:
    (crowd.folder / "hangs").write_text(HANGS)
    (crowd.folder / "hangs").chmod(0o700)
    (crowd.folder / "stop").touch()
    client = crowd.spawn(thin=1, program=STARTS_IT, stopped_seconds=1)
    until(lambda: any(state_of(pid) == "stopped" for pid in owners(crowd)), "a stopped owner")
    (owner,) = owners(crowd)
    error = client.error("kb.list")
    assert error["type"] == "store.locked", error
    assert error["detail"] == {"pid": owner, "state": "stopped"}
    (crowd.folder / "stop").unlink()
    os.kill(owner, signal.SIGKILL)
    assert "result" in client.answer(client.create("one"))
