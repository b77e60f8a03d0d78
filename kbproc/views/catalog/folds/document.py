"""The fold of what happens to documents, their chunks, and files that can't become one.

Owns: the rows of documents, chunks and failures.
Refuses to know: the indexes, which see only that a document was touched.
"""

from __future__ import annotations

import duckdb
import msgspec

from kbproc.events.document import (
    ChunkDeleted,
    DocChanged,
    DocDeleted,
    DocWritten,
    FileCleared,
    FileFailed,
)
from kbproc.events.entry import EntryFacts
from kbproc.events.upkeep import DocPurged
from kbproc.log.record import START, Record
from kbproc.views.catalog.batch import Batch, Row, insert

_NO_FACTS: Row = (None,) * 5


class Written:
    """Documents with their chunks; one that was there before is replaced."""

    def __init__(self) -> None:
        self.ids: set[int] = set()
        self._replaced: list[int] = []
        self._documents: list[Row] = []
        self._chunks: list[Row] = []

    def __len__(self) -> int:
        return len(self._documents)

    def add(self, document: Row, chunks: list[Row], *, replaces: bool) -> None:
        self.ids.add(document[0])
        self._documents.append(document)
        self._chunks += chunks
        if replaces:
            self._replaced.append(document[0])

    def flush(self, db: duckdb.DuckDBPyConnection) -> None:
        if self._replaced:
            _remove(db, self._replaced)
        insert(db, "documents", self._documents)
        insert(db, "chunks", self._chunks)
        for gathered in (self.ids, self._replaced, self._documents, self._chunks):
            gathered.clear()


class Deleted:
    """Documents that one record hides."""

    def __init__(self) -> None:
        self.by, self._at = START, ""
        self._ids: list[int] = []

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, id: int, record: Record) -> None:
        self._ids.append(id)
        self.by, self._at = record.position, record.ts

    def flush(self, db: duckdb.DuckDBPyConnection) -> None:
        db.execute(
            "delete from chunks where document_id in (select unnest(?::bigint[]))", [self._ids]
        )
        db.execute(
            "update documents set deleted_at = ?, chunk_count = 0, touched = ? "
            "where id in (select unnest(?::bigint[]))",
            [self._at, self.by.seq, self._ids],
        )
        self._ids.clear()


def _remove(db: duckdb.DuckDBPyConnection, ids: list[int]) -> None:
    """The rows of these documents and of their chunks."""
    db.execute("delete from documents where id in (select unnest(?::bigint[]))", [ids])
    db.execute("delete from chunks where document_id in (select unnest(?::bigint[]))", [ids])


def written(batch: Batch, record: Record, event: DocWritten) -> None:
    made = event.created_at or record.ts, event.created_by or record.actor
    link = None, None if event.entry is None else event.id
    replaces = event.revision > 1
    waiting = batch.gather(Written, after=None if replaces else (Deleted,))
    if event.id in waiting.ids:
        batch.flush()
    if replaces:
        row = batch.db.execute(
            "select created_at, created_by, superseded_by, coalesce(head, ?) "
            "from documents where id = ?",
            [link[1], event.id],
        ).fetchone()
        made, link = (row[:2], row[2:]) if row else (made, link)
    document = _row(record, event, made, link)
    waiting.add(document, _chunks(event), replaces=replaces)
    batch.roster_changed = batch.roster_changed or event.entry is not None
    next_chunk = event.first_chunk + len(event.chunks)
    batch.gave_away(next_document=event.id + 1, next_chunk=next_chunk)


def _row(record: Record, event: DocWritten, made: Row, link: Row) -> Row:
    created_at, created_by = made
    return (
        event.id,
        event.kb,
        event.title,
        event.doc_type,
        event.path,
        event.url,
        event.source_id,
        event.tags,
        msgspec.json.encode(event.metadata).decode(),
        event.revision,
        len(event.chunks),
        event.size_bytes,
        event.source_sha256,
        event.parser,
        event.pages,
        created_at,
        record.ts,
        created_by,
        None,
        record.seq,
        *_facts(event.entry),
        *link,
    )


def _facts(facts: EntryFacts | None) -> Row:
    if facts is None:
        return _NO_FACTS
    return (facts.confidence, facts.expires_at, facts.task_id, facts.task_kind, facts.source)


def _chunks(event: DocWritten) -> list[Row]:
    return [
        (id, event.id, index, chunk.text, chunk.page, chunk.section, chunk.overlap)
        for index, (id, chunk) in enumerate(enumerate(event.chunks, event.first_chunk))
    ]


def changed(batch: Batch, record: Record, event: DocChanged) -> None:
    batch.settled().execute(
        "update documents set title = ?, tags = ?, metadata = ?, revision = ?, "
        "updated_at = ?, touched = ? where id = ?",
        [
            event.title,
            event.tags,
            msgspec.json.encode(event.metadata).decode(),
            event.revision,
            record.ts,
            record.seq,
            event.id,
        ],
    )


def deleted(batch: Batch, record: Record, event: DocDeleted) -> None:
    waiting = batch.gather(Deleted)
    if waiting.by != record.position:
        batch.flush()
    waiting.add(event.id, record)


def chunks_deleted(batch: Batch, record: Record, event: ChunkDeleted) -> None:
    db = batch.settled()
    db.execute("delete from chunks where id in (select unnest(?::bigint[]))", [event.ids])
    db.execute(
        "update documents set revision = ?, updated_at = ?, touched = ?, chunk_count = "
        "(select count(*) from chunks where document_id = ?) where id = ?",
        [event.revision, record.ts, record.seq, event.document_id, event.document_id],
    )


def purged(batch: Batch, record: Record, event: DocPurged) -> None:
    """The same rows are left whether the documents were still in the log or not."""
    _remove(batch.settled(), event.ids)
    nothing: Row = ("", "", "", None, None, None, [], "{}", 0, 0, 0, "", 0, None, "")
    waiting = batch.gather(Written)
    for id in event.ids:
        left = (id, *nothing, record.ts, "", record.ts, record.seq, *_NO_FACTS, None, None)
        waiting.add(left, [], replaces=False)


def file_failed(batch: Batch, record: Record, event: FileFailed) -> None:
    file_cleared(batch, record, event)
    batch.db.execute(
        "insert into failures values (?, ?, ?, ?, ?, ?)",
        [event.kb, event.path, event.error, event.message, event.sha256, record.ts],
    )


def file_cleared(batch: Batch, record: Record, event: FileFailed | FileCleared) -> None:
    sql = "delete from failures where kb = ? and path = ?"
    batch.settled().execute(sql, [event.kb, event.path])
