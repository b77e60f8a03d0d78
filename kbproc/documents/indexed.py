"""Chunks, documents, entries and notes as the full-text index keeps them: it tells of one in a
tenth of the time.

Owns: when the index and what it is behind by say the same as the catalog, and asking the catalog
where they may not.
Refuses to know: what is shown of a row, and the answer where there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import asdict

from kbproc.base.errors import KbprocError
from kbproc.store.snapshot import Recent, Snapshot
from kbproc.views.catalog.reader import EVERYTHING
from kbproc.views.catalog.rows import DocumentRow, EntryRow, IndexRow, NoteRow

if TYPE_CHECKING:
    from kbproc.views.fulltext.search import FullTextSnapshot


def chunks(snapshot: Snapshot, id: int, *, others: bool) -> list[IndexRow]:
    """A chunk, with `others` all of its document in order; empty if there is none to be seen."""
    try:
        fulltext, recent = _index(snapshot)
        rows = _kept(fulltext, recent, id, others)
    except _AskTheCatalog:
        rows = snapshot.queries.index_rows_of_chunks([id])
        if rows and others:
            rows = snapshot.queries.index_rows([rows[0].document_id])
    return rows if rows and _is_seen(snapshot, rows[0]) else []


def document(snapshot: Snapshot, id: int) -> DocumentRow | None:
    """None: the catalog tells whether there is one."""
    row = _first(snapshot, id)
    return None if row is None else row.document


def _first(snapshot: Snapshot, id: int) -> IndexRow | None:
    """The first chunk of a document; None, or another, where the catalog has to tell."""
    try:
        fulltext, recent = _index(snapshot)
        row = next((row for row in recent.rows if row.document_id == id and not row.idx), None)
        if row is None and id not in recent.removed:
            row = next(iter(_of(fulltext, id, 1)), None)
    except _AskTheCatalog:
        return None
    return row if row is not None and _is_seen(snapshot, row) else None


def entry(snapshot: Snapshot, id: int) -> EntryRow | None:
    """One that holds, and never took another's place. None: the catalog tells whether there is one
    and of which it did.
    """
    if id in snapshot.published.roster.successors:
        return None
    row = _first(snapshot, id)
    if row is None or row.document is None or row.facts is None or row.superseded_by is not None:
        return None
    told = {**asdict(row.document), **asdict(row.facts), "superseded_by": None, "head": id}
    return EntryRow(**{name: told[name] for name in EntryRow.__struct_fields__})


def note(snapshot: Snapshot, kb: str, slug: str) -> NoteRow | None:
    """None: the catalog tells whether there is one. `kb`: where the agent's notes lie."""
    try:
        fulltext, recent = _index(snapshot)
        waiting = (row.note for row in recent.rows if row.note is not None and row.kb == kb)
        found = next((note for note in waiting if note.source_id == slug), None)
        row = fulltext.note(kb, slug) if found is None else None
    except (_AskTheCatalog, KbprocError):  # a file of the index may have rotted
        return None
    if row is not None and row.document_id not in recent.removed:
        found = row.note
    return found if (snapshot.sight or EVERYTHING).shows(kb, "note") else None


class _AskTheCatalog(Exception):
    """The index may lack something that is shown."""


def _index(snapshot: Snapshot) -> tuple[FullTextSnapshot, Recent]:
    """As it stands, and by what it is behind: nobody waits until it is not."""
    shown = snapshot.published
    if not shown.agrees or shown.recent is None:
        raise _AskTheCatalog
    return shown.fulltext, shown.recent


def _kept(fulltext: FullTextSnapshot, recent: Recent, id: int, others: bool) -> list[IndexRow]:
    row = next((row for row in recent.rows if row.chunk_id == id), None)
    if row is not None:
        document = row.document_id
        return [r for r in recent.rows if r.document_id == document] if others else [row]
    try:
        row = fulltext.rows([id]).get(id)
    except KbprocError as error:
        raise _AskTheCatalog from error
    if row is None or row.document_id in recent.removed:
        return []
    return _of(fulltext, row.document_id, row.chunk_count) if others else [row]


def _of(fulltext: FullTextSnapshot, document_id: int, most: int) -> list[IndexRow]:
    """A file of the index may have rotted since it was opened."""
    try:
        return fulltext.rows_of(document_id, most)
    except KbprocError as error:
        raise _AskTheCatalog from error


def _is_seen(snapshot: Snapshot, row: IndexRow) -> bool:
    return (snapshot.sight or EVERYTHING).shows(row.kb, row.type)
