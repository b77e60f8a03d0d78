"""The process dies, or the disk refuses, at every failpoint: no acknowledged write is lost."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import failpoints
from kbproc.engine.log import file
from kbproc.knowledge.app.health import doctor
from tests.breaks import scenario
from tests.conftest import OpenSession
from tests.kit.faults import faults_of, note, small_disk
from tests.kit.patience import PATIENCE, all_or
from tests.kit.talk import Process, Session

compared = faults_of("kills", thinned=True)


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "SEGMENT_BYTES", scenario.SMALL_SEGMENT)


# Failpoints in a note's files, and those that every kind of record reaches.
WHOLE = ("note.", "log.", "catalog.")


@pytest.fixture
def whole(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """True if the test makes all writes, False for the first ones only."""
    params = request.node.callspec.params
    if str(params.get("point")).startswith(WHOLE) and "code" not in params:
        return True
    scenario.shorten(monkeypatch)
    return False


@pytest.fixture
def expected(whole: bool, undisturbed: dict[bool, list[str]]) -> list[str]:
    return undisturbed[whole]


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


# The scenario reaches no failpoints of repairs, clusters and upkeep: they have tests of their own.
POINTS = [p for p in failpoints.FAILPOINTS if not p.startswith(("salvage.", "shared.", "upkeep."))]


@pytest.mark.parametrize("point", POINTS)
def test_killed_there(
    open_session: OpenSession, tmp_path: Path, expected: list[str], point: str
) -> None:
    folder = tmp_path / "x"
    scenario.prepare(folder)
    process = Process(
        folder / "store", cwd=folder, kill_at=point, segment_bytes=scenario.SMALL_SEGMENT
    )
    acknowledged = write_until_dead(process)
    assert process.stop() == -9, f"{point} was never reached"
    session = open_session(folder / "store", folder=folder)
    duplicates = [
        number for number in range(len(scenario.WRITES)) if resend(session, folder, number)
    ]
    assert duplicates[: len(acknowledged)] == acknowledged
    whole = duplicates[len(acknowledged) :]
    assert whole in ([], [len(acknowledged)])
    if point == "note.exchanged":  # the text is in the agent's folder, and no record has its author
        expected = [with_origin_of_a_file(answer) for answer in expected]
    assert finish(session, folder) == expected
    assert session.store.log.verify() == session.store.seq
    note(
        "kills",
        f"killed where {failpoints.FAILPOINTS[point]} (`{point}`)",
        "every acknowledged write there; the one in flight whole or absent, as its token tells, "
        "and done once when sent again",
    )


def retry_succeeds(session: Session, folder: Path, number: int) -> bool:
    """True if the write succeeds when it is sent again without a restart."""
    answer = scenario.write(session.ask, number)
    if answer.get("error", {}).get("data", {}).get("type") == "resource.already_exists":
        shutil.rmtree(folder / "backup")
        answer = scenario.write(session.ask, number)
    return "result" in answer or "purged" in answer["error"]["message"]


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
    "fulltext.commit": ("ENOSPC", "EIO"),
    "fulltext.committed": ("ENOSPC", "EIO"),
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


@pytest.mark.parametrize(
    ("point", "code"),
    all_or(
        [(point, codes[0]) for point, codes in CALLS.items()],
        [(point, code) for point, codes in CALLS.items() for code in codes],
    ),
)
def test_the_disk_refuses_there(
    open_session: OpenSession,
    tmp_path: Path,
    expected: list[str],
    point: str,
    code: str,
) -> None:
    folder = tmp_path / "x"
    scenario.prepare(folder)
    session = open_session(folder / "store", folder=folder)
    number = getattr(errno, code)

    def refuse(name: str) -> None:
        if name == point:
            raise OSError(number, ERRORS[code])

    outcomes: set[str] = set()
    for write in range(len(scenario.WRITES)):
        failpoints.arm(refuse)
        answer = scenario.write(session.ask, write)
        failpoints.arm(None)
        assert "result" in session.ask("doc.list"), "reads must go on"
        if "error" in answer:
            kind = answer["error"]["data"]["type"]
            assert kind == "store.io", answer
            outcomes.add(kind)
            if not retry_succeeds(session, folder, write):
                session.close()  # after a failed fsync, or views that lag: only a restart helps
                session = open_session(folder / "store", folder=folder)
                outcomes.add("restart")
                resend(session, folder, write)
    session.close()
    session = open_session(folder / "store", folder=folder)
    for write in range(len(scenario.WRITES)):
        resend(session, folder, write)
    assert finish(session, folder) == expected
    assert not any(doctor.compare(session.store).values())
    how = (
        "refused with store.io, done when asked again"
        if "store.io" in outcomes
        else ("no write refused: what could not be kept is made again")
    )
    how += " after a restart" if "restart" in outcomes else ""
    note("kills", f"{ERRORS[code]} ({code}) at `{point}`", f"{how}; reads went on")


# -------------------------------------------------------------- a disk that is full


@pytest.mark.parametrize("kilobytes", [2400, 4000])
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
