"""Gives the tests' folders to memory, where a tmpfs has room: syncs of files cost nothing there.

A run's folder is private, and is gone at its end. Those of failed tests go to the usual place for
temporary files; those of a run that was killed go when the next one starts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest

NAME = "run-in-memory"
PLACE = Path("/dev/shm")
LEAST_BYTES = 2 << 30  # free, several times what a run needs at a time
PREFIX = "kbproc-"  # then the pid of the process whose folder it is
_FAILED_PREFIX = "kbproc-failed-"
_MOST_FAILED = 3  # runs whose folders stay


def prefer_memory(config: pytest.Config) -> None:
    """Makes the folders of this run in memory, unless it has others: `--basetemp` names them."""
    if config.option.basetemp is None and not config.option.collectonly and has_room(PLACE):
        run = InMemory(PLACE)
        config.option.basetemp = str(run.folder)
        config.pluginmanager.register(run, NAME)


def has_room(place: Path) -> bool:
    """Returns True if tests can use this tmpfs: containers often have a small one, or run no
    program that lies there.
    """
    if not os.access(place, os.W_OK | os.X_OK):
        return False
    facts = os.statvfs(place)
    return facts.f_bavail * facts.f_frsize >= LEAST_BYTES and not facts.f_flag & getattr(
        os, "ST_NOEXEC", 0
    )


class InMemory:
    """The folder of one run."""

    def __init__(self, place: Path) -> None:
        remove_remains(place)
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=place))
        self._failed = False

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._failed = exitstatus == pytest.ExitCode.TESTS_FAILED

    def pytest_unconfigure(self) -> None:
        if self._failed:
            remove_all_but(_MOST_FAILED - 1, Path(tempfile.gettempdir()))
            folders = Path(tempfile.mkdtemp(prefix=_FAILED_PREFIX))
            with contextlib.suppress(shutil.Error):  # sockets can't be copied
                shutil.copytree(self.folder, folders, symlinks=True, dirs_exist_ok=True)
            print(f"\nThe folders of the failed tests are in {folders}, not in {self.folder}.")
        shutil.rmtree(self.folder, ignore_errors=True)


def remove_remains(place: Path) -> None:
    """Removes this user's folders of runs that were killed."""
    for folder in place.glob(f"{PREFIX}*-*"):
        pid = folder.name.split("-")[1]
        if (
            pid.isdecimal()
            and not Path("/proc", pid).exists()
            and folder.stat().st_uid == os.getuid()
        ):
            shutil.rmtree(folder, ignore_errors=True)


def remove_all_but(most: int, place: Path) -> None:
    """Removes this user's folders of failed tests, except for those of the last `most` runs."""
    own = [path for path in place.glob(f"{_FAILED_PREFIX}*") if path.stat().st_uid == os.getuid()]
    for folder in sorted(own, key=lambda path: path.stat().st_mtime, reverse=True)[most:]:
        shutil.rmtree(folder, ignore_errors=True)
