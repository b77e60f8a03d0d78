"""Maintains the store in the background, in quiet moments.

It drops sources that no record names, compacts the full-text index, folds the flat tail of vectors
into their graph, saves the vector index, looks for damage, and returns memory.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from kbproc.base import durable
from kbproc.base.errors import KbprocError
from kbproc.base.threads import return_memory, return_pages
from kbproc.base.values import decoder
from kbproc.base.workers import Pace, Worker, WorkerStopped, at_once
from kbproc.engine.events import codec
from kbproc.engine.events.document import DocWritten
from kbproc.engine.projections.catalog.reader import EVERYTHING
from kbproc.engine.store import in_review, rebuild
from kbproc.engine.store.store import Store

if TYPE_CHECKING:
    from kbproc.engine.projections.follower import Follower

IDLE_SECONDS = 1.0
RETRY_SECONDS = 30.0  # pause after an error of the disk
CHECK_SECONDS = 86_400.0  # between two checks for damage
_CHECKED = "views/checked"
# Seconds of the processor's time: a process that used less of the last one is idle, and one that
# used more since memory was last returned holds some that is worth returning.
_IDLE_USE = 0.02
_WORTH = 0.2
# Deleted chunks still count in BM25's statistics until the index is compacted.
DEAD_SHARE = 0.02
_logger = logging.getLogger(__name__)


def damaged_views(store: Store, pace: Pace = at_once) -> list[str]:
    """Returns the names of the open projections whose files are damaged. Reads all their files."""
    names = [store.catalog.name] if store.catalog.damaged(pace) else []
    followers: list[Follower | None] = [store.fulltext, store.vectors]
    return names + [view.name for view in followers if view is not None and view.damaged()]


def compact_sources(store: Store, pace: Pace) -> None:
    """Drops sources that no record names, which a killed process may have left.

    Raises store.io, OSError.
    """
    named: set[str] = set()
    seq = 0

    def follow(*, rests: bool = True) -> None:
        nonlocal seq
        for record in store.log.read(seq, store.log.head.seq):
            pace(rests=rests)
            seq = record.seq
            events = codec.decode(record.events)
            named.update(event.source_sha256 for event in events if isinstance(event, DocWritten))

    follow()
    with store.lane():
        follow(rests=False)  # because writers wait
        store.blobs.compact(named - {""})


class _Check(msgspec.Struct, frozen=True):
    """When the projections were checked: `boot` of the machine, milliseconds since the epoch."""

    boot: str
    at_ms: int


_decode = decoder(_Check).decode


def _last_check(store: Store) -> float | None:
    """Returns when the projections were last checked for damage, in seconds of the monotonic clock.

    Returns None if a machine that has failed since, or a process that was killed, may have damaged
    them.
    """
    try:
        check = _decode((store.folder / _CHECKED).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    age_s = (store.host.now_ms() - check.at_ms) / 1000
    is_valid = check.boot == durable.boot() != "" and age_s >= 0 and not store.was_abandoned
    return time.monotonic() - age_s if is_valid else None


def _note_check(store: Store) -> None:
    """Notes for the next process that the projections were checked just now, if the disk can."""
    if not store.read_only:
        check = _Check(durable.boot(), store.host.now_ms())
        with contextlib.suppress(OSError):
            data = msgspec.json.encode(check)
            durable.replace(store.folder / _CHECKED, data, name_is_durable=False)


class Upkeep:
    """A thread that maintains the store, from `start` to `close`."""

    def __init__(
        self,
        store: Store,
        prepare: Callable[[], object] = lambda: None,
        look: Callable[[], object] = lambda: None,
    ) -> None:
        """`prepare` is called once, shortly after the start; `look` is called each time."""
        self._store = store
        self._prepare = prepare
        self._look = look
        self._is_prepared = False
        self._saved_seq = 0
        self._noted_seq = -1
        self._returned_at = 0.0  # in seconds of the processor's time
        self._checked_at = _last_check(store)
        self._worker = Worker("upkeep", self._step, first_s=IDLE_SECONDS)

    def start(self) -> None:
        self._worker.start()

    def close(self) -> None:
        """Ends the upkeep and waits for it, because it works on parts that are closed next."""
        self._worker.close()

    def _step(self, is_woken: bool) -> float:
        """Prepares the store once; afterwards maintains it, if nothing has changed for a while."""
        if not self._is_prepared:
            self._is_prepared = True
            self._prepare()
            return IDLE_SECONDS
        self._look()
        seq, used = self._store.seq, time.process_time()
        if not self._worker.pause(IDLE_SECONDS) or seq != self._store.seq:
            return IDLE_SECONDS
        is_idle = time.process_time() - used < _IDLE_USE
        try:
            self.once()
            if is_idle:
                self._return()
        except WorkerStopped:
            return IDLE_SECONDS
        except (KbprocError, OSError) as error:  # a folder that can't be read may be again
            _logger.warning("tidying up failed: %s", error)
            self._worker.pause(RETRY_SECONDS)
        return IDLE_SECONDS

    def once(self) -> None:
        self._store.look()
        if self._store.broken is not None:
            self._catch_up()
        self._store.catch_up()
        if self._store.index_problem is not None:
            with self._store.exclusive():
                rebuild.rebuild(self._store)
        with self._store.lane():
            self._store.checkpoint()
        self._note_in_review()
        self._tidy_sources()
        if self._store.fulltext.dead_ratio > DEAD_SHARE:
            with self._store.exclusive():
                rebuild.compact(self._store)
        if self._should_check():
            self._heal()
            self._checked_at = time.monotonic()
            _note_check(self._store)
        with self._store.exclusive():
            self._tidy_vectors()

    def _note_in_review(self) -> None:
        """Notes how many entries wait for an approval, for a client of MCP that begins."""
        seq = self._store.seq
        if seq == self._noted_seq or self._store.read_only:
            return
        with self._store.reading_as(EVERYTHING) as snapshot:
            in_review.note(self._store.folder, snapshot.queries.in_review())
        self._noted_seq = seq

    def _return(self) -> None:
        """Returns unused memory to the system, if enough work was done since the last time."""
        if time.process_time() - self._returned_at > _WORTH:
            return_memory()
            return_pages(self._store.folder)
            self._returned_at = time.process_time()

    def _catch_up(self) -> None:
        """Lets projections that could not follow the log catch up, or rebuilds them.

        Raises store.io.
        """
        try:
            with self._store.lane():
                self._store.mend()
        except KbprocError:
            with self._store.exclusive():
                rebuild.rebuild(self._store)

    def _should_check(self) -> bool:
        if self._checked_at is None or self._store.catalog.is_known_damaged:
            return True
        return time.monotonic() - self._checked_at >= CHECK_SECONDS

    def _pace(self, *, rests: bool = True) -> None:
        """Pauses if requests need the processor, unless a thread waits for the end of this work."""
        self._worker.give_way(rests=rests and not self._store.is_exclusive_awaited)

    def _heal(self) -> None:
        """Checks the projections for damage, and rebuilds damaged ones."""
        with self._store.exclusive():
            wrong = damaged_views(self._store, self._pace)
        if wrong:
            _logger.warning("damaged and made afresh: %s", ", ".join(wrong))
            with self._store.exclusive():
                rebuild.rebuild(self._store)

    def _tidy_sources(self) -> None:
        """Saves the index of the last pack; compacts the packs once per start."""
        store = self._store
        store.blobs.tidy()
        if store.was_abandoned and store.log.damage is None:  # a whole log names all sources
            with store.exclusive():
                compact_sources(store, self._pace)
            store.was_abandoned = False

    def _tidy_vectors(self) -> None:
        vectors = self._store.vectors
        if vectors is None:
            return
        if vectors.needs_fold:
            vectors.fold(cancelled=lambda: self._worker.is_stopped)
        if vectors.position.seq > self._saved_seq and not vectors.pending_count:
            vectors.save()
            self._saved_seq = vectors.position.seq
