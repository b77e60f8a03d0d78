"""Tells what changes in a tree of folders, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

from kbproc.base import changes
from kbproc.base.workers import Worker
from kbproc.engine.sources.gitignore import NAME as GITIGNORE

_JOIN_S = 3.0  # limited, because a folder's file system may hang
_RETRY_S = 0.5
_MOST_FAILURES = 3
_logger = logging.getLogger(__name__)

Identity = tuple[int, int]  # device, inode


class Notifications:
    """Calls `changed` on its thread with the paths that changed right in any of the folders, and
    `failed` once if the system can't report them.

    `changed` gets None when other folders are watched, because changes may have gone unnoticed
    until then. It may be called without a change.
    """

    def __init__(
        self, changed: Callable[[Collection[str] | None], None], failed: Callable[[str], None]
    ) -> None:
        self._changed = changed
        self._failed = failed
        self._folders: dict[Path, Identity] = {}
        self._is_stale = False  # a folder was made anew, maybe under the same inode
        self._failures = 0
        self._woken = threading.Event()  # set for other folders, and at the end
        self._worker = Worker("watch", self._step, first_s=None)
        self._worker.start()

    def watch(self, folders: Iterable[Path]) -> None:
        """Watches these folders from now on, and no others. The first one is the uppermost."""
        identities = {folder: it for folder in folders if (it := identity(folder))}
        if identities != self._folders or self._is_stale:
            self._folders, self._is_stale = identities, False
            self._woken.set()
            self._worker.wake()

    @property
    def is_running(self) -> bool:
        return self._worker.is_running

    def close(self) -> None:
        self._worker.stop()
        self._woken.set()

    def join(self) -> None:
        self._worker.join(_JOIN_S)

    def _step(self, is_woken: bool) -> float | None:
        """Follows the folders; returns the seconds until it tries again, None without folders."""
        self._woken.clear()
        folders = self._folders
        if self._worker.is_stopped or not folders:
            return None
        try:
            if self._follow(folders):
                self._failures = 0
            return 0.0
        except FileNotFoundError:  # a folder vanished before it could be watched
            pass
        except (ImportError, OSError, RuntimeError) as error:
            self._failures += 1
            _logger.warning("changes in %s can't be watched: %s", next(iter(folders)), error)
            if self._failures == _MOST_FAILURES or isinstance(error, ImportError):
                self._failed(str(error))
                self._worker.stop()
                return None
        self._changed(None)
        return _RETRY_S

    def _follow(self, folders: dict[Path, Identity]) -> bool:
        """Reports changes until there are other folders; returns True if it could watch."""
        is_watching = False
        top, top_identity = next(iter(folders.items()))
        names = set(map(str, folders))

        def concerns(path: str) -> bool:
            name = path.rpartition("/")[2]
            return not name.startswith(".") or name == GITIGNORE or path in names

        for paths in changes.follow(list(folders), self._woken, concerns):
            if self._woken.is_set():
                break
            is_replaced = identity(top) != top_identity
            self._is_stale = self._is_stale or not names.isdisjoint(paths)
            if is_replaced or not is_watching:
                self._changed(None)
            elif paths:
                self._changed(paths)
            is_watching = True
            if is_replaced:
                self._woken.wait(_RETRY_S)
        return is_watching


def identity(folder: Path) -> Identity | None:
    with suppress(OSError):
        status = folder.stat()
        return status.st_dev, status.st_ino
    return None
