"""Reports changes in folders of notes soon after they happen.

Owns: the thread that watches, through the system's notifications or by looking once a second;
folders that come and go.
Refuses to know: what a note is beyond its file's name, and what is done about a change.

One change may be reported twice, and a report may come without a change: its receiver compares.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kbproc.agents.notefiles.folder import Unavailable, open_folder

if TYPE_CHECKING:
    from watchfiles import Change

_log = logging.getLogger(__name__)

STEP_MS = 100  # changes are gathered until none came for as long as this
DEBOUNCE_MS = 200  # and reported after this at the latest
LOOK_MS = 500  # how often the folders themselves are looked at
POLL_S = 1.0  # without notifications, and for folders that don't exist
_MOST_FAILURES = 3  # of watching, in a row: then notifications are given up
JOIN_SECONDS = 3.0  # a folder whose file system hangs keeps nobody from ending

_Identity = tuple[int, int]  # device, inode


class Watcher:
    """Calls `changed(folder)` on a thread of its own, one call at a time; it must not raise.

    A folder that appears, goes away or becomes another one is reported, too. Whenever watching
    begins anew, every folder is reported that differs from when it was last reported.
    """

    def __init__(self, changed: Callable[[Path], None]) -> None:
        self._changed = changed
        self._guard = threading.Lock()
        self._folders: frozenset[Path] = frozenset()
        self._woken = threading.Event()  # there are other folders, or the watcher is closed
        self._closed = False
        self._failures = 0
        self._reported: dict[Path, tuple[_Identity, int]] = {}  # as the folders were then
        self._thread = threading.Thread(target=self._run, name="notes", daemon=True)
        self._thread.start()

    def watch(self, folders: Iterable[Path]) -> None:
        """Watches these folders from now on and no others; they need not exist.

        Folders below them are not watched.
        """
        wanted = frozenset(folders)
        with self._guard:
            if wanted == self._folders:
                return
            self._folders = wanted
            self._woken.set()

    def close(self) -> None:
        """Nothing is reported afterwards, unless a report that runs takes very long."""
        self._closed = True
        self._woken.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        there: dict[Path, _Identity] = {}
        while not self._closed:
            with self._guard:
                self._woken.clear()
                folders = self._folders
            if self._closed:
                return
            before, there = there, identities(folders)
            self._report(folder for folder in before.keys() & folders if folder not in there)
            if there and self._failures < _MOST_FAILURES:
                self._follow_notifications(there, folders)
            elif there:
                self._poll(there, folders)
            else:
                self._woken.wait(POLL_S if folders else None)

    def _report(self, folders: Iterable[Path]) -> None:
        for folder in sorted(folders):
            if self._closed:
                return
            self._changed(folder)

    def _differing(self, there: dict[Path, _Identity]) -> set[Path]:
        """The folders that differ from when they were last looked at here, or reported."""
        now = {folder: (identity, _fingerprint(folder)) for folder, identity in there.items()}
        before, self._reported = self._reported, now
        return {folder for folder in there if now[folder] != before.get(folder)}

    def _follow_notifications(self, there: dict[Path, _Identity], folders: frozenset[Path]) -> None:
        """Reports changes until there are other folders to watch."""
        begun = False
        try:
            for touched in changes(list(there), self._woken):
                same = identities(folders) == there
                if begun:
                    self._reported |= {f: (there[f], _fingerprint(f)) for f in touched}
                    self._report(touched)
                else:  # only from now on does no change go unnoticed
                    begun, self._failures = True, 0
                    self._report(self._differing(there) | touched)
                if not same:
                    return
        except FileNotFoundError:  # went away before it could be watched
            return
        except ImportError as error:
            self._give_up(error)
        except (OSError, RuntimeError) as error:  # a file's name that is not UTF-8, too
            self._failures += 1
            if self._failures == _MOST_FAILURES:
                self._give_up(error)
                return
            self._reported = {}
            self._report(self._differing(there))
            if not begun:
                self._woken.wait(POLL_S)

    def _give_up(self, error: Exception) -> None:
        self._failures = _MOST_FAILURES
        _log.warning(
            "Changes in notes folders can't be watched (%s); they are looked at once a second.",
            error,
        )

    def _poll(self, there: dict[Path, _Identity], folders: frozenset[Path]) -> None:
        while not self._woken.is_set() and identities(folders) == there:
            self._report(self._differing(there))
            self._woken.wait(POLL_S)


def identities(folders: Iterable[Path]) -> dict[Path, _Identity]:
    """Those that can be looked into."""
    found = {}
    for folder in folders:
        with suppress(Unavailable), open_folder(folder) as fd:
            status = os.fstat(fd)
            found[folder] = (status.st_dev, status.st_ino)
    return found


def changes(folders: list[Path], stop: threading.Event) -> Iterator[set[Path]]:
    """Those with changes; now and then an empty set. Raises ImportError, OSError, RuntimeError."""
    # Its lines about each change would drown ours.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    from watchfiles import watch

    named = {str(folder): folder for folder in folders}

    def concerns(_: Change, path: str) -> bool:
        return path in named or is_note(Path(path).name)

    for changes in watch(
        *folders,
        watch_filter=concerns,
        debounce=DEBOUNCE_MS,
        step=STEP_MS,
        stop_event=stop,
        rust_timeout=LOOK_MS,
        yield_on_timeout=True,
        raise_interrupt=False,
        recursive=False,
    ):
        touched = (named.get(path) or named.get(str(Path(path).parent)) for _, path in changes)
        yield {folder for folder in touched if folder}


def is_note(name: str) -> bool:
    """Neither hidden nor an editor's temporary file."""
    return name.lower().endswith(".md") and not name.startswith((".", "~", "#"))


def _fingerprint(folder: Path) -> int:
    with suppress(Unavailable, OSError), open_folder(folder) as fd, os.scandir(fd) as entries:
        return hash(frozenset(_stamp(entry) for entry in entries if is_note(entry.name)))
    return 0


def _stamp(entry: os.DirEntry[str]) -> tuple[str, int, int, int]:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return entry.name, 0, 0, 0
    return entry.name, status.st_mtime_ns, status.st_size, status.st_ino
