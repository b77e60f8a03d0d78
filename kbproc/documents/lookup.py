"""Finding one document, several or a knowledge base, or saying why there is none.

Owns: the not-found answers, and refusing what another kind of method changes.
Refuses to know: filters, changes and the wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbproc.base.errors import KbprocError
from kbproc.base.suggest import nearest
from kbproc.base.wording import there_is_no
from kbproc.documents.selection import Kbs, kbs_of
from kbproc.store.decision import Here
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import DocumentRow


def unknown_kb(slug: str, known: Sequence[str], *, field: str = "$.params.kb") -> KbprocError:
    near = nearest(slug, known)
    return KbprocError(
        "resource.not_found",
        f"There is no knowledge base {slug!r}.",
        field=field,
        valid_values=near,
        hint=f"Create it with kb.create, or use {near[0]}." if near else "Create it: kb.create.",
    )


def require_kb(here: Here, slug: str) -> None:
    """Raises resource.not_found with the nearest names."""
    if slug not in here.kbs:
        raise unknown_kb(slug, here.kbs)


def require_kbs(known: Sequence[str], kb: Kbs | None) -> None:
    """Raises resource.not_found for a knowledge base that is none of the `known`."""
    wanted = kbs_of(kb)
    if wanted is None:
        return
    for slug in wanted:
        if slug not in known:
            raise unknown_kb(slug, known)


def require(queries: Queries, id: int, *, field: str = "$.params.id") -> DocumentRow:
    """The live document; raises resource.not_found that tells a deleted one from none."""
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
    """Nothing is left of it but its id."""
    return not row.type


def require_all(queries: Queries, ids: Sequence[int], *, field: str) -> list[DocumentRow]:
    """Raises resource.not_found naming every id that is missing."""
    found = {id: row for id, row in queries.documents_by_id(ids).items() if not row.deleted_at}
    missing = [id for id in ids if id not in found]
    if missing:
        raise KbprocError(
            "resource.not_found",
            there_is_no("document", missing),
            field=field,
            detail={"missing": missing[:100]},
        )
    return [found[id] for id in dict.fromkeys(ids)]


_OWN_METHODS = {
    "knowledge": ("entry", "Replace it with knowledge.supersede, hide it with knowledge.delete."),
    "note": ("note", "Replace it with note.put, hide it with note.delete."),
}


def refuse_others(rows: Iterable[DocumentRow], *, method: str, field: str) -> None:
    """Raises input.invalid_params for an entry or a note: they have methods of their own."""
    for row in rows:
        if row.type in _OWN_METHODS:
            what, instead = _OWN_METHODS[row.type]
            if row.deleted_at is not None or (row.type, method) == ("note", "doc.restore"):
                instead = _way_back(row)
            raise KbprocError(
                "input.invalid_params",
                f"{row.id} is a{'n' * (what == 'entry')} {what}, and "
                f"{method} changes documents only.",
                field=field,
                hint=instead,
                detail={"id": row.id, "type": row.type},
            )


def _way_back(row: DocumentRow) -> str:
    """How an entry or a note becomes again what it was."""
    if row.type == "note":
        then = f"as_of {row.touched - 1}" if row.deleted_at else "as_of"
        return f"note.get with {then} shows it as it was; note.put brings that back."
    return f"events.revert with seqs [{row.touched}] undoes its deletion."


def check_revision(row: DocumentRow, expected: int | None) -> None:
    """Raises resource.conflict with the current revision."""
    if expected is not None and expected != row.revision:
        raise KbprocError(
            "resource.conflict",
            f"Document {row.id} is at revision {row.revision}, not {expected}.",
            field="$.params.expected_revision",
            hint="Read the document again and decide anew.",
            detail={"revision": row.revision},
        )
