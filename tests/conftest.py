"""Shared fixtures. Every store that a test uses is checked when the test ends."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from kbproc.base import failpoints
from kbproc.library.health import doctor
from kbproc.views.catalog.catalog import Catalog
from tests.kit import start
from tests.kit.patience import PATIENCE
from tests.kit.records import unnamed
from tests.kit.talk import REPO, Session

# How slow the machine is makes no test fail.
UNHURRIED: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
}
settings.register_profile("quick", max_examples=25, **UNHURRIED)
settings.register_profile("long", max_examples=500, **UNHURRIED)
settings.load_profile(os.environ.get("KBPROC_TEST_PROFILE", "quick"))


# Collecting makes a million objects that stay: looking through them takes a third of its time.
gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()
    gc.enable()


def pytest_sessionstart(session: pytest.Session) -> None:
    """msgspec 0.22 can crash when the interpreter's last collection takes its types
    apart, and duckdb prints what it takes for leaks: so the process leaves at once,
    with the session's own exit status.
    """

    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(session.exitstatus))

    atexit.register(leave)
    # A shell that runs this in the background has SIGINT ignored, and nohup SIGHUP, here and in
    # what we start.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


# Rooms whose files take longest: begun last, they would leave the other workers idle.
SLOWEST = ("breaks", "models", "sharing", "history", "notes", "agents", "store")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rooms = {room: number for number, room in enumerate(SLOWEST)}
    items.sort(key=lambda item: rooms.get(item.path.parent.name, len(rooms)))


OpenSession = Callable[..., Session]

OURS = {"KBPROC_TEST_PROFILE", "KBPROC_TEST_DATA", "KBPROC_UPDATE_DOCS"}
THEIRS = ("KBPROC_", "XDG_", "GIT_", "PYTHON", "LC_", "LANG", "TZ", "COLUMNS", "LINES")


@pytest.fixture(scope="session", autouse=True)
def nobodys_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whoever runs this has settings, caches and a locale; no test and no child sees them.

    What is started from here is this checkout's kbproc, in whatever folder that is.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - OURS:
            if name.startswith(THEIRS) or name in {"NO_COLOR", "FORCE_COLOR"}:
                patch.delenv(name)
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("PYTHONPATH", str(REPO))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        patch.setattr("kbproc.base.sandbox.popen", start.start_child)
        yield


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """One folder for all workers of this run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def executed() -> Iterator[None]:
    """Whatever the test starts is an interpreter of its own; see tests/kit/start.py."""
    with start.executing():
        yield


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """What a test has armed ends with it, however it ends."""
    yield
    failpoints.arm(None)


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """A catalog for views that are made afresh, emptied each time."""
    with contextlib.closing(Catalog(tmp_path_factory.mktemp("bench") / "c.duckdb")) as catalog:
        yield catalog


@pytest.fixture
def leaves_sources() -> bool:
    """Whether stores of this folder's tests may hold sources that no record names."""
    return False


@pytest.fixture
def open_session(tmp_path: Path, bench: Catalog, leaves_sources: bool) -> Iterator[OpenSession]:
    """Opens sessions on a store of this test's own; see `tests.kit.talk.Session`.

    At the end every view, made afresh from the log, must equal the live one, and no source lies
    there that no record names, unless it `leaves_sources`.
    """
    sessions: list[Session] = []

    def open(store: Path | None = None, folder: Path = tmp_path, **options: Any) -> Session:
        session = Session(store or tmp_path / "store", cwd=folder, **options)
        sessions.append(session)
        return session

    yield open
    for session in sessions:
        session.connection.end(PATIENCE)
        session.connection.service.close()
        if not session.library.closed:
            found = doctor.compare(session.store, bench)
            assert {name: wrong for name, wrong in found.items() if wrong} == {}
            if not leaves_sources and unnamed(session.store):
                gc.collect()  # an error that the test has caught holds what was in use there
                assert unnamed(session.store) == set()
            session.library.close()


@pytest.fixture
def session(open_session: OpenSession) -> Session:
    return open_session()


@pytest.fixture(params=["recent", "indexed", "too many"])
def catch_up(
    request: pytest.FixtureRequest, session: Session, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], None]:
    """How what was just written is known: it waits, it is in the index, or the catalog tells."""
    if request.param == "too many":
        monkeypatch.setattr("kbproc.store.group._MOST_ROWS", 0)

    def now() -> None:
        session.embedded()
        if request.param == "indexed":
            session.data("search", query="words")

    return now
