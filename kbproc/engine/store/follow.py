"""Opens the projections and brings them up to date with the log.

It chooses the catalog's file, replays records into it, and decides whether an index may go on
from its position or must be rebuilt.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.base.paths import listed
from kbproc.engine.projections.catalog.files import catalogs, next_catalog, remove_catalog

if TYPE_CHECKING:
    from kbproc.engine.log.interface import Log
    from kbproc.engine.log.record import Position, Record
    from kbproc.engine.projections.catalog.catalog import Catalog
    from kbproc.engine.projections.catalog.queries import Queries
    from kbproc.engine.projections.catalog.rows import IndexRow
    from kbproc.engine.projections.follower import Follower

_logger = logging.getLogger(__name__)


def open_catalog(views: Path) -> Catalog:
    """Opens the catalog with the latest position, and removes the others.

    An interrupted swap leaves several. A damaged catalog is removed, because the log can make it
    again. Raises OSError, DatabaseError.
    """
    from kbproc.engine.projections.catalog.catalog import Catalog

    _remove_former_views(views)
    best: Catalog | None = None
    for path in reversed(catalogs(views)):
        catalog = _open_or_remove(path)
        if catalog is None:
            continue
        if best is None or catalog.position.seq > best.position.seq:
            best, catalog = catalog, best
        if catalog is not None:
            catalog.close()
            remove_catalog(catalog.path)
    return best or Catalog(next_catalog(views))


def _open_or_remove(path: Path) -> Catalog | None:
    from kbproc.engine.projections.catalog.catalog import Catalog, DatabaseError
    from kbproc.engine.projections.catalog.checks import is_damage

    try:
        catalog = Catalog(path)
        if not catalog.is_known_damaged:
            return catalog
        catalog.close()
    except DatabaseError as error:
        if not is_damage(error):
            raise
    _logger.warning("the catalog is damaged and made afresh: %s", path.name)
    remove_catalog(path)
    return None


def _remove_former_views(views: Path) -> None:
    """Removes a catalog in DuckDB, its copies for SQL and a front page.

    Stores of format 2 from before the catalog was in SQLite have them. They hold texts, and a purge
    looks into today's views only.
    """
    for path in listed(views, "", ""):
        is_catalog = path.name.startswith("catalog") and ".duckdb" in path.name
        if is_catalog or path.name in {"front", "front.tmp"}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in listed(views / "sql", "", ".duckdb"):
        if path.name[0].isdecimal():
            path.unlink()


def replay(log: Log, catalog: Catalog, to_seq: int | None = None) -> None:
    """Applies the records that the catalog lacks, up to `to_seq`, and commits."""
    catalog.apply(log.read(catalog.position.seq, to_seq))
    catalog.commit()


def fold(log: Log, catalog: Catalog) -> int | None:
    """Applies the records that the catalog lacks, without a commit.

    It stops before a record whose purge this node must carry out first, and returns its seq.
    """
    from kbproc.engine.events.codec import purges

    due: list[int] = []

    def may_be_shown(record: Record) -> bool:
        if log.awaits_erasure(record.seq) and purges(record.events):
            due.append(record.seq)
        return not due

    catalog.apply(takewhile(may_be_shown, log.read(catalog.position.seq, log.head.seq)))
    return due[0] if due else None


def may_go_on(log: Log, position: Position) -> bool:
    """Returns True if `position` lies in this log, so that later records are enough.

    Raises store.corrupt if the projection has applied records that the log has lost.
    """
    if position.seq > log.head.seq:
        raise KbprocError(
            "store.corrupt",
            f"The log ends at record {log.head.seq}, yet a view has applied {position.seq}.",
            detail={"expected_seq": position.seq, "last_seq": log.head.seq},
        )
    if position.seq == 0:
        return False
    first = next(log.read(position.seq - 1, position.seq), None)
    return first is not None and first.position == position


def all_rows(catalog: Catalog) -> Iterator[IndexRow]:
    """Yields every live chunk of the catalog, by pages, each of the state that is committed then.

    The iteration holds no state between two pages, so that the WAL can be copied. Writers stage the
    documents that have changed since it began.
    """
    from kbproc.engine.projections.catalog.queries import Queries

    with contextlib.closing(catalog.cursor()) as cursor:
        yield from Queries(cursor).all_index_rows()


class Changes(Struct, frozen=True):
    """The changes that bring a follower to the state at `position`.

    `rows`: the chunks of the touched documents that have any.
    """

    touched_ids: list[int]
    rows: Iterable[IndexRow]
    chunk_count: int
    position: Position

    def read(self) -> Changes:
        """Returns the changes with their rows in memory."""
        return replace(self, rows=list(self.rows))

    def stage(self, follower: Follower) -> None:
        follower.apply(self.touched_ids, self.rows, self.position)


def changes(queries: Queries, since: int, position: Position) -> Changes:
    """Returns what changed after `since` up to `position`; the rows are read as they are used."""
    touched = queries.touched_since(since)
    rows = queries.index_rows(id for id, chunks in touched.items() if chunks)
    return Changes(list(touched), rows, sum(touched.values()), position)
