"""Documents as they are shown, found, changed and hidden.

Owns: rows as Document structs, the not-found answers, filters from params,
what a deletion of many means.
Refuses to know: ingest, search and the wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.suggest import nearest
from kbproc.base.values import DocumentId, Instant, KbSlug, Scalar, Tags, clean_tags, instant
from kbproc.base.wording import plural, there_is_no
from kbproc.documents.document import DocType
from kbproc.events.document import DocDeleted
from kbproc.store.decision import Decision, Here, Target
from kbproc.views.catalog.filters import DocumentFilter
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import ChunkRow, DocumentRow

ToKb = Annotated[KbSlug, Meta(description="knowledge base to put it in")]

Kbs = KbSlug | Annotated[list[KbSlug], Meta(min_length=1, max_length=100)]

MAX_TEXT = 4 << 20

Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT, description="the document's text")]
DocumentIds = Annotated[
    list[DocumentId], Meta(min_length=1, max_length=1000, description="documents, by id")
]
Types = Annotated[
    list[DocType], Meta(min_length=1, max_length=16, description="only documents of these types")
]
TagsMode = Annotated[
    Literal["all", "any"], Meta(description="all tags must be there, or any of them")
]
MetadataFilter = Annotated[
    dict[str, Scalar], Meta(max_length=64, description="members that must be equal")
]
PathPrefix = Annotated[
    str, Meta(min_length=1, max_length=4096, description="only files whose path begins so")
]
Url = Annotated[str, Meta(min_length=1, max_length=4096, description="only what came from there")]
SourceId = Annotated[
    str, Meta(min_length=1, max_length=500, description="your own name for it, unique in the kb")
]
TitlePart = Annotated[
    str, Meta(min_length=1, max_length=300, description="only titles that contain this")
]
CreatedAfter = Annotated[Instant, Meta(description="only what came later; RFC 3339")]
CreatedBefore = Annotated[Instant, Meta(description="only what came earlier; RFC 3339")]


class Selection(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which documents: all members that are given must hold."""

    kb: Annotated[Kbs, Meta(description="knowledge base, or several; all if left out")] | None = (
        None
    )
    types: Types | None = None
    tags: Tags | None = None
    tags_mode: TagsMode = "all"
    metadata: MetadataFilter | None = None
    path_prefix: PathPrefix | None = None
    url: Url | None = None
    source_id: SourceId | None = None
    title_contains: TitlePart | None = None
    created_after: CreatedAfter | None = None
    created_before: CreatedBefore | None = None

    @property
    def is_everything(self) -> bool:
        """True if no member says anything: an empty list or object does not."""
        return not any(v for k, v in msgspec.structs.asdict(self).items() if k != "tags_mode")


def kbs_of(kb: Kbs | None) -> list[str] | None:
    if kb is None or isinstance(kb, list):
        return kb
    return [kb]


def filter_of(selection: Any, **more: Any) -> DocumentFilter:
    """A filter from params that carry (some of) Selection's members; tags are normalised."""

    given = {
        name: getattr(selection, name)
        for name in DocumentFilter.__struct_fields__
        if hasattr(selection, name)
    }
    given["kbs"] = kbs_of(getattr(selection, "kb", None))
    given["tags"] = clean_tags(given["tags"]) if given.get("tags") else None
    given["metadata"] = given.get("metadata") or None
    for name in ("created_after", "created_before"):
        if given.get(name) is not None:
            given[name] = instant(given[name], field=f"$.params.{name}")
    return DocumentFilter(**{**given, **more})


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
    known = here.queries.kb_slugs()
    if slug not in known:
        raise unknown_kb(slug, known)


def require_kbs(queries: Queries, kb: Kbs | None) -> None:
    """Raises resource.not_found for a knowledge base that does not exist."""
    wanted = kbs_of(kb)
    if wanted is None:
        return
    known = queries.kb_slugs()
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
            if row.deleted_at is not None:
                instead = "Undo its deletion with events.revert."
            raise KbprocError(
                "input.invalid_params",
                f"{row.id} is a{'n' * (what == 'entry')} {what}, and "
                f"{method} changes documents only.",
                field=field,
                hint=instead,
                detail={"id": row.id, "type": row.type},
            )


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


def whole_text(chunks: Iterable[ChunkRow]) -> str:
    """The text that was cut into `chunks`, without what they repeat."""
    parts: list[str] = []
    for chunk in chunks:
        parts.append(" " if chunk.overlap else "\n\n" if parts else "")
        parts.append(chunk.text[chunk.overlap :].lstrip() if chunk.overlap else chunk.text)
    return "".join(parts)


def targets_of(rows: Iterable[DocumentRow]) -> list[Target]:
    return [
        Target(kind="document", id=row.id, name=row.title, revision=row.revision) for row in rows
    ]


def is_bulk(here: Here, kb: str, removed: int) -> bool:
    """More than half of a knowledge base."""
    documents = here.queries.kb_counts([kb]).get(kb, (0, 0, 0))[0]
    return removed * 2 > documents


class Deleted(Struct, kw_only=True, frozen=True):
    """Hidden from every read; the log keeps the text until it is purged."""

    deleted: int
    ids: list[int]


def deletion(here: Here, rows: Sequence[DocumentRow]) -> Decision:
    return Decision(
        events=[DocDeleted(id=row.id) for row in rows],
        data=Deleted(deleted=len(rows), ids=[row.id for row in rows][:1000]),
        targets=targets_of(rows),
        changes=[f"hide “{row.title}” ({plural(row.chunk_count, 'chunk')})" for row in rows],
        bulk=any(is_bulk(here, kb, count) for kb, count in _per_kb(rows).items()),
    )


def _per_kb(rows: Iterable[DocumentRow]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.kb] = counts.get(row.kb, 0) + 1
    return counts
