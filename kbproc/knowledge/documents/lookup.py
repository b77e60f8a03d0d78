"""Looks up documents, chunks, entries, notes and knowledge bases.

The module raises the errors for those that don't exist, and refuses entries and notes where a
method changes documents only. The log holds earlier texts and deleted documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError
from kbproc.base.suggest import nearest
from kbproc.base.wording import there_is_no
from kbproc.engine.events.document import DocDeleted, DocWritten
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.engine.store.state import SeenStore
from kbproc.knowledge.documents.selection import Kbs, kbs_of

if TYPE_CHECKING:
    from kbproc.engine.store.decision import DecisionState


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
