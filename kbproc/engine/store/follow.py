"""How the views follow the log: opened, brought up to date.

Owns: the choice of the catalog's file, replaying records into it, and whether an index may go on.
Refuses to know: writers, readers, and when any of this is done (store.py).
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError
from kbproc.events.codec import purges
from kbproc.log.interface import Log
from kbproc.log.record import Position, Record
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import IndexRow
from kbproc.views.follower import Follower

if TYPE_CHECKING:
    from kbproc.views.catalog.catalog import Catalog

_BATCH = 2000
_logger = logging.getLogger(__name__)


def next_catalog(views: Path) -> Path:
    """A name that no catalog has: one made afresh stands beside the one in use."""
    taken = [int(path.stem.partition("-")[2]) for path in _catalogs(views)]
    return views / f"catalog-{max(taken, default=0) + 1:06d}.duckdb"


def _catalogs(views: Path) -> list[Path]:
    return sorted(views.glob("catalog-[0-9]*.duckdb"))


def open_catalog(views: Path) -> Catalog:
    """The one that has come furthest; the others are what a swap left behind when it was cut off.

    One that can't be opened is thrown away: the log makes it again.
    """
    from kbproc.views.catalog.catalog import Catalog

    best: Catalog | None = None
    for path in reversed(_catalogs(views)):
        catalog = _opened(path)
        if catalog is None:
            continue
        if best is None or catalog.position.seq > best.position.seq:
            best, catalog = catalog, best
        if catalog is not None:
            catalog.close()
            remove_catalog(catalog.path)
    remove_catalog(views / "catalog.duckdb")  # as the first version named it
    return best or Catalog(next_catalog(views))


def _opened(path: Path) -> Catalog | None:
    from kbproc.views.catalog.catalog import Catalog, DatabaseError

    try:
        return Catalog(path)
    except DatabaseError:
        _logger.warning("the catalog could not be opened and is rebuilt", exc_info=True)
        remove_catalog(path)
        return None


def remove_catalog(path: Path) -> None:
    path.unlink(missing_ok=True)
    for beside in (".wal", ".boot"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    shutil.rmtree(path.with_name(path.name + ".tmp"), ignore_errors=True)


def replay(log: Log, catalog: Catalog, to_seq: int | None = None) -> None:
    """Folds in what the catalog has not applied yet, and commits."""
    _fold(log.read(catalog.position.seq, to_seq), catalog)
    catalog.commit()


def fold(log: Log, catalog: Catalog) -> int | None:
    """Like `replay`, up to a record whose purge is due here first, which it returns; not shown."""
    due: list[int] = []

    def may_be_shown(record: Record) -> bool:
        if log.is_shared and record.seq > log.erased_seq and purges(record.events):
            due.append(record.seq)
        return not due

    _fold(takewhile(may_be_shown, log.read(catalog.position.seq, log.head.seq)), catalog)
    return due[0] if due else None


def _fold(found: Iterator[Record], catalog: Catalog) -> None:
    while batch := list(islice(found, _BATCH)):
        catalog.apply(batch)


def may_go_on(log: Log, position: Position) -> bool:
    """True if `position` lies in this log, so that what came since is enough.

    Raises store.corrupt if the view has applied what the log has lost.
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


def all_rows(catalog: Catalog) -> Iterable[IndexRow]:
    """Every live chunk of a catalog that nobody changes meanwhile."""
    return Queries(catalog.cursor()).all_index_rows()


def catch_up(follower: Follower, log: Log, catalog: Catalog) -> None:
    """Brings a view to the catalog's position: by the documents that have changed, or by all."""
    if follower.position == catalog.position:
        return
    if may_go_on(log, follower.position):
        tell([follower], catalog, follower.position.seq)
        follower.commit()
    else:
        follower.rebuild(all_rows(catalog), catalog.position)


def tell(
    followers: Iterable[Follower], catalog: Catalog, since: int
) -> tuple[list[int], list[IndexRow]]:
    """Stages what has changed since, as the catalog's writer sees it: documents, and their rows."""
    queries = catalog.queries
    touched = queries.touched_since(since)
    rows = queries.index_rows(touched) if touched else []
    for follower in followers:
        follower.apply(touched, rows, catalog.position)
    return touched, rows
