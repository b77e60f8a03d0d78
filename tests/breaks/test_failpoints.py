"""The process dies, or the disk refuses, at every failpoint: no acknowledged write is lost."""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import failpoints
from kbproc.engine.log import file
from kbproc.engine.projections.catalog.catalog import Catalog
from kbproc.knowledge.app.health import doctor
from tests.breaks import scenario
from tests.breaks.stopped import State, course
from tests.conftest import OpenSession
from tests.kit.faults import faults_of, note, small_disk
from tests.kit.patience import PATIENCE, all_or
from tests.kit.talk import Process, Session

compared = faults_of("kills", thinned=True)


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "SEGMENT_BYTES", scenario.SMALL_SEGMENT)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, list[str]]:
    """Answers without any disturbance: after all writes (True), after the first ones (False)."""
    with pytest.MonkeyPatch.context() as patch:
        every = undisturbed_answers(tmp_path_factory)
        scenario.shorten(patch)
        return {True: every, False: undisturbed_answers(tmp_path_factory)}


def undisturbed_answers(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("undisturbed") / "x"
    scenario.prepare(folder)
    session = Session(folder / "store", cwd=folder)
    for number in range(len(scenario.WRITES)):
        assert "result" in scenario.write(session.ask, number), scenario.WRITES[number]
    answers = finish(session, folder)
    session.close()
    return answers


def finish(session: Session, folder: Path) -> list[str]:
    session.embedded()
    session.library.compact()
    return [answer.replace(str(folder), "") for answer in scenario.answers(session.ask)]


def with_origin_of_a_file(answer: str) -> str:
    """Returns the answer with the origin `agent` for the note, as a changed file of its has."""

    def changed(value: Any) -> Any:
        if isinstance(value, list):
            return [changed(item) for item in value]
        if not isinstance(value, dict):
            return value
        title = value.get("title") or (value.get("source") or {}).get("title")
        origin = {"origin": "agent"} if title == "Harbour" and "origin" in value else {}
        return {name: changed(item) for name, item in value.items()} | origin

    try:
        return json.dumps(changed(json.loads(answer)))
    except ValueError:
        return answer


def write_until_dead(process: Process) -> list[int]:
    """Sends every write; returns the numbers acknowledged before the process died."""
    acknowledged: list[int] = []
    ids = iter(range(1, 1000))
    try:
        process.ready()
        for number in range(len(scenario.WRITES)):
            answer = scenario.write(lambda m, **p: process.ask(next(ids), m, **p), number)
            assert "result" in answer, answer
            acknowledged.append(number)
    except (AssertionError, BrokenPipeError, ConnectionResetError, ValueError):
        assert process.process.wait(PATIENCE) == -9, process.told()
    return acknowledged


# The scenario reaches no failpoints of repairs, clusters, upkeep and the process that indexes: they
# have tests of their own.
ELSEWHERE = ("salvage.", "shared.", "upkeep.", "beside.")
POINTS = [point for point in failpoints.FAILPOINTS if not point.startswith(ELSEWHERE)]
# Only a search that finds many new chunks commits the full-text index: a course of its own.
SEARCHED = [
    point for point in POINTS if point.startswith("fulltext.") and point != "fulltext.built"
]
# One of each kind of operation: here a process is really killed, at the first hit.
KILLED = (
    "log.torn",
    "blob.named",
    "catalog.commit",
    "model.settings",
    "purge.log",
    "note.exchanged",
)
# The first write at which a course stops, for points that many writes reach: later ones have more
# to lose, and leave less to be sent again.
FIRST = {
    "log.segment": 0,
    "log.": 17,
    "catalog.applied": 17,
    "catalog.commit": 17,
    "pack.": 8,
    "blob.written": 0,
    "blob.write": 11,
    "blob.appended": 11,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of every store here, because documents remember their paths."""
    return tmp_path_factory.mktemp("killed") / "x"


@pytest.fixture(scope="module")
def states(place: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, State]:
    """Returns the state that a kill leaves at each point."""
    armed = {
        point: next((n for name, n in FIRST.items() if point.startswith(name)), 0)
        for point in POINTS
    }
    with course(place, tmp_path_factory.mktemp("states")) as whole:
        whole.run(armed, len(scenario.WRITES))
    shutil.rmtree(place)
    with course(place, tmp_path_factory.mktemp("searched")) as searched:
        searched.run(dict.fromkeys(SEARCHED, 2), scenario.FIRST_WRITES, searches=True)
    shutil.rmtree(place)
    reached = whole.states | searched.states
    assert sorted(set(POINTS) - reached.keys()) == [], "never reached"
    return reached


def kinds() -> list[str]:
    return sorted({point.partition(".")[0] for point in POINTS})


@pytest.mark.parametrize("kind", kinds())
def test_killed_there(
    kind: str,
    states: dict[str, State],
    place: Path,
    undisturbed: dict[bool, list[str]],
    bench: Catalog,
    subtests: pytest.Subtests,
) -> None:
    """A process is stopped at each point, and its files are opened as a kill leaves them."""

    def check(point: str) -> None:
        state = states[point]
        shutil.rmtree(place, ignore_errors=True)
        state.files.rename(place)
        reopened(point, state.acknowledged, place, undisturbed, bench)

    for point in [point for point in POINTS if point.startswith(f"{kind}.")]:
        with subtests.test(point):
            check(point)


@pytest.mark.parametrize("point", KILLED)
def test_really_killed_there(
    point: str, tmp_path: Path, undisturbed: dict[bool, list[str]], bench: Catalog
) -> None:
    folder = tmp_path / "x"
    scenario.prepare(folder)
    process = Process(
        folder / "store", cwd=folder, kill_at=point, segment_bytes=scenario.SMALL_SEGMENT
    )
    acknowledged = write_until_dead(process)
    assert len(acknowledged) < len(scenario.WRITES), f"{point} was never reached"
    process.stop()
    reopened(point, len(acknowledged), folder, undisturbed, bench)


def reopened(
    point: str,
    acknowledged: int,
    folder: Path,
    undisturbed: dict[bool, list[str]],
    bench: Catalog,
) -> None:
    """Opens what a kill has left, sends every write again, and compares the end with no kill."""
    # Later writes reach only a few failpoints: see `scenario.shorten`.
    is_whole = acknowledged >= scenario.FIRST_WRITES
    expected = undisturbed[is_whole]
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as ended:
        if not is_whole:
            scenario.shorten(patch)
        session = Session(folder / "store", cwd=folder)
        ended.callback(session.close)
        writes = range(len(scenario.WRITES))
        duplicates = [number for number in writes if resend(session, folder, number)]
        assert duplicates[:acknowledged] == [*range(acknowledged)]
        assert duplicates[acknowledged:] in ([], [acknowledged])
        if point == "note.exchanged":  # the agent's folder has the text, and no record its author
            expected = [with_origin_of_a_file(answer) for answer in expected]
        assert finish(session, folder) == expected
        assert session.store.log.verify() == session.store.seq
        assert not any(doctor.compare(session.store, bench).values())
    note(
        "kills",
        f"killed where {failpoints.FAILPOINTS[point]} (`{point}`)",
        "every acknowledged write there; the one in flight whole or absent, as its token tells, "
        "and done once when sent again",
    )


def resend(session: Session, folder: Path, number: int) -> bool:
    """Sends a write again; True if it had been done before."""
    answer = scenario.write(session.ask, number)
    if "error" in answer and scenario.WRITES[number][0] == "store.backup":
        # The backup was complete before its outcome was logged.
        assert answer["error"]["data"]["type"] == "resource.already_exists"
        shutil.rmtree(folder / "backup")
        answer = scenario.write(session.ask, number)
    if "error" in answer and "purged" in answer["error"]["message"]:
        return True
    assert "result" in answer, answer
    return bool(answer["result"]["meta"].get("duplicate"))


# -------------------------------------------------------------- the disk refuses

ERRORS = {"ENOSPC": "disk full", "EIO": "input/output error", "EROFS": "read-only file system"}
# Failpoints right before a system call, and the errors that the call may return.
CALLS = {
    "log.segment": tuple(ERRORS),
    "log.write": tuple(ERRORS),
    "log.torn": ("ENOSPC", "EIO"),
    "log.sync": ("EIO", "ENOSPC"),
    "blob.write": tuple(ERRORS),
    "blob.written": ("ENOSPC", "EIO"),
    "blob.named": ("EIO",),
    "blob.appended": ("ENOSPC", "EIO"),
    "blob.rewritten": ("ENOSPC",),
    "pack.write": tuple(ERRORS),
    "pack.erase": ("EIO",),
    "catalog.commit": ("ENOSPC", "EIO"),
    "vectors.save": tuple(ERRORS),
    "vectors.saved": ("ENOSPC",),
    "fulltext.built": ("ENOSPC",),
    "catalog.built": ("ENOSPC",),
    "purge.segment": ("ENOSPC", "EROFS"),
    "purge.sources": ("EIO",),
    "backup.copied": ("ENOSPC", "EIO"),
    "model.settings": ("ENOSPC",),
}


def refused_by(name: str, code: str) -> OSError:
    return OSError(getattr(errno, code), f"{ERRORS[code]} at {name}")


@pytest.mark.parametrize("nth", all_or([0], range(3)))
def test_the_disk_refuses(
    open_session: OpenSession,
    tmp_path: Path,
    undisturbed: dict[bool, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    nth: int,
) -> None:
    """Each write is refused at one call after the other, until no call of it is left.

    `nth`: which of the errors that a call may return it returns.
    """
    scenario.shorten(monkeypatch)
    folder = tmp_path / "x"
    scenario.prepare(folder)
    session = open_session(folder / "store", folder=folder)
    codes = {point: codes[nth % len(codes)] for point, codes in CALLS.items()}
    refusals = {point: refused_by(point, code) for point, code in codes.items()}
    refusing = set[str]()
    for number in range(len(scenario.WRITES)):
        refusing |= until_done(session, folder, number, refusals)
    assert sorted(CALLS.keys() - refusing) == [], "points that refused no write"
    session.close()
    session = open_session(folder / "store", folder=folder)
    for number in range(len(scenario.WRITES)):
        resend(session, folder, number)
    assert finish(session, folder) == undisturbed[False]
    assert not any(doctor.compare(session.store).values())
    for point, code in codes.items():
        note(
            "kills",
            f"{ERRORS[code]} ({code}) at `{point}`",
            "refused with store.io, done when asked again; reads went on",
        )


def until_done(
    session: Session,
    folder: Path,
    number: int,
    refusals: dict[str, OSError],
) -> set[str]:
    """Sends a write until it is done, without a restart; returns the points that refused it.

    All points fail at first; after each answer, the one that the answer names fails no more.
    """
    refused = set[str]()

    def refuse(point: str) -> None:
        if point in refusals and point not in refused:
            error = refusals[point]
            raise OSError(error.errno, error.strerror)

    while True:
        failpoints.arm(refuse)
        answer = scenario.write(session.ask, number)
        failpoints.arm(None)
        assert "result" in session.ask("doc.list"), "reads must go on"
        if "result" in answer or "purged" in answer["error"]["message"]:
            return refused
        error = answer["error"]["data"]
        if error["type"] == "resource.already_exists":  # the backup was complete
            shutil.rmtree(folder / "backup")
            continue
        assert error["type"] == "store.io", answer
        named = {
            point for point, refusal in refusals.items() if str(refusal.strerror) in str(answer)
        }
        assert named - refused, answer
        refused |= named


# -------------------------------------------------------------- a disk that is full


@pytest.mark.parametrize("kilobytes", all_or([2400], [2400, 4000]))
def test_a_small_disk(open_session: OpenSession, tmp_path: Path, kilobytes: int) -> None:
    """Fills a real file system, so that the libraries' system calls fail, too."""
    acknowledged: list[int] = []
    with small_disk(tmp_path, kilobytes) as disk:
        process = Process(disk / "store", cwd=tmp_path)
        fill_up(process, acknowledged)
        process.stop(15)
        copy = tmp_path / "copy"
        shutil.copytree(disk / "store", copy)
    session = open_session(copy)
    there = {document["id"] for document in session.data("doc.list", limit=1000)}
    assert set(acknowledged) <= there
    assert session.store.log.verify() == session.store.seq
    note(
        "kills",
        "a file system that runs full, and everything on it",
        "writes refused with store.io; reads went on; on a larger disk every acknowledged "
        "write there",
    )


def fill_up(process: Process, acknowledged: list[int]) -> None:
    """Writes until the disk refuses, ten times over; reads must go on."""
    first, second = process.message(), process.message()
    if second["params"]["type"] != "ready":
        assert second["params"]["error"]["type"] == "store.io", (first, second)
        return
    refused = 0
    for number in range(1, 600):
        answer = process.ask(number, "doc.create", title=f"T{number}", text=f"word{number} " * 900)
        if "result" in answer:
            acknowledged.append(answer["result"]["data"]["id"])
            continue
        assert answer["error"]["data"]["type"] == "store.io", answer
        refused += 1
        if refused == 10:
            break
        assert "result" in process.ask(f"r{number}", "search", query="word1", mode="fts")
    assert refused == 10
