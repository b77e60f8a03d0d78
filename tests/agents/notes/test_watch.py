"""Agents' folders are synced soon after each change, also while folders come and go."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kbproc.base import changes
from kbproc.engine.projections.catalog.rows import AgentRow
from kbproc.knowledge.agents.notes import background
from kbproc.knowledge.agents.notes.background import Notebooks
from tests.kit.patience import LIVES, PATIENCE, until


class Notices:
    """The folders that were synced, with a way to wait for the next sync."""

    def __init__(self) -> None:
        self.folders: list[Path] = []
        self._came = threading.Condition()

    def __call__(self, folder: Path) -> None:
        with self._came:
            self.folders.append(folder)
            self._came.notify_all()

    def after(self, act: Callable[[], object], folder: Path) -> None:
        """Runs `act`, then waits until `folder` is synced."""
        with self._came:
            before = len(self.folders)
            act()
            assert self._came.wait_for(lambda: folder in self.folders[before:], PATIENCE)


class Watcher(Notebooks):
    """The notebooks of agents whose slugs are their folders; a sync only tells `synced`.

    They are of a store that has nothing but these agents.
    """

    def __init__(self, synced: Callable[[Path], object]) -> None:
        self._synced = synced
        self.of = SimpleNamespace(read_only=False, on_change=lambda tell: None, published=None)
        super().__init__(cast(Any, self.of), cast(Any, None))
        self.watch([])
        self.start()

    def watch(self, folders: Iterable[Path]) -> None:
        agents = {str(folder): agent(str(folder)) for folder in folders}
        self.of.published = SimpleNamespace(roster=SimpleNamespace(agents=agents))
        self._follow()

    def sync_agent(self, slug: str) -> None:
        if not self._closed:
            self._synced(Path(slug))


def agent(folder: str) -> AgentRow:
    return AgentRow(
        slug=folder,
        description="",
        kbs=None,
        folder=folder,
        scopes=None,
        quotas="{}",
        instructions="",
        revision=1,
        created_at="",
        updated_at="",
        deleted_at=None,
    )


def watching() -> list[threading.Thread]:
    """The threads of watchers that have not ended."""
    return [thread for thread in threading.enumerate() if thread.name in {"notes", "changes"}]


@pytest.fixture
def notices() -> Notices:
    return Notices()


@pytest.fixture
def watcher(notices: Notices) -> Iterator[Watcher]:
    started = Watcher(notices)
    yield started
    started.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "LOOK_MS", 100)
    monkeypatch.setattr(changes, "RETRY_S", 0.05)
    monkeypatch.setattr(background, "LOOK_S", 0.05)


@pytest.fixture(params=["notified", "polled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "polled":
        monkeypatch.setitem(sys.modules, "watchfiles", None)
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.mkdir()
    return path


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("more")


def save_by_rename(path: Path, text: str) -> None:
    path.with_name(".editor").write_text(text)
    path.with_name(".editor").replace(path)


def test_changes_are_told(way: str, folder: Path, notices: Notices, watcher: Watcher) -> None:
    path = folder / "one.md"
    notices.after(lambda: watcher.watch([folder]), folder)  # the first report comes at the start
    notices.after(lambda: path.write_text("# a"), folder)
    notices.after(lambda: append(path), folder)
    notices.after(lambda: save_by_rename(path, "# b"), folder)
    notices.after(lambda: path.rename(folder / "two.md"), folder)
    notices.after((folder / "two.md").unlink, folder)
    assert set(notices.folders) == {folder}


def test_only_the_folder_that_changed(
    way: str, folder: Path, tmp_path: Path, notices: Notices, watcher: Watcher
) -> None:
    other = tmp_path / "other"
    (other / "below").mkdir(parents=True)
    notices.after(lambda: watcher.watch([folder, other]), other)
    notices.after(lambda: (folder / "first.md").write_text("# a"), folder)
    begun = len(notices.folders)
    for name in (".hidden.md", "~$a.md", "#a.md#", "a.md~", "a.txt", ".one.0.kbproc-part"):
        (other / name).write_text("x")
    (other / "below" / "deep.md").write_text("x")
    notices.after(lambda: (folder / "second.md").write_text("# a"), folder)
    assert set(notices.folders[begun:]) == {folder}


def test_a_folder_comes_goes_and_becomes_another(
    way: str, tmp_path: Path, notices: Notices, watcher: Watcher
) -> None:
    folder, aside = tmp_path / "later", tmp_path / "aside"
    notices.after(lambda: watcher.watch([folder]), folder)
    notices.after(folder.mkdir, folder)
    notices.after(lambda: (folder / "one.md").write_text("# a"), folder)
    notices.after(lambda: folder.rename(aside), folder)
    notices.after(folder.mkdir, folder)
    notices.after(lambda: (folder / "one.md").write_text("# b"), folder)
    notices.after(lambda: shutil.rmtree(folder), folder)
    notices.after(lambda: aside.rename(folder), folder)
    notices.after(lambda: (folder / "one.md").write_text("# c"), folder)


def test_another_set_of_folders(
    way: str, folder: Path, tmp_path: Path, notices: Notices, watcher: Watcher
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    notices.after(lambda: watcher.watch([folder]), folder)
    notices.after(lambda: watcher.watch([other]), other)
    begun = len(notices.folders)
    (folder / "one.md").write_text("# a")
    notices.after(lambda: (other / "one.md").write_text("# a"), other)
    assert set(notices.folders[begun:]) == {other}
    notices.after(lambda: watcher.watch([folder, other, tmp_path / "none"]), folder)
    notices.after(lambda: (folder / "one.md").write_text("# b"), folder)


def test_a_folder_that_becomes_a_link_is_as_gone(
    way: str, folder: Path, tmp_path: Path, notices: Notices, watcher: Watcher
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    notices.after(lambda: watcher.watch([folder, other]), other)
    notices.after(lambda: (folder / "one.md").write_text("# a"), folder)

    def link() -> None:
        folder.rename(tmp_path / "aside")
        folder.symlink_to("aside")

    notices.after(link, folder)
    assert not background.is_openable(folder)
    folder.unlink()

    def come_back() -> None:
        """Puts the folder back with one more note; the watcher may have missed its absence."""
        (tmp_path / "aside").rename(folder)
        (folder / "two.md").write_text("# b")

    notices.after(come_back, folder)


def test_without_notifications_one_warning(
    folder: Path,
    tmp_path: Path,
    notices: Notices,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    import watchfiles

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "inotify watch limit reached")

    monkeypatch.setattr(watchfiles, "watch", full)
    other = tmp_path / "other"
    other.mkdir()
    watcher = Watcher(notices)
    with caplog.at_level(logging.WARNING):
        notices.after(lambda: watcher.watch([folder]), folder)
        notices.after(lambda: watcher.watch([folder, other]), other)
        until(lambda: caplog.records, "the warning")
        notices.after(lambda: (other / "one.md").write_text("# a"), other)
    watcher.close()
    [line] = [record.getMessage() for record in caplog.records]
    assert "inotify watch limit reached" in line


def test_a_name_that_is_not_utf8(
    folder: Path, notices: Notices, watcher: Watcher, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a name ends watchfiles' notifications; the watcher starts them again."""
    notices.after(lambda: watcher.watch([folder]), folder)
    for n in range(4):
        odd = os.fsencode(folder) + f"/caf{n}".encode() + b"\xe9.md"
        notices.after(lambda odd=odd: Path(os.fsdecode(odd)).write_text("x"), folder)
        notices.after(lambda n=n: (folder / f"n{n}.md").write_text("# a"), folder)
        notices.after(lambda n=n: (folder / f"m{n}.md").write_text("# a"), folder)
    assert caplog.records == []


def test_one_folder_more_tells_of_no_other(
    way: str, folder: Path, tmp_path: Path, notices: Notices, watcher: Watcher
) -> None:
    notices.after(lambda: watcher.watch([folder]), folder)
    begun = len(notices.folders)
    other = tmp_path / "other"
    other.mkdir()
    notices.after(lambda: watcher.watch([folder, other]), other)
    notices.after(lambda: (other / "one.md").write_text("# a"), other)
    assert set(notices.folders[begun:]) == {other}


def test_what_changes_between_two_sets(
    folder: Path,
    tmp_path: Path,
    notices: Notices,
    watcher: Watcher,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = changes.follow
    notices.after(lambda: watcher.watch([folder]), folder)

    def late(*args: Any) -> Iterator[set[str]]:
        (folder / "late.md").write_text("# nobody watches just now")
        return real(*args)

    monkeypatch.setattr(changes, "follow", late)
    notices.after(lambda: watcher.watch([folder, tmp_path]), folder)


def test_it_ends_although_a_folder_hangs(
    folder: Path, notices: Notices, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, hang = threading.Event(), threading.Event()

    def hanging(folder: Path) -> bool:
        reached.set()
        return hang.wait()

    monkeypatch.setattr(background, "is_openable", hanging)
    monkeypatch.setattr(background, "_JOIN_SECONDS", 0.05)
    watcher = Watcher(notices)
    watcher.watch([folder])
    assert reached.wait(PATIENCE)
    watcher.close()
    [thread] = watching()
    hang.set()
    thread.join(PATIENCE)
    assert not watching()
    assert notices.folders == []


def test_it_ends_promptly(
    way: str, folder: Path, notices: Notices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """close() waits neither for the next poll nor for the timeout of the join."""
    monkeypatch.setattr(background, "LOOK_S", LIVES)
    monkeypatch.setattr(background, "_JOIN_SECONDS", LIVES)
    monkeypatch.setattr(changes, "_JOIN_S", LIVES)
    for folders in ([], [folder], [folder / "none"]):
        watcher = Watcher(notices)
        if folder in folders:
            notices.after(lambda watcher=watcher: watcher.watch([folder]), folder)
        watcher.watch(folders)
        watcher.close()
        assert not watching()
        watcher.close()


def test_it_may_be_closed_by_who_is_told(way: str, folder: Path) -> None:
    ended = threading.Event()

    def end(_: Path) -> None:
        watcher.close()
        ended.set()

    watcher = Watcher(end)
    watcher.watch([folder])
    assert ended.wait(PATIENCE)
    until(lambda: not watching(), "the watcher's end")
