"""The lines that documents, entries, notes, agents and conversations leave a store as.

Owns: their shapes and limits, and what each must meet by itself.
Refuses to know: files, and what may come after what (file.py).
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from kbproc.agents import agent as agents
from kbproc.agents.notefiles.file import MOST_BYTES, NotANote, require_text
from kbproc.base.errors import KbprocError
from kbproc.base.values import (
    SLUG,
    DocumentId,
    KbSlug,
    Scalar,
    Tags,
    Title,
    check_metadata,
    clean_name,
    clean_tags,
    decoder,
    instant,
)
from kbproc.documents.document import DocType
from kbproc.documents.entry import MAX_BODY, TaskId
from kbproc.events.session import Detail, Failure, Reference, Status, Usage
from kbproc.text.passage import Mark

_MOST = 2**31 - 1
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

Count = Annotated[int, Meta(ge=0, le=_MOST)]
Size = Annotated[int, Meta(ge=0, le=2**53)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z", max_length=64)]
Time = Annotated[str, Meta(max_length=40)]
Name = Annotated[str, Meta(max_length=4096)]


class _Part(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class _Line(_Part, kw_only=True, frozen=True, tag_field="type"):
    pass


class VectorsOf(_Part, frozen=True):
    """The model that made the vectors. `fingerprint`: of its weights, how precise they are, and
    how much of a text it reads.
    """

    model: Name
    fingerprint: Sha256
    dim: Annotated[int, Meta(ge=1, le=65536)]


class Header(_Line, frozen=True, tag="kbproc.export"):
    """First. `seq` is the position that was exported. `vectors`: where they come along."""

    version: int
    seq: Size
    exported_at: Time
    store_format: int
    kbproc: Annotated[str, Meta(max_length=100)]
    vectors: VectorsOf | None = None


class Kb(_Line, frozen=True, tag="kb"):
    slug: KbSlug
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    description: Annotated[str, Meta(max_length=2000)] = ""


class Origin(_Part, frozen=True):
    """One of them, or none."""

    path: Name | None = None
    url: Name | None = None
    source_id: Annotated[str, Meta(min_length=1, max_length=500)] | None = None


class Chunk(_Part, frozen=True):
    text: Annotated[str, Meta(min_length=1)]
    page: Count | None = None
    section: Annotated[str, Meta(max_length=1000)] | None = None
    overlap: Count = 0
    joint: str | None = None
    marks: list[Mark] = []


class Entry(_Part, frozen=True):
    """What makes an entry of a document; `superseded_by` is another's id in the same file."""

    confidence: Annotated[int, Meta(ge=0, le=100)]
    source: Annotated[str, Meta(max_length=1000)] = ""
    expires_at: Time | None = None
    task_id: TaskId | None = None
    task_kind: Literal["references", "produced"] | None = None
    superseded_by: DocumentId | None = None


class SourceFacts(_Part, frozen=True):
    """Labels that the source states itself; see events.document.SourceFacts."""

    tags: Tags = []
    metadata: Annotated[dict[str, Scalar], Meta(max_length=1000)] = {}
    unread: Annotated[
        dict[Annotated[str, Meta(max_length=64)], Annotated[int, Meta(ge=1, le=_MOST)]],
        Meta(max_length=64),
    ] = {}


class Document(_Line, frozen=True, tag="document"):
    """`sha256` and `size_bytes` are the source's, whether it comes along or not.

    `entry`: of a knowledge entry, whose body is the source and always comes along. `vectors`: of
    the chunks in order, 16-bit floats, little-endian; null for one that has none yet.
    """

    id: DocumentId
    kb: KbSlug
    title: Title
    doc_type: DocType
    source: Origin
    tags: Tags
    metadata: Annotated[dict[str, Scalar], Meta(max_length=1000)]
    revision: Annotated[int, Meta(ge=1, le=_MOST)]
    created_at: Time
    updated_at: Time
    created_by: Annotated[str, Meta(max_length=1000)]
    parser: Count
    sha256: Sha256
    size_bytes: Size
    chunks: list[Chunk]
    pages: Count | None = None
    source_base64: bytes | None = None
    entry: Entry | None = None
    source_facts: SourceFacts | None = None
    vectors: list[bytes | None] | None = None


class Agent(_Line, frozen=True, tag="agent"):
    """Members that are left out are open: all knowledge bases, all scopes, the store's folder."""

    slug: Annotated[str, Meta(pattern=SLUG)]
    description: agents.Description = ""
    kbs: agents.KbList | None = None
    folder: agents.Folder | None = None
    scopes: agents.Scopes | None = None
    quotas: agents.Quotas = agents.Quotas()
    instructions: agents.Instructions = ""


class Note(_Line, frozen=True, tag="note"):
    """A note's file, byte for byte."""

    agent: Annotated[str, Meta(pattern=SLUG)]
    slug: Annotated[str, Meta(pattern=SLUG)]
    text: Annotated[str, Meta(min_length=1, max_length=MOST_BYTES)]
    updated_at: Time


class Message(_Part, frozen=True):
    """A question and its answer. References name documents by their ids in the file."""

    question: Annotated[str, Meta(min_length=1, max_length=8000)]
    asked_at: Time
    asked_by: Annotated[str, Meta(min_length=1, max_length=1000)]
    answerer: Annotated[str, Meta(max_length=100)]
    status: Status
    ended_at: Time
    model: Name | None = None
    detail: Detail = "indexes"
    references: list[Reference] = []
    text: str = ""
    usage: Usage | None = None
    hint: str | None = None
    failure: Failure | None = None


class Session(_Line, frozen=True, tag="session"):
    """A conversation with what was answered in it; `key` tells it from every other in any store."""

    key: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
    created_at: Time
    created_by: Annotated[str, Meta(min_length=1, max_length=1000)]
    title: Annotated[str, Meta(max_length=200)] = ""
    kbs: agents.KbList | None = None
    agent: Annotated[str, Meta(pattern=SLUG)] | None = None
    messages: list[Message] = []


class End(_Line, frozen=True, tag="end"):
    """Last. `sha256` is of all lines before it with their newlines; null in a stream."""

    documents: Size
    sha256: Sha256 | None
    agents: Size = 0
    notes: Size = 0
    sessions: Size = 0


Line = Header | Kb | Agent | Document | Note | Session | End
encode = msgspec.json.Encoder().encode
line_decoder: msgspec.json.Decoder[Line] = decoder(Line)  # type: ignore[arg-type]


def normalised(line: Line) -> Line:
    match line:
        case Kb():
            return msgspec.structs.replace(line, name=clean_name(line.name, field="name"))
        case Document():
            return _normal_document(line)
        case Agent():
            return _normal_agent(line)
        case Note():
            _check_note(line)
        case Session():
            return _normal_session(line)
    return line


def _normal_agent(line: Agent) -> Agent:
    if line.slug in agents.RESERVED:
        raise _wrong(f"slug is {line.slug}, which no agent can be called")
    if line.folder is not None and (not line.folder.startswith("/") or "\0" in line.folder):
        raise _wrong("folder is no absolute path")
    return line


def _normal_session(line: Session) -> Session:
    if line.title:
        clean_name(line.title, field="title")
    for by in (line.created_by, *(one.asked_by for one in line.messages)):
        if not by.strip() or _CONTROL.search(by):
            raise _wrong("created_by or asked_by is blank, or holds a control character")
    messages = [
        msgspec.structs.replace(
            one,
            asked_at=instant(one.asked_at, field=f"messages[{index}].asked_at"),
            ended_at=instant(one.ended_at, field=f"messages[{index}].ended_at"),
        )
        for index, one in enumerate(line.messages)
    ]
    created_at = instant(line.created_at, field="created_at")
    return msgspec.structs.replace(line, created_at=created_at, messages=messages)


def _check_note(line: Note) -> None:
    try:
        require_text(line.text.encode())
    except NotANote as why:
        raise _wrong(f"text can't be a note's: {why}") from None


def _normal_entry(line: Document) -> Entry | None:
    """Raises KbprocError for an entry that could not have been stored here."""
    entry = line.entry
    if line.doc_type == "note":
        raise _wrong("doc_type is note, but notes are lines of their own")
    if (line.doc_type == "knowledge") != (entry is not None):
        raise _wrong("entry goes with the doc_type knowledge, and with no other")
    if entry is None:
        return None
    if line.source != Origin():
        raise _wrong("source is that of a document; an entry has none")
    if not line.created_by.strip() or _CONTROL.search(line.created_by + entry.source):
        raise _wrong("created_by is blank, or it or entry.source holds a control character")
    if entry.task_id is not None:
        clean_name(entry.task_id, field="entry.task_id")
    _check_body(line.source_base64)
    expires = entry.expires_at
    if expires is not None:
        expires = instant(expires, field="entry.expires_at")
    return msgspec.structs.replace(entry, expires_at=expires)


def _check_body(source: bytes | None) -> None:
    if source is None:
        raise _wrong("source_base64 is missing, which is an entry's body")
    try:
        body = source.decode()
    except UnicodeDecodeError:
        raise _wrong("source_base64 is not UTF-8, as an entry's body is") from None
    if not body:
        raise _wrong("source_base64 is empty, but an entry has a body")
    if len(body) > MAX_BODY:
        raise _wrong(f"source_base64 is longer than the {MAX_BODY} characters of an entry's body")


def _normal_document(line: Document) -> Document:
    """As it would have come in otherwise. Raises KbprocError that names the member."""
    check_metadata(line.metadata, field="metadata")
    _check_origin(line.source)
    for index, chunk in enumerate(line.chunks):
        where = f"chunks[{index}]"
        if _CONTROL.search(chunk.text):
            raise _wrong(f"{where}.text holds a control character")
        if chunk.section is not None:
            clean_name(chunk.section, field=f"{where}.section")
        if chunk.overlap > len(chunk.text):
            raise _wrong(f"{where}.overlap is longer than its text")
    source = line.source_base64
    if source is not None and hashlib.sha256(source).hexdigest() != line.sha256:
        raise _wrong("source_base64 is not what sha256 says")
    return msgspec.structs.replace(
        line,
        title=clean_name(line.title, field="title"),
        tags=clean_tags(line.tags, field="tags"),
        created_at=instant(line.created_at, field="created_at"),
        entry=_normal_entry(line),
    )


def _check_origin(source: Origin) -> None:
    """A path may hold whatever a file system takes for a name."""
    given = [name for name in ("path", "url", "source_id") if getattr(source, name) is not None]
    if len(given) > 1:
        raise _wrong(f"source has {' and '.join(given)}; it may have one")
    if source.path is not None and (not source.path.startswith("/") or "\0" in source.path):
        raise _wrong("source.path is no absolute path")
    for name in given:
        if name != "path":
            clean_name(getattr(source, name), field=f"source.{name}")


def _wrong(message: str) -> KbprocError:
    return KbprocError("input.invalid_params", f"{message}.")
