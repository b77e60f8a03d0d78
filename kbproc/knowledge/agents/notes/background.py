"""Keeps the notebooks of all agents in step with their folders, in a background thread.

Each agent has one notebook, from its creation to its deletion. The thread syncs a folder at first
and whenever the watcher has seen a change in it.

The watcher is a thread that uses the system's notifications, or looks once a second. Folders may
appear and vanish. It may report one change twice, or report without a change, so the notebooks
compare.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from kbproc.base import changes
from kbproc.base.errors import KbprocError
from kbproc.base.workers import Worker
from kbproc.engine.projections.catalog.rows import AgentRow, Roster
from kbproc.engine.store.store import Store
from kbproc.knowledge.agents.folder import notes_folder
from kbproc.knowledge.agents.notes.files import Unavailable, open_folder
from kbproc.knowledge.agents.notes.notebook import Notebook
from kbproc.knowledge.agents.notes.rules import FolderRules
from kbproc.knowledge.agents.notes.sync import Sync
from kbproc.knowledge.documents.content import Intake

_RETRY_SECONDS = 2.0
_JOIN_SECONDS = 10.0
_logger = logging.getLogger(__name__)

POLL_S = 1.0  # without notifications, and for folders that don't exist
_MOST_FAILURES = 3  # after so many failures in a row, the thread looks once a second instead
WATCHER_JOIN_SECONDS = 3.0  # limited, because a folder's file system may hang
_Identity = tuple[int, int]  # device, inode


class Notebooks:
    """The notebooks of all agents.

    Until `start` is called, the first request for an agent's notes syncs its folder.
    """

    def __init__(
        self, store: Store, intake: Intake, rules: Callable[[], FolderRules] = FolderRules
    ) -> None:
        """`rules` gives the store's present rules."""
        self._store = store
        self._intake = intake
        self._rules = rules
        self._guard = threading.Lock()  # never held while a folder is synced
        self._books: dict[str, tuple[AgentRow, Notebook]] = {}
        self._started = False
        self._closed = False
        self._roster: Roster | None = None
        self._pending: set[str] = set()  # slugs of agents whose folders are to be synced
        self._retries: set[str] = set()  # slugs whose sync has failed
        self._first_syncs: set[Notebook] = set()  # notebooks whose first sync is running
        self._first_threads: set[threading.Thread] = set()  # each runs a first sync for a request
        self._watcher: FolderWatcher | None = None
        self._worker = Worker("notes", self._step, first_s=None)
        store.on_change(self._follow)

    # ------------------------------------------------------------------ for requests

    def book(self, agent: AgentRow) -> Notebook:
        """Returns the agent's notebook, the same on every call.

        A new one is made once the agent has another folder, or was deleted and created again.
        """
        with self._guard:
            cached = self._books.get(agent.slug)
            if cached is None or not _same_folder(cached[0], agent):
                folder = notes_folder(self._store, agent)
                notebook = Notebook(
                    self._store,
                    self._intake,
                    agent.slug,
                    folder,
                    own=agent.folder is None,
                    current=self.ensure,
                    rules=self._rules,
                )
                cached = self._books[agent.slug] = (agent, notebook)
            return cached[1]

    def ready(self, slug: str) -> bool:
        """Returns True once the agent's folder has been synced; if not, starts that in a thread.

        Before `start`, the call itself syncs the folder. It returns True for a deleted agent.
        """
        agent = self._store.published.roster.agents.get(slug)
        if agent is None or agent.deleted_at is not None or self._store.read_only:
            return True
        if not self._started:
            self.ensure(agent)
        book = self.book(agent)
        if book.synced or self._closed:
            return True
        self.begin(book)
        return False

    def ensure(self, agent: AgentRow) -> Notebook:
        """Returns the agent's notebook after its first sync, which this call runs or waits for.

        A failed sync raises nothing; its errors are in `warnings`.
        """
        book = self.book(agent)
        if not book.synced and not self._store.read_only:
            self._first_sync(book)
        return book

    def warnings(self, agent: AgentRow) -> list[str] | None:
        """Returns the warnings of the last sync of the agent's folder; None if there are none."""
        return None if self._store.read_only else self.book(agent).warnings or None

    def _first_sync(self, book: Notebook) -> None:
        with book.lock:
            if book.synced:
                return
            self._sync(book)
        self._store.changed()  # wakes the requests that wait for this sync

    def begin(self, book: Notebook) -> None:
        """Starts the first sync of a folder in a thread of its own.

        The background thread may be busy with another folder, which is slow or hangs.
        """
        with self._guard:
            if book in self._first_syncs or self._closed:
                return
            self._first_syncs.add(book)
            thread = threading.Thread(target=self._run_first, args=[book], daemon=True)
            self._first_threads.add(thread)
            thread.start()

    def _run_first(self, book: Notebook) -> None:
        try:
            self._guarded(book, lambda: self._first_sync(book))
        finally:
            self._store.changed()  # another thread may have synced it, and requests wait for it
            with self._guard:
                self._first_threads.discard(threading.current_thread())
                if book.synced:
                    self._first_syncs.discard(book)

    def _guarded(self, book: Notebook, sync: Callable[[], object]) -> None:
        """Logs an exception, so that the thread lives on, and has the sync tried again."""
        try:
            sync()
        except Exception:
            _logger.exception("the notes of %s could not be synced", book.agent)
            with self._guard:
                self._retries.add(book.agent)
            self._worker.wake()

    def _sync(self, book: Notebook) -> bool:
        """Syncs the folder; returns False if that failed or another sync is needed."""
        try:
            return Sync(book, check=self._check_open).run()
        except KbprocError as error:
            if not self._closed:
                _logger.warning("the notes of %s: %s", book.agent, error.message)
            return False

    def _check_open(self) -> None:
        if self._closed:
            raise KbprocError("operation.cancelled", "The store is being closed.")

    # ------------------------------------------------------------------ watching

    def start(self) -> None:
        """Syncs all folders in the background, and again whenever something in them changes."""
        with self._guard:
            if self._started or self._closed or self._store.read_only:
                return
            self._started = True
            self._roster = None
        self._follow()

    def close(self) -> None:
        """Ends the threads. A running sync stops after the record that it writes."""
        with self._guard:
            self._closed = True
            threads = list(self._first_threads)
        self._worker.stop()
        if self._watcher is not None:
            self._watcher.close()
        deadline = time.monotonic() + _JOIN_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._worker.join(max(0.0, deadline - time.monotonic()))

    def _follow(self) -> None:
        """Takes in new, changed and deleted agents; the store calls it after every commit."""
        roster = self._store.published.roster
        if self._started:
            self._rules().follow_change(self._mark_pending)
        if self._closed or roster is self._roster:
            return
        live = {slug: row for slug, row in roster.agents.items() if row.deleted_at is None}
        with self._guard:
            before = {} if self._roster is None else self._roster.agents
            self._roster = roster
            for slug in self._books.keys() - live.keys():
                del self._books[slug]
            if not self._started:
                return
            self._pending |= {
                slug
                for slug, row in live.items()
                if slug not in before or not _same_folder(before[slug], row)
            }
            if live and self._watcher is None:
                self._worker.start()
                self._watcher = FolderWatcher(self._mark_pending)
            watcher = self._watcher
        self._worker.wake()
        if watcher is not None:
            watcher.watch({notes_folder(self._store, row) for row in live.values()})

    def _mark_pending(self, folder: Path | None = None) -> None:
        """Marks the agents whose notes lie in `folder` for a sync; all agents for None."""
        with self._guard:
            agents = {} if self._roster is None else self._roster.agents
            self._pending |= {
                slug
                for slug, row in agents.items()
                if row.deleted_at is None and folder in {None, notes_folder(self._store, row)}
            }
        self._worker.wake()

    def _step(self, is_woken: bool) -> float | None:
        """Syncs what is pending, else what has failed; returns the seconds until a retry."""
        if self._pending or not is_woken:
            if (gather_s := self._rules().gather_s) and not self._worker.pause(gather_s):
                return None
            with self._guard:
                due = self._pending or self._retries
                self._pending, self._retries = set(), self._retries - due
            for slug in sorted(due):
                self.sync_agent(slug)
        return _RETRY_SECONDS if self._retries else None

    def sync_agent(self, slug: str) -> None:
        agent = self._store.published.roster.agents.get(slug)
        if agent is None or agent.deleted_at is not None or self._closed:
            return
        book = self.book(agent)
        with self._guard:
            is_first = not book.synced
            if is_first:
                self._first_syncs.add(book)
        self._guarded(book, lambda: self._sync_or_retry(book))
        with self._guard:
            if book.synced:
                self._first_syncs.discard(book)
        if is_first:
            self._store.changed()  # wakes the requests that wait for this sync

    def _sync_or_retry(self, book: Notebook) -> None:
        if not self._sync(book):
            with self._guard:
                self._retries.add(book.agent)


def _same_folder(one: AgentRow, other: AgentRow) -> bool:
    """Returns True if both rows are of one agent with the same folder."""
    return (
        one.folder == other.folder
        and one.created_at == other.created_at
        and one.deleted_at == other.deleted_at
    )


# ------------------------------------------------------------------ the watcher


class FolderWatcher:
    """Calls `changed(folder)` on a thread of its own, one call at a time; it must not raise.

    A folder that appears, vanishes or is replaced is reported, too. Whenever watching starts
    again, every folder is reported that has changed since its last report.
    """

    def __init__(self, changed: Callable[[Path], None]) -> None:
        self._changed = changed
        self._guard = threading.Lock()
        self._folders: frozenset[Path] = frozenset()
        self._current: dict[Path, _Identity] = {}  # the folders that could be opened
        self._woken = threading.Event()  # set for other folders, and when the watcher is closed
        self._failures = 0
        self._reported: dict[Path, tuple[_Identity, int]] = {}  # at the last report
        self._worker = Worker("notes", self._step, first_s=None)
        self._worker.start()

    def watch(self, folders: Iterable[Path]) -> None:
        """Watches these folders from now on, and no others; they need not exist.

        Sub-folders are not watched.
        """
        new_folders = frozenset(folders)
        with self._guard:
            if new_folders == self._folders:
                return
            self._folders = new_folders
            self._woken.set()
        self._worker.wake()

    def close(self) -> None:
        """Ends the thread. A report that is running may still end later, if it takes very long."""
        self._worker.stop()
        self._woken.set()
        self._worker.join(WATCHER_JOIN_SECONDS)

    def _step(self, is_woken: bool) -> float | None:
        """Reports changes, until there are other folders where the system reports them."""
        with self._guard:
            self._woken.clear()
            folders = self._folders
        if self._worker.is_stopped or not folders:
            self._current = {}
            return None
        before, self._current = self._current, identities(folders)
        self._report(folder for folder in before.keys() & folders if folder not in self._current)
        if self._current and self._failures < _MOST_FAILURES:
            return self._follow_notifications(self._current, folders)
        if self._current:
            self._report(self._differing(self._current))
        return POLL_S

    def _report(self, folders: Iterable[Path]) -> None:
        for folder in sorted(folders):
            if self._worker.is_stopped:
                return
            self._changed(folder)

    def _differing(self, current: dict[Path, _Identity]) -> set[Path]:
        """Returns the folders that have changed since the last look here, or the last report."""
        now = {folder: (identity, _fingerprint(folder)) for folder, identity in current.items()}
        before, self._reported = self._reported, now
        return {folder for folder in current if now[folder] != before.get(folder)}

    def _follow_notifications(
        self, current: dict[Path, _Identity], folders: frozenset[Path]
    ) -> float:
        """Reports changes until there are other folders; returns seconds until the next try."""
        is_watching = False
        try:
            for reported in changed_folders(list(current), self._woken):
                is_same = identities(folders) == current
                if is_watching:
                    self._reported |= {f: (current[f], _fingerprint(f)) for f in reported}
                    self._report(reported)
                else:  # earlier changes may have gone unnoticed, so every folder is compared
                    is_watching, self._failures = True, 0
                    self._report(self._differing(current) | reported)
                if not is_same:
                    break
        except FileNotFoundError:  # a folder vanished before it could be watched
            pass
        except ImportError as error:
            self._give_up(error)
        except (OSError, RuntimeError) as error:  # a file's name that is not UTF-8, too
            self._failures += 1
            if self._failures == _MOST_FAILURES:
                self._give_up(error)
            else:
                self._reported = {}
                self._report(self._differing(current))
                return 0.0 if is_watching else POLL_S
        return 0.0

    def _give_up(self, error: Exception) -> None:
        self._failures = _MOST_FAILURES
        _logger.warning(
            "Changes in notes folders can't be watched (%s); they are looked at once a second.",
            error,
        )


def identities(folders: Iterable[Path]) -> dict[Path, _Identity]:
    """Returns the identity of each folder that can be opened."""
    by_folder = {}
    for folder in folders:
        with suppress(Unavailable), open_folder(folder) as fd:
            status = os.fstat(fd)
            by_folder[folder] = (status.st_dev, status.st_ino)
    return by_folder


def changed_folders(folders: list[Path], stop: threading.Event) -> Iterator[set[Path]]:
    """Yields the folders with changes, and from time to time an empty set.

    Raises ImportError, OSError, RuntimeError.
    """
    folder_by_path = {str(folder): folder for folder in folders}

    def concerns(path: str) -> bool:
        return path in folder_by_path or is_note(Path(path).name)

    for paths in changes.follow(folders, stop, concerns):
        named = (
            folder_by_path.get(path) or folder_by_path.get(str(Path(path).parent)) for path in paths
        )
        yield {folder for folder in named if folder}


def is_note(name: str) -> bool:
    """Returns True for a Markdown file that is neither hidden nor an editor's temporary file."""
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
