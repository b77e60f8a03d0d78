"""An owner without descriptors or threads goes on, and accepts connections again later."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.faults import faults_of, note
from tests.kit.patience import until
from tests.kit.processes import Client, Crowd, check_answers, check_once, socket_of

pytestmark = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs /proc")

compared = faults_of("shortage", counted=True)

DESCRIPTORS, CONNECTIONS = 48, 60
AGAIN = "requests are {} meanwhile; later processes are let in and all goes on"
ANSWERED = "each request is answered, and the process ends with 0"
LIMITED = f"""
import resource
from kbproc.base.pipes import leave
from tests.kit import fixed

resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}))
leave(fixed.main())
"""
NONE_LEFT = '''
import contextlib, os, pathlib, resource
from kbproc.base.pipes import leave
from kbproc.surfaces.sharing import owner
from tests.kit import fixed

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
accept = owner.Listening.accept

def taking(self):
    """All descriptors are in use while there is a file `take`."""
    takes = pathlib.Path("take").exists()
    while taking.held and not takes:
        os.close(taking.held.pop())
    with contextlib.suppress(OSError):
        while takes and not pathlib.Path("taken").exists():
            taking.held.append(os.open("/dev/null", os.O_RDONLY))
    if takes:
        pathlib.Path("taken").mkdir(exist_ok=True)
    try:
        return accept(self)
    except OSError:
        taking.refused += 1
        pathlib.Path(f"refused-{taking.refused}").mkdir(exist_ok=True)
        raise

taking.refused = 0
taking.held = []
owner.Listening.accept = taking
leave(fixed.main())
'''
NO_THREADS = """
import pathlib, threading
from kbproc.base.pipes import leave
from tests.kit import fixed

start = threading.Thread.start

def refuse(self):
    if pathlib.Path("refuse").exists():
        raise RuntimeError("can't start new thread")
    start(self)

threading.Thread.start = refuse
leave(fixed.main())
"""


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    with Crowd(tmp_path) as crowd:
        yield crowd


def descriptors(client: Client) -> int:
    return len(list(Path(f"/proc/{client.pid}/fd").iterdir()))


@contextlib.contextmanager
def connected(store: Path, count: int) -> Iterator[None]:
    """Opens silent connections to the owner."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(str(socket_of(store)))
        yield


def test_connections_take_no_descriptor_that_the_store_needs(crowd: Crowd) -> None:
    owner = crowd.join(program=LIMITED)
    own = descriptors(owner)
    with connected(crowd.store, CONNECTIONS):
        until(lambda: descriptors(owner) > own + 4, "connections that were let in")
        owner.data("doc.create", title="during", text="words")
        assert owner.data("sql.query", sql="select count(*) from documents")
        assert owner.data("status")
        assert crowd.run("call", "ping", "{}").code in {0, 8}
    until(lambda: descriptors(owner) <= own + 4, "the end of the connections", crowd.told)
    guest = crowd.join()
    assert guest.answer(guest.create("after"))["result"]
    check_once(owner, acknowledged=["during", "after"], sent=["during", "after"])
    check_answers(guest)
    note(
        "shortage",
        f"{CONNECTIONS} connections to an owner that may have {DESCRIPTORS} open files",
        "writes and queries go on; who can't be served is told server.overloaded; later "
        "processes are let in",
    )


def test_an_owner_without_descriptors_listens_again(crowd: Crowd) -> None:
    """During the shortage, requests fail with `store.io`, not with an internal error."""
    owner = crowd.join(program=NONE_LEFT)
    owner.data("ping")
    (crowd.folder / "take").touch()
    until((crowd.folder / "taken").exists, "an owner without descriptors")
    for method, params in (
        ("doc.create", {"title": "never", "text": "words"}),
        ("sql.query", {"sql": "select 1"}),
        ("status", {}),
        ("events.read", {}),
    ):
        error = owner.error(method, **params)
        assert (error["type"], error["retryable"]) == ("store.io", True), error
    with connected(crowd.store, 2):
        until(lambda: "could not be let in" in owner.told(), "an owner that could accept nobody")
        for number in (2, 4, 6):
            until((crowd.folder / f"refused-{number}").exists, "an owner that tries again")
            owner.error("status")  # logs another line in between
    assert owner.told().count("could not be let in") == 1, owner.told()
    (crowd.folder / "take").unlink()
    guest = crowd.join()
    assert guest.answer(guest.create("after"))["result"]
    check_once(owner, acknowledged=["after"], sent=["after"])
    note("shortage", "no descriptor is left for an owner", AGAIN.format("store.io"))


def test_an_owner_without_threads_listens_again(crowd: Crowd) -> None:
    """A request that can't be run is refused, and frees its place."""
    owner = crowd.join(program=NO_THREADS)
    (crowd.folder / "refuse").touch()
    guest = crowd.spawn()
    until(lambda: "could not be let in" in owner.told(), "an owner that could start no thread")
    assert owner.error("ping", timeout_ms=600_000)["type"] == "server.overloaded"
    for method, params in (("kb.create", {"slug": "team"}), ("doc.ingest", {"paths": ["."]})):
        assert owner.error(method, **params)["type"] == "server.overloaded"
    (crowd.folder / "refuse").unlink()
    guest.ready()
    assert guest.data("kb.create", slug="team")
    assert owner.data("ping", timeout_ms=600_000)
    assert owner.end() == 0
    assert guest.data("kb.get", slug="team")
    note("shortage", "no thread can be started by an owner", AGAIN.format("server.overloaded"))


def test_a_process_that_may_start_no_thread_answers_before_it_ends(crowd: Crowd) -> None:
    """The process still answers its own requests and those of an attached process."""
    owner, guest = crowd.join(program=NO_THREADS), crowd.join()
    waits = [client.start("ping", min_seq=999) for client in (owner, guest)]
    assert owner.data("ping") and guest.data("ping")
    (crowd.folder / "refuse").touch()
    written = owner.create("during")
    owner.answer(written)
    assert owner.end() == 0
    assert owner.answer(waits[0])["error"]["data"]["type"] == "operation.cancelled"
    assert guest.data("status")
    check_answers(owner)
    done = [] if "error" in owner.answers[written][0] else ["during"]
    check_once(guest, acknowledged=done, sent=done)
    assert guest.end() == 0
    assert guest.answer(waits[1])["error"]["data"]["type"] == "operation.cancelled"
    note("shortage", "no thread can be started by an owner that ends", ANSWERED)


def test_a_process_that_may_start_no_thread_at_all(crowd: Crowd) -> None:
    (crowd.folder / "refuse").touch()
    owner = crowd.spawn(program=NO_THREADS)
    requests = [owner.start(method) for method in ("ping", "kb.list", "status")]
    for id in requests:
        assert owner.answer(id)["error"]["data"]["type"] == "server.overloaded"
    assert owner.end() == 0
    check_answers(owner)
    note("shortage", "no thread can be started by a process from its beginning", ANSWERED)
