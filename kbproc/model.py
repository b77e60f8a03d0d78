"""Nouns and parameter types that two or more methods share.

Owns: their shapes, limits and descriptions: schemas, flags and help are made
from these.
Refuses to know: how they are stored or computed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from kbproc.errors import KbprocError

PROTOCOL = "1.0"
SCHEMA_VERSION = 1
DEFAULT_KB = "default"

SLUG = r"^[a-z0-9][a-z0-9-]{0,62}[a-z0-9]$"
# C0 but tab, newline and return; DEL; C1; zero-width; bidi marks, embeddings, overrides, isolates.
FORBIDDEN_IN_NAMES = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)

Slug = Annotated[str, Meta(pattern=SLUG, description="lower-case letters, digits, hyphens; 2–64")]
KbSlug = Annotated[
    str,
    Meta(
        pattern=SLUG,
        description="knowledge base, by slug: 2–64 lower-case letters, digits and hyphens",
    ),
]
DocumentId = Annotated[int, Meta(ge=1, le=2**53, description="document, by id")]
ChunkId = Annotated[int, Meta(ge=1, le=2**53, description="chunk, by id")]
Title = Annotated[str, Meta(min_length=1, max_length=300, description="title")]
Tag = Annotated[str, Meta(min_length=1, max_length=64, description="kebab-case word")]
Tags = Annotated[list[Tag], Meta(max_length=16, description="at most 16 tags, made kebab-case")]
Scalar = str | int | float | bool | None
Metadata = Annotated[
    dict[str, Scalar], Meta(max_length=64, description="flat object of strings, numbers, booleans")
]
Instant = Annotated[
    str,
    Meta(
        pattern=r"^\d{4}-\d\d-\d\d([Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]\d\d:\d\d)?)?$",
        description="RFC 3339 time or date; UTC unless it says otherwise",
    ),
]
DocType = Literal["pdf", "markdown", "text", "html", "docx", "code", "knowledge", "note"]
IndexStatus = Literal["ready", "pending", "failed"]


class Params(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Base of every method's params: closed, by name only."""


class ReadParams(Params, kw_only=True, frozen=True):
    min_seq: (
        Annotated[int, Meta(ge=0, description="wait until this log position is applied")] | None
    ) = None
    timeout_ms: (
        Annotated[
            int, Meta(ge=0, le=86_400_000, description="give up after this many milliseconds")
        ]
        | None
    ) = None


class ListParams(ReadParams, kw_only=True, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=1000, description="most items to return")] = 50
    cursor: Annotated[str, Meta(max_length=500, description="next_cursor of the page before")] | (
        None
    ) = None


AsOf = Annotated[
    Annotated[int, Meta(ge=0, le=2**53)] | Annotated[str, Meta(max_length=40)],
    Meta(description="what it would have answered then: a log position or an RFC 3339 time"),
]


class PastParams(ReadParams, kw_only=True, frozen=True):
    """Of a read that can look back."""

    as_of: AsOf | None = None


class PastListParams(ListParams, kw_only=True, frozen=True):
    as_of: AsOf | None = None


class WriteParams(Params, kw_only=True, frozen=True):
    client_token: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=200,
                description="makes the write happen exactly once: same token, same outcome",
            ),
        ]
        | None
    ) = None
    dry_run: Annotated[bool, Meta(description="only tell what would happen")] = False
    timeout_ms: (
        Annotated[
            int, Meta(ge=0, le=86_400_000, description="give up after this many milliseconds")
        ]
        | None
    ) = None


class DestructiveParams(WriteParams, kw_only=True, frozen=True):
    confirm: (
        Annotated[str, Meta(max_length=200, description="plan_hash of the plan a person approved")]
        | None
    ) = None


COMMON_WRITE_FIELDS = frozenset({"client_token", "dry_run", "confirm", "timeout_ms"})


class Freshness(Struct, kw_only=True, frozen=True):
    """How far each index is; `pending_embeddings` counts chunks that still lack a vector."""

    seq: int
    fulltext_seq: int
    vector_seq: int
    pending_embeddings: int


class Target(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What a write touches, named for people; `revision` is what a plan is bound to."""

    kind: str
    id: int | str
    name: str
    revision: int | None = None


class EventSummary(Struct, kw_only=True, frozen=True):
    type: str
    summary: str


class EventList(Struct, kw_only=True, frozen=True):
    """The first hundred, and how many there are."""

    items: list[EventSummary]
    total: int


class PlanRisk(Struct, kw_only=True, frozen=True):
    level: Literal["low", "medium", "high", "bulk"]
    action: str


class Plan(Struct, kw_only=True, frozen=True):
    """What a write would do. `plan_hash` confirms exactly this."""

    action: str
    targets: list[Target]
    changes: list[str]
    events: EventList
    risk: PlanRisk
    plan_hash: str


class Source(Struct, kw_only=True, frozen=True):
    """Where a document comes from: one of path, url and source_id, or none of them."""

    path: str | None = None
    url: str | None = None
    source_id: str | None = None


class Document(Struct, kw_only=True, frozen=True):
    id: int
    kb: str
    title: str
    type: DocType
    source: Source
    tags: list[str]
    metadata: dict[str, Scalar]
    revision: int
    chunk_count: int
    size_bytes: int
    sha256: str
    index_status: IndexStatus
    created_at: str
    updated_at: str
    pages: int | None = None


class ChunkView(Struct, kw_only=True, frozen=True):
    """A chunk as it is shown: `chunk_index` counts from 0 within its document."""

    id: int
    document_id: int
    chunk_index: int
    text: str
    page: int | None
    section: str | None


def clean_name(value: str, *, field: str) -> str:
    """Refuses characters that can hide or reorder text in a name."""
    found = FORBIDDEN_IN_NAMES.search(value)
    if found or "\n" in value or "\r" in value or "\t" in value:
        character = found.group() if found else next(c for c in value if c in "\n\r\t")
        raise KbprocError(
            "input.invalid_params",
            f"{field} holds the character U+{ord(character):04X}, which names may not hold.",
            field=field,
            hint="Leave out control, zero-width and bidirectional characters.",
        )
    if not value.strip():
        raise KbprocError("input.invalid_params", f"{field} is blank.", field=field)
    return value.strip()


def clean_tags(tags: Iterable[str], *, field: str = "$.params.tags") -> list[str]:
    """Kebab-case, without doubles, in the order given; at most 16."""
    seen: dict[str, None] = {}
    for index, tag in enumerate(tags):
        where = f"{field}[{index}]"
        word = re.sub(r"[\s_/-]+", "-", clean_name(tag, field=where).lower()).strip("-")
        if not word or not all(c.isalnum() or c in "-.+#" for c in word):
            raise KbprocError(
                "input.invalid_params",
                f"{where} is {tag!r}: a tag is letters, digits, hyphens and . + #.",
                field=where,
                hint="Write it like install-guide or c++.",
            )
        seen[word] = None
    return list(seen)


def check_metadata(metadata: dict[str, Any], *, field: str = "$.params.metadata") -> None:
    """Refuses keys that hide characters or exceed 200, and values over 1,000 characters."""
    for key, value in metadata.items():
        clean_name(key, field=field)
        if len(key) > 200:
            raise KbprocError(
                "input.invalid_params",
                f"A key of {field} has {len(key)} characters; the limit is 200.",
                field=field,
            )
        if isinstance(value, str) and len(value) > 1000:
            raise KbprocError(
                "input.invalid_params",
                f"{field}.{key} has {len(value)} characters; the limit is 1000.",
                field=f"{field}.{key}",
            )


def canonical(value: Any) -> bytes:
    """JSON with sorted keys: equal values give equal bytes."""
    return msgspec.json.encode(value, order="sorted")
