"""Runs SQL over one connection to the catalog, restricted to the rows that a caller may see.

A read has one committed state from `begin` to `end`. Every read that answers a client names
`seen.documents`, `seen.chunks`, `seen.kbs` or `seen.sessions`, or counters as `seen.counts` and
`seen.tag_counts`, instead of the tables; a Sight decides which rows these have. So rows that a
client may not see are in none of its counts, lists and errors, and no method can forget the
restriction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    import sqlite3

NOTES = "notes/"  # the pseudo knowledge base of an agent's notes is NOTES + its slug
_AFTER_NOTES = "notes0"  # the first text that sorts behind all that begin with NOTES


class Sight(Struct, frozen=True):
    """The rows that a caller may see; None stands for all.

    `kbs`: these knowledge bases; `notes`, `sessions`: the notes and sessions of these agents;
    `entries`: knowledge entries; `texts`: the texts of documents, which answers may repeat.
    `in_review`: entries in review that were stored under these names; as a rule none.
    """

    kbs: tuple[str, ...] | None = None
    notes: tuple[str, ...] | None = None
    entries: bool = True
    sessions: tuple[str, ...] | None = None
    texts: bool = True
    in_review: tuple[str, ...] | None = ()

    @property
    def is_narrow(self) -> bool:
        """Returns whether anything but entries in review is hidden."""
        return replace(self, in_review=()) != PUBLISHED

    def sees(self, kb: str) -> bool:
        """Returns whether a knowledge base is visible; `notes/AGENT` holds an agent's notes."""
        if kb.startswith(NOTES):
            return self.notes is None or kb.removeprefix(NOTES) in self.notes
        return self.kbs is None or kb in self.kbs

    def shows(self, kb: str, type: str) -> bool:
        """Returns whether a document of this type and knowledge base is visible."""
        return self.sees(kb) and (self.entries or type != "knowledge")

    @property
    def names(self) -> list[tuple[str, str]]:
        """The rows of the temporary table `sight`: a kind and a name that it shows."""
        return [
            *(("kb", kb) for kb in self.kbs or ()),
            *(("kb", NOTES + slug) for slug in self.notes or ()),
            *(("slug", kb) for kb in self.kbs or ()),
            *(("agent", slug) for slug in self.sessions or ()),
            *(("author", name) for name in self.in_review or ()),
        ]

    @property
    def tables(self) -> dict[str, str]:
        """The SQL that replaces each of the names `seen.…`."""
        has_all = (self.kbs is None, self.notes is None, self.sessions is None)
        in_review = None if self.in_review is None else bool(self.in_review)
        return _tables(*has_all, entries=self.entries, narrow=self.is_narrow, in_review=in_review)


PUBLISHED = Sight()  # hides entries in review only
EVERYTHING = Sight(in_review=None)
_NAMES = ("documents", "chunks", "kbs", "sessions", "counts", "tag_counts")
_TABLES = {f"seen.{name}": name for name in _NAMES}
_PUBLISHED = "in_review is not 1"


@cache
def _tables(
    kbs: bool, notes: bool, sessions: bool, *, entries: bool, narrow: bool, in_review: bool | None
) -> dict[str, str]:
    """Returns the SQL of a Sight's tables; its names are in the temporary table `sight`.

    `kbs`, `notes`, `sessions`: whether it shows all of them. `in_review`: whether it shows some
    entries in review; None: all. So Sights of one kind have the same SQL, which is prepared once.
    """
    is_published = _PUBLISHED
    if in_review:
        is_published += " or created_by in (select name from temp.sight where kind = 'author')"
    if not narrow:
        if in_review is None:
            return _TABLES
        documents = f"(select * from documents where {is_published})"  # noqa: S608
        return {**_TABLES, "seen.documents": documents}
    # Purged documents are hidden, because their knowledge base is no longer known.
    conditions = ["type <> ''", *([] if entries else ["type <> 'knowledge'"])]
    is_visible = "kb in (select name from temp.sight where kind = 'kb')"
    is_note = f"kb >= '{NOTES}' and kb < '{_AFTER_NOTES}'"
    if kbs and not notes:
        conditions.append(f"({is_visible} or not ({is_note}))")
    elif notes and not kbs:
        conditions.append(f"({is_visible} or ({is_note}))")
    elif not kbs:
        conditions.append(is_visible)
    where = " and ".join(conditions)
    names = {name: f"(select * from {name} where {where})" for name in _NAMES}  # noqa: S608
    if in_review is not None:  # such an entry has no chunk, and no counter counts it
        names["documents"] = f"(select * from documents where {where} and ({is_published}))"  # noqa: S608
    names["chunks"] = (
        "(select * from chunks where exists (select 1 from documents where "  # noqa: S608
        f"documents.id = chunks.document_id and {where}))"
    )
    slugs = "select name from temp.sight where kind = "
    names["kbs"] = "kbs" if kbs else f"(select * from kbs where slug in ({slugs}'slug'))"  # noqa: S608
    names["sessions"] = (
        "sessions" if sessions else f"(select * from sessions where agent in ({slugs}'agent'))"  # noqa: S608
    )
    return {f"seen.{name}": sql for name, sql in names.items()}


# A list of up to so many values is bound; a longer one is put into a temporary table.
_MOST_BOUND = 1024
_LISTS = 8  # temporary tables for the lists of one query
_LONGEST = 2**63
K = TypeVar("K", bound=Struct)


def damage_error(part: str) -> Exception:
    """Returns the error for a part of a catalog that is not as it was written."""
    import sqlite3  # not above: attached processes have no catalog

    error = sqlite3.DatabaseError(f"{part} is damaged")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


class CatalogReader:
    """A connection to the catalog with a Sight; one thread at a time may use it."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._tables = _TABLES
        self._has_sight_table = False
        self._texts: dict[str, str] = {}
        self._texts_of_tables: dict[int, dict[str, str]] = {}
        self._next_list = 0
        self.sight = EVERYTHING

    def see(self, sight: Sight) -> None:
        """Restricts all later reads to what `sight` shows."""
        if sight == self.sight:
            return
        self.sight = sight
        self._tables = sight.tables
        # Writes see everything and what their callers may see in turns. Few kinds of tables exist,
        # and all of them stay, so that no other one gets the id.
        self._texts = self._texts_of_tables.setdefault(id(self._tables), {})
        if not sight.is_narrow and not sight.in_review:
            return
        if not self._has_sight_table:
            self._db.execute(
                "create temp table if not exists sight(kind, name, primary key(kind, name)) "
                "without rowid"
            )
            self._has_sight_table = True
        self._db.execute("delete from temp.sight")
        self._db.executemany("insert or ignore into temp.sight values(?, ?)", sight.names)

    def _sql(self, sql: str) -> str:
        text = self._texts.get(sql)
        if text is None:
            text = sql
            for name, replacement in self._tables.items():
                text = text.replace(name, replacement)
            if len(self._texts) > 1000:  # filters are many
                self._texts.clear()
            self._texts[sql] = text
        return text

    def _cursor(self, sql: str, values: Sequence[Any]) -> sqlite3.Cursor:
        text = self._sql(sql)
        try:
            return self._db.execute(text, values)
        except (OverflowError, UnicodeEncodeError):
            return self._db.execute(text, [*map(_bindable, values)])

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._cursor(sql, values).fetchall()

    def _value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Returns the first value of the first row."""
        return self._cursor(sql, values).fetchall()[0][0]

    def _among(self, column: str, values: Iterable[Any]) -> tuple[str, list[Any]]:
        """Returns the SQL condition that `column` is one of `values`, and its parameters.

        The number of parameters is rounded up, so that few texts have to be prepared.
        """
        values = list(values)
        if not values:
            return "0", []
        if len(values) > _MOST_BOUND:
            return f"{column} in (select value from temp.{self._list(values)})", []  # noqa: S608
        size = 1 << (len(values) - 1).bit_length()
        return f"{column} in ({','.join('?' * size)})", values + values[-1:] * (size - len(values))

    def _list(self, values: list[Any]) -> str:
        """Puts values into a temporary table; returns its name."""
        name = f"list_{self._next_list}"
        self._next_list = (self._next_list + 1) % _LISTS
        # The end of a read, which rolls back, removes the table.
        self._db.execute(f"create temp table if not exists {name}(value primary key) without rowid")
        self._db.execute(f"delete from temp.{name}")  # noqa: S608
        rows = ((_bindable(value),) for value in values)
        self._db.executemany(f"insert or ignore into temp.{name} values(?)", rows)
        return name

    def begin(self) -> None:
        """Starts a read of one committed state, which lasts until `end`."""
        self._db.execute("begin")
        try:
            if not self._db.execute("select seq from head").fetchall():  # BEGIN alone pins nothing
                raise damage_error("the head")
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        if self._db.in_transaction:
            self._db.execute("rollback")

    def close(self) -> None:
        self._db.close()


def _bindable(value: Any) -> Any:
    """Returns a value that SQLite can compare: no row has a number or text that it can't hold."""
    if isinstance(value, int) and not -_LONGEST <= value < _LONGEST:
        return _LONGEST - 1 if value > 0 else -_LONGEST
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:  # a part of a character
            return value.encode("utf-8", "surrogatepass")
    return value
