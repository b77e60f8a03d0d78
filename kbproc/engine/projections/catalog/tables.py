"""Derives the catalog's tables from the structs of their rows.

A table has the members of its struct as columns, in their order. So a new member of a struct is a
new column, and a catalog without it rebuilds itself from the log on the next open.
"""

from __future__ import annotations

from functools import cache

from msgspec import Struct

from kbproc.engine.projections.catalog import rows

# To be raised with each change by which a fold writes other rows for the same records, or a column
# gets another type. Every catalog then rebuilds itself from the log on the next open.
CATALOG_VERSION = 11

# A member's annotation, which is its text in rows.py → the SQL type. Every column may be null.
_SQL_TYPES = {
    "int": "int",
    "BigInt": "bigint",
    "str": "varchar",
    "Origin": "varchar",
    "bool": "boolean",
    "list[str]": "varchar[]",
    "list[int]": "bigint[]",
}


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
        "documents": _columns(rows.DocumentRow) | _columns(rows.EntryRow),
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
        "events": _columns(rows.EventRow),
    }


def _column(column: tuple[str, str]) -> str:
    """Returns a column's definition. The name is quoted, because SQL reserves words like glob."""
    name, kind = column
    return f'"{name}" {kind}'


@cache
def schema() -> str:
    """Returns the SQL that creates all tables."""
    tables = (
        f"create table {table}({', '.join(map(_column, columns.items()))});"
        for table, columns in types().items()
    )
    return (
        "".join(tables)
        + "create index chunks_id on chunks(id);create index tokens_token on tokens(token);"
    )
