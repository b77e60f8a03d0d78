"""What can happen: the tagged union of event structs.

Owns: event shapes under short names that never change, and the single-step
upcasts that lift older shapes to today's.
Refuses to know: records, seq, and how a view applies an event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.model import Scalar
from kbproc.words import plural


class _Event(Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type"):
    pass


class KbCreated(_Event, frozen=True, tag="kb.created"):
    slug: str
    name: str
    description: str = ""


class KbUpdated(_Event, frozen=True, tag="kb.updated"):
    slug: str
    name: str
    description: str


class KbDeleted(_Event, frozen=True, tag="kb.deleted"):
    """Its documents go with it, each by an event of its own in the same record."""

    slug: str


class ChunkText(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A chunk as the parser of its day cut it: a later parser never changes history.

    The first `overlap` characters of `text` repeat the chunk before.
    """

    text: str
    page: int | None = None
    section: str | None = None
    overlap: int = 0


class DocWritten(_Event, frozen=True, tag="doc.written"):
    """A document's whole content. `revision` 1 is a new document.

    Chunk ids count up from `first_chunk`. `source_sha256` names the blob.
    """

    id: int
    kb: str
    revision: int
    title: str
    doc_type: str
    source_sha256: str
    size_bytes: int
    first_chunk: int
    chunks: list[ChunkText]
    parser: int
    path: str | None = None
    url: str | None = None
    source_id: str | None = None
    tags: list[str] = []
    metadata: dict[str, Scalar] = {}
    pages: int | None = None


class DocChanged(_Event, frozen=True, tag="doc.changed"):
    """New title, tags or metadata; the text stays."""

    id: int
    revision: int
    title: str
    tags: list[str]
    metadata: dict[str, Scalar]


class DocDeleted(_Event, frozen=True, tag="doc.deleted"):
    """Hidden, not erased."""

    id: int


class ChunkDeleted(_Event, frozen=True, tag="chunk.deleted"):
    document_id: int
    revision: int
    ids: list[int]


class FileFailed(_Event, frozen=True, tag="file.failed"):
    """A file that could not be read, so that a check can name it."""

    kb: str
    path: str
    error: str
    message: str
    sha256: str | None = None


class FileCleared(_Event, frozen=True, tag="file.cleared"):
    """A file that had failed is gone or can be read now."""

    kb: str
    path: str


Event = (
    KbCreated
    | KbUpdated
    | KbDeleted
    | DocWritten
    | DocChanged
    | DocDeleted
    | ChunkDeleted
    | FileFailed
    | FileCleared
)

# Old tag → what turns its members into the next shape's, tag included.
UPCASTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[Event])


def encode(events: Iterable[Event]) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(list(events)))


def decode(raw: bytes | msgspec.Raw) -> list[Event]:
    """Today's events from a record's bytes, however old.

    Raises msgspec.ValidationError for a tag that no version knows.
    """
    if not UPCASTS:
        return _decoder.decode(raw)
    return msgspec.convert([upcast(item) for item in msgspec.json.decode(raw)], list[Event])


def upcast(item: dict[str, Any]) -> dict[str, Any]:
    """Takes single steps until no newer shape is known."""
    while step := UPCASTS.get(item["type"]):
        item = step(item)
    return item


def tag_of(event: Event) -> str:
    return str(event.__struct_config__.tag)


def summary(event: Event) -> str:
    """One line for a plan: names, never contents."""
    match event:
        case DocWritten():
            verb = "add" if event.revision == 1 else "replace"
            return (
                f"{verb} document {event.id} “{event.title}” ({plural(len(event.chunks), 'chunk')})"
            )
        case DocChanged():
            return f"change document {event.id} “{event.title}”"
        case DocDeleted():
            return f"hide document {event.id}"
        case ChunkDeleted():
            return f"hide {plural(len(event.ids), 'chunk')} of document {event.document_id}"
        case KbCreated():
            return f"create knowledge base {event.slug}"
        case KbUpdated():
            return f"update knowledge base {event.slug}"
        case KbDeleted():
            return f"delete knowledge base {event.slug}"
        case FileFailed():
            return f"note that {event.path} can't be read"
        case FileCleared():
            return f"forget that {event.path} could not be read"
