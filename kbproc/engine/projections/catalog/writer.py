"""Writes rows of the catalog, and what is derived from documents: tags, metadata and counters."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import astuple

from kbproc.engine.projections.catalog.members import members_of
from kbproc.engine.projections.catalog.rows import Head
from kbproc.engine.projections.catalog.tables import (
    CATALOG_VERSION,
    HEADS,
    PER_HEAD,
    codec_of,
    types,
)

Row = Sequence[Any]
Values = dict[str, Any]

_COUNT = (
    "insert into counts values(?, ?, ?, ?, ?) on conflict(kb, type) do update set "
    "documents = documents + excluded.documents, chunks = chunks + excluded.chunks, "
    "bytes = bytes + excluded.bytes"
)
_COUNT_TAG = (
    "insert into tag_counts values(?, ?, ?, ?) on conflict(tag, kb, type) do update set "
    "documents = documents + excluded.documents"
)
_MOVE_HEADS = (
    f"update documents set checksum = checksum + (? % {HEADS} - head % {HEADS}) * {PER_HEAD}, "  # noqa: S608
    "head = ? where head = ?"
)

_PUT_HEAD = f"update head set {', '.join(f'{name} = ?' for name in (*types()['head'], 'checksum'))}"  # noqa: S608

# Tables with a row for each tag and each member of the metadata.
_INSERTIONS = {
    "tags": "insert or ignore into tags values(?, ?)",
    "metadata": "insert or ignore into metadata values(?, ?, ?, ?)",
}
_DELETIONS = {
    "tags": "delete from tags where tag = ? and document = ?",
    "metadata": "delete from metadata where key = ? and kind = ? and value = ? and document = ?",
}
DERIVED_LISTS = tuple(_INSERTIONS)


def derived_rows(row: Values) -> Iterator[tuple[Any, ...]]:
    """Yields table and columns of the tags and the metadata of a document that lists show."""
    if not _is_shown(row):
        return
    for tag in set(row["tags"]):
        yield "tags", tag, row["id"]
    if row["metadata"] != "{}":
        for member in members_of(row["metadata"]):
            yield "metadata", *member, row["id"]


def _is_shown(row: Values) -> bool:
    return row["deleted_at"] is None and not row["in_review"]


class TableWriter:
    """The connection that folds write through.

    It adds changes of counters up until `flush`, because many documents change few counters, and
    new rows until the next other statement, because SQLite takes many rows of a table at once in
    half the time.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._new_rows: dict[str, list[Row]] = {}  # insertion → rows
        self._counts: dict[tuple[str, str], list[int]] = {}  # kb, type → a number for each counter
        self._tag_counts: Counter[tuple[str, str, str]] = Counter()

    def insert(self, table: str, *rows: Row) -> None:
        codec = codec_of(table)
        self._add(codec.insertion, map(codec.stored, rows))

    def insert_standing(self, rows: Iterable[Row]) -> None:
        self._add("insert or ignore into standing values(?, ?, ?, ?, ?, ?)", rows)

    def _add(self, insertion: str, rows: Iterable[Row]) -> None:
        self._new_rows.setdefault(insertion, []).extend(rows)

    def execute(self, sql: str, values: Row = ()) -> sqlite3.Cursor:
        self._write_new_rows()
        return self._db.execute(sql, values)

    def _write_new_rows(self) -> None:
        if self._new_rows:
            new_rows, self._new_rows = self._new_rows, {}
            for insertion, rows in new_rows.items():
                self._db.executemany(insertion, rows)

    def row(self, table: str, key: str, value: Any) -> Values | None:
        """Returns the row whose column `key` is `value`; None without one."""
        codec = codec_of(table)
        rows = self.execute(f"select * from {table} where {key} = ?", [value]).fetchall()  # noqa: S608
        return dict(zip(codec.columns, codec.values(rows[0]), strict=True)) if rows else None

    def change(self, table: str, key: str, value: Any, **columns: Any) -> None:
        """Changes columns of the row whose column `key` is `value`, if there is one."""
        if (old := self.row(table, key, value)) is None:
            return
        codec = codec_of(table)
        stored = codec.stored([*(old | columns).values()])
        values = [stored[codec.places[name]] for name in columns]
        assignments = ", ".join(f"{name} = ?" for name in (*columns, "checksum"))
        sql = f"update {table} set {assignments} where {key} = ?"  # noqa: S608
        self.execute(sql, [*values, stored[-1], value])

    def put_head(self, head: Head) -> None:
        """Changes the only row of the table head."""
        self.execute(_PUT_HEAD, codec_of("head").stored((CATALOG_VERSION, *astuple(head))))

    def move_heads(self, old: int, new: int) -> None:
        """Makes `new` the head of all entries whose head is `old`; see RowCodec."""
        self.execute(_MOVE_HEADS, [new, new, old])

    # ------------------------------------------------------------- documents

    def document(self, id: int) -> Values | None:
        return self.row("documents", "id", id)

    def change_document(self, id: int, **columns: Any) -> None:
        if (old := self.document(id)) is not None:
            self.put_document(old | columns, old)

    def put_document(self, new: Values, old: Values | None) -> None:
        """Writes a document's row in the place of `old`."""
        lower = new["title"].lower()
        new["title_lower"] = None if lower == new["title"] else lower
        self.insert("documents", [*new.values()])
        if old is not None:
            self._count(old, -1)
        self._count(new, 1)
        self._derive(new, old)

    def remove_document(self, id: int) -> None:
        if (old := self.document(id)) is not None:
            self._count(old, -1)
            self._forget(old)
            self.execute("delete from documents where id = ?", [id])

    def _count(self, row: Values, by: int) -> None:
        if not _is_shown(row):
            return
        kb, type = row["kb"], row["type"]
        counts = self._counts.setdefault((kb, type), [0, 0, 0])
        counts[0] += by
        counts[1] += by * row["chunk_count"]
        counts[2] += by * row["size_bytes"]
        for tag in set(row["tags"]):
            self._tag_counts[tag, kb, type] += by

    def _derive(self, new: Values, old: Values | None) -> None:
        """Writes the tags and the metadata of a live document."""
        if old is not None:
            is_same = all(old[name] == new[name] for name in ("tags", "metadata"))
            if _is_shown(old) == _is_shown(new) and is_same:
                return
            self._forget(old)
        for table, *columns in derived_rows(new):
            self._add(_INSERTIONS[table], [columns])

    def _forget(self, old: Values) -> None:
        """Removes the tags and the metadata of a document, which its row names."""
        for table, *columns in derived_rows(old):
            self.execute(_DELETIONS[table], columns)

    def flush(self) -> None:
        """Writes new rows and the changes of counters."""
        self._write_new_rows()
        for (kb, type), changes in self._counts.items():
            if any(changes):
                self.execute(_COUNT, [kb, type, *changes])
            if changes[0] < 0:
                sql = "delete from counts where kb = ? and type = ? and documents = 0"
                self.execute(sql, [kb, type])
        for key, change in self._tag_counts.items():
            if change:
                self.execute(_COUNT_TAG, [*key, change])
            if change < 0:
                sql = (
                    "delete from tag_counts where tag = ? and kb = ? and type = ? and documents = 0"
                )
                self.execute(sql, key)
        self.drop_changes()

    def drop_changes(self) -> None:
        """Forgets what was not written since the last `flush`."""
        self._new_rows.clear()
        self._counts.clear()
        self._tag_counts.clear()
