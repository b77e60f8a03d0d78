"""Looks up documents, chunks, entries, notes and knowledge bases.

The module raises the errors for those that don't exist, and refuses entries and notes where a
method changes documents only. The log holds earlier texts and deleted documents.

A single one is read from the full-text index, in a tenth of the catalog's time. The index and the
rows that it has not committed yet together say the same as the catalog; where they may not, the
catalog is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from kbproc.base.errors import KbprocError
from kbproc.base.suggest import nearest
from kbproc.base.wording import there_is_no
from kbproc.engine.events.document import DocDeleted, DocWritten
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.reader import EVERYTHING
from kbproc.engine.projections.catalog.rows import DocumentRow, EntryRow, IndexRow, NoteRow
from kbproc.engine.store.decision import DecisionState
from kbproc.engine.store.snapshot import PendingIndexChanges, Snapshot
from kbproc.engine.store.state import SeenStore
from kbproc.knowledge.documents.selection import Kbs, kbs_of

if TYPE_CHECKING:
    from kbproc.engine.projections.fulltext.search import FullTextSnapshot


def unknown_kb(slug: str, slugs: Sequence[str], *, field: str = "$.params.kb") -> KbprocError:
    near = nearest(slug, slugs)
    return KbprocError(
        "resource.not_found",
        f"There is no knowledge base {slug!r}.",
        field=field,
        valid_values=near,
        hint=f"Create it with kb.create, or use {near[0]}." if near else "Create it: kb.create.",
    )


def require_kb(here: DecisionState, slug: str) -> None:
    """Raises resource.not_found with the nearest names."""
    if slug not in here.kbs:
        raise unknown_kb(slug, here.kbs)


def require_kbs(slugs: Sequence[str], kb: Kbs | None) -> None:
    """Raises resource.not_found for a knowledge base that is not among `slugs`."""
    requested = kbs_of(kb)
    if requested is None:
        return
    for slug in requested:
        if slug not in slugs:
            raise unknown_kb(slug, slugs)


def require(queries: Queries, id: int, *, field: str = "$.params.id") -> DocumentRow:
    """Returns the live document.

    Raises resource.not_found, which says whether the document was deleted, purged or never there.
    """
    row = queries.document(id)
    if row is not None and row.deleted_at is None:
        return row
    if row is None:
        raise KbprocError(
            "resource.not_found",
            f"There is no document {id}.",
            field=field,
            hint="See doc.list for the documents there are.",
        )
    if is_purged(row):
        raise KbprocError(
            "resource.not_found",
            f"Document {id} was purged at {row.deleted_at}.",
            field=field,
            hint="It is gone for good; doc.history tells who purged it.",
            detail={"purged_at": row.deleted_at},
        )
    raise KbprocError(
        "resource.not_found",
        f"Document {id} was deleted at {row.deleted_at}.",
        field=field,
        hint="doc.restore brings it back; as_of shows it as it was.",
        detail={"deleted_at": row.deleted_at},
    )


def is_purged(row: DocumentRow) -> bool:
    """Returns True for a document of which only the id remains."""
    return not row.type


def require_all(queries: Queries, ids: Sequence[int], *, field: str) -> list[DocumentRow]:
    """Returns the live documents, each once. Raises resource.not_found with every missing id."""
    rows = {id: row for id, row in queries.documents_by_id(ids).items() if not row.deleted_at}
    missing = [id for id in ids if id not in rows]
    if missing:
        raise KbprocError(
            "resource.not_found",
            there_is_no("document", missing),
            field=field,
            detail={"missing": missing[:100]},
        )
    return [rows[id] for id in dict.fromkeys(ids)]


_OWN_METHODS = {
    "knowledge": ("entry", "Replace it with knowledge.supersede, hide it with knowledge.delete."),
    "note": ("note", "Replace it with note.put, hide it with note.delete."),
}


def refuse_others(rows: Iterable[DocumentRow], *, method: str, field: str) -> None:
    """Raises input.invalid_params for an entry or a note: they have methods of their own."""
    for row in rows:
        if row.type in _OWN_METHODS:
            noun, instead = _OWN_METHODS[row.type]
            if row.deleted_at is not None or (row.type, method) == ("note", "doc.restore"):
                instead = _way_back(row)
            raise KbprocError(
                "input.invalid_params",
                f"{row.id} is a{'n' * (noun == 'entry')} {noun}, and "
                f"{method} changes documents only.",
                field=field,
                hint=instead,
                detail={"id": row.id, "type": row.type},
            )


def _way_back(row: DocumentRow) -> str:
    """Returns the hint that says how a person gets the earlier entry or note back."""
    if row.type == "note":
        moment = f"as_of {row.touched - 1}" if row.deleted_at else "as_of"
        return f"note.get with {moment} shows it as it was; note.put brings that back."
    return f"events.revert with seqs [{row.touched}] undoes its deletion."


def check_revision(row: DocumentRow, expected: int | None) -> None:
    """Raises resource.conflict with the current revision."""
    if expected is not None and expected != row.revision:
        raise KbprocError(
            "resource.conflict",
            f"Document {row.id} is at revision {row.revision}, not {expected}.",
            field="$.params.expected_revision",
            hint="Read the document again, then decide.",
            detail={"revision": row.revision},
        )


# --------------------------------------------------------------- earlier texts


_UNLIMITED = 1_000_000_000


def had_text(store: SeenStore, document: int, sha256: str) -> bool:
    """Returns True if a revision of the document had the source with that digest."""
    from kbproc.engine.events import codec  # not above: hardly any read looks at the log

    with store.reading() as snapshot:
        events = snapshot.queries.events_of_document(document)
    seqs = [event.seq for event in events if event.type == DocWritten.tag()]
    return any(
        isinstance(event, DocWritten) and (event.id, event.source_sha256) == (document, sha256)
        for seq in reversed(seqs)
        for record in store.log.read(seq - 1, seq)
        for event in codec.decode(record.events)
    )


def newest_deleted(
    queries: Queries, kb: str, source_id: str, actor: str | None = None
) -> DocumentRow | None:
    """Returns the document with that source id that was deleted last.

    `actor`: only deletions by that actor count.
    """
    seqs = queries.matching_records(0, _UNLIMITED, [DocDeleted.tag()], actor, None)
    ids = [event.document_id for event in queries.events_of_records(seqs)]
    rows = queries.documents_by_id([id for id in ids if id is not None]).values()
    candidates = [
        row
        for row in rows
        if (row.kb, row.source_id) == (kb, source_id) and row.deleted_at is not None
    ]
    return max(candidates, key=lambda row: row.touched, default=None)


# ---------------------------------------------------------------- in the index


def indexed_chunks(snapshot: Snapshot, id: int, *, others: bool) -> list[IndexRow]:
    """Returns the chunk, with `others` all chunks of its document in order.

    The list is empty if the chunk does not exist or the caller may not see it.
    """
    try:
        fulltext, recent = _index(snapshot)
        rows = _chunk_rows(fulltext, recent, id, others)
    except _NeedsCatalog:
        rows = snapshot.queries.index_rows_of_chunks([id])
        if rows and others:
            rows = snapshot.queries.index_rows([rows[0].document_id])
    return rows if rows and _is_seen(snapshot, rows[0]) else []


def indexed_document(snapshot: Snapshot, id: int) -> DocumentRow | None:
    """Returns the document; None means that the catalog has to be asked."""
    row = _first_chunk(snapshot, id)
    return None if row is None else row.document


def _first_chunk(snapshot: Snapshot, id: int) -> IndexRow | None:
    """Returns the first chunk of a document; None if the catalog has to be asked."""
    try:
        fulltext, recent = _index(snapshot)
        row = next((row for row in recent.rows if row.document_id == id and not row.idx), None)
        if row is None and id not in recent.removed:
            row = next(iter(_document_rows(fulltext, id, 1)), None)
    except _NeedsCatalog:
        return None
    return row if row is not None and _is_seen(snapshot, row) else None


def indexed_entry(snapshot: Snapshot, id: int) -> EntryRow | None:
    """Returns an entry that holds and has superseded none.

    None means that the catalog has to be asked, also about an entry that has superseded others.
    """
    if id in snapshot.published.roster.successors:
        return None
    row = _first_chunk(snapshot, id)
    if row is None or row.document is None or row.facts is None or row.superseded_by is not None:
        return None
    members = {**asdict(row.document), **asdict(row.facts), "superseded_by": None, "head": id}
    members |= {"verified_by": row.verified_by, "verified_at": row.verified_at}
    return EntryRow(**{name: members[name] for name in EntryRow.__struct_fields__})


def indexed_note(snapshot: Snapshot, kb: str, slug: str) -> NoteRow | None:
    """Returns the note; None means that the catalog has to be asked.

    `kb`: the knowledge base of the agent's notes.
    """
    try:
        fulltext, recent = _index(snapshot)
        recent_notes = (row.note for row in recent.rows if row.note is not None and row.kb == kb)
        hit = next((note for note in recent_notes if note.source_id == slug), None)
        row = fulltext.note(kb, slug) if hit is None else None
    except (_NeedsCatalog, KbprocError):  # a file of the index may have rotted
        return None
    if row is not None and row.document_id not in recent.removed:
        hit = row.note
    return hit if (snapshot.sight or EVERYTHING).shows(kb, "note") else None


class _NeedsCatalog(Exception):
    """The index may lack a row that the snapshot shows."""


def _index(snapshot: Snapshot) -> tuple[FullTextSnapshot, PendingIndexChanges]:
    """Returns the index and the rows that it has not committed yet, without waiting for it.

    Raises _NeedsCatalog.
    """
    published = snapshot.published
    if published.recent is None:
        raise _NeedsCatalog
    return published.fulltext, published.recent


def _chunk_rows(
    fulltext: FullTextSnapshot, recent: PendingIndexChanges, id: int, others: bool
) -> list[IndexRow]:
    row = next((row for row in recent.rows if row.chunk_id == id), None)
    if row is not None:
        document = row.document_id
        return [r for r in recent.rows if r.document_id == document] if others else [row]
    try:
        row = fulltext.rows([id]).get(id)
    except KbprocError as error:
        raise _NeedsCatalog from error
    if row is None or row.document_id in recent.removed:
        return []
    return _document_rows(fulltext, row.document_id, row.chunk_count) if others else [row]


def _document_rows(fulltext: FullTextSnapshot, document_id: int, most: int) -> list[IndexRow]:
    """Returns the rows of a document.

    Raises _NeedsCatalog for a damaged file of the index: it may have rotted since it was opened.
    """
    try:
        return fulltext.rows_of(document_id, most)
    except KbprocError as error:
        raise _NeedsCatalog from error


def _is_seen(snapshot: Snapshot, row: IndexRow) -> bool:
    return (snapshot.sight or EVERYTHING).shows(row.kb, row.type)
