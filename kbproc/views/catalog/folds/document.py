"""The fold of what happens to documents, their chunks, and files that can't become one.

Owns: the rows of documents, chunks and failures.
Refuses to know: the indexes, which see only that a document was touched.
"""

from __future__ import annotations

import duckdb
import msgspec

from kbproc.events.document import (
    ChunkDeleted,
    ChunkText,
    DocChanged,
    DocDeleted,
    DocWritten,
    FileCleared,
    FileFailed,
)
from kbproc.events.entry import EntryFacts
from kbproc.events.upkeep import DocPurged
from kbproc.log.record import Record
from kbproc.views.catalog.batch import Batch, Row, insert

_NO_FACTS: Row = (None,) * 5
# Columns of the table of documents.
_CREATED_AT, _CREATED_BY, _SUPERSEDED_BY, _HEAD = 15, 17, -2, -1


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
        stays = _what_stays(db, self._replaced)
        if self._replaced:
            _remove(db, self._replaced)
        rows = [_with(row, stays[row[0]]) if row[0] in stays else row for row in self._documents]
        insert(db, "documents", rows)
        insert(db, "chunks", self._chunks)
        for gathered in (self.ids, self._replaced, self._documents, self._chunks):
            gathered.clear()


class Deleted:
    """Documents that are hidden: id, when, by which record."""

    def __init__(self) -> None:
        self._gone: list[tuple[int, str, int]] = []

    def __len__(self) -> int:
        return len(self._gone)

    def add(self, id: int, record: Record) -> None:
        self._gone.append((id, record.ts, record.seq))

    def flush(self, db: duckdb.DuckDBPyConnection) -> None:
        ids, times, seqs = (list(column) for column in zip(*self._gone, strict=True))
        db.execute("delete from chunks where document_id in (select unnest(?::bigint[]))", [ids])
        db.execute(
            "update documents set deleted_at = gone.at, chunk_count = 0, touched = gone.seq from "
            "(select unnest(?::bigint[]) as id, unnest(?::varchar[]) as at, "
            "unnest(?::bigint[]) as seq) as gone where documents.id = gone.id",
            [ids, times, seqs],
        )
        self._gone.clear()


class Changed:
    """New titles, tags and metadata of documents: of each the last."""

    def __init__(self) -> None:
        self._last: dict[int, Row] = {}

    def __len__(self) -> int:
        return len(self._last)

    def add(self, record: Record, event: DocChanged) -> None:
        self._last[event.id] = (
            event.id,
            event.title,
            event.tags,
            msgspec.json.encode(event.metadata).decode(),
            event.revision,
            record.ts,
            record.seq,
        )

    def flush(self, db: duckdb.DuckDBPyConnection) -> None:
        columns = [list(column) for column in zip(*self._last.values(), strict=True)]
        db.execute(
            "update documents set title = said.title, tags = said.tags, "
            "metadata = said.metadata, revision = said.revision, updated_at = said.at, "
            "touched = said.seq from (select unnest(?::bigint[]) as id, "
            "unnest(?::varchar[]) as title, unnest(?::varchar[][]) as tags, "
            "unnest(?::varchar[]) as metadata, unnest(?::int[]) as revision, "
            "unnest(?::varchar[]) as at, unnest(?::bigint[]) as seq) as said "
            "where documents.id = said.id",
            columns,
        )
        self._last.clear()


def _what_stays(db: duckdb.DuckDBPyConnection, ids: list[int]) -> dict[int, Row]:
    """Of documents that are replaced: when and by whom they were made, and their links."""
    if not ids:
        return {}
    sql = (
        "select id, created_at, created_by, superseded_by, head from documents "
        "where id in (select unnest(?::bigint[]))"
    )
    return {row[0]: row[1:] for row in db.execute(sql, [ids]).fetchall()}


def _with(row: Row, stays: Row) -> Row:
    """The row of a replaced document, with what stays of the old one."""
    kept = list(row)
    kept[_CREATED_AT], kept[_CREATED_BY], kept[_SUPERSEDED_BY], head = stays
    kept[_HEAD] = head if head is not None else row[_HEAD]
    return tuple(kept)


def _remove(db: duckdb.DuckDBPyConnection, ids: list[int]) -> None:
    """The rows of these documents and of their chunks."""
    db.execute("delete from documents where id in (select unnest(?::bigint[]))", [ids])
    db.execute("delete from chunks where document_id in (select unnest(?::bigint[]))", [ids])


def written(batch: Batch, record: Record, event: DocWritten) -> None:
    """A document that is replaced keeps when it was made, and its links: see Written."""
    replaces = event.revision > 1
    waiting = batch.gather(Written, after=None if replaces else (Deleted,))
    if event.id in waiting.ids:
        batch.flush()
    waiting.add(_row(record, event), _chunks(event), replaces=replaces)
    batch.roster_changed = batch.roster_changed or event.entry is not None
    next_chunk = event.first_chunk + len(event.chunks)
    batch.gave_away(next_document=event.id + 1, next_chunk=next_chunk)


def _row(record: Record, event: DocWritten) -> Row:
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
        event.created_at or record.ts,
        record.ts,
        event.created_by or record.actor,
        None,
        record.seq,
        *_facts(event.entry),
        None,
        None if event.entry is None else event.id,
    )


def _facts(facts: EntryFacts | None) -> Row:
    if facts is None:
        return _NO_FACTS
    return (facts.confidence, facts.expires_at, facts.task_id, facts.task_kind, facts.source)


def _chunks(event: DocWritten) -> list[Row]:
    return [
        (event.first_chunk + index, event.id, index, *_columns(chunk))
        for index, chunk in enumerate(event.chunks)
    ]


def _columns(chunk: ChunkText) -> Row:
    marks = msgspec.json.encode(chunk.marks).decode() if chunk.marks else None
    return (chunk.text, chunk.page, chunk.section, chunk.overlap, chunk.joint, marks)


def changed(batch: Batch, record: Record, event: DocChanged) -> None:
    batch.gather(Changed, after=()).add(record, event)


def deleted(batch: Batch, record: Record, event: DocDeleted) -> None:
    batch.gather(Deleted).add(event.id, record)


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
