"""Collects the records that writers who share a commit have appended.

It decides when records are folded into the catalog, keeps the log's head until then, and gives the
indexes the group's changes.

Added documents and pieces of answers are folded in together, over many groups: only a reader or
writer who asks for the catalog needs their rows, and they are folded in before it gets the
catalog.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kbproc.engine.events.document import DocWritten
from kbproc.engine.events.kb import KbCreated
from kbproc.engine.projections.catalog.rows import (
    DocumentRow,
    IndexRow,
    Roster,
    TokenRow,
    index_rows,
    token_row,
)
from kbproc.engine.store.snapshot import PendingIndexChanges, Published

if TYPE_CHECKING:
    from kbproc.engine.events.event import Event
    from kbproc.engine.log.interface import LogBatch
    from kbproc.engine.log.record import Position, Record, RecordDraft
    from kbproc.engine.projections.catalog.catalog import Catalog
    from kbproc.engine.projections.catalog.queries import Queries
    from kbproc.engine.projections.catalog.reader import Sight
    from kbproc.engine.sources.blobs import NewSource

MOST_WAITING = 512  # records: folded in as quickly as a few
_MOST_ROWS = 2000


class PendingRecords:
    """Records that are durable and published, but not in the catalog yet.

    Changed in the lane only.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.paths: set[str | None] = set()
        self._rows: dict[int, IndexRow] = {}

    def add(
        self, records: Sequence[Record], rows: Sequence[IndexRow], paths: set[str | None]
    ) -> None:
        self._rows.update((row.chunk_id, row) for row in rows)
        self.paths |= paths
        self.records += records

    def clear(self) -> None:
        """Forgets the records once the catalog has them, so that each reader finds them there."""
        self.records, self._rows, self.paths = [], {}, set()

    @property
    def is_full(self) -> bool:
        """Returns True for as many records as are worth folding in together."""
        return len(self.records) >= MOST_WAITING or len(self._rows) >= _MOST_ROWS

    @property
    def is_overdue(self) -> bool:
        """Returns True for so many records that a reader of the catalog would wait too long."""
        return len(self.records) >= 2 * MOST_WAITING or len(self._rows) >= 2 * _MOST_ROWS

    def rows(self, chunk_ids: Sequence[int]) -> list[IndexRow]:
        """Returns the rows of those chunks that are pending; callable from any thread."""
        rows = self._rows
        return [rows[id] for id in chunk_ids if id in rows]


class PendingIndexRows:
    """Rows that the full-text index has not committed yet.

    Changed by the thread that publishes.
    """

    def __init__(self) -> None:
        self._removed: set[int] = set()
        self._rows: dict[int, IndexRow] = {}
        self._is_complete = True

    def add(self, removed: Iterable[int], rows: Sequence[IndexRow]) -> None:
        """Adds rows; earlier rows of the documents in `removed` no longer count."""
        removed_ids = set(map(int, removed))
        self._removed |= removed_ids
        if removed_ids:
            self._rows = {id: r for id, r in self._rows.items() if r.document_id not in removed_ids}
        self._is_complete = self._is_complete and len(self._rows) + len(rows) <= _MOST_ROWS
        if self._is_complete:
            self._rows.update((row.chunk_id, row) for row in rows)
        else:
            self._rows = {}

    def clear(self) -> None:
        self._removed, self._rows, self._is_complete = set(), {}, True

    @property
    def recent(self) -> PendingIndexChanges | None:
        """The pending rows and removed documents; None if there are too many."""
        if not self._is_complete:
            return None
        return PendingIndexChanges(frozenset(self._removed), tuple(self._rows.values()))


class Group:
    """One batch of the log with its fold. `published`: what readers see before it.

    `unfolded`: the pending records of earlier groups, which `fold_earlier` folds in.
    """

    def __init__(
        self,
        *,
        batch: LogBatch,
        catalog: Catalog,
        published: Published,
        unfolded: PendingRecords,
        fold_earlier: Callable[[], None],
        writer_lock: threading.RLock,
    ) -> None:
        """`writer_lock` guards the catalog's writer; the group holds it from its first fold on,
        until the group ends.
        """
        self.batch = batch
        self.head = published.head
        self.failed: BaseException | None = None
        self.unfolded: list[Record] = []
        self.paths: set[str | None] = set()  # the paths of written documents
        self.is_folded = False
        self.sources: list[NewSource] = []  # sources that its records name
        self._catalog = catalog
        self._roster: Roster | None = published.roster
        self._pending = unfolded
        self._fold_earlier = fold_earlier
        self._writer_lock = writer_lock
        self._holds_writer = False
        self._written_docs: list[tuple[Record, DocWritten]] | None = []

    def append(
        self, draft: RecordDraft, events: Sequence[Event], sources: Sequence[NewSource]
    ) -> Record:
        """Appends one record to the batch. Raises store.io with nothing appended."""
        written = [event for event in events if isinstance(event, DocWritten)]
        names = {event.source_sha256 for event in written}
        record = self.batch.append([draft])[-1]
        self.sources += (source for source in sources if source.name in names)
        self.unfolded.append(record)
        if all(event.can_wait for event in events) and self._knows(written):
            self._add(record, events, written)
        else:
            self._written_docs = None
            self.fold()
            self.head = self._catalog.queries.head()
        return record

    def _knows(self, written: Sequence[DocWritten]) -> bool:
        """Returns True if the roster names every knowledge base that has entries after this."""
        return all(doc.entry is None or doc.kb in self.roster.entries for doc in written)

    def _add(self, record: Record, events: Sequence[Event], written: list[DocWritten]) -> None:
        next_ids = self.head.given.and_by(*(event.gives() for event in events))
        self.head = replace(
            self.head, seq=record.seq, hash=record.hash, ts=record.ts, **next_ids._asdict()
        )
        if new_kbs := [event.slug for event in events if isinstance(event, KbCreated)]:
            self._roster = replace(self.roster, kbs=tuple(sorted({*self.roster.kbs, *new_kbs})))
        self.paths.update(doc.path for doc in written)
        if self._written_docs is not None:
            self._written_docs += [(record, doc) for doc in written]

    def fold(self) -> None:
        """Folds all pending records into the catalog; an error fails the batch, see take_turn."""
        records, self.unfolded = self.unfolded, []
        try:
            if not self._holds_writer:
                self._writer_lock.acquire()
                self._holds_writer = True
            self._fold_earlier()
            if not records:
                return
            self.is_folded = True
            self._catalog.apply(records)
            if self._catalog.roster_changed:
                self._roster = None
        except BaseException as error:
            self.failed = error
            raise

    def end(self, *, fold: bool) -> None:
        """Folds in all of the group if asked to or if some of it was folded in already."""
        if fold or self.is_folded or self._written_docs is None:
            self.fold()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *exception: object) -> None:
        """Rolls a failed group's fold back, and releases the catalog's writer."""
        try:
            if exception[0] is not None and self.is_folded:
                self._catalog.rollback()
        finally:
            if self._holds_writer:
                self._holds_writer = False
                self._writer_lock.release()

    @property
    def queries(self) -> Queries:
        """The catalog with all appended records folded in."""
        self.fold()
        return self._catalog.queries

    @property
    def roster(self) -> Roster:
        """Agents, knowledge bases and entries, with those that pending records have made."""
        if self._roster is None:
            self._roster = self._catalog.queries.roster()  # after a fold
        return self._roster

    def token(self, actor: str, method: str, token: str) -> TokenRow | None:
        """Returns the last response under this token, pending records included."""
        key = (actor, method, token)
        for record in reversed((*self._pending.records, *self.unfolded)):
            if (record.actor, record.method, record.token) == key:
                return token_row(record)
        with self._writer_lock:
            return self._catalog.queries.token(*key)

    def documents_at(self, sight: Sight, kb: str, paths: Sequence[str]) -> dict[str, DocumentRow]:
        """Returns the live documents that come from these files, by path.

        It folds pending records in only if they come from any of the files, which is rare.
        """
        if not (self._pending.paths | self.paths).isdisjoint(paths):
            self.fold()
        with self._writer_lock:
            self._catalog.queries.see(sight)
            return self._catalog.queries.documents_at(kb, paths)

    def rows(self) -> tuple[list[int], list[IndexRow]] | None:
        """Returns the replaced documents, and the chunks of all written ones.

        None if the group has changed anything else: then only the catalog has the changes.
        """
        if self._written_docs is None:
            return None
        last = {doc.id: (record, doc) for record, doc in self._written_docs}
        rows = [row for record, doc in last.values() for row in index_rows(record, doc)]
        replaced = [id for id, (_, doc) in last.items() if doc.revision > 1]
        return replaced, sorted(rows, key=lambda row: row.chunk_id)

    @property
    def position(self) -> Position:
        """The log's end, whether its records have been folded in or not."""
        return self.batch.head
