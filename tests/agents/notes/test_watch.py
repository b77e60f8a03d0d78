"""A change in a folder is told soon; nothing is missed while folders come and go."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.agents.notefiles import watch
from kbproc.agents.notefiles.watch import Watcher
from tests.kit.patience import LIVES, PATIENCE, until


class Told:
    """What a watcher has told, to be waited for."""

    def __init__(self) -> None:
        self.folders: list[Path] = []
        self._came = threading.Condition()

    def __call__(self, folder: Path) -> None:
        with self._came:
            self.folders.append(folder)
            self._came.notify_all()

    def after(self, act: Callable[[], object], folder: Path) -> None:
        """Until `folder` is told, from `act` on."""
        with self._came:
            before = len(self.folders)
            act()
            assert self._came.wait_for(lambda: folder in self.folders[before:], PATIENCE)


def watching() -> list[threading.Thread]:
    """The threads of watchers that have not ended."""
    return [thread for thread in threading.enumerate() if thread.name == "notes"]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def watcher(told: Told) -> Iterator[Watcher]:
    made = Watcher(told)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_MS", 100)
    monkeypatch.setattr(watch, "POLL_S", 0.05)


@pytest.fixture(params=["notified", "polled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "polled":
        monkeypatch.setitem(sys.modules, "watchfiles", None)
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "notes"
    made.mkdir()
    return made


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("more")


def save_by_rename(path: Path, text: str) -> None:
    path.with_name(".editor").write_text(text)
    path.with_name(".editor").replace(path)


def test_changes_are_told(way: str, folder: Path, told: Told, watcher: Watcher) -> None:
    path = folder / "one.md"
    told.after(lambda: watcher.watch([folder]), folder)  # told once when it begins
    told.after(lambda: path.write_text("# a"), folder)
    told.after(lambda: append(path), folder)
    told.after(lambda: save_by_rename(path, "# b"), folder)
    told.after(lambda: path.rename(folder / "two.md"), folder)
    told.after((folder / "two.md").unlink, folder)
    assert set(told.folders) == {folder}


def test_only_the_folder_that_changed(
    way: str, folder: Path, tmp_path: Path, told: Told, watcher: Watcher
) -> None:
    other = tmp_path / "other"
    (other / "below").mkdir(parents=True)
    told.after(lambda: watcher.watch([folder, other]), other)
    told.after(lambda: (folder / "first.md").write_text("# a"), folder)
    begun = len(told.folders)
    for name in (".hidden.md", "~$a.md", "#a.md#", "a.md~", "a.txt", ".one.0.kbproc-part"):
        (other / name).write_text("x")
    (other / "below" / "deep.md").write_text("x")
    told.after(lambda: (folder / "second.md").write_text("# a"), folder)
    assert set(told.folders[begun:]) == {folder}


def test_a_folder_comes_goes_and_becomes_another(
    way: str, tmp_path: Path, told: Told, watcher: Watcher
) -> None:
    folder, aside = tmp_path / "later", tmp_path / "aside"
    watcher.watch([folder])
    told.after(folder.mkdir, folder)
    told.after(lambda: (folder / "one.md").write_text("# a"), folder)
    told.after(lambda: folder.rename(aside), folder)
    told.after(folder.mkdir, folder)
    told.after(lambda: (folder / "one.md").write_text("# b"), folder)
    told.after(lambda: shutil.rmtree(folder), folder)
    told.after(lambda: aside.rename(folder), folder)
    told.after(lambda: (folder / "one.md").write_text("# c"), folder)


def test_another_set_of_folders(
    way: str, folder: Path, tmp_path: Path, told: Told, watcher: Watcher
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    told.after(lambda: watcher.watch([folder]), folder)
    told.after(lambda: watcher.watch([other]), other)
    begun = len(told.folders)
    (folder / "one.md").write_text("# a")
    told.after(lambda: (other / "one.md").write_text("# a"), other)
    assert set(told.folders[begun:]) == {other}
    told.after(lambda: watcher.watch([folder, other, tmp_path / "none"]), folder)
    told.after(lambda: (folder / "one.md").write_text("# b"), folder)


def test_a_folder_that_becomes_a_link_is_as_gone(
    way: str, folder: Path, tmp_path: Path, told: Told, watcher: Watcher
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    told.after(lambda: watcher.watch([folder, other]), other)
    told.after(lambda: (folder / "one.md").write_text("# a"), folder)

    def link() -> None:
        folder.rename(tmp_path / "aside")
        folder.symlink_to("aside")

    told.after(link, folder)
    assert watch.identities([folder, other]).keys() == {other}
    folder.unlink()

    def come_back() -> None:
        """With another note: nobody need have noticed that it was gone."""
        (tmp_path / "aside").rename(folder)
        (folder / "two.md").write_text("# b")

    told.after(come_back, folder)


def test_without_notifications_one_warning(
    folder: Path,
    tmp_path: Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    import watchfiles

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "inotify watch limit reached")

    monkeypatch.setattr(watchfiles, "watch", full)
    other = tmp_path / "other"
    other.mkdir()
    watcher = Watcher(told)
    with caplog.at_level(logging.WARNING):
        told.after(lambda: watcher.watch([folder]), folder)
        told.after(lambda: watcher.watch([folder, other]), other)
        told.after(lambda: (other / "one.md").write_text("# a"), other)
    watcher.close()
    [line] = [record.getMessage() for record in caplog.records]
    assert "inotify watch limit reached" in line


def test_a_name_that_is_not_utf8(
    folder: Path, told: Told, watcher: Watcher, caplog: pytest.LogCaptureFixture
) -> None:
    """The notifications end with it: they begin anew."""
    told.after(lambda: watcher.watch([folder]), folder)
    for n in range(4):
        odd = os.fsencode(folder) + f"/caf{n}".encode() + b"\xe9.md"
        told.after(lambda odd=odd: Path(os.fsdecode(odd)).write_text("x"), folder)
        told.after(lambda n=n: (folder / f"n{n}.md").write_text("# a"), folder)
        told.after(lambda n=n: (folder / f"m{n}.md").write_text("# a"), folder)
    assert caplog.records == []


def test_one_folder_more_tells_of_no_other(
    way: str, folder: Path, tmp_path: Path, told: Told, watcher: Watcher
) -> None:
    told.after(lambda: watcher.watch([folder]), folder)
    begun = len(told.folders)
    other = tmp_path / "other"
    other.mkdir()
    told.after(lambda: watcher.watch([folder, other]), other)
    told.after(lambda: (other / "one.md").write_text("# a"), other)
    assert set(told.folders[begun:]) == {other}


def test_what_changes_between_two_sets(
    folder: Path, tmp_path: Path, told: Told, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = watch.changes
    told.after(lambda: watcher.watch([folder]), folder)

    def late(*args: Any) -> Iterator[set[Path]]:
        (folder / "late.md").write_text("# nobody watches just now")
        return real(*args)

    monkeypatch.setattr(watch, "changes", late)
    told.after(lambda: watcher.watch([folder, tmp_path]), folder)


def test_it_ends_although_a_folder_hangs(
    folder: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, hang = threading.Event(), threading.Event()
    real = watch.identities

    def hanging(folders: Iterable[Path]) -> Any:
        reached.set()
        hang.wait()
        return real(folders)

    monkeypatch.setattr(watch, "identities", hanging)
    monkeypatch.setattr(watch, "JOIN_SECONDS", 0.05)
    watcher = Watcher(told)
    watcher.watch([folder])
    assert reached.wait(PATIENCE)
    watcher.close()
    [thread] = watching()
    hang.set()
    thread.join(PATIENCE)
    assert not watching()
    assert told.folders == []


def test_it_ends_promptly(
    way: str, folder: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits neither for its next look nor until it is given up."""
    monkeypatch.setattr(watch, "POLL_S", LIVES)
    monkeypatch.setattr(watch, "JOIN_SECONDS", LIVES)
    for folders in ([], [folder], [folder / "none"]):
        watcher = Watcher(told)
        if folder in folders:
            told.after(lambda watcher=watcher: watcher.watch([folder]), folder)
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
