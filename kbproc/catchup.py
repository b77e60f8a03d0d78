"""How the views follow the log: opened, brought up to date, made afresh.

Owns: replaying records into the catalog, and telling whether an index may go on
from where it is.
Refuses to know: writers, readers, and when any of this is done (store.py).
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kbproc.errors import KbprocError
from kbproc.log import Log, Position, Record

if TYPE_CHECKING:
    from kbproc.views.catalog import Catalog
    from kbproc.views.fulltext import FullTextRow
    from kbproc.views.queries import IndexRow, Queries

_BATCH = 500
_logger = logging.getLogger(__name__)


def open_catalog(path: Path) -> Catalog:
    """One that can't be opened is thrown away with the other views: the log makes it again."""
    import duckdb

    from kbproc.views.catalog import Catalog

    try:
        return Catalog(path)
    except duckdb.Error:
        _logger.warning("the catalog could not be opened and is rebuilt", exc_info=True)
        shutil.rmtree(path.parent, ignore_errors=True)
        return Catalog(path)


def replay(log: Log, catalog: Catalog) -> None:
    """Folds in what the catalog has not applied yet."""
    _fold(catalog, log.read(catalog.position.seq))


def replay_all(log: Log, catalog: Catalog) -> None:
    """Folds the whole log afresh in one transaction: readers keep the old rows until it ends."""
    catalog.begin_afresh()
    try:
        _fold(catalog, log.read())
    except BaseException:
        catalog.rollback()
        raise


def _fold(catalog: Catalog, records: Iterable[Record]) -> None:
    batch: list[Record] = []
    for record in records:
        batch.append(record)
        if len(batch) >= _BATCH:
            catalog.apply(batch)
            batch = []
    catalog.apply(batch)
    catalog.commit()


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
    first = next(log.read(position.seq - 1), None)
    return first is not None and first.position == position


def changed_rows(queries: Queries, since: int) -> tuple[list[int], list[IndexRow]]:
    """Documents that have changed or gone since, and the chunks that they have now."""
    touched = queries.touched_since(since)
    return touched, queries.index_rows(touched) if touched else []


def fulltext_rows(rows: Iterable[IndexRow]) -> Iterator[FullTextRow]:
    from kbproc.views.fulltext import FullTextRow

    for r in rows:
        yield FullTextRow(r.chunk_id, r.document_id, r.kb, r.title, r.section, r.text)
