"""One cursor over the catalog, and what may be seen through it.

Owns: running SQL, one committed state for a whole read, and Sight: whose rows
`seen.documents`, `seen.chunks` and `seen.kbs` are.
Refuses to know: what is asked, and who looks.

Every read that answers a client names these, or `seen.sessions`, instead of the tables. So what a
client may not see is in none of its counts, lists and errors, and no method can forget it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    import duckdb

NOTES = "notes/"  # the pseudo knowledge base of an agent's notes is NOTES + its slug


class Sight(Struct, frozen=True):
    """What may be seen; None leaves that side open.

    `kbs`: these knowledge bases; `notes` and `sessions`: those of these agents; `entries`:
    knowledge entries. `texts`: what documents say, which answers may repeat.
    """

    kbs: tuple[str, ...] | None = None
    notes: tuple[str, ...] | None = None
    entries: bool = True
    sessions: tuple[str, ...] | None = None
    texts: bool = True

    def sees(self, kb: str) -> bool:
        """Whether what lies there may be seen; `notes/AGENT` is an agent's notes."""
        if kb.startswith(NOTES):
            return self.notes is None or kb.removeprefix(NOTES) in self.notes
        return self.kbs is None or kb in self.kbs

    def shows(self, kb: str, type: str) -> bool:
        """Whether a document of this type there may be seen."""
        return self.sees(kb) and (self.entries or type != "knowledge")

    def tables(self) -> dict[str, str]:
        """What stands for each of the names that reads use."""
        documents = f"(from documents where {self._documents()})"
        among = "document_id in (select id from documents where"
        chunks = f"(from chunks where {among} {self._documents()}))"
        kbs = "kbs" if self.kbs is None else f"(from kbs where slug in ({_listed(self.kbs)}))"
        sessions = "sessions"
        if self.sessions is not None:
            sessions = f"(from sessions where agent in ({_listed(self.sessions)}))"
        shown = (documents, chunks, kbs, sessions)
        return dict(zip(_TABLES, shown, strict=True))

    def _documents(self) -> str:
        """SQL over `documents`. Of what was purged nobody knows any more where it lay."""
        notes = f"starts_with(kb, '{NOTES}')"
        if self.notes is not None:
            notes = f"kb in ({_listed(NOTES + slug for slug in self.notes)})"
        others = f"not starts_with(kb, '{NOTES}')"
        if self.kbs is not None:
            others = f"kb in ({_listed(self.kbs)})"
        types = "type <> ''" + ("" if self.entries else " and type <> 'knowledge'")
        return f"({notes} or {others}) and {types}"


EVERYTHING = Sight()
_TABLES = {f"seen.{name}": name for name in ("documents", "chunks", "kbs", "sessions")}


def _listed(names: Any) -> str:
    """As SQL strings; an empty list holds nothing."""
    return ", ".join("'" + str(name).replace("'", "''") + "'" for name in names) or "null"


K = TypeVar("K", bound=Struct)


class Reader:
    """Reads over one cursor, which belongs to one thread at a time."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor
        self._parsed: dict[str, duckdb.Statement] = {}
        self._tables = _TABLES
        self.sight = EVERYTHING

    def see(self, sight: Sight) -> None:
        """From now on only so much."""
        self.sight = sight
        self._tables = _TABLES if sight == EVERYTHING else sight.tables()

    def _sql(self, sql: str) -> str:
        for name, stands in self._tables.items():
            sql = sql.replace(name, stands)
        return sql

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Parsed once: that is a sixth of what a small query costs."""
        if self._tables is not _TABLES:
            return self._cursor.execute(self._sql(sql), list(values)).fetchall()
        statement = self._parsed.get(sql)
        if statement is None:
            statement = self._cursor.extract_statements(self._sql(sql))[0]
            self._parsed[sql] = statement
        return self._cursor.execute(statement, list(values)).fetchall()

    def _documents(self, kind: type[K], which: str, values: Sequence[Any]) -> list[K]:
        """Those rows of `seen.documents`, with the columns that `kind` names."""
        columns = ", ".join(kind.__struct_fields__)
        rows = self._rows(f"select {columns} from seen.documents where {which}", values)  # noqa: S608
        return [kind(*row) for row in rows]

    def begin(self) -> None:
        """Everything until `end` sees one committed state."""
        self._cursor.execute("begin transaction read only")

    def end(self) -> None:
        self._cursor.execute("rollback")

    def close(self) -> None:
        self._cursor.close()
