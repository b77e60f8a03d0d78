"""Acknowledged writes survive a power failure, which loses any part of what was not synced."""

from __future__ import annotations

import itertools
import os
import random
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbproc.base import failpoints
from tests.conftest import OpenSession
from tests.kit.faults import as_killed
from tests.kit.patience import all_or
from tests.kit.records import unnamed
from tests.kit.talk import Session

TEXTS = [f"The tide of day {n} is high. {'It is. ' * (n * n * 9 % 1500)}" for n in range(20)]
LARGE = "The flood of all days. " * 3000 + "It is."
POINTS = ("blob.appended", "blob.synced", "blob.named", "log.write", "log.written", "log.synced")
PAGE = 4096


class Disk:
    """Remembers what each file held at its last sync."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: dict[int, bytes] = {}  # contents by inode, because files are renamed
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._remembering(getattr(os, name)))

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


@pytest.mark.parametrize("seed", all_or([None, 1], [None, *range(1, 9)]))
@pytest.mark.parametrize("point", POINTS)
def test_the_power_fails_there(
    open_session: OpenSession, tmp_path: Path, disk: Disk, point: str, seed: int | None
) -> None:
    """The power fails at some of the visits of the point, while documents are added."""
    session, acknowledged = open_session(), list[str]()
    chance = None if seed is None else random.Random(seed)
    after: list[tuple[Path, list[str]]] = []
    visits = itertools.count()

    def fail(name: str) -> None:
        if name == point and next(visits) in {0, 2, 5}:
            copy = tmp_path / f"after-{len(after)}"
            disk.after_a_failure(session.store.folder, copy, chance)
            after.append((copy, list(acknowledged)))

    failpoints.arm(fail)
    for text in (*TEXTS[:4], LARGE, *TEXTS[4:6]):
        session.data("doc.create", title="Tide", text=text)
        acknowledged.append(text)
    failpoints.arm(None)
    assert after, f"{point} was never reached"
    for copy, texts in after:
        again = open_session(copy)
        check(again, texts)
        again.library.tidy()
        assert len(unnamed(again.store)) <= 1
        check(again, texts)
        again.close()


def test_what_was_acknowledged_was_synced(
    open_session: OpenSession, tmp_path: Path, disk: Disk
) -> None:
    session = open_session()
    for text in TEXTS:
        session.data("doc.create", title="Tide", text=text)
    disk.after_a_failure(session.store.folder, tmp_path / "after", None)
    check(open_session(tmp_path / "after"), TEXTS)
