"""Collects the records that writers who share a commit have appended.

Each record is folded into the catalog's open transaction before it joins the log's batch. So the
next writer decides from it, and a record that can't be folded is never written. The group also
gives the indexes its changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError
from kbproc.engine.events.document import DocWritten
from kbproc.engine.projections.catalog.rows import IndexRow, Roster, index_rows
from kbproc.engine.store.snapshot import PendingIndexChanges, Published

if TYPE_CHECKING:
    from kbproc.engine.events.event import Event
    from kbproc.engine.log.interface import LogBatch
    from kbproc.engine.log.record import Position, Record, RecordDraft
    from kbproc.engine.projections.catalog.catalog import Catalog
    from kbproc.engine.projections.catalog.queries import Queries
    from kbproc.engine.sources.blobs import NewSource

_MOST_ROWS = 2000


class NotWritten(Exception):
    """The disk has taken nothing of a commit; the cause tells why."""


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
    """One batch of the log with its fold. `published`: what readers see before it."""

    def __init__(self, *, batch: LogBatch, catalog: Catalog, published: Published) -> None:
        self.batch = batch
        self.head = published.head
        self.failed: BaseException | None = None  # why no writer of the group can go on
        self.count = 0  # the number of its records
        self.sources: list[NewSource] = []  # sources that its records name
        self._catalog = catalog
        self._roster: Roster | None = published.roster
        self._written_docs: list[tuple[Record, DocWritten]] | None = []

    def append(
        self, draft: RecordDraft, events: Sequence[Event], sources: Sequence[NewSource]
    ) -> Record:
        """Folds one record and appends it to the batch.

        Raises store.io with nothing appended, and NotWritten where the disk has taken back all
        that the group has folded in.
        """
        record = self.batch.append([draft], self._fold)[-1]
        self.count += 1
        self.head = self._catalog.queries.head()
        written = [event for event in events if isinstance(event, DocWritten)]
        names = {event.source_sha256 for event in written}
        self.sources += (source for source in sources if source.name in names)
        if not all(map(_tells_rows, events)):
            self._written_docs = None
        elif self._written_docs is not None:
            self._written_docs += [(record, doc) for doc in written]
        return record

    def _fold(self, records: Sequence[Record]) -> None:
        """Folds records into the catalog's open transaction, all of them or none.

        A disk that is full or fails takes back the whole transaction: then the group fails.
        """
        from sqlite3 import Error as DatabaseError  # not above: attached processes fold nothing

        try:
            with self._catalog.savepoint():
                self._catalog.apply(records)
        except (DatabaseError, MemoryError, OSError) as error:
            refusal = _unfolded_error(error)
            if self.count and self._catalog.is_rolled_back:
                self.failed = error
                raise NotWritten from refusal
            raise refusal from error
        if self._catalog.roster_changed:
            self._roster = None

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *exception: object) -> None:
        """Rolls the fold back unless it was committed."""
        self._catalog.rollback()

    @property
    def queries(self) -> Queries:
        """The catalog with all appended records."""
        return self._catalog.queries

    @property
    def roster(self) -> Roster:
        """Agents, knowledge bases and entries, with those that appended records have made."""
        if self._roster is None:
            self._roster = self._catalog.queries.roster()
        return self._roster

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
        """The position of the last appended record."""
        return self.batch.head


def _tells_rows(event: Event) -> bool:
    """Returns whether an event tells all rows of the indexes that it changes."""
    if isinstance(event, DocWritten):  # a replaced entry keeps what the event lacks
        return event.entry is None or event.revision == 1
    return not event.concerns().documents


def _unfolded_error(error: Exception) -> KbprocError:
    """Returns the error for a record that the catalog could not take in."""
    return KbprocError(
        "store.io",
        f"Nothing was written: the catalog could not take it in: {error}.",
        hint="Make room or check the disk, then send the request again.",
        detail={"kept": False},
    )
