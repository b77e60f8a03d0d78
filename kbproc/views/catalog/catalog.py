"""The DuckDB catalog: what exists now, folded from the log.

Owns: its tables, the fold of every event into them, and its position, stored
in the same transaction as the rows.
Refuses to know: files, clocks, configuration, and how its rows are asked for
(queries.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from kbproc.base.failpoints import reach
from kbproc.events import codec
from kbproc.events.agent import AgentDeleted, AgentWritten
from kbproc.events.document import (
    ChunkDeleted,
    DocChanged,
    DocDeleted,
    DocWritten,
    FileCleared,
    FileFailed,
)
from kbproc.events.entry import EntryFacts, EntryRevived, EntrySuperseded
from kbproc.events.event import Event
from kbproc.events.kb import KbCreated, KbDeleted, KbUpdated
from kbproc.events.upkeep import DocPurged, Erased, LogRepaired
from kbproc.log.record import START, Position, Record
from kbproc.views.catalog.folds import lifecycle
from kbproc.views.catalog.tables import CATALOG_VERSION, SCHEMA, TABLES


class Catalog:
    """One writing connection; readers take cursors of their own.

    `apply` leaves its transaction open, so that the writer sees its own rows
    before anybody else does; `commit` publishes them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stirred = False  # agents or entries have changed since a reader's roster was made
        self._db = _open(path)
        self._in_transaction = False
        try:
            if self._version() != CATALOG_VERSION:
                self.reset()
            self._look()
        except BaseException:
            self._db.close()  # DuckDB would hand out this database again, file or no file
            raise

    def _version(self) -> int:
        """0 for a new file; asking duckdb_tables() first takes 6 ms of every start."""
        try:
            row = self._db.execute("select version from head").fetchone()
        except duckdb.CatalogException:
            return 0
        return int(row[0]) if row else 0

    def _look(self) -> None:
        """Raises duckdb.Error if tables are missing or a damaged file can't show their start."""
        for name in TABLES:
            self._db.execute(f"from {name} limit 1").fetchall()

    def reset(self) -> None:
        """An empty catalog at the log's start."""
        self.rollback()
        for (name,) in self._db.execute("select table_name from duckdb_tables()").fetchall():
            self._db.execute(f'drop table "{name}"')
        self._db.execute(SCHEMA)
        self._db.execute("insert into head values (?, ?, ?, '', 1, 1)", [CATALOG_VERSION, *START])

    @property
    def position(self) -> Position:
        return Position(*self._db.execute("select seq, hash from head").fetchall()[0])

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of one's own, for one thread."""
        return self._db.cursor()

    @property
    def writer(self) -> duckdb.DuckDBPyConnection:
        """The connection that sees what `apply` has done and `commit` has not yet shown."""
        return self._db

    def commit(self) -> None:
        if self._in_transaction:
            reach("catalog.commit")
            self._db.execute("commit")
            self._in_transaction = False
            reach("catalog.committed")

    def rollback(self) -> None:
        if self._in_transaction:
            self._in_transaction = False
            with contextlib.suppress(duckdb.Error):  # a failed statement may have ended it
                self._db.execute("rollback")

    def close(self) -> None:
        self.rollback()
        self._db.close()

    # ----------------------------------------------------------------- the fold

    def apply(self, records: Iterable[Record]) -> None:
        """Folds `records` in, in order; shown to readers only by `commit`."""
        if not self._in_transaction:
            self._db.execute("begin")
            self._in_transaction = True
        fold = _Fold(self._db)
        last: Record | None = None
        for record in records:
            for index, event in enumerate(codec.decode(record.events)):
                fold.event(record, event)
                fold.note(record, index, event)
            fold.token(record)
            last = record
        fold.flush()
        self.stirred = self.stirred or fold.stirred
        reach("catalog.applied")
        if last is not None:
            self._db.execute(
                "update head set seq = ?, hash = ?, ts = ?, next_document = greatest("
                "next_document, ?), next_chunk = greatest(next_chunk, ?)",
                [last.seq, last.hash, last.ts, fold.next_document, fold.next_chunk],
            )


class _Fold:
    """One batch of records on its way into the tables; inserts are gathered."""

    def __init__(self, db: duckdb.DuckDBPyConnection) -> None:
        self._db = db
        self._documents: list[tuple[Any, ...]] = []
        self._chunks: list[tuple[Any, ...]] = []
        self._replaced: list[int] = []
        self._ids: set[int] = set()
        self._gone: list[int] = []
        self._links: list[lifecycle.Link] = []
        self._revived: dict[int, int] = {}
        self._gone_by, self._gone_at = START, ""
        self._events: list[tuple[Any, ...]] = []
        self.next_document = 1
        self.next_chunk = 1
        self.stirred = False

    def event(self, record: Record, event: Event) -> None:
        if isinstance(event, DocWritten):
            self._written(record, event)
            return
        if isinstance(event, DocDeleted):
            self._deleted(record, event)
            return
        if isinstance(event, EntrySuperseded):
            self._superseded(record, event)
            return
        if isinstance(event, EntryRevived):
            self._revive(record, event)
            return
        self.flush()
        match event:
            case DocChanged():
                self._changed(record, event)
            case ChunkDeleted():
                self._chunks_deleted(record, event)
            case KbCreated() | KbUpdated() | KbDeleted():
                self._kb(record, event)
            case FileFailed() | FileCleared():
                self._file(record, event)
            case DocPurged():
                self._purged(record, event)
            case Erased() | LogRepaired():
                self.next_document = max(self.next_document, event.next_document)
                self.next_chunk = max(self.next_chunk, event.next_chunk)
            case AgentWritten():
                lifecycle.agent_written(self._db, record, event)
            case AgentDeleted():
                lifecycle.agent_deleted(self._db, record, event)
        self.stirred = self.stirred or isinstance(event, _STIRRING)

    def note(self, record: Record, index: int, event: Event) -> None:
        """One row of the table of events: what happened, never what it said."""
        about, tag = event.concerns(), event.tag()
        for id in about.documents or (None,):
            self._events.append(
                (
                    record.seq,
                    index,
                    record.ts,
                    record.actor,
                    record.method,
                    tag,
                    about.within,
                    id,
                    about.revision,
                )
            )

    def _written(self, record: Record, event: DocWritten) -> None:
        created_at = event.created_at or record.ts
        created_by = event.created_by or record.actor
        superseded_by, head = None, None if event.entry is None else event.id
        if (
            self._gone
            or event.id in self._ids
            or (event.revision > 1 and (self._links or self._revived))
        ):
            self.flush()
        if event.revision > 1:
            row = self._db.execute(
                "select created_at, created_by, superseded_by, coalesce(head, ?) "
                "from documents where id = ?",
                [head, event.id],
            ).fetchone()
            if row:
                created_at, created_by, superseded_by, head = row
            self._replaced.append(event.id)
        self._ids.add(event.id)
        self.stirred = self.stirred or event.entry is not None
        self._documents.append(
            (
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
                superseded_by,
                head,
            )
        )
        for index, chunk in enumerate(event.chunks):
            self._chunks.append(
                (
                    event.first_chunk + index,
                    event.id,
                    index,
                    chunk.text,
                    chunk.page,
                    chunk.section,
                    chunk.overlap,
                )
            )
        self.next_document = max(self.next_document, event.id + 1)
        self.next_chunk = max(self.next_chunk, event.first_chunk + len(event.chunks))

    def _changed(self, record: Record, event: DocChanged) -> None:
        self._db.execute(
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

    def _deleted(self, record: Record, event: DocDeleted) -> None:
        if (
            self._documents
            or self._links
            or self._revived
            or (self._gone and self._gone_by != record.position)
        ):
            self.flush()
        self._gone.append(event.id)
        self._gone_by, self._gone_at = record.position, record.ts

    def _superseded(self, record: Record, event: EntrySuperseded) -> None:
        """Entries that come meanwhile don't mind: they are inserted first."""
        if self._gone or self._revived:
            self.flush()
        self._links.append((event.id, event.by, record.seq))
        self.stirred = True

    def _revive(self, record: Record, event: EntryRevived) -> None:
        if self._gone or self._links:
            self.flush()
        self._revived.update(dict.fromkeys(event.ids, record.seq))
        self.stirred = True

    def _flush_deleted(self) -> None:
        if not self._gone:
            return
        listed = "in (select unnest(?::bigint[]))"
        self._db.execute(f"delete from chunks where document_id {listed}", [self._gone])  # noqa: S608
        self._db.execute(
            "update documents set deleted_at = ?, chunk_count = 0, touched = ? "  # noqa: S608
            f"where id {listed}",
            [self._gone_at, self._gone_by.seq, self._gone],
        )
        self._gone.clear()

    def _purged(self, record: Record, event: DocPurged) -> None:
        """The same rows are left whether the documents were still in the log or not."""
        ids = [event.ids]
        for table, column in (("chunks", "document_id"), ("documents", "id")):
            sql = f"delete from {table} where {column} in (select unnest(?::bigint[]))"  # noqa: S608
            self._db.execute(sql, ids)
        for id in event.ids:
            self._documents.append(
                (
                    id,
                    "",
                    "",
                    "",
                    None,
                    None,
                    None,
                    [],
                    "{}",
                    0,
                    0,
                    0,
                    "",
                    0,
                    None,
                    "",
                    record.ts,
                    "",
                    record.ts,
                    record.seq,
                    *_NO_FACTS,
                    None,
                    None,
                )
            )

    def _chunks_deleted(self, record: Record, event: ChunkDeleted) -> None:
        self._db.execute("delete from chunks where id in (select unnest(?::bigint[]))", [event.ids])
        self._db.execute(
            "update documents set revision = ?, updated_at = ?, touched = ?, chunk_count = "
            "(select count(*) from chunks where document_id = ?) where id = ?",
            [event.revision, record.ts, record.seq, event.document_id, event.document_id],
        )

    def _kb(self, record: Record, event: KbCreated | KbUpdated | KbDeleted) -> None:
        match event:
            case KbCreated():
                self._db.execute(
                    "insert into kbs values (?, ?, ?, 1, ?, ?)",
                    [event.slug, event.name, event.description, record.ts, record.ts],
                )
            case KbUpdated():
                self._db.execute(
                    "update kbs set name = ?, description = ?, revision = revision + 1, "
                    "updated_at = ? where slug = ?",
                    [event.name, event.description, record.ts, event.slug],
                )
            case KbDeleted():
                self._db.execute("delete from kbs where slug = ?", [event.slug])
                self._db.execute("delete from failures where kb = ?", [event.slug])

    def _file(self, record: Record, event: FileFailed | FileCleared) -> None:
        self._db.execute("delete from failures where kb = ? and path = ?", [event.kb, event.path])
        if isinstance(event, FileFailed):
            self._db.execute(
                "insert into failures values (?, ?, ?, ?, ?, ?)",
                [event.kb, event.path, event.error, event.message, event.sha256, record.ts],
            )

    def token(self, record: Record) -> None:
        if record.token is None:
            return
        result = bytes(record.result).decode()
        self._db.execute(
            "insert into tokens values (?, ?, ?, ?, ?, ?)",
            [
                record.actor,
                record.method,
                record.token,
                record.params_hash,
                record.seq,
                None if result == "null" else result,
            ],
        )

    def flush(self) -> None:
        self._flush_deleted()
        if self._replaced:
            ids = sorted(set(self._replaced))
            self._db.execute(
                "delete from documents where id in (select unnest(?::bigint[]))", [ids]
            )
            self._db.execute(
                "delete from chunks where document_id in (select unnest(?::bigint[]))", [ids]
            )
            self._replaced.clear()
        insert(self._db, "documents", self._documents)
        insert(self._db, "chunks", self._chunks)
        insert(self._db, "events", self._events)
        if self._links:
            lifecycle.superseded(self._db, self._links)
            self._links.clear()
        if self._revived:
            lifecycle.revived(self._db, self._revived)
            self._revived.clear()
        self._ids.clear()
        self._documents.clear()
        self._chunks.clear()
        self._events.clear()


_STIRRING = (AgentWritten, AgentDeleted)
_NO_FACTS = (None,) * 5


def _facts(facts: EntryFacts | None) -> tuple[Any, ...]:
    if facts is None:
        return _NO_FACTS
    return (facts.confidence, facts.expires_at, facts.task_id, facts.task_kind, facts.source)


def insert(db: duckdb.DuckDBPyConnection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Many rows at once, by column: executemany is ten times slower."""
    if not rows:
        return
    types = [row[1].lower() for row in db.execute(f"describe {table}").fetchall()]
    arguments = [list(column) for column in zip(*rows, strict=True)]
    casts = ", ".join(f"unnest(${i}::{kind}[])" for i, kind in enumerate(types, 1))
    db.execute(f"insert into {table} select {casts}", arguments)


def _open(path: Path) -> duckdb.DuckDBPyConnection:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    config: dict[str, Any] = {
        "threads": 1,  # these queries are small: a second thread only adds a hand-over
        "memory_limit": "1GB",
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    db = duckdb.connect(str(path), config=config)
    db.execute("set lock_configuration = true")
    return db
