"""Keeps the catalog's front page: the rows that the commonest reads of a closed store need.

Importing DuckDB and opening a file takes longer than all else in such a read. The page is written
once the catalog is closed. It counts only for that file, unchanged since, and at its position.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from kbproc import __version__
from kbproc.base.durable import Look, last_look, look_at, write_new
from kbproc.base.values import NOT_READABLE, packed_decoder
from kbproc.engine.log.record import Position
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.reader import EVERYTHING
from kbproc.engine.projections.catalog.rows import AgentRow, DocumentRow, Head, Roster, WatchRow
from kbproc.engine.projections.catalog.tables import CATALOG_VERSION

if TYPE_CHECKING:
    from kbproc.engine.projections.catalog.queries import Queries

_NAME = "front"
_MOST_DOCUMENTS = 101  # one more than a list shows, because that tells whether more follow


class FrontPage(Struct, frozen=True, kw_only=True):
    """A page of the catalog. `documents`: the first documents by id; `total`: their whole count.

    `indexed`: the position of a full-text index that lacks nothing, because records after it
    changed no text.
    """

    head: Head
    indexed: Position
    roster: Roster
    documents: list[DocumentRow]
    total: int

    def lists(self, after: int, limit: int) -> list[DocumentRow] | None:
        """Returns the first `limit` documents after an id; None if the page lacks some of them."""
        rows = [row for row in self.documents if row.id > after][:limit]
        is_whole = len(rows) == limit or self.total == len(self.documents)
        return rows if is_whole else None


# The version changes with the tables and the fields of the rows.
_ROWS = (FrontPage, DocumentRow, Head, Roster, AgentRow, WatchRow)
_VERSION = [
    __version__,
    str(CATALOG_VERSION),
    *(name for kind in _ROWS for name in kind.__struct_fields__),
]


class _Saved(Struct, frozen=True, kw_only=True):
    version: list[str]
    catalog: str
    look: Look
    page: FrontPage


_decode = packed_decoder(_Saved).decode


def page_of(queries: Queries, indexed: Position) -> FrontPage | None:
    """Returns the page of the whole catalog; None if an answer or a purge has not ended.

    Opening the store has to complete both, so it needs the catalog itself.
    """
    queries.see(EVERYTHING)  # because the last writer's sight may still restrict them
    if queries.being_answered() or queries.unfinished_purges():
        return None
    everything = DocumentFilter()
    return FrontPage(
        head=queries.head(),
        indexed=indexed,
        roster=queries.roster(),
        documents=queries.documents(everything, limit=_MOST_DOCUMENTS),
        total=queries.count(everything),
    )


def keep(catalog: Path, page: FrontPage) -> None:
    """Writes the page beside the catalog's file, which is closed, if it can be written.

    It is not synced, because its checksum finds what did not reach the disk.
    """
    look = last_look(catalog)
    if look is None:
        return
    saved = _Saved(version=_VERSION, catalog=catalog.name, look=look, page=page)
    data = msgspec.msgpack.encode(saved)
    path = catalog.with_name(_NAME)
    temporary = catalog.with_name(f"{_NAME}.tmp")
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)
        write_new(str(temporary), zlib.crc32(data).to_bytes(4, "big") + data)
        temporary.replace(path)


def read(views: Path) -> FrontPage | None:
    """Returns the page of the one catalog in `views`; None if it is missing or out of date."""
    try:
        data = (views / _NAME).read_bytes()
        if int.from_bytes(data[:4], "big") != zlib.crc32(memoryview(data)[4:]):
            return None
        saved = _decode(memoryview(data)[4:])
    except (OSError, *NOT_READABLE):
        return None
    catalogs = [path.name for path in views.glob("catalog*.duckdb")]
    is_current = catalogs == [saved.catalog] and saved.look == look_at(views / saved.catalog)
    return saved.page if is_current and saved.version == _VERSION else None


def exists(catalog: Path) -> bool:
    """Returns whether there is a page beside this file, current or not."""
    return catalog.with_name(_NAME).exists()


def drop(catalog: Path) -> None:
    """Removes the page before the file beside it changes. Raises OSError."""
    catalog.with_name(_NAME).unlink(missing_ok=True)


class FrontQueries:
    """Queries that the page answers; any other has `pin` open the catalog at the same position."""

    def __init__(self, page: FrontPage, pin: Callable[[], Queries]) -> None:
        self._page = page
        self._pin = pin
        self.pinned: Queries | None = None

    def begin(self) -> None:
        """Does nothing, because the page never changes."""

    def seq(self) -> int:
        return self._page.head.seq

    def documents(
        self, filter: DocumentFilter, *, after: int = 0, limit: int = 1_000_000_000
    ) -> list[DocumentRow]:
        rows = self._page.lists(after, limit) if filter == DocumentFilter() else None
        if rows is None:
            rows = self._queries.documents(filter, after=after, limit=limit)
        return rows

    def count(self, filter: DocumentFilter) -> int:
        return self._page.total if filter == DocumentFilter() else self._queries.count(filter)

    @property
    def _queries(self) -> Queries:
        if self.pinned is None:
            self.pinned = self._pin()
        return self.pinned

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queries, name)

    def end(self) -> None:
        if self.pinned is not None:
            self.pinned.end()
