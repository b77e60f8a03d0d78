"""Shared fixtures. They check the stores that tests use when the test ends."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbproc.base import failpoints
from kbproc.engine.projections.catalog.catalog import Catalog
from tests.kit import pytest_workers, slow, start, tmpfs
from tests.kit.advice import advice, why_none
from tests.kit.models import lend
from tests.kit.patience import PATIENCE
from tests.kit.rebuilds import Rebuilds
from tests.kit.records import unnamed
from tests.kit.talk import REPO, Session

# A slow machine must fail no test.
UNHURRIED: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
}
# The quick profile tries the same examples each time, so that only a change makes a run fail; the
# long one looks for new ones.
settings.register_profile("quick", max_examples=25, derandomize=True, **UNHURRIED)
settings.register_profile("long", max_examples=500, **UNHURRIED)
settings.load_profile(os.environ.get("KBPROC_TEST_PROFILE", "quick"))


# Collection makes a million permanent objects; scanning them would take a third of its time.
gc.disable()
# New objects until Python looks for garbage; with the usual 700 that takes a twentieth of the time.
_UNTIL_A_LOOK = 50_000


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    tmpfs.prefer_memory(config)


def pytest_collection_finish(session: pytest.Session) -> None:
    _use_hypothesis()
    gc.freeze()
    gc.set_threshold(_UNTIL_A_LOOK)
    gc.enable()


@settings(max_examples=1, database=None)
@given(st.none())
def _use_hypothesis(_: None) -> None:
    """Makes hypothesis' random generator. From Python 3.13 on hypothesis warns that nothing refers
    to it where its owner is frozen by then.
    """


def pytest_sessionstart(session: pytest.Session) -> None:
    """msgspec 0.22 can crash when the interpreter's last collection takes its types
    apart, and duckdb prints supposed leaks; so the process exits at once,
    with the session's exit status.
    """

    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(session.exitstatus))

    atexit.register(leave)
    # A shell ignores SIGINT in background jobs, and nohup ignores SIGHUP; this process and its
    # children must receive both.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the slowest files first; at the end they would leave the other workers idle."""
    seconds = slow.seconds()
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], 0))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    slow.add(report.nodeid, report.duration)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if MEASURES and not hasattr(session.config, "workerinput"):
        slow.write()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Says why no test was run, which pytest keeps to itself beside workers."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        for line in why_none(config.args, config.option.keyword):
            terminalreporter.write_line(line)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Names no test by many bytes: each worker makes its own, and an archive holds the time."""
    return "bytes" if isinstance(val, bytes) and len(val) > 40 else None


OpenSession = Callable[..., Session]

OURS = {"KBPROC_TEST_PROFILE", "KBPROC_TEST_SECONDS", "KBPROC_TEST_DATA", "KBPROC_UPDATE_DOCS"}
MEASURES = os.environ.get("KBPROC_TEST_SECONDS") == "1"
THEIRS = ("KBPROC_", "XDG_", "GIT_", "PYTHON", "LC_", "LANG", "TZ", "COLUMNS", "LINES")


@pytest.fixture(scope="session", autouse=True)
def nobodys_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hides the user's settings, caches and locale from tests and their children.

    Children run this checkout's kbproc from any folder.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - OURS:
            if name.startswith(THEIRS) or name in {"NO_COLOR", "FORCE_COLOR"}:
                patch.delenv(name)
        home = tmp_path_factory.mktemp("home")
        lend(home)
        patch.setenv("HOME", str(home))
        patch.setenv("PYTHONPATH", str(REPO))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        # Beside the tests' folders, which are in memory: a comparison of a store builds an index.
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("tmp")))
        patch.setattr("kbproc.base.sandbox.popen", start.start_child)
        yield


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder that all workers of this run share."""
    folder = pytest_workers.base_of_run(tmp_path_factory) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.hookimpl(wrapper=True)
def pytest_report_teststatus(report: pytest.TestReport) -> Generator[None, object, object]:
    """Adds to a failure which command helps, if one does; once, after the failed subtests."""
    status = yield
    if report.failed and not isinstance(report, pytest.SubtestReport):
        section = ("What to run", advice(report.nodeid) or "")
        if section[1] and section not in report.sections:
            report.sections.append(section)
    return status


Report = Callable[[Iterable[str]], None]


@pytest.fixture
def none(subtests: pytest.Subtests) -> Report:
    """Returns a function that fails once for each violation, a text `PLACE: what to do there`."""

    def report(violations: Iterable[str]) -> None:
        for violation in sorted(violations):
            place, _, message = violation.partition(": ")
            with subtests.test(place):
                pytest.fail(message, pytrace=False)

    return report


@pytest.fixture
def executed() -> Iterator[None]:
    """Makes every process that the test starts a new interpreter; see tests/kit/start.py."""
    with start.executing():
        yield


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """Disarms the failpoints after each test."""
    yield
    failpoints.arm(None)


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """Yields a catalog for rebuilds of projections; each rebuild empties it."""
    with contextlib.closing(Catalog(tmp_path_factory.mktemp("bench") / "c.sqlite")) as catalog:
        yield catalog


@pytest.fixture(scope="module")
def rebuilds(bench: Catalog) -> Rebuilds:
    """Returns the comparisons of the stores of this file with what their logs give."""
    return Rebuilds(bench)


@pytest.fixture
def leaves_sources() -> bool:
    """Returns True if stores of this folder's tests may have sources that no record names."""
    return False


@pytest.fixture
def open_session(tmp_path: Path, rebuilds: Rebuilds, leaves_sources: bool) -> Iterator[OpenSession]:
    """Opens sessions on a store of this test's own; see `tests.kit.talk.Session`.

    At the end every projection, rebuilt from the log, must equal the live one, where the log has a
    step that is new to this file; and a record must name every source, unless the test
    `leaves_sources`.
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
            rebuilds.check(session.store)
            if not leaves_sources and unnamed(session.store):
                gc.collect()  # an error that the test caught may still refer to open objects
                assert unnamed(session.store) == set()
            session.library.close()


@pytest.fixture
def session(open_session: OpenSession) -> Session:
    return open_session()


@pytest.fixture(params=["recent", "indexed"])
def catch_up(
    request: pytest.FixtureRequest, session: Session, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], None]:
    """Returns a function after which new documents are in the full-text index, or in none."""

    def now() -> None:
        session.embedded()
        if request.param == "indexed":
            session.data("search", query="words")

    return now
