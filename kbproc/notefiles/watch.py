"""Tells soon after something in a folder of notes has changed.

Owns: the thread that watches, through the system's notifications or by looking once a
second; folders that come and go.
Refuses to know: what a note is beyond its file's name, and what is done about a change.
A change may be told more than once, and with nothing changed: who is told compares.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watchfiles import Change

_log = logging.getLogger(__name__)

STEP_MS = 100  # changes are gathered until none came for as long as this
DEBOUNCE_MS = 200  # and told after this at the latest
LOOK_MS = 500  # how often the folders themselves are looked at
POLL_S = 1.0  # without notifications, and for folders that don't exist
_MOST_FAILURES = 3  # to watch, one after the other: then it is given up
JOIN_SECONDS = 3.0  # a folder whose file system hangs keeps nobody from ending

_Identity = tuple[int, int]  # device, inode


class Watcher:
    """`changed(folder)` is called on a thread of its own, one call at a time; it must not
    raise. Also told: a folder that appears, goes away, or becomes another one; and one
    that is not as it was when it was last told, whenever watching begins anew.
    """

    def __init__(self, changed: Callable[[Path], None]) -> None:
        self._changed = changed
        self._guard = threading.Lock()
        self._folders: frozenset[Path] = frozenset()
        self._woken = threading.Event()  # the set of folders is another, or it is the end
        self._closed = False
        self._failures = 0
        self._told: dict[Path, tuple[_Identity, int]] = {}  # the folders as they were then
        self._thread = threading.Thread(target=self._run, name="notes", daemon=True)
        self._thread.start()

    def watch(self, folders: Iterable[Path]) -> None:
        """From now on these and no others, not what lies in folders below; they need not exist."""
        wanted = frozenset(folders)
        with self._guard:
            if wanted == self._folders:
                return
            self._folders = wanted
            self._woken.set()

    def close(self) -> None:
        """Nothing is told afterwards, but what is being told just now if that takes long."""
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
            self._tell(folder for folder in before.keys() & folders if folder not in there)
            if there and self._failures < _MOST_FAILURES:
                self._notified(there, folders)
            elif there:
                self._poll(there, folders)
            else:
                self._woken.wait(POLL_S if folders else None)

    def _tell(self, folders: Iterable[Path]) -> None:
        for folder in sorted(folders):
            if self._closed:
                return
            self._changed(folder)

    def _news(self, there: dict[Path, _Identity]) -> set[Path]:
        """Those that are not as they were when this was last asked, or told of."""
        now = {folder: (identity, _fingerprint(folder)) for folder, identity in there.items()}
        before, self._told = self._told, now
        return {folder for folder in there if now[folder] != before.get(folder)}

    def _notified(self, there: dict[Path, _Identity], folders: frozenset[Path]) -> None:
        """Until the set changes, or one of the folders is another than before."""
        begun = False
        try:
            for touched in changes(list(there), self._woken):
                same = identities(folders) == there
                if begun:
                    self._told |= {f: (there[f], _fingerprint(f)) for f in touched}
                    self._tell(touched)
                else:  # only now is it certain that nothing goes unnoticed
                    begun, self._failures = True, 0
                    self._tell(self._news(there) | touched)
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
            self._told = {}
            self._tell(self._news(there))
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
            self._tell(self._news(there))
            self._woken.wait(POLL_S)


def identities(folders: Iterable[Path]) -> dict[Path, _Identity]:
    """Those that exist."""
    found = {}
    for folder in folders:
        try:
            status = folder.stat()
        except OSError:
            continue
        found[folder] = (status.st_dev, status.st_ino)
    return found


def changes(folders: list[Path], stop: threading.Event) -> Iterator[set[Path]]:
    """Those with changes; now and then an empty set. Raises ImportError, OSError, RuntimeError."""
    # Its lines about each change would drown ours.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    from watchfiles import watch

    # Notifications may name a folder by what its links lead to.
    named = {os.path.realpath(folder): folder for folder in folders}
    named |= {str(folder): folder for folder in folders}

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
    try:
        with os.scandir(folder) as entries:
            return hash(frozenset(_stamp(entry) for entry in entries if is_note(entry.name)))
    except OSError:
        return 0


def _stamp(entry: os.DirEntry[str]) -> tuple[str, int, int, int]:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return entry.name, 0, 0, 0
    return entry.name, status.st_mtime_ns, status.st_size, status.st_ino
