"""Runs SQL over one cursor of the catalog, restricted to the rows that a caller may see.

A read has one committed state from `begin` to `end`. Every read that answers a client names
`seen.documents`, `seen.chunks`, `seen.kbs` or `seen.sessions` instead of the tables; a Sight
decides which rows these have. So rows that a client may not see are in none of its counts, lists
and errors, and no method can forget the restriction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    import duckdb

NOTES = "notes/"  # the pseudo knowledge base of an agent's notes is NOTES + its slug


class Sight(Struct, frozen=True):
    """The rows that a caller may see; None stands for all.

    `kbs`: these knowledge bases; `notes`, `sessions`: the notes and sessions of these agents;
    `entries`: knowledge entries; `texts`: the texts of documents, which answers may repeat.
    """

    kbs: tuple[str, ...] | None = None
    notes: tuple[str, ...] | None = None
    entries: bool = True
    sessions: tuple[str, ...] | None = None
    texts: bool = True

    def sees(self, kb: str) -> bool:
        """Returns whether a knowledge base is visible; `notes/AGENT` holds an agent's notes."""
        if kb.startswith(NOTES):
            return self.notes is None or kb.removeprefix(NOTES) in self.notes
        return self.kbs is None or kb in self.kbs

    def shows(self, kb: str, type: str) -> bool:
        """Returns whether a document of this type and knowledge base is visible."""
        return self.sees(kb) and (self.entries or type != "knowledge")

    def tables(self) -> dict[str, str]:
        """Returns the SQL that replaces each of the names `seen.…`."""
        documents = f"(from documents where {self._documents()})"
        in_documents = "document_id in (select id from documents where"
        chunks = f"(from chunks where {in_documents} {self._documents()}))"
        kbs = "kbs" if self.kbs is None else f"(from kbs where slug in ({_sql_list(self.kbs)}))"
        sessions = "sessions"
        if self.sessions is not None:
            sessions = f"(from sessions where agent in ({_sql_list(self.sessions)}))"
        replacements = (documents, chunks, kbs, sessions)
        return dict(zip(_TABLES, replacements, strict=True))

    def _documents(self) -> str:
        """Returns an SQL condition over `documents`.

        It hides purged documents, because their knowledge base is no longer known.
        """
        notes_condition = f"starts_with(kb, '{NOTES}')"
        if self.notes is not None:
            notes_condition = f"kb in ({_sql_list(NOTES + slug for slug in self.notes)})"
        others_condition = f"not starts_with(kb, '{NOTES}')"
        if self.kbs is not None:
            others_condition = f"kb in ({_sql_list(self.kbs)})"
        types_condition = "type <> ''" + ("" if self.entries else " and type <> 'knowledge'")
        return f"({notes_condition} or {others_condition}) and {types_condition}"


EVERYTHING = Sight()
_TABLES = {f"seen.{name}": name for name in ("documents", "chunks", "kbs", "sessions")}


def _sql_list(names: Any) -> str:
    """Returns the names as a list of SQL strings; without names, a list that equals nothing."""
    return ", ".join("'" + str(name).replace("'", "''") + "'" for name in names) or "null"


K = TypeVar("K", bound=Struct)


class CatalogReader:
    """A cursor over the catalog with a Sight; one thread at a time may use it."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor
        self._parsed: dict[str, duckdb.Statement] = {}
        self._tables = _TABLES
        self.sight = EVERYTHING

    def see(self, sight: Sight) -> None:
        """Restricts all later reads to what `sight` shows."""
        self.sight = sight
        self._tables = _TABLES if sight == EVERYTHING else sight.tables()

    def _sql(self, sql: str) -> str:
        for name, replacement in self._tables.items():
            sql = sql.replace(name, replacement)
        return sql

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs a query. Parses each text once, because parsing is a sixth of a small query."""
        if self._tables is not _TABLES:
            return self._cursor.execute(self._sql(sql), list(values)).fetchall()
        statement = self._parsed.get(sql)
        if statement is None:
            statement = self._cursor.extract_statements(self._sql(sql))[0]
            self._parsed[sql] = statement
        return self._cursor.execute(statement, list(values)).fetchall()

    def _documents(self, kind: type[K], condition: str, values: Sequence[Any]) -> list[K]:
        """Returns the rows of `seen.documents` that meet the condition, as structs of `kind`."""
        columns = ", ".join(kind.__struct_fields__)
        rows = self._rows(f"select {columns} from seen.documents where {condition}", values)  # noqa: S608
        return [kind(*row) for row in rows]

    def begin(self) -> None:
        """Starts a read of one committed state, which lasts until `end`."""
        self._cursor.execute("begin transaction read only")

    def end(self) -> None:
        self._cursor.execute("rollback")

    def close(self) -> None:
        self._cursor.close()
