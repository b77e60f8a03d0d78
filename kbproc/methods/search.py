"""Search."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from kbproc import search as service
from kbproc.documents import Kbs
from kbproc.model import DocType, DocumentId, Instant, Metadata, ReadParams, Tags
from kbproc.registry import Call, Example, Reply, method
from kbproc.search import Results

Share = Annotated[float, Meta(ge=0, le=1)]


class Search(ReadParams, kw_only=True, frozen=True):
    query: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=2000,
            description='plain words, "a phrase", -word to leave out; never a syntax error',
        ),
    ]
    limit: Annotated[int, Meta(ge=1, le=100, description="most hits to return")] = 10
    offset: Annotated[int, Meta(ge=0, le=10_000, description="hits to pass over")] = 0
    mode: Annotated[
        Literal["hybrid", "fts", "vector"],
        Meta(description="words and meaning, words only, or meaning only"),
    ] = "hybrid"
    kb: Annotated[Kbs, Meta(description="knowledge base, or several; all if left out")] | None = (
        None
    )
    types: Annotated[list[DocType], Meta(min_length=1, max_length=16)] | None = None
    tags: Tags | None = None
    tags_mode: Annotated[
        Literal["all", "any"], Meta(description="all tags must be there, or any of them")
    ] = "all"
    metadata: Annotated[Metadata, Meta(description="members that must be equal")] | None = None
    path_prefix: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    created_after: Instant | None = None
    created_before: Instant | None = None
    document_ids: Annotated[list[DocumentId], Meta(min_length=1, max_length=1000)] | None = None
    per_document: (
        Annotated[int, Meta(ge=1, le=100, description="most hits of one document")] | None
    ) = None
    include_superseded: Annotated[
        bool, Meta(description="knowledge entries that others have replaced, too")
    ] = False
    include_expired: Annotated[
        bool, Meta(description="knowledge entries whose time is over, too")
    ] = False
    min_score: Annotated[Share, Meta(description="leave out hits with a lower score")] | None = None
    min_similarity: (
        Annotated[Share, Meta(description="leave out hits with a lower cosine")] | None
    ) = None
    min_confidence: (
        Annotated[
            int, Meta(ge=0, le=100, description="only knowledge entries of this confidence or more")
        ]
        | None
    ) = None
    ef_search: Annotated[
        int, Meta(ge=1, le=200, description="breadth of the vector search: slower and surer")
    ] = 64
    fusion: Annotated[
        Literal["blend", "rrf"],
        Meta(description="blend: absolute scores in [0, 1]; rrf: by rank only"),
    ] = "blend"
    snippet_chars: Annotated[int, Meta(ge=20, le=2000)] = 240
    explain: Annotated[bool, Meta(description="say how each score came about")] = False
    highlight: Annotated[bool, Meta(description="where the snippet matches")] = True


@method(
    "search",
    params=Search,
    result=Results,
    summary="Search by words and by meaning.",
    when_to_use="To find passages that answer a question. A best score below 0.3 says that the "
    "store hardly knows anything about it.",
    scope="doc:read",
    errors=["resource.not_found"],
    positional=["query"],
    examples=[
        Example(params={"query": "install git"}, what="words and meaning"),
        Example(params={"query": "install git", "mode": "fts", "limit": 3}, what="words only"),
        Example(params={"query": ""}, what="an empty query", exit=1),
    ],
)
def search(call: Call, params: Search) -> Reply:
    found = service.run(call.store, params)
    with call.store.reading() as snapshot:
        freshness = call.store.freshness(snapshot)
    results = found.results
    return Reply(
        data=results,
        seq=freshness.seq,
        count=results.returned,
        total=results.total_matches,
        has_more=found.has_more,
        hint=found.hint,
        notice=found.notice or None,
        freshness=freshness,
    )
