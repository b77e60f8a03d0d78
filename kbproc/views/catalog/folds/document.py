"""The fold of what happens to documents, their chunks, and files that can't become one.

Owns: the rows of documents, chunks and failures.
Refuses to know: the indexes, which see only that a document was touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import astuple

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
from kbproc.views.catalog.batch import Batch, Row, Tables, columns_of
from kbproc.views.catalog.rows import document_row, marks_column
from kbproc.views.catalog.tables import TYPES

_NO_FACTS: Row = (None,) * 5
_STAYS = ("created_at", "created_by", "superseded_by", "head")
_CHANGED = ("title", "tags", "metadata", "revision", "updated_at", "touched", "updated_by")


class Documents:
    """Documents, their chunks, and files that failed, as they are to be: of each the last."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}
        self._chunks: dict[int, list[Row]] = {}
        self._replaced: list[int] = []
        self._changed: dict[int, Row] = {}
        self._gone: dict[int, Row] = {}
        self._failures: dict[tuple[str, str], Row | None] = {}

    def __len__(self) -> int:
        return len(self._rows) + len(self._changed) + len(self._gone) + len(self._failures)

    def write(self, row: Row, chunks: list[Row], *, replaces: bool) -> None:
        id = row[0]
        if (before := self._rows.get(id)) is not None:
            columns = _by_column(before)
            row = _with(row, tuple(columns[name] for name in _STAYS))
        elif replaces:
            self._replaced.append(id)
        self._rows[id], self._chunks[id] = row, chunks
        self._changed.pop(id, None)
        self._gone.pop(id, None)

    def change(self, id: int, said: Row) -> None:
        """`said`: the values of _CHANGED."""
        if (row := self._rows.get(id)) is not None:
            self._rows[id] = _but(row, zip(_CHANGED, said, strict=True))
        else:
            self._changed[id] = (id, *said)

    def hide(self, id: int, at: str, seq: int) -> None:
        if (row := self._rows.get(id)) is not None:
            hidden = {"chunk_count": 0, "deleted_at": at, "touched": seq}
            self._rows[id] = _but(row, hidden.items())
            self._chunks[id] = []
        else:
            self._gone[id] = (id, at, seq, 0)

    def hides(self, id: int) -> bool:
        return id in self._gone

    def fail(self, kb: str, path: str, row: Row | None) -> None:
        """`row` None: it is gone, or can be read now."""
        self._failures[kb, path] = row

    def flush(self, db: Tables) -> None:
        stays = _what_stays(db, self._replaced)
        if self._replaced:
            _remove(db, self._replaced)
        rows = self._rows.items()
        db.insert("documents", [_with(row, stays[id]) if id in stays else row for id, row in rows])
        db.insert("chunks", [chunk for chunks in self._chunks.values() for chunk in chunks])
        db.update("documents", _CHANGED, self._changed.values())
        db.update("documents", ("deleted_at", "touched", "chunk_count"), self._gone.values())
        if self._gone:
            db.execute(_DROP_CHUNKS, [list(self._gone)])
        if self._failures:
            db.execute(_CLEAR, columns_of(self._failures))
            db.insert("failures", [row for row in self._failures.values() if row])
        self.__init__()  # type: ignore[misc]


_DROP_CHUNKS = "delete from chunks where document_id in (select unnest(?::bigint[]))"
_CLEAR = (
    "delete from failures where (kb, path) in (select (unnest(?::varchar[]), unnest(?::varchar[])))"
)


def _what_stays(db: Tables, ids: list[int]) -> dict[int, Row]:
    """Of documents that are replaced: when and by whom they were made, and their links."""
    if not ids:
        return {}
    which = "where id in (select unnest(?::bigint[]))"
    sql = f"select id, {', '.join(_STAYS)} from documents {which}"  # noqa: S608
    return {row[0]: row[1:] for row in db.execute(sql, [ids]).fetchall()}


def _with(row: Row, stays: Row) -> Row:
    """The row of a replaced document, with what stays of the old one."""
    kept = dict(zip(_STAYS, stays, strict=True))
    if kept["head"] is None:
        del kept["head"]
    return _but(row, kept.items())


def _by_column(row: Row) -> dict[str, Any]:
    return dict(zip(TYPES["documents"], row, strict=True))


def _but(row: Row, columns: Iterable[tuple[str, Any]]) -> Row:
    """The row with these values."""
    return tuple({**_by_column(row), **dict(columns)}.values())


def _remove(db: Tables, ids: list[int]) -> None:
    """The rows of these documents and of their chunks."""
    db.execute("delete from documents where id in (select unnest(?::bigint[]))", [ids])
    db.execute(_DROP_CHUNKS, [ids])


def written(batch: Batch, record: Record, event: DocWritten) -> None:
    """A document that is replaced keeps when it was made, and its links."""
    replaces = event.revision > 1
    documents = batch.gather(Documents, after=None if replaces else ())
    documents.write(_row(record, event), _chunks(event), replaces=replaces)
    batch.roster_changed = batch.roster_changed or event.entry is not None


def _row(record: Record, event: DocWritten) -> Row:
    links = (None, None if event.entry is None else event.id)
    return (*astuple(document_row(record, event)), *_facts(event.entry), *links)


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
    marks = marks_column(chunk.marks)
    return (chunk.text, chunk.page, chunk.section, chunk.overlap, chunk.joint, marks)


def changed(batch: Batch, record: Record, event: DocChanged) -> None:
    metadata = msgspec.json.encode(event.metadata).decode()
    said = (event.title, event.tags, metadata, event.revision, record.ts, record.seq, record.actor)
    documents = batch.gather(Documents)
    if documents.hides(event.id):
        batch.flush()
    documents.change(event.id, said)


def deleted(batch: Batch, record: Record, event: DocDeleted) -> None:
    batch.gather(Documents).hide(event.id, record.ts, record.seq)


def chunks_deleted(batch: Batch, record: Record, event: ChunkDeleted) -> None:
    db = batch.settled()
    db.execute("delete from chunks where id in (select unnest(?::bigint[]))", [event.ids])
    db.execute(
        "update documents set revision = ?, updated_at = ?, updated_by = ?, touched = ?, "
        "chunk_count = (select count(*) from chunks where document_id = documents.id) where id = ?",
        [event.revision, record.ts, record.actor, record.seq, event.document_id],
    )


def purged(batch: Batch, record: Record, event: DocPurged) -> None:
    """The same rows are left whether the documents were still in the log or not."""
    _remove(batch.settled(), event.ids)
    nothing: Row = ("", "", "", None, None, None, [], "{}", 0, 0, 0, "", 0, None, "")
    waiting = batch.gather(Documents)
    for id in event.ids:
        remains = (
            id,
            *nothing,
            record.ts,
            "",
            record.ts,
            record.seq,
            "",
            None,
            *_NO_FACTS,
            None,
            None,
        )
        waiting.write(remains, [], replaces=False)


def file_failed(batch: Batch, record: Record, event: FileFailed) -> None:
    row = (event.kb, event.path, event.error, event.message, event.sha256, record.ts)
    batch.gather(Documents, after=()).fail(event.kb, event.path, row)


def file_cleared(batch: Batch, record: Record, event: FileCleared) -> None:
    batch.gather(Documents, after=()).fail(event.kb, event.path, None)
