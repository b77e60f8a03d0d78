"""Which documents a request means.

Owns: the params that select documents, their limits and descriptions, and the catalog's filter
that they become.
Refuses to know: how documents are found.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from kbproc.base.values import DocumentId, Instant, KbSlug, Scalar, Tags, clean_tags, instant
from kbproc.documents.document import DocType
from kbproc.views.catalog.filters import DocumentFilter

ToKb = Annotated[KbSlug, Meta(description="knowledge base to put it in")]

Kbs = KbSlug | Annotated[list[KbSlug], Meta(min_length=1, max_length=100)]

MAX_TEXT = 4 << 20

# Among many an empty one is told of as one that is blank.
AnyText = Annotated[str, Meta(max_length=MAX_TEXT, description="the document's text")]
Text = Annotated[AnyText, Meta(min_length=1)]
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
    source_id = getattr(selection, "source_id", None)
    given["source_ids"] = None if source_id is None else [source_id]
    given["kbs"] = kbs_of(getattr(selection, "kb", None))
    given["tags"] = clean_tags(given["tags"]) if given.get("tags") else None
    given["metadata"] = given.get("metadata") or None
    for name in ("created_after", "created_before", "updated_after"):
        if given.get(name) is not None:
            given[name] = instant(given[name], field=f"$.params.{name}")
    return DocumentFilter(**{**given, **more})
