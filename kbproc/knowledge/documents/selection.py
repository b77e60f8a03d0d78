"""The params that select documents, with their limits, and the catalog's filter made from them."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from kbproc.base.times import instant
from kbproc.base.values import DocumentId, Instant, KbSlug, Scalar, Tags, clean_tags
from kbproc.engine.events.origin import at_least
from kbproc.engine.projections.catalog.filters import DocumentFilter, SessionFilter
from kbproc.knowledge.documents.document import DocType

ToKb = Annotated[KbSlug, Meta(description="knowledge base to put it in")]

Kbs = KbSlug | Annotated[list[KbSlug], Meta(min_length=1, max_length=100)]

MAX_TEXT = 4 << 20

# No minimum length: doc.create reports an empty text among many as blank, and adds the others.
AnyText = Annotated[str, Meta(max_length=MAX_TEXT, description="the document's text")]
Text = Annotated[AnyText, Meta(min_length=1)]
DocumentIds = Annotated[
    list[DocumentId], Meta(min_length=1, max_length=1000, description="documents, by id")
]
Types = Annotated[
    list[DocType], Meta(min_length=1, max_length=32, description="only documents of these types")
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
UpdatedAfter = Annotated[Instant, Meta(description="only what was made or changed later; RFC 3339")]


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
        """True if no member selects anything; an empty list or object doesn't."""
        return not any(
            value for name, value in msgspec.structs.asdict(self).items() if name != "tags_mode"
        )


def kbs_of(kb: Kbs | None) -> list[str] | None:
    if kb is None or isinstance(kb, list):
        return kb
    return [kb]


def filter_of(selection: Any, **more: Any) -> DocumentFilter:
    """Returns the filter of params that have (some of) Selection's members; tags are normalised."""

    members = {name: getattr(selection, name) for name in _conditions_in(selection.__class__)}
    source_id = getattr(selection, "source_id", None)
    members["source_ids"] = None if source_id is None else [source_id]
    members["kbs"] = kbs_of(getattr(selection, "kb", None))
    members["tags"] = clean_tags(members["tags"]) if members.get("tags") else None
    members["metadata"] = members.get("metadata") or None
    if (min_trust := getattr(selection, "min_trust", None)) is not None:
        members["origins"] = at_least(min_trust)
    if (valid_at := getattr(selection, "valid_at", None)) is not None:
        # An entry that has been superseded since may have been true then, and have expired since.
        moment = instant(valid_at, field="$.params.valid_at")
        more |= {"true_at": moment, "hide_superseded": False, "valid_at": None}
    elif "valid_at" not in more:
        members.pop("valid_at", None)
    return DocumentFilter(**{**members, **_moments(selection), **more})


@cache
def _conditions_in(kind: type) -> list[str]:
    """Returns the conditions of a DocumentFilter that params of this kind have as members."""
    return [name for name in DocumentFilter.__struct_fields__ if hasattr(kind, name)]


def session_filter_of(selection: Any, *, text: str | None = None) -> SessionFilter:
    """Returns the filter of params that have `kb` and (some of) a SessionFilter's members."""
    agent = getattr(selection, "agent", None)
    kbs = kbs_of(selection.kb)
    return SessionFilter(agent=agent, kbs=kbs, text=text, **_moments(selection))


def _moments(selection: Any) -> dict[str, str]:
    """Returns the bounds in time as the log writes moments. Raises input.invalid_params."""
    names = ("created_after", "created_before", "updated_after")
    bounds = {name: getattr(selection, name, None) for name in names}
    return {
        name: instant(value, field=f"$.params.{name}")
        for name, value in bounds.items()
        if value is not None
    }
