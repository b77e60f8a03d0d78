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

from kbproc.base.errors import KbprocError
from kbproc.base.values import Scalar
from kbproc.base.wording import plural


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


class EntryFacts(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What a knowledge entry says of itself besides its text; times as in every view."""

    confidence: int
    source: str
    expires_at: str | None = None
    task_id: str | None = None
    task_kind: str | None = None


class DocWritten(_Event, frozen=True, tag="doc.written"):
    """A document's whole content. `revision` 1 is a new document.

    Chunk ids count up from `first_chunk`. `source_sha256` names the blob. `entry`: of
    type knowledge. A note lies in the pseudo knowledge base `notes/AGENT`, which no
    slug can name, under its own slug as `source_id`.
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
    created_at: str | None = None  # of a document that was made before it came here
    created_by: str | None = None
    entry: EntryFacts | None = None


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


class DocPurged(_Event, frozen=True, tag="doc.purged"):
    """Erased for good: from here on nothing but their ids is left of these documents."""

    ids: list[int]


class PurgeEnded(_Event, frozen=True, tag="purge.ended"):
    """Every file has been rewritten without what the record `purge` names."""

    purge: int


class Erased(_Event, frozen=True, tag="text.erased"):
    """Stands where a purge took an event away; `next_*` keep ids from being used again."""

    was: str
    purge: int
    document_id: int | None = None
    next_document: int = 1
    next_chunk: int = 1


class EntrySuperseded(_Event, frozen=True, tag="entry.superseded"):
    """`by` takes the place of `id`, where `was` had taken it before."""

    id: int
    by: int
    was: int | None = None


class EntryRevived(_Event, frozen=True, tag="entry.revived"):
    """Nothing supersedes these any more; `was` did, directly."""

    ids: list[int]
    was: int


class AgentWritten(_Event, frozen=True, tag="agent.written"):
    """An agent's whole description. None leaves a side open: all kbs, all scopes."""

    slug: str
    revision: int
    description: str
    kbs: list[str] | None
    folder: str | None
    scopes: list[str] | None
    quotas: dict[str, int]
    instructions: str


class AgentDeleted(_Event, frozen=True, tag="agent.deleted"):
    """Its notes go with it, each by an event of its own in the same record."""

    slug: str


class ModelUsed(_Event, frozen=True, tag="model.used"):
    """store.toml named another embedding model."""

    kind: str
    name: str


class LogRepaired(_Event, frozen=True, tag="log.repaired"):
    """Records that were damaged beyond reading were given up; `next_*` as in `Erased`."""

    lost: list[tuple[int, int]]
    aside: str
    next_document: int = 1
    next_chunk: int = 1


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
    | DocPurged
    | PurgeEnded
    | Erased
    | EntrySuperseded
    | EntryRevived
    | AgentWritten
    | AgentDeleted
    | ModelUsed
    | LogRepaired
)

# Old tag → what turns its members into the next shape's, tag included.
UPCASTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[Event])


def encode(events: Iterable[Event]) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(list(events)))


def decode(raw: bytes | msgspec.Raw) -> list[Event]:
    """Today's events from a record's bytes, however old.

    Raises store.incompatible for what a later version wrote.
    """
    try:
        if not UPCASTS:
            return _decoder.decode(raw)
        return msgspec.convert([upcast(item) for item in msgspec.json.decode(raw)], list[Event])
    except msgspec.ValidationError as error:
        raise KbprocError(
            "store.incompatible",
            f"The log holds an event that this kbproc can't read: {error}.",
            hint="A later kbproc has written it: install that one.",
        ) from error


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
        case DocPurged():
            return f"erase {plural(len(event.ids), 'document')} for good"
        case FileFailed():
            return f"note that {event.path} can't be read"
        case FileCleared():
            return f"forget that {event.path} could not be read"
        case EntrySuperseded():
            return f"supersede entry {event.id} by entry {event.by}"
        case EntryRevived():
            return f"revive {plural(len(event.ids), 'entry', 'entries')}"
    return _summary_of_store(event)


def _summary_of_store(event: Event) -> str:
    match event:
        case KbCreated():
            return f"create knowledge base {event.slug}"
        case KbUpdated():
            return f"update knowledge base {event.slug}"
        case KbDeleted():
            return f"delete knowledge base {event.slug}"
        case AgentWritten():
            verb = "create" if event.revision == 1 else "update"
            return f"{verb} agent {event.slug}"
        case AgentDeleted():
            return f"delete agent {event.slug}"
        case PurgeEnded():
            return f"finish the purge of record {event.purge}"
        case Erased():
            return f"erased by record {event.purge}"
        case ModelUsed():
            return f"embed with {event.name}"
        case LogRepaired():
            return f"give up {plural(len(event.lost), 'damaged stretch', 'damaged stretches')}"
    raise TypeError(event)


def documents_of(event: Event) -> list[int]:
    """All documents that it concerns."""
    if isinstance(event, DocPurged | EntryRevived):
        return event.ids
    id = document_of(event)
    return [] if id is None else [id]


def document_of(event: Event) -> int | None:
    """The one document that it concerns, if there is one."""
    match event:
        case DocWritten() | DocChanged() | DocDeleted() | EntrySuperseded():
            return event.id
        case ChunkDeleted() | Erased():
            return event.document_id
    return None
