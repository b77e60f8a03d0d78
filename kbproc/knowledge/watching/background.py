"""Watches all folders that this user has asked for, while the store is open."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kbproc.base.errors import KbprocError
from kbproc.base.settings.trust import Trust
from kbproc.engine.projections.catalog.rows import Roster, WatchRow
from kbproc.engine.store.store import Store
from kbproc.knowledge.documents.content import Intake
from kbproc.knowledge.watching.folder import WatchedFolder
from kbproc.knowledge.watching.watch import (
    MOST_FOLDERS,
    WatchProgress,
    approved_folder,
    is_approved,
)

_JOIN_S = 10.0
_logger = logging.getLogger(__name__)


class Watches:
    """The watched folders of a store; nothing is watched before `start`."""

    def __init__(
        self, store: Store, intake: Callable[[], Intake], trust: Trust, runtime: Path | None
    ) -> None:
        """`runtime`: the folder of sockets, logs and secrets, which is never read."""
        self._store = store
        self._intake = intake
        self._trust = trust
        self._runtime = runtime
        self._guard = threading.Lock()
        self._roster: Roster | None = None
        self._folders: dict[tuple[str, str], WatchedFolder] = {}
        self._ending: list[WatchedFolder] = []
        self._started = False
        self._closed = False
        store.on_change(self._follow)

    @property
    def is_started(self) -> bool:
        return self._started

    def start(self) -> None:
        if self._started or self._store.read_only:
            return
        self._started = True
        self.refresh()

    def refresh(self) -> None:
        """Takes in new approvals."""
        with self._guard:
            self._roster = None
        self._follow()

    def close(self) -> None:
        """Ends all threads. A pass that runs stops after the record that it writes."""
        with self._guard:
            self._closed = True
            folders = [*self._folders.values(), *self._ending]
        for folder in folders:
            folder.stop()
        deadline = time.monotonic() + _JOIN_S
        for folder in folders:
            folder.join(deadline)

    def progress(self, row: WatchRow) -> WatchProgress:
        """Returns how far the folder's documents are in step."""
        with self._guard:
            folder = self._folders.get((row.machine, row.path))
        if folder is not None and folder.row == row:
            return folder.progress
        try:
            is_here = is_approved(self._trust, self._store.origin, row)
        except KbprocError as error:
            return WatchProgress(state="failed", warnings=[error.message])
        return WatchProgress(state="idle" if is_here else "elsewhere")

    def _follow(self) -> None:
        """Takes in new, changed and removed folders; the store calls it after every commit."""
        if not self._started or self._store.published.roster is self._roster:
            return
        with self._guard:
            if self._closed:
                return
            roster = self._store.published.roster
            try:
                rows = self._rows(roster)
            except KbprocError as error:  # the next commit tries again
                _logger.warning("the watched folders stay as they are: %s", error.message)
                return
            self._roster = roster
            self._ending = [folder for folder in self._ending if folder.is_running]
            for key, folder in list(self._folders.items()):
                if rows.get(key) != folder.row:
                    folder.stop()
                    self._ending.append(self._folders.pop(key))
            for key, row in rows.items():
                if key not in self._folders:
                    approved = partial(approved_folder, self._trust, self._store.origin, row)
                    folder = WatchedFolder(
                        self._store, self._intake(), row, self._runtime, approved
                    )
                    self._folders[key] = folder
                    folder.start()

    def _rows(self, roster: Roster) -> dict[tuple[str, str], WatchRow]:
        """Returns the folders to watch here, by machine and path. Raises store.io."""
        own = [r for r in roster.watches if is_approved(self._trust, self._store.origin, r)]
        return {(row.machine, row.path): row for row in own[:MOST_FOLDERS]}
