"""Chunks and documents as the full-text index keeps them: it tells of one in a tenth of the time.

Owns: when the index and what it is behind by say the same as the catalog, and asking the catalog
where they may not.
Refuses to know: what is shown of a row, and the answer where there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError
from kbproc.store.snapshot import Recent, Snapshot
from kbproc.store.state import State
from kbproc.views.catalog.reader import EVERYTHING
from kbproc.views.catalog.rows import DocumentRow, IndexRow

if TYPE_CHECKING:
    from kbproc.views.fulltext.search import FullTextSnapshot


def chunk(state: State, snapshot: Snapshot, id: int) -> IndexRow | None:
    """None if there is none that may be seen."""
    try:
        row = _chunk(*_index(state, snapshot), id)
    except _AskTheCatalog:
        row = next(iter(snapshot.queries.index_rows_of_chunks([id])), None)
    return _seen(snapshot, row)


def chunks_beside(state: State, snapshot: Snapshot, row: IndexRow) -> list[IndexRow]:
    """All chunks of the same document, in order."""
    try:
        fulltext, recent = _index(state, snapshot)
        rows = [other for other in recent.rows if other.document_id == row.document_id]
        return rows or _read(fulltext, row.document_id, row.chunk_count)
    except _AskTheCatalog:
        return snapshot.queries.index_rows([row.document_id])


def document(state: State, snapshot: Snapshot, id: int) -> DocumentRow | None:
    """None: the catalog tells whether there is one."""
    try:
        fulltext, recent = _index(state, snapshot)
        row = next((row for row in recent.rows if row.document_id == id and not row.idx), None)
        if row is None and id not in recent.removed:
            row = next(
                iter(_read(fulltext, id, 1)), None
            )  # if it is not the first, no harm is done
    except _AskTheCatalog:
        return None
    row = _seen(snapshot, row)
    return None if row is None else row.document


class _AskTheCatalog(Exception):
    """The index may lack something that is shown."""


def _index(state: State, snapshot: Snapshot) -> tuple[FullTextSnapshot, Recent]:
    """As it stands, and by what it is behind: nobody waits until it is not."""
    recent = snapshot.published.recent
    if state.broken is not None or recent is None:
        raise _AskTheCatalog
    return snapshot.published.fulltext, recent


def _chunk(fulltext: FullTextSnapshot, recent: Recent, id: int) -> IndexRow | None:
    row = next((row for row in recent.rows if row.chunk_id == id), None)
    if row is not None:
        return row
    try:
        row = fulltext.rows([id]).get(id)
    except KbprocError as error:
        raise _AskTheCatalog from error
    return None if row is None or row.document_id in recent.removed else row


def _read(fulltext: FullTextSnapshot, document_id: int, most: int) -> list[IndexRow]:
    """A file of the index may have rotted since it was opened."""
    try:
        return fulltext.rows_of(document_id, most)
    except KbprocError as error:
        raise _AskTheCatalog from error


def _seen(snapshot: Snapshot, row: IndexRow | None) -> IndexRow | None:
    sight = snapshot.sight or EVERYTHING
    return row if row is not None and sight.shows(row.kb, row.type) else None
