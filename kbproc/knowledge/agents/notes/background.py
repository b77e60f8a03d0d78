"""The notebooks of all agents, which a background thread keeps in step with their folders.

Owns: one notebook for each agent, its first sync, adding and removing notebooks as agents are
created and deleted, and the thread that syncs a folder after the watcher has seen a change in it.
Refuses to know: how a folder is synced (sync.py), and which methods read notes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbproc.agents.folder import notes_folder
from kbproc.agents.notefiles.watch import Watcher
from kbproc.agents.notes.notebook import Notebook
from kbproc.agents.notes.sync import Sync
from kbproc.base.errors import KbprocError
from kbproc.documents.content import Intake
from kbproc.store.store import Store
from kbproc.views.catalog.rows import AgentRow, Roster

if TYPE_CHECKING:
    from pathlib import Path


_RETRY_SECONDS = 2.0
_JOIN_SECONDS = 10.0
_GATHER_SECONDS = 0.2  # that what other nodes write is looked at together
_logger = logging.getLogger(__name__)


class Notebooks:
    """Until `start` is called, the first request for an agent's notes syncs its folder."""

    def __init__(self, store: Store, intake: Intake) -> None:
        self._store = store
        self._intake = intake
        self._guard = threading.Lock()  # never held while a folder is synced
        self._changed = threading.Condition(self._guard)
        self._books: dict[str, tuple[AgentRow, Notebook]] = {}
        self._started = False
        self._closed = False
        self._roster: Roster | None = None
        self._pending: set[str] = set()  # slugs of agents whose folders are to be synced
        self._later: set[str] = set()  # slugs whose sync has failed and is tried again
        self._begun: set[Notebook] = set()  # notebooks whose first sync is running
        self._asked: set[threading.Thread] = set()  # threads that run a first sync for a request
        self._watcher: Watcher | None = None
        self._worker: threading.Thread | None = None
        store.on_change(self._follow)

    # ------------------------------------------------------------------ asking

    def book(self, agent: AgentRow) -> Notebook:
        """The agent's notebook. Every call returns the same one.

        A new one is made once the agent has another folder, or was deleted and created again.
        """
        with self._guard:
            known = self._books.get(agent.slug)
            if known is None or not _same_folder(known[0], agent):
                folder = notes_folder(self._store, agent)
                made = Notebook(
                    self._store,
                    self._intake,
                    agent.slug,
                    folder,
                    own=agent.folder is None,
                    current=self.ensure,
                )
                known = self._books[agent.slug] = (agent, made)
            return known[1]

    def ready(self, slug: str) -> bool:
        """True once the agent's folder has been synced; False starts a sync in a thread.

        Before `start`, the call itself syncs the folder. It is True for an agent that is gone.
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
        """The agent's notebook after its first sync, which this call does or waits for.

        A sync that fails raises nothing: `warnings` tells of it.
        """
        book = self.book(agent)
        if not book.synced and not self._store.read_only:
            self._first_sync(book)
        return book

    def warnings(self, agent: AgentRow) -> list[str] | None:
        """What the last sync of the agent's folder could not do; None if there is nothing."""
        return None if self._store.read_only else self.book(agent).warnings or None

    def _first_sync(self, book: Notebook) -> None:
        with book.lock:
            if book.synced:
                return
            self._sync(book)
        self._store.changed()  # wakes the requests that wait for this sync

    def begin(self, book: Notebook) -> None:
        """Starts the first sync of a folder in a thread of its own.

        The background thread may be held up by another folder that is slow or hangs.
        """
        with self._guard:
            if book in self._begun or self._closed:
                return
            self._begun.add(book)
            thread = threading.Thread(target=self._run_first, args=[book], daemon=True)
            self._asked.add(thread)
            thread.start()

    def _run_first(self, book: Notebook) -> None:
        try:
            self._guarded(book, lambda: self._first_sync(book))
        finally:
            self._store.changed()  # another thread may have synced it, and requests wait for it
            with self._guard:
                self._asked.discard(threading.current_thread())
                if book.synced:
                    self._begun.discard(book)

    def _guarded(self, book: Notebook, sync: Callable[[], object]) -> None:
        """Logs an exception, so that the thread lives on, and has the sync tried again."""
        try:
            sync()
        except Exception:
            _logger.exception("the notes of %s could not be synced", book.agent)
            with self._changed:
                self._later.add(book.agent)
                self._changed.notify_all()

    def _sync(self, book: Notebook) -> bool:
        """False if the sync has failed, or has left something for another one."""
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
        """Ends the threads. A sync that is running stops after the record that it writes."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            threads = [*self._asked, *([self._worker] if self._worker else [])]
        if self._watcher is not None:
            self._watcher.close()
        until = time.monotonic() + _JOIN_SECONDS
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _follow(self) -> None:
        """Called after every commit: agents and their folders may have changed."""
        roster = self._store.published.roster
        if self._store.log.is_shared and self._started:  # others may have written notes
            self._told()
        if self._closed or roster is self._roster:
            return
        live = {slug: row for slug, row in roster.agents.items() if row.deleted_at is None}
        with self._changed:
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
            if live and self._worker is None:
                worker = threading.Thread(target=self._run, name="notes", daemon=True)
                worker.start()
                self._worker = worker
                self._watcher = Watcher(self._told)
            self._changed.notify_all()
            watcher = self._watcher
        if watcher is not None:
            watcher.watch({notes_folder(self._store, row) for row in live.values()})

    def _told(self, folder: Path | None = None) -> None:
        """Every agent whose notes lie in `folder`, or any agent, is to be synced."""
        with self._changed:
            agents = {} if self._roster is None else self._roster.agents
            self._pending |= {
                slug
                for slug, row in agents.items()
                if row.deleted_at is None and folder in {None, notes_folder(self._store, row)}
            }
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                patience = _RETRY_SECONDS if self._later else None
                self._changed.wait_for(lambda: bool(self._pending) or self._closed, patience)
                if self._store.log.is_shared:
                    self._changed.wait_for(lambda: self._closed, _GATHER_SECONDS)
                if self._closed:
                    return
                due = self._pending or self._later
                self._pending, self._later = set(), self._later - due
            for slug in sorted(due):
                self.sync_agent(slug)

    def sync_agent(self, slug: str) -> None:
        agent = self._store.published.roster.agents.get(slug)
        if agent is None or agent.deleted_at is not None or self._closed:
            return
        book = self.book(agent)
        with self._guard:
            first = not book.synced
            if first:
                self._begun.add(book)
        self._guarded(book, lambda: self._sync_or_later(book))
        with self._guard:
            if book.synced:
                self._begun.discard(book)
        if first:
            self._store.changed()  # wakes the requests that wait for this sync

    def _sync_or_later(self, book: Notebook) -> None:
        if not self._sync(book):
            with self._guard:
                self._later.add(book.agent)


def _same_folder(one: AgentRow, other: AgentRow) -> bool:
    """Whether it is the same agent with the same folder."""
    return (
        one.folder == other.folder
        and one.created_at == other.created_at
        and one.deleted_at == other.deleted_at
    )
