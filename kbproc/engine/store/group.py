"""What writers who share a commit have appended.

Owns: when records are folded into the catalog, the log's head until then, and what the indexes
are to be told of the group.
Refuses to know: whose turn it is, what readers see, and the disk.

Documents that are added one after the other, and pieces of answers, are folded in together, those
of many groups: nobody reads or decides by their rows but who asks for the catalog, and then they
are folded in before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kbproc.events.document import DocWritten
from kbproc.events.event import Event
from kbproc.events.kb import KbCreated
from kbproc.log.interface import Batch
from kbproc.log.record import Draft, Position, Record
from kbproc.sources.blobs import Blobs
from kbproc.store.snapshot import Published, Recent
from kbproc.views.catalog.filters import labels
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.reader import Sight
from kbproc.views.catalog.rows import (
    DocumentRow,
    IndexRow,
    Roster,
    TokenRow,
    document_row,
    marks_column,
    note_of,
    token_row,
)

if TYPE_CHECKING:
    from kbproc.views.catalog.catalog import Catalog

_MOST_WAITING = 512  # records: folded in as quickly as a few
_MOST_ROWS = 2000


class Unfolded:
    """What is durable and shown, and not in the catalog yet. Changed in the lane only."""

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
        """The catalog has taken it in: whoever misses it here finds it there."""
        self.records, self._rows, self.paths = [], {}, set()

    @property
    def is_full(self) -> bool:
        return len(self.records) >= _MOST_WAITING or len(self._rows) >= _MOST_ROWS

    def rows(self, chunk_ids: Sequence[int]) -> list[IndexRow]:
        """Those of the chunks that wait here. Any thread may ask."""
        rows = self._rows
        return [rows[id] for id in chunk_ids if id in rows]


class Unindexed:
    """What the full-text index has not committed yet. Changed by whoever changes what is shown."""

    def __init__(self) -> None:
        self._removed: set[int] = set()
        self._rows: dict[int, IndexRow] = {}
        self._is_known = True

    def add(self, removed: Iterable[int], rows: Sequence[IndexRow]) -> None:
        """Of the documents that are `removed` nothing counts that came before."""
        gone = set(map(int, removed))
        self._removed |= gone
        if gone:
            self._rows = {id: r for id, r in self._rows.items() if r.document_id not in gone}
        self._is_known = self._is_known and len(self._rows) + len(rows) <= _MOST_ROWS
        if self._is_known:
            self._rows.update((row.chunk_id, row) for row in rows)
        else:
            self._rows = {}

    def clear(self) -> None:
        self._removed, self._rows, self._is_known = set(), {}, True

    @property
    def shown(self) -> Recent | None:
        """None: too much."""
        if not self._is_known:
            return None
        return Recent(frozenset(self._removed), tuple(self._rows.values()))


class Group:
    """One batch of the log with its fold. `shown`: what readers see before it.

    `unfolded`: what earlier groups have left, which `fold_earlier` folds in.
    """

    def __init__(
        self,
        *,
        batch: Batch,
        catalog: Catalog,
        blobs: Blobs,
        shown: Published,
        unfolded: Unfolded,
        fold_earlier: Callable[[], None],
        using: threading.RLock,
    ) -> None:
        """`using`: held by whoever uses the catalog's writer; by the group from its first fold on,
        until it is left.
        """
        self.batch = batch
        self.head = shown.head
        self.failed: BaseException | None = None
        self.unfolded: list[Record] = []
        self.paths: set[str | None] = set()  # of documents that were written
        self.is_folded = False
        self._catalog = catalog
        self._blobs = blobs
        self._roster: Roster | None = shown.roster
        self._earlier = unfolded
        self._fold_earlier = fold_earlier
        self._using = using
        self._uses = False
        self._written: list[tuple[Record, DocWritten]] | None = []

    def append(self, draft: Draft, events: Sequence[Event]) -> Record:
        """One record at the log's end. Raises store.io with nothing appended.

        A whole record stays even if its process dies before it is synced: so the sources that
        it names, and with them those of all who wait for their turn, are on the disk before.
        What those do not come to name is erased when they have been answered.
        """
        written = [event for event in events if isinstance(event, DocWritten)]
        sources = [event.source_sha256 for event in written]
        self._blobs.settle(sources)
        record = self.batch.append([draft])[-1]
        self._blobs.named(sources)
        self.unfolded.append(record)
        if all(event.can_wait for event in events) and self._knows(written):
            self._add(record, events, written)
        else:
            self._written = None
            self.fold()
            self.head = self._catalog.queries.head()
        return record

    def _knows(self, written: Sequence[DocWritten]) -> bool:
        """Whether the roster names every knowledge base that has entries after this."""
        return all(doc.entry is None or doc.kb in self.roster.entries for doc in written)

    def _add(self, record: Record, events: Sequence[Event], written: list[DocWritten]) -> None:
        given = self.head.given.and_by(*(event.gives() for event in events))
        self.head = replace(
            self.head, seq=record.seq, hash=record.hash, ts=record.ts, **given._asdict()
        )
        if made := [event.slug for event in events if isinstance(event, KbCreated)]:
            self._roster = replace(self.roster, kbs=tuple(sorted({*self.roster.kbs, *made})))
        self.paths.update(doc.path for doc in written)
        if self._written is not None:
            self._written += [(record, doc) for doc in written]

    def fold(self) -> None:
        """Whatever fails here is everybody's: see take_turn."""
        records, self.unfolded = self.unfolded, []
        try:
            if not self._uses:
                self._using.acquire()
                self._uses = True
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
        """All of it is folded in, or nothing."""
        if fold or self.is_folded or self._written is None:
            self.fold()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *wrong: object) -> None:
        """What it has folded in and not shown is forgotten; others may use the catalog's writer."""
        try:
            if wrong[0] is not None and self.is_folded:
                self._catalog.rollback()
        finally:
            if self._uses:
                self._uses = False
                self._using.release()

    @property
    def queries(self) -> Queries:
        """The catalog with all that was appended."""
        self.fold()
        return self._catalog.queries

    @property
    def roster(self) -> Roster:
        """Agents, knowledge bases and entries, with those that records which wait have made."""
        if self._roster is None:
            self._roster = self._catalog.queries.roster()  # after a fold
        return self._roster

    def token(self, actor: str, method: str, token: str) -> TokenRow | None:
        """What was answered under this token last."""
        key = (actor, method, token)
        for one in reversed((*self._earlier.records, *self.unfolded)):
            if (one.actor, one.method, one.token) == key:
                return token_row(one)
        with self._using:
            return self._catalog.queries.token(*key)

    def documents_at(self, sight: Sight, kb: str, paths: Sequence[str]) -> dict[str, DocumentRow]:
        """The live documents that come from these files; what waits is rarely of any of them."""
        if not (self._earlier.paths | self.paths).isdisjoint(paths):
            self.fold()
        with self._using:
            self._catalog.queries.see(sight)
            return self._catalog.queries.documents_at(kb, paths)

    def rows(self) -> tuple[list[int], list[IndexRow]] | None:
        """The documents that were replaced, and the chunks of all that were written.

        None where more has happened than that: then the catalog tells.
        """
        if self._written is None:
            return None
        last = {doc.id: (record, doc) for record, doc in self._written}
        rows = [row for record, doc in last.values() for row in _rows(record, doc)]
        replaced = [id for id, (_, doc) in last.items() if doc.revision > 1]
        return replaced, sorted(rows, key=lambda row: row.chunk_id)

    @property
    def position(self) -> Position:
        """The log's end, whether its records have been folded in or not."""
        return self.batch.head


def _rows(record: Record, doc: DocWritten) -> Iterator[IndexRow]:
    """What the catalog's queries say of its chunks, too."""
    facts, is_new, document = doc.entry, doc.revision == 1, document_row(record, doc)
    (label,) = labels((doc.kb,), documents=not facts, entries=bool(facts), superseded=False)
    for at, chunk in enumerate(doc.chunks):
        yield IndexRow(
            chunk_id=doc.first_chunk + at,
            document_id=doc.id,
            label=label,
            title=doc.title,
            section=chunk.section,
            text=chunk.text,
            page=chunk.page,
            marks=marks_column(chunk.marks),
            idx=at,
            chunk_count=len(doc.chunks),
            type=doc.doc_type,
            path=doc.path,
            url=doc.url,
            tags=doc.tags,
            confidence=facts.confidence if facts else None,
            expires_at=facts.expires_at if facts else None,
            document=document if is_new and not at else None,
            facts=facts if is_new and not at else None,
            note=None if at else note_of(document),
        )
