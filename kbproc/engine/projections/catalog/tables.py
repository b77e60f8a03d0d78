"""Derives the catalog's tables from the structs of their rows, and codes their rows.

A table has the members of its struct as columns, in their order, and a checksum. So a new member of
a struct is a new column, and a catalog without it rebuilds itself from the log on the next open.

SQLite's own checks pass a flipped byte within a text. So each row has a checksum over its values,
which is verified whenever a row is read whole.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.hashes import blake2b
from kbproc.base.values import decoder
from kbproc.engine.projections.catalog import rows
from kbproc.engine.projections.catalog.reader import damage_error

# To be raised with each change by which a fold writes other rows for the same records. Every
# catalog then rebuilds itself from the log on the next open.
CATALOG_VERSION = 15

# A member's annotation, which is its text in rows.py → the type in SQL. Every column may be null.
_SQL_TYPES = {
    "int": "int",
    "BigInt": "bigint",
    "str": "varchar",
    "Origin": "varchar",
    "Review": "varchar",
    "bool": "boolean",
    "list[str]": "varchar[]",
    "list[int]": "bigint[]",
}
_AFFINITIES = {"int": "integer", "bigint": "integer", "boolean": "integer"}  # else text
# Tables whose rowid is a column, and tables that are sorted by columns and have no rowid.
_ROWIDS = {
    **dict.fromkeys(("documents", "chunks", "sessions", "messages"), "id"),
    "tokens": "seq",  # a record has one token at most
}
_SORTED = {"events": ("seq", "idx", "place"), "pieces": ("message_id", "seq", "idx")}

_LIVE = "where deleted_at is null"
# Tables that folds derive from documents. Counters are keyed by what a Sight hides. The table of
# standing instructions says in which characters of a chunk each stands; see instruction.py.
_DERIVED = """
create table tags(tag text, document integer, primary key(tag, document)) without rowid;
create table metadata(key text, kind text, value text, document integer,
  primary key(key, kind, value, document)) without rowid;
create table counts(kb text, type text, documents integer, chunks integer, bytes integer,
  primary key(kb, type)) without rowid;
create table tag_counts(tag text, kb text, type text, documents integer,
  primary key(tag, kb, type)) without rowid;
create table standing(subject text, said text, chunk integer, at integer, size integer,
  document integer, primary key(subject, said, chunk, at)) without rowid;
create table local(name text primary key, value) without rowid;
"""
_BEGINNINGS = ("create table ", "create index ", "create unique index ")
DERIVED = ("tags", "metadata", "counts", "tag_counts", "standing")
# Every commit writes a page of each index that its rows are in, so an index has to earn that.
# A count of the documents since a time reads documents_created alone: rows take six times as long.
_INDEXES = f"""
create unique index kbs_slug on kbs(slug);
create unique index agents_slug on agents(slug);
create index documents_kb on documents(kb, id) {_LIVE};
create index documents_type on documents(type, id) {_LIVE};
create index documents_path on documents(path, kb) {_LIVE} and path is not null;
create index documents_source on documents(source_id, kb) {_LIVE} and source_id is not null;
create index documents_url on documents(url) {_LIVE} and url is not null;
create index documents_created on documents(created_at, in_review) {_LIVE};
create index documents_updated on documents(updated_at) {_LIVE};
create index documents_head on documents(head) where head is not null;
create index documents_successor on documents(superseded_by) where superseded_by is not null;
create index documents_owner on documents(created_by) {_LIVE} and type = 'knowledge';
create index documents_entries on documents(kb, superseded_by, deleted_at) where type = 'knowledge';
create index documents_in_review on documents(id) {_LIVE} and in_review = 1;
create index documents_expiry on documents(expires_at, id) {_LIVE} and expires_at is not null;
create index chunks_document on chunks(document_id, id);
create unique index failures_path on failures(kb, path);
create index standing_document on standing(document);
create index messages_session on messages(session_id, id);
create index messages_asked on messages(asked_seq);
create index messages_open on messages(id) where status is null;
create index tokens_token on tokens(token);
create index events_type on events(type, seq) where type <> 'doc.written';
create index events_document on events(document_id) where document_id is not null;
"""


def _columns(kind: type[Struct], *, computed: tuple[str, ...] = ()) -> dict[str, str]:
    """Returns the columns of a struct. `computed`: members that queries compute."""
    return {
        name: _SQL_TYPES[annotation.removesuffix(" | None")]
        for name, annotation in kind.__annotations__.items()
        if name not in computed
    }


@cache
def types() -> dict[str, dict[str, str]]:
    """Returns table → its columns in order, with their types."""
    return {
        "head": {"version": "int", **_columns(rows.Head)},
        "kbs": _columns(rows.KbRow),
        # Facts of entries stand in the row of their document.
        "documents": _columns(rows.DocumentRow)
        | _columns(rows.EntryRow)
        | {"title_lower": "varchar"},  # null where it equals the title
        "agents": _columns(rows.AgentRow),
        "watches": _columns(rows.WatchRow),
        "chunks": _columns(rows.ChunkRow),
        "failures": dict.fromkeys(
            ("kb", "path", "error", "message", "sha256", "failed_at"), "varchar"
        ),
        "sessions": _columns(rows.SessionRow, computed=("message_count",)),
        "messages": _columns(rows.MessageRow, computed=("text", "references")),
        "pieces": {"message_id": "bigint", **_columns(rows.PieceRow)},
        "tokens": {
            **dict.fromkeys(("actor", "method", "token"), "varchar"),
            **_columns(rows.TokenRow),
        },
        # `place`: which of the documents that the event lists
        "events": {**_columns(rows.EventRow), "place": "int"},
    }


def key_of(name: str) -> tuple[str, ...]:
    """Returns the columns by which a table is sorted; each holds integers above zero, or zero."""
    return _SORTED.get(name, ("rowid",))


def _table(name: str, columns: dict[str, str]) -> str:
    """Returns the SQL that creates a table. Names are quoted: SQL reserves words like glob."""
    definitions = [
        f'"{column}" integer primary key'
        if column == _ROWIDS.get(name)
        else f'"{column}" {_AFFINITIES.get(kind, "text")}'
        for column, kind in columns.items()
    ]
    definitions.append("checksum integer")
    if name not in _SORTED:
        return f"create table {name}({', '.join(definitions)});"
    definitions.append(f"primary key({', '.join(_SORTED[name])})")
    return f"create table {name}({', '.join(definitions)}) without rowid;"


@cache
def schema() -> str:
    """Returns the SQL that creates all tables and indexes."""
    return "".join(_table(*table) for table in types().items()) + _DERIVED + _INDEXES


@cache
def statements() -> frozenset[str]:
    """Returns the statements of `schema` as SQLite stores them."""
    texts = (text.strip() for text in schema().split(";"))
    return frozenset(map(_as_kept, filter(None, texts)))


def _as_kept(text: str) -> str:
    """Returns a statement as SQLite keeps it, which writes its beginning anew."""
    for beginning in _BEGINNINGS:
        if text.startswith(beginning):
            return beginning.upper() + text[len(beginning) :]
    return text


@cache
def schema_digest() -> str:
    """Returns what identifies the tables and what folds write into them."""
    return blake2b(f"{CATALOG_VERSION}{schema()}".encode(), digest_size=16).hexdigest()


# ------------------------------------------------------------------------- rows

# An entry's head adds its remainder by HEADS, times PER_HEAD, to the checksum of its row.
HEADS, PER_HEAD = 1_000_003, 1 << 32
_pack = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode
_NOTHING = "[]"
_DECODERS: dict[str, Callable[[str], list[Any]]] = {
    "varchar[]": decoder(list[str]).decode,
    "bigint[]": decoder(list[int]).decode,
}


class RowCodec:
    """Turns the values of a table's row into stored ones, and back."""

    def __init__(self, table: str, columns: dict[str, str]) -> None:
        self.table = table
        self.columns = tuple(columns)
        self.places = {name: place for place, name in enumerate(self.columns)}
        kinds = list(enumerate(columns.values()))
        self._lists = [(i, _DECODERS[kind]) for i, kind in kinds if kind in _DECODERS]
        self._head = self.places.get("head")
        self._bools = [i for i, kind in kinds if kind == "boolean"]
        self.insertion = (
            f"insert or replace into {table} values({','.join('?' * (len(columns) + 1))})"
        )

    def stored(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the values as the table stores them, with their checksum."""
        stored = list(values)
        for place, _ in self._lists:
            if (value := stored[place]) is not None:
                stored[place] = _json(value).decode() if value else _NOTHING
        for place in self._bools:
            if stored[place] is not None:
                stored[place] = int(stored[place])
        stored.append(self._checksum(stored))
        return tuple(stored)

    def _checksum(self, stored: list[Any]) -> int:
        """Returns the checksum of stored values.

        An entry's head is added to that of the rest, so that SQL can change it in many rows.
        """
        if self._head is None or stored[self._head] is None:
            return zlib.crc32(_pack(stored))
        head, stored[self._head] = stored[self._head], None
        rest = zlib.crc32(_pack(stored))
        stored[self._head] = head
        return rest + int(head) % HEADS * PER_HEAD

    def values(self, row: Sequence[Any]) -> list[Any]:
        """Returns the values of a stored row. Raises DatabaseError."""
        *values, checksum = row
        try:
            if self._checksum(values) != checksum:
                raise damage_error(f"a row of {self.table}")
            for place, decode in self._lists:
                if (value := values[place]) is not None:
                    values[place] = [] if value == _NOTHING else decode(value)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise damage_error(f"a row of {self.table}") from error
        for place in self._bools:
            if values[place] is not None:
                values[place] = bool(values[place])
        return values


@cache
def codec_of(table: str) -> RowCodec:
    return RowCodec(table, types()[table])
