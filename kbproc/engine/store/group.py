"""Collects the records that writers who share a commit have appended.

Each record is folded into the catalog's open transaction before it joins the log's batch. So the
next writer decides from it, and a record that can't be folded is never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError
from kbproc.engine.events.document import DocWritten

if TYPE_CHECKING:
    from kbproc.engine.events.event import Event
    from kbproc.engine.log.interface import LogBatch
    from kbproc.engine.log.record import Position, Record, RecordDraft
    from kbproc.engine.projections.catalog.catalog import Catalog
    from kbproc.engine.projections.catalog.queries import Queries
    from kbproc.engine.projections.catalog.rows import Roster
    from kbproc.engine.sources.blobs import NewSource
    from kbproc.engine.store.snapshot import Published


class NotWritten(Exception):
    """The disk has taken nothing of a commit; the cause tells why."""


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
        names = {event.source_sha256 for event in events if isinstance(event, DocWritten)}
        self.sources += (source for source in sources if source.name in names)
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

    @property
    def position(self) -> Position:
        """The position of the last appended record."""
        return self.batch.head


def _unfolded_error(error: Exception) -> KbprocError:
    """Returns the error for a record that the catalog could not take in."""
    return KbprocError(
        "store.io",
        f"Nothing was written: the catalog could not take it in: {error}.",
        hint="Make room or check the disk, then send the request again.",
        detail={"kept": False},
    )
