"""Defines the params of `search`, and types that the searches of entries and notes share."""

# Annotations are values here: msgspec compiles each that is a text, at every start.

from typing import Annotated, Literal

from msgspec import Meta

from kbproc.base.params import BudgetTokens, PastParams
from kbproc.base.values import DocumentId, Tags
from kbproc.knowledge.documents import selection, trust
from kbproc.knowledge.documents.entry import ValidAt

Share = Annotated[float, Meta(ge=0, le=1)]

QueryText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=2000,
        description='plain words, "a phrase", -word to leave out; never a syntax error',
    ),
]
Limit = Annotated[int, Meta(ge=1, le=100, description="most hits to return")]
Offset = Annotated[int, Meta(ge=0, le=10_000, description="hits to pass over")]
Mode = Annotated[
    Literal["hybrid", "fts", "vector"],
    Meta(description="words and meaning, words only, or meaning only"),
]
Where = Annotated[selection.Kbs, Meta(description="knowledge base, or several; all if left out")]
IncludeSuperseded = Annotated[
    bool, Meta(description="knowledge entries that others have replaced, too")
]
IncludeExpired = Annotated[bool, Meta(description="knowledge entries whose time is over, too")]
MinScore = Annotated[Share, Meta(description="leave out hits with a lower score")]
MinSimilarity = Annotated[Share, Meta(description="leave out hits with a lower cosine")]
MinConfidence = Annotated[
    int, Meta(ge=0, le=100, description="only knowledge entries of this confidence or more")
]
EfSearch = Annotated[
    int,
    Meta(
        ge=1,
        le=200,
        description="how widely vectors are searched: more is slower and surer. Without effect "
        "up to 20,000 chunks, where every vector is compared",
    ),
]
Fusion = Annotated[
    Literal["blend", "rrf", "rerank"],
    Meta(
        description="blend: absolute scores in [0, 1]; rrf: by rank only; rerank: a cross-encoder "
        "reads the best hits of blend again, where one is configured"
    ),
]
SnippetChars = Annotated[int, Meta(ge=20, le=2000, description="length of a snippet")]
Only = Annotated[
    Literal["answers", "related"],
    Meta(
        description="answers: leave out hits that probably do not answer the query; related: only "
        "those that seem to have nothing to do with it"
    ),
]
Explain = Annotated[bool, Meta(description="say how each score came about")]
Highlight = Annotated[bool, Meta(description="where the snippet matches")]
Distinct = Annotated[
    bool, Meta(description="leave out hits that say nearly the same as a better one")
]
About = Annotated[bool, Meta(description="only hits that the query names, if it names any")]
Text = Annotated[bool, Meta(description="the whole text of each hit, beside its snippet")]
TextChars = Annotated[
    int,
    Meta(
        ge=20,
        le=20_000,
        description="length of a text on average; a longer one is cut around its best passage",
    ),
]


def without_text(text: bool) -> frozenset[str]:
    return frozenset() if text else frozenset({"text"})


class Search(PastParams, kw_only=True, frozen=True):
    """The params of every kind of search."""

    query: QueryText
    limit: Limit = 10
    offset: Offset = 0
    mode: Mode = "hybrid"
    kb: Where | None = None
    types: selection.Types | None = None
    tags: Tags | None = None
    tags_mode: selection.TagsMode = "all"
    metadata: selection.MetadataFilter | None = None
    path_prefix: selection.PathPrefix | None = None
    created_after: selection.CreatedAfter | None = None
    created_before: selection.CreatedBefore | None = None
    document_ids: (
        Annotated[
            list[DocumentId], Meta(min_length=1, max_length=1000, description="only in these")
        ]
        | None
    ) = None
    per_document: (
        Annotated[int, Meta(ge=1, le=100, description="most hits of one document")] | None
    ) = None
    distinct: Distinct = False
    about: About = False
    include_superseded: IncludeSuperseded = False
    include_expired: IncludeExpired = False
    valid_at: ValidAt | None = None
    min_score: MinScore | None = None
    min_similarity: MinSimilarity | None = None
    min_confidence: MinConfidence | None = None
    min_trust: trust.MinTrust | None = None
    only: Only | None = None
    ef_search: EfSearch = 64
    fusion: Fusion = "blend"
    snippet_chars: SnippetChars = 240
    explain: Explain = False
    highlight: Highlight = True
    text: Text = True
    text_chars: TextChars | None = None
    budget_tokens: BudgetTokens | None = None

    def left_out(self) -> frozenset[str]:
        return without_text(self.text)

    @property
    def thins(self) -> bool:
        """True if hits are left out for others that are better."""
        return self.distinct or self.per_document is not None

    @property
    def narrows(self) -> bool:
        """True if there are conditions that only a scored candidate can meet or fail."""
        return self.min_score is not None or self.min_similarity is not None
