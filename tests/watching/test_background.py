"""A store's folders are watched where this user has approved them, and follow the roster."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.settings.trust import Trust
from kbproc.engine.projections.catalog.rows import Roster, WatchRow
from kbproc.knowledge.watching import background, watch
from kbproc.knowledge.watching.background import Watches
from kbproc.knowledge.watching.watch import MOST_FOLDERS, WatchProgress


def row(path: str, kb: str = "default") -> WatchRow:
    return WatchRow(
        machine=socket.gethostname(),
        path=path,
        kb=kb,
        root=None,
        glob=None,
        exclude=[],
        tags=[],
        prune="ask",
        all_files=False,
        max_file_bytes=64 << 20,
        poll=False,
        origin="user",
        added_at="",
        added_by="",
    )


class Folder:
    """A watched folder that notes its start and its end."""

    instances: list[Folder] = []

    def __init__(self, store: Any, intake: Any, row: WatchRow, runtime: Any, approved: Any) -> None:
        self.row = row
        self.steps: list[str] = []
        self.progress = WatchProgress(state="current")
        Folder.instances.append(self)

    @property
    def is_running(self) -> bool:
        return "join" not in self.steps

    def start(self) -> None:
        self.steps.append("start")

    def stop(self) -> None:
        self.steps.append("stop")

    def join(self, deadline: float) -> None:
        self.steps.append("join")


class Store:
    """A store with a roster; it reports each change of it."""

    def __init__(self, folder: Path) -> None:
        self.origin = folder
        self.read_only = False
        self.tell: Any = None
        self.published: Any = None
        self.show()

    def show(self, *rows: WatchRow) -> None:
        roster = Roster({}, (), (), (), frozenset(), [], [], [*rows])
        self.published = SimpleNamespace(roster=roster)
        if self.tell is not None:
            self.tell()

    def on_change(self, tell: Any) -> None:
        self.tell = tell


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(background, "WatchedFolder", Folder)
    monkeypatch.setattr(Folder, "instances", [])
    return Store(tmp_path)


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(tmp_path / "trusted.json")


@pytest.fixture
def watches(store: Store, trust: Trust) -> Watches:
    return Watches(cast(Any, store), lambda: cast(Any, None), trust, None)


def steps() -> list[tuple[str, list[str]]]:
    return [(folder.row.path, folder.steps) for folder in Folder.instances]


def test_nothing_is_watched_before_the_start_or_in_a_read_only_store(
    store: Store, trust: Trust, watches: Watches
) -> None:
    one = row("/one")
    watch.approve(trust, store.origin, watch.event_of(one))
    store.show(one)
    assert (steps(), watches.is_started) == ([], False)
    store.read_only = True
    watches.start()
    assert (steps(), watches.is_started) == ([], False)
    store.read_only = False
    watches.start()
    watches.start()
    assert (steps(), watches.is_started) == ([("/one", ["start"])], True)


def test_folders_follow_the_roster_and_new_approvals(
    store: Store, trust: Trust, watches: Watches
) -> None:
    watches.start()
    one, two = row("/one"), row("/two")
    watch.approve(trust, store.origin, watch.event_of(one))
    store.show(one, two)
    assert steps() == [("/one", ["start"])]
    assert watches.progress(one) == WatchProgress(state="current")
    assert watches.progress(two) == WatchProgress(state="elsewhere")
    watch.approve(trust, store.origin, watch.event_of(two))
    watches.refresh()
    assert steps() == [("/one", ["start"]), ("/two", ["start"])]
    changed = msgspec.structs.replace(one, kb="birds")
    watch.approve(trust, store.origin, watch.event_of(changed))
    store.show(changed)
    assert steps() == [
        ("/one", ["start", "stop"]),
        ("/two", ["start", "stop"]),
        ("/one", ["start"]),
    ]
    assert watches.progress(one) == WatchProgress(state="elsewhere"), "its rules have changed"
    assert watches.progress(two) == WatchProgress(state="idle")


def test_at_most_so_many_folders_are_watched(
    store: Store, watches: Watches, monkeypatch: pytest.MonkeyPatch
) -> None:
    watches.start()
    monkeypatch.setattr(background, "is_approved", lambda *facts: True)
    store.show(*(row(f"/{number}") for number in range(MOST_FOLDERS + 1)))
    assert len(Folder.instances) == MOST_FOLDERS


def test_closing_ends_every_folder_for_good(store: Store, trust: Trust, watches: Watches) -> None:
    watches.start()
    one = row("/one")
    watch.approve(trust, store.origin, watch.event_of(one))
    store.show(one)
    watches.close()
    assert steps() == [("/one", ["start", "stop", "join"])]
    store.show()
    store.show(one)
    assert len(Folder.instances) == 1


def test_approvals_that_can_not_be_read_leave_the_folders_as_they_are(
    store: Store, trust: Trust, watches: Watches, monkeypatch: pytest.MonkeyPatch
) -> None:
    watches.start()
    one = row("/one")
    watch.approve(trust, store.origin, watch.event_of(one))
    store.show(one)

    def fail(*facts: Any) -> bool:
        raise KbprocError("store.io", "The disk is away.")

    with monkeypatch.context() as patch:
        patch.setattr(background, "is_approved", fail)
        store.show(row("/two"))
        assert steps() == [("/one", ["start"])]
        assert watches.progress(row("/two")) == WatchProgress(
            state="failed", warnings=["The disk is away."]
        )
    store.show(row("/two"))
    assert steps() == [("/one", ["start", "stop"])], "the next commit tries again"
