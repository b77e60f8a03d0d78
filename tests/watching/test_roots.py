"""A watched folder whose path leads to something else: nothing of that is read or removed."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import changes, paths
from kbproc.base.settings.trust import Trust
from kbproc.engine.events.watch import FolderWatched
from kbproc.engine.projections.catalog.rows import watch_row
from kbproc.knowledge.documents import ingest
from kbproc.knowledge.watching import folder as watching
from kbproc.knowledge.watching import watch
from kbproc.knowledge.watching.folder import WatchedFolder
from tests.kit.patience import LONG, until
from tests.kit.talk import Session
from tests.kit.watched import documents, follows, revision, shows, watched, write

COURSES = 1000 if LONG else 6
PRIVATE = "zzprivatewords"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, milliseconds in (("LOOK_MS", 20), ("STEP_MS", 10), ("DEBOUNCE_MS", 50)):
        monkeypatch.setattr(changes, name, milliseconds)
    monkeypatch.setattr(watching, "SETTLE_S", 0.01)
    monkeypatch.setattr(watching, "POLL_S", 0.05)
    monkeypatch.setattr(watching, "MOST_RETRY_S", 0.1)
    monkeypatch.setattr(changes, "RETRY_S", 0.02)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "above" / "docs"
    path.mkdir(parents=True)
    (path / "one.md").write_text("# One\n\nAlpha words.\n")
    return path


@pytest.fixture
def private(tmp_path: Path) -> Path:
    path = tmp_path / "private"
    (path / "docs").mkdir(parents=True)
    for name in ("one.md", "docs/one.md", "docs/key.md"):
        (path / name).write_text(f"{PRIVATE} of {name}\n")
    return path


def stored(session: Session) -> list[dict[str, Any]]:
    """Returns what the store has of the private texts."""
    hits: list[dict[str, Any]] = session.data("search", query=PRIVATE, mode="fts")["results"]
    return hits


@contextmanager
def refusing(code: int, refused: Callable[[Path], bool]) -> Iterator[None]:
    """Within the block the system refuses to open and to look at these paths."""
    real_descend, real_stat = paths._descend, Path.stat

    def descend(path: Path, *arguments: Any) -> int:
        if refused(path):
            raise OSError(code, os.strerror(code))
        return real_descend(path, *arguments)

    def status(path: Path, **options: Any) -> os.stat_result:
        if refused(path):
            raise OSError(code, os.strerror(code))
        return real_stat(path, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "_descend", descend)
        patch.setattr(Path, "stat", status)
        yield


@pytest.mark.parametrize("part", ["folder", "parent"])
def test_a_link_in_the_place_of_the_folder_is_not_followed(
    session: Session, folder: Path, private: Path, part: str
) -> None:
    session.data("watch.add", folder=str(folder), prune="auto")
    follows(session, "one.md")
    place = folder if part == "folder" else folder.parent
    aside = place.rename(place.with_name("aside"))
    place.symlink_to(private / "docs" if part == "folder" else private)
    shows(session, state="missing")
    reason = f"{place} is a symlink, which is not followed; its documents stay as they are."
    assert watched(session)["warnings"] == [reason]
    assert not stored(session)
    place.unlink()
    aside.rename(place)
    (folder / "one.md").write_text("# One\n\nBack again.\n")
    revision(session, "one.md", 2)
    follows(session, "one.md")
    assert watched(session)["warnings"] == []


def test_a_link_within_the_folder_that_leads_out_of_it_is_not_followed(
    session: Session, folder: Path, private: Path
) -> None:
    """The request's root would permit the target; the approval is for the folder."""
    (folder / "inner.md").symlink_to(folder / "one.md")
    session.data("watch.add", folder=str(folder))
    follows(session, "one.md inner.md")
    (folder / "key.md").symlink_to(private / "docs" / "key.md")
    (folder / "two.md").write_text("# Two\n")
    follows(session, "one.md inner.md two.md")


@pytest.mark.parametrize("part", ["folder", "parent"])
def test_another_folder_of_the_same_path_is_followed(
    session: Session, folder: Path, part: str
) -> None:
    session.data("watch.add", folder=str(folder))
    follows(session, "one.md")
    place = folder if part == "folder" else folder.parent
    place.rename(place.with_name("aside"))
    folder.mkdir(parents=True)
    for name in ("one.md", "two.md"):
        (folder / name).write_text(f"# Another {name}\n")
    follows(session, "one.md two.md")
    (folder / "three.md").write_text("# Three\n")
    follows(session, "one.md two.md three.md")


def test_another_mount_in_the_place_of_the_folder(
    session: Session, folder: Path, private: Path
) -> None:
    session.data("watch.add", folder=str(folder))
    follows(session, "one.md")
    with mounted(private, folder) as is_mounted:
        if not is_mounted:
            pytest.skip("may not mount a file system")
        shows(session, state="missing")
        (warning,) = watched(session)["warnings"]
        assert "because a disk was mounted or unmounted; its documents stay" in warning
        assert f"kbproc watch add {folder}" in warning
        assert not stored(session)
    follows(session, "one.md")


@contextmanager
def mounted(what: Path, where: Path) -> Iterator[bool]:
    """Shows the folder `what` at `where`, too; yields False if that is forbidden."""
    command = ["mount", "--bind", str(what), str(where)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


def test_nothing_is_removed_where_other_files_come_in_the_same_pass(
    session: Session, folder: Path
) -> None:
    write(folder, 9)
    session.data("watch.add", folder=str(folder), prune="auto")
    until(lambda: len(documents(session)) == 10, "the documents")
    until(lambda: watched(session)["state"] == "current", "a rest")
    other = folder.with_name("other")
    other.mkdir()
    for number in range(15):
        (other / f"new{number}.md").write_text(f"# New {number}\n")
    folder.rename(folder.with_name("aside"))
    other.rename(folder)
    shows(session, state="current", held_back=10)
    assert len(documents(session)) == 25


@pytest.mark.parametrize("code", [errno.EACCES, errno.EMFILE, errno.ESTALE, errno.ENOTCONN])
def test_a_folder_that_cannot_be_read_for_a_moment(
    session: Session, folder: Path, code: int
) -> None:
    session.data("watch.add", folder=str(folder), prune="auto")
    follows(session, "one.md")
    with refusing(code, folder.__eq__):
        (folder / "two.md").write_text("# Two\n")
        shows(session, state="failed")
        (warning,) = watched(session)["warnings"]
        assert os.strerror(code) in warning
    follows(session, "one.md two.md")
    assert watched(session)["warnings"] == []


@pytest.mark.parametrize("name", ["two.md", "below"])
def test_a_path_within_that_cannot_be_read_for_a_moment(
    session: Session, folder: Path, name: str
) -> None:
    session.data("watch.add", folder=str(folder), prune="auto")
    follows(session, "one.md")
    path = folder / name
    with refusing(errno.EIO, path.__eq__), reads_failing(path, errno.EIO):
        path = path if path.suffix else path / "three.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text("# More\n\nBeta words.\n")
        until(lambda: "tried again" in str(watched(session)["warnings"]), "a warning")
        assert os.strerror(errno.EIO) in str(watched(session)["warnings"])
    follows(session, f"one.md {path.name}")
    until(lambda: watched(session)["warnings"] == [], "no warning", lambda: str(watched(session)))


@contextmanager
def reads_failing(path: Path, code: int) -> Iterator[None]:
    """Within the block the file's bytes can't be read."""
    real = paths.open_regular

    def refuse(name: str | Path, **options: Any) -> int:
        if Path(name).name == path.name:
            raise OSError(code, os.strerror(code))
        return real(name, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "open_regular", refuse)
        yield


# ------------------------------------------------------------------ random courses


class Course:
    """A watched folder whose path, parents, rights and files change at random.

    The folder's passes are run here one by one. `check` holds what the docs promise.
    """

    def __init__(self, session: Session, top: Path, number: int) -> None:
        self.rng = random.Random(number)
        self.session, self.began = session, session.store.seq
        self.kb = f"kb-{number}"
        session.data("kb.create", slug=self.kb)
        self.parent, self.private = top / "above", top / "private"
        self.root = self.parent / "docs"
        (self.root / "below").mkdir(parents=True)
        (self.private / "docs" / "below").mkdir(parents=True)
        for place, words in ((self.root, "approved"), (self.private / "docs", PRIVATE)):
            for n in range(8):
                name = f"below/file{n}.md" if n % 2 else f"file{n}.md"
                (place / name).write_text(f"{words} {n} of course {number}\n")
        event = FolderWatched(machine="here", path=str(self.root), kb=self.kb, prune="auto")
        row = watch_row(event, added_at=session.store.host.now(), added_by="user")
        trust = Trust(top / "trusted.json")
        watch.approve(trust, session.store.origin, event)
        self.watched = WatchedFolder(
            session.store,
            session.library.intake,
            row,
            None,
            lambda: watch.approved_folder(trust, session.store.origin, row),
        )
        self.count = number * 1000
        self.refused: tuple[Path, int] | None = None

    def run(self) -> None:
        self.look_again()
        for _ in range(self.rng.randrange(3, 7)):
            self.change()
            point = self.rng.choice(["", "", "look", "ingest", "prune"])
            self.look_again(point)
        self.mend()
        self.look_again()
        self.look_again()
        assert self.watched.progress.state in {"current", "missing"}, self.watched.progress
        files = {str(path) for path in self.root.rglob("*.md") if not path.is_symlink()}
        assert files <= self.paths().keys(), (files, self.watched.progress)

    def paths(self) -> dict[str, str]:
        rows = self.session.data("doc.list", kb=self.kb, limit=1000)
        return {row["source"]["path"]: row["title"] for row in rows}

    def look_again(self, point: str = "") -> None:
        """Runs a pass, within which something changes at `point`; checks what it did."""
        before = self.paths()
        with pytest.MonkeyPatch.context() as patch:
            self.arm(patch, point)
            self.watched.look()  # because no notifications run here
            if self.refused is None:
                self.watched._guarded_pass()
            else:
                path, code = self.refused
                with refusing(code, path.__eq__), reads_failing(path, code):
                    self.watched._guarded_pass()
        after = self.paths()
        removed = before.keys() - after.keys()
        lost_paths = [path for path in before if not Path(path).exists()]
        assert not stored(self.session)
        if not point and (len(lost_paths) * 2 > len(before) or not self.is_approved()):
            assert not removed - self.moves(), (removed, lost_paths)

    def moves(self) -> set[str]:
        """Returns the former paths of documents that a new file continues."""
        events = self.session.data(
            "events.read", types=["doc.written"], after_seq=self.began, full=True, limit=1000
        )
        written = [event["data"] for record in events for event in record["events"]]
        return {data["moved_from"] for data in written if data.get("moved_from")}

    def is_approved(self) -> bool:
        real = Path(os.path.realpath(self.root))
        is_refused = self.refused is not None and self.refused[0] == self.root
        return real == self.root and real.is_dir() and not is_refused

    def arm(self, patch: pytest.MonkeyPatch, point: str) -> None:
        names = {"look": "find_files", "ingest": "run", "prune": "without_file"}
        if point:
            real = getattr(ingest, names[point])

            def changing(*arguments: Any, **options: Any) -> Any:
                if self.rng.random() < 0.5:
                    self.change()
                    return real(*arguments, **options)
                result = real(*arguments, **options)
                self.change()
                return result

            patch.setattr(ingest, names[point], changing)

    def change(self) -> None:
        acts = [
            self.link_root,
            self.link_parent,
            self.link_within,
            self.other_tree,
            self.a_file,
            self.refuse,
            self.mend,
            self.write_some,
            self.remove_some,
        ]
        self.rng.choice(acts)()

    def aside(self, place: Path) -> Path:
        self.count += 1
        return place.rename(place.with_name(f"{place.name}-{self.count}"))

    def link_root(self) -> None:
        self.mend()
        self.aside(self.root)
        self.root.symlink_to(self.private / "docs")

    def link_parent(self) -> None:
        self.mend()
        self.aside(self.parent)
        self.parent.symlink_to(self.private)

    def link_within(self) -> None:
        self.mend()
        if self.rng.random() < 0.5:
            shutil.rmtree(self.root / "below", ignore_errors=True)
            (self.root / "below").unlink(missing_ok=True)
            (self.root / "below").symlink_to(self.private / "docs" / "below")
        else:
            path = self.root / "file0.md"
            path.unlink(missing_ok=True)
            path.symlink_to(self.private / "docs" / "file0.md")

    def other_tree(self) -> None:
        self.mend()
        self.aside(self.rng.choice([self.root, self.parent]))
        self.root.mkdir(parents=True)
        self.write_some(20)

    def a_file(self) -> None:
        self.mend()
        self.aside(self.root)
        self.root.write_text(f"{PRIVATE}: a file in the place of the folder\n")

    def refuse(self) -> None:
        codes = [errno.EACCES, errno.EMFILE, errno.ESTALE, errno.ENOTCONN, errno.EIO]
        places = [self.root, self.root / "below", self.root / "file0.md"]
        self.refused = self.rng.choice(places), self.rng.choice(codes)

    def mend(self) -> None:
        """Puts a folder of files where it was, as a checkout of the first branch does."""
        self.refused = None
        for place in (self.parent, self.root):
            if place.is_symlink() or place.is_file():
                place.unlink()
                asides = sorted(place.parent.glob(f"{place.name}-*"))
                if asides:
                    asides[-1].rename(place)
        self.root.mkdir(parents=True, exist_ok=True)

    def write_some(self, count: int = 3) -> None:
        if self.is_approved():
            for _ in range(count):
                self.count += 1
                (self.root / f"new{self.count}.md").write_text(f"approved, {self.count}\n")

    def remove_some(self) -> None:
        if self.is_approved():
            files = sorted(self.root.glob("*.md"))
            for path in self.rng.sample(files, self.rng.randrange(len(files) + 1)):
                path.unlink()


def test_random_courses(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "SETTLE_S", 0.0)
    for number in range(COURSES):
        Course(session, tmp_path / f"course{number}", number).run()
