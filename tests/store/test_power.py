"""Acknowledged writes survive a power failure, which loses any part of what was not synced."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kbproc.base import disk as system
from kbproc.base import failpoints
from kbproc.base.errors import KbprocError
from kbproc.engine.sources import packs
from kbproc.engine.sources.blobs import Blobs
from kbproc.engine.store import restore
from kbproc.knowledge.app.library import Library
from tests.conftest import OpenSession
from tests.kit.corpus import confirmed
from tests.kit.faults import as_killed
from tests.kit.fixed import FixedHost
from tests.kit.patience import all_or
from tests.kit.records import unnamed
from tests.kit.talk import Session

# The record of every third text doesn't hold the blank at its end.
TEXTS = [
    f"The tide of day {n} is high. {'It is. ' * (n * n * 9 % 1500)}Yes.{('', chr(10), ' ')[n % 3]}"
    for n in range(20)
]
LARGE = "The flood of all days. " * 3000 + "It is."
POINTS = ("blob.appended", "blob.synced", "blob.named", "log.write", "log.written", "log.synced")
PAGE = 4096


class Disk:
    """Remembers what each file held at its last sync."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: dict[int, bytes] = {}  # contents by inode, because files are renamed
        for name in ("sync", "sync_data"):
            monkeypatch.setattr(system, name, self._remembering(getattr(system, name)))

    def _remembering(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            real(fd)
            if stat.S_ISREG(os.fstat(fd).st_mode):
                path = Path(f"/proc/self/fd/{fd}").readlink()
                self.synced[os.fstat(fd).st_ino] = path.read_bytes()

        return sync

    def after_a_failure(self, store: Path, copy: Path, chance: random.Random | None) -> None:
        """Copies the store as a power failure may leave it now.

        Without `chance` nothing of what was not synced is there. With it, any page may be, and of
        the log everything is, as if the disk had written that first.
        """
        as_killed(store, copy)
        for path in (path for path in (copy / "sources").rglob("*") if path.is_file()):
            old = self._synced(store / path.relative_to(copy))
            path.write_bytes(old if chance is None else _mixed(old, path.read_bytes(), chance))
        if chance is None:
            for path in (copy / "log").iterdir():
                path.write_bytes(self._synced(store / path.relative_to(copy)))

    def _synced(self, path: Path) -> bytes:
        return self.synced.get(path.stat().st_ino, b"")


def _mixed(old: bytes, new: bytes, chance: random.Random) -> bytes:
    """Returns a file of which some pages are old and some new."""
    old = old.ljust(len(new), b"\0")
    starts = range(0, len(new), PAGE)
    return b"".join(chance.choice((old, new))[at : at + PAGE] for at in starts)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    yield Disk(monkeypatch)
    failpoints.arm(None)


def check(session: Session, acknowledged: list[str]) -> None:
    """Asserts that the store has what was acknowledged, and the source of every document."""
    ids = [document["id"] for document in session.data("doc.list")]
    texts = [session.data("doc.get", id=id, text=True)["text"] for id in sorted(ids)]
    assert texts[: len(acknowledged)] == acknowledged
    assert len(texts) <= len(acknowledged) + 1
    assert all(f["status"] != "fail" for f in session.data("doctor", deep=True)["findings"])


class Failure(NamedTuple):
    """A store as a power failure left it, and the texts acknowledged by then."""

    store: Path
    texts: list[str]


def test_the_power_fails_there(
    open_session: OpenSession, tmp_path: Path, disk: Disk, subtests: pytest.Subtests
) -> None:
    """The power fails at some of the visits of each point, while documents are added."""
    session, acknowledged = open_session(), list[str]()
    chances = [None, *map(random.Random, all_or([1], range(1, 9)))]
    visits: Counter[str] = Counter()
    failures: dict[tuple[object, ...], Failure] = {}

    def fail(name: str) -> None:
        if name not in POINTS:
            return
        visits[name] += 1
        if visits[name] - 1 not in {0, 2, 5}:
            return
        for chance in chances:
            copy = tmp_path / f"after-{len(failures)}"
            disk.after_a_failure(session.store.folder, copy, chance)
            key = (len(acknowledged), *sorted(bytes_in(copy).items()))
            if key in failures:  # the same state as at another point
                shutil.rmtree(copy)
            else:
                failures[key] = Failure(copy, list(acknowledged))

    failpoints.arm(fail)
    for text in (*TEXTS[:4], LARGE, *TEXTS[4:6]):
        session.data("doc.create", title="Tide", text=text)
        acknowledged.append(text)
    failpoints.arm(None)
    assert sorted(visits) == sorted(POINTS), "each was reached"

    def opens(failure: Failure) -> None:
        again = open_session(failure.store)
        check(again, failure.texts)
        again.library.tidy()
        assert len(unnamed(again.store)) <= 1
        check(again, failure.texts)
        again.close()

    for failure in failures.values():
        with subtests.test(failure.store.name):
            opens(failure)


def bytes_in(store: Path) -> dict[str, bytes]:
    """Returns the bytes of the log and of the sources."""
    paths = [path for name in ("log", "sources") for path in (store / name).rglob("*")]
    return {str(path.relative_to(store)): path.read_bytes() for path in paths if path.is_file()}


def test_what_was_acknowledged_was_synced(
    open_session: OpenSession, tmp_path: Path, disk: Disk
) -> None:
    session = open_session()
    for text in TEXTS:
        session.data("doc.create", title="Tide", text=text)
    disk.after_a_failure(session.store.folder, tmp_path / "after", None)
    check(open_session(tmp_path / "after"), TEXTS)


def syncs_of(session: Session, monkeypatch: pytest.MonkeyPatch, text: str) -> int:
    """Returns how many files a doc.create has synced."""
    count = itertools.count()
    with monkeypatch.context() as patch:
        for name in ("sync", "sync_data"):
            real = getattr(system, name)
            patch.setattr(system, name, lambda fd, real=real: (next(count), real(fd))[1])
        session.data("doc.create", title="Tide", text=text)
        return next(count)


@pytest.mark.parametrize(("text", "syncs"), [("Yes.", 1), ("Yes.\n", 1), ("Yes. ", 2)])
def test_a_text_that_its_record_holds_takes_one_sync(
    session: Session, monkeypatch: pytest.MonkeyPatch, text: str, syncs: int
) -> None:
    session.data("doc.create", title="First", text="It makes the pack.")
    assert syncs_of(session, monkeypatch, text) == syncs


@pytest.mark.parametrize("seed", all_or([None, 1, 2], [None, *range(1, 12)]))
def test_what_the_catalog_has_taken_in_is_synced(
    open_session: OpenSession, tmp_path: Path, disk: Disk, seed: int | None
) -> None:
    """The power fails between writes and reads; without the views, too."""
    session = open_session()
    for number, text in enumerate(TEXTS):
        session.data("doc.create", title="Tide", text=text)
        if number % 7 == 3:
            session.data("doc.list")  # the catalog takes the pending records in
            session.store.checkpoint()
    chance = None if seed is None else random.Random(seed)
    for name in ("with-views", "without"):
        copy = tmp_path / name
        disk.after_a_failure(session.store.folder, copy, chance)
        if name == "without":
            shutil.rmtree(copy / "views")
        check(open_session(copy), TEXTS)


def test_a_pack_that_cannot_be_synced_is_followed_by_another(
    open_session: OpenSession, tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session()
    for text in TEXTS[:6]:
        session.data("doc.create", title="Tide", text=text)
    real = os.fdatasync

    def fail(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink().suffix == ".pack":
            raise OSError(errno.EIO, "Input/output error")
        real(fd)

    with monkeypatch.context() as patch:
        patch.setattr("kbproc.base.disk.sync_data", fail)
        session.data("doc.create", title="Tide", text=TEXTS[6])
        session.store.checkpoint()
        error = session.error("doc.create", title="Tide", text="Its record lacks the blank. ")
        assert error["type"] == "store.io"
    session.data("doc.create", title="Tide", text=TEXTS[7])
    session.data("doc.list")
    assert len(list((session.store.folder / "sources").glob("*.pack"))) == 2
    check(session, TEXTS[:8])
    disk.after_a_failure(session.store.folder, tmp_path / "after", None)
    check(open_session(tmp_path / "after"), TEXTS[:8])


def test_a_full_pack_leaves_no_source_behind(
    open_session: OpenSession, tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "PACK_BYTES", 500)
    session = open_session()
    texts = [f"The tide of day {n} is high. {'Yes. ' * 30}Yes." for n in range(12)]
    for text in texts:
        session.data("doc.create", title="Tide", text=text)
    assert len(list((session.store.folder / "sources").glob("*.pack"))) > 3
    disk.after_a_failure(session.store.folder, tmp_path / "after", None)
    check(open_session(tmp_path / "after"), texts)


def test_a_purged_text_is_not_restored(
    open_session: OpenSession, tmp_path: Path, disk: Disk
) -> None:
    session = open_session()
    for text in TEXTS[:3]:
        session.data("doc.create", title="Tide", text=text)
    confirmed(session, "store.purge", document_ids=[2])
    for seed in (None, 1, 2):
        copy = tmp_path / f"after-{seed}"
        disk.after_a_failure(session.store.folder, copy, seed and random.Random(seed))
        again = open_session(copy)
        assert [document["id"] for document in again.data("doc.list")] == [1, 3]
        again.close()
        assert not any(
            TEXTS[1].encode() in path.read_bytes() for path in copy.rglob("*") if path.is_file()
        )


def test_damage_that_no_record_can_mend_stays_reported(
    open_session: OpenSession, tmp_path: Path, disk: Disk
) -> None:
    """A restored source does not make another one's damage go unnoticed."""
    session = open_session()
    session.data("doc.create", title="Tide", text="The record lacks the blank at the end. ")
    session.data("doc.create", title="Tide", text="A sound source between two others.")
    session.data("doc.create", title="Tide", text="The power fails after this.")
    copy = tmp_path / "after"
    as_killed(session.store.folder, copy)
    [pack] = (copy / "sources").glob("*.pack")
    pack.write_bytes(pack.read_bytes().replace(b"lacks", b"la\0ks").replace(b"fails", b"f\0ils"))
    again = open_session(copy)
    findings = {f["name"]: f["status"] for f in again.data("doctor", deep=True)["findings"]}
    assert findings["blobs"] == "fail"
    assert again.data("doc.get", id=3, text=True)["text"] == "The power fails after this."
    assert b"la\0ks" in pack.read_bytes()


def test_no_more_records_are_pending_than_are_looked_into(
    open_session: OpenSession, tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "MOST_RECORDS", 3)
    session = open_session()
    for text in TEXTS:
        session.data("doc.create", title="Tide", text=text)
    disk.after_a_failure(session.store.folder, tmp_path / "after", None)
    check(open_session(tmp_path / "after"), TEXTS)


def test_an_opening_that_is_interrupted_leaves_the_restoration_to_the_next(
    open_session: OpenSession, tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, copy = open_session(), tmp_path / "after"
    for text in TEXTS[:4]:
        session.data("doc.create", title="Tide", text=text)
    disk.after_a_failure(session.store.folder, copy, None)

    def fail(blobs: Blobs, lost: dict[str, bytes]) -> None:
        raise KbprocError("store.io", "The source could not be stored: no room.")

    with monkeypatch.context() as patch:
        patch.setattr(Blobs, "restore", fail)
        with pytest.raises(KbprocError, match="no room"):
            Library.open(copy, host=FixedHost(), cache=tmp_path / "cache")
    check(open_session(copy), TEXTS[:4])
