"""Keeps the notebooks of all agents in step with their folders, in a background thread.

Each agent has one notebook, from its creation to its deletion. The thread syncs a folder at first
and whenever something in it changes: the system's notifications tell, or a look once a second. The
look also finds folders that appear and vanish. A folder may be synced without a change, so the
notebooks compare.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path

from kbproc.base.changes import Notifications
from kbproc.base.errors import KbprocError
from kbproc.base.threads import start_thread
from kbproc.base.workers import Worker
from kbproc.engine.projections.catalog.rows import AgentRow, Roster
from kbproc.engine.store.store import Store
from kbproc.knowledge.agents.folder import notes_folder
from kbproc.knowledge.agents.notes.files import Unavailable, open_folder
from kbproc.knowledge.agents.notes.notebook import Notebook
from kbproc.knowledge.agents.notes.rules import FolderRules
from kbproc.knowledge.agents.notes.sync import Sync
from kbproc.knowledge.documents.content import Intake

LOOK_S = 1.0  # between two looks at the folders, and before a sync that failed is tried again
_JOIN_SECONDS = 10.0
_logger = logging.getLogger(__name__)


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
        self._folders: dict[str, Path] = {}  # each agent's
        self._fingerprints: dict[Path, int] = {}  # a look compares them
        self._is_compare_due = True  # any folder may have changed
        self._is_polling = False
        self._notifications = Notifications(self._take_changes, self._poll_instead, is_note)
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
            self._first_threads.add(start_thread(partial(self._run_first, book), "first sync"))
            self._first_syncs.add(book)

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
        self._notifications.close()
        deadline = time.monotonic() + _JOIN_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._worker.join(max(0.0, deadline - time.monotonic()))
        self._notifications.join()

    def _follow(self) -> None:
        """Takes in new, changed and deleted agents; the store calls it after every commit."""
        roster = self._store.published.roster
        if self._started:
            self._rules().follow_change(self._sync_all)
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
            self._folders = {slug: notes_folder(self._store, row) for slug, row in live.items()}
            self._pending |= {
                slug
                for slug, row in live.items()
                if slug not in before or not _same_folder(before[slug], row)
            }
        if live:
            self._worker.start()
        self._worker.wake()

    def _sync_all(self) -> None:
        with self._guard:
            self._pending |= self._folders.keys()
        self._worker.wake()

    def _mark_pending(self, folders: Collection[Path]) -> None:
        """Marks the agents whose notes lie in the folders for the next sync."""
        with self._guard:
            self._pending |= {slug for slug, path in self._folders.items() if path in folders}

    def _take_changes(self, paths: Collection[str] | None) -> None:
        """Takes in what the notifications report."""
        if paths is None:
            self._is_compare_due = True
        else:
            changed = list(map(Path, paths))
            self._mark_pending({*changed, *(path.parent for path in changed)})
        self._worker.wake()

    def _poll_instead(self, why: str) -> None:
        self._is_polling = True
        self._worker.wake()

    def _look(self) -> None:
        """Has the folders watched that can be opened, and compares all that may have changed."""
        folders = self._folders.values()
        if self._notifications.watch(filter(is_openable, folders)):
            self._is_compare_due = True
        if self._is_compare_due or self._is_polling:
            self._is_compare_due = False
            before, self._fingerprints = self._fingerprints, {f: fingerprint(f) for f in folders}
            self._mark_pending({f for f in folders if self._fingerprints[f] != before.get(f)})

    def _step(self, is_woken: bool) -> float | None:
        """Looks at the folders, and syncs what is pending, else what has failed."""
        self._look()
        if self._pending or not is_woken:
            if (gather_s := self._rules().gather_s) and not self._worker.pause(gather_s):
                return None
            with self._guard:
                due = self._pending or self._retries
                self._pending, self._retries = set(), self._retries - due
            for slug in sorted(due):
                self._sync_between_looks(slug)
        return LOOK_S

    def _sync_between_looks(self, slug: str) -> None:
        """Syncs the agent's folder, and drops its fingerprint if that has changed.

        The fingerprint of the last look may come back after the sync: an empty folder gets notes,
        the sync records them, and a person removes them.
        """
        folder = self._folders.get(slug)
        if folder is None:  # the agent was deleted
            return
        before = fingerprint(folder)
        self.sync_agent(slug)
        if before == fingerprint(folder):
            self._fingerprints[folder] = before
        else:
            self._fingerprints.pop(folder, None)

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


# ------------------------------------------------------------------ folders


def is_note(name: str) -> bool:
    """Returns True for a Markdown file that is neither hidden nor an editor's temporary file."""
    return name.lower().endswith(".md") and not name.startswith((".", "~", "#"))


def is_openable(folder: Path) -> bool:
    with suppress(Unavailable), open_folder(folder):
        return True
    return False


def fingerprint(folder: Path) -> int:
    """Returns a number that differs once a note's file has changed; 0 without the folder."""
    with suppress(Unavailable, OSError), open_folder(folder) as fd, os.scandir(fd) as entries:
        return hash(frozenset(_stamp(entry) for entry in entries if is_note(entry.name)))
    return 0


def _stamp(entry: os.DirEntry[str]) -> tuple[str, int, int, int]:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return entry.name, 0, 0, 0
    return entry.name, status.st_mtime_ns, status.st_size, status.st_ino
