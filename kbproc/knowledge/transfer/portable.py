"""Defines the lines of an export, and reads a file of them, as store.export writes it.

The file has one JSON object a line: a header; the knowledge bases by slug; the agents by slug; the
watched folders by path; the documents by id; the notes by agent and slug; the sessions; an end with
their counts and the sha256 of all bytes before it, so that a truncated or damaged file is detected.
Each line and their order are checked.

A line names the members that need bounds here, because anybody may have written the file. It has
the others from the structs of the events: a new fact of an entry or a document needs no line here.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import math
import os
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta, Struct

from kbproc.base import paths
from kbproc.base.errors import KbprocError, is_lasting
from kbproc.base.times import instant
from kbproc.base.values import (
    SLUG,
    Decoder,
    DocumentId,
    KbSlug,
    Scalar,
    Tags,
    Title,
    check_metadata,
    clean_name,
    clean_tags,
    decoder,
)
from kbproc.base.wording import plural
from kbproc.engine.events.document import ChunkText, ParsedFacts, SourceFacts
from kbproc.engine.events.entry import Anchor, EntryFacts
from kbproc.engine.events.kb import Review
from kbproc.engine.events.origin import Origin as From
from kbproc.engine.events.origin import origin_in_export
from kbproc.engine.events.session import Detail, Failure, Reference, Status, Usage
from kbproc.engine.events.watch import FolderWatched
from kbproc.engine.store.folder import LAST_EXPORTER
from kbproc.knowledge.agents import agent as agents
from kbproc.knowledge.agents.notes.files import MOST_BYTES, NotANote, require_text
from kbproc.knowledge.documents.anchors import MOST_SOURCES
from kbproc.knowledge.documents.document import DocType
from kbproc.knowledge.documents.entry import MAX_BODY, TaskId
from kbproc.knowledge.watching.watch import Prune

_MOST = 2**31 - 1
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

Count = Annotated[int, Meta(ge=0, le=_MOST)]
Size = Annotated[int, Meta(ge=0, le=2**53)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z", max_length=64)]
Time = Annotated[str, Meta(max_length=40)]
Name = Annotated[str, Meta(max_length=4096)]


class _ExportObject(
    Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    pass


class _ExportLine(_ExportObject, kw_only=True, frozen=True, tag_field="type"):
    pass


class VectorsOf(_ExportObject, frozen=True):
    """The model that made the vectors.

    `fingerprint`: a digest of its weights, their precision, and how much of a text it reads.
    """

    model: Name
    fingerprint: Sha256
    dim: Annotated[int, Meta(ge=1, le=65536)]


class Header(_ExportLine, frozen=True, tag="kbproc.export"):
    """The first line. `seq` is the exported position; `vectors` is set if vectors are included."""

    version: int
    seq: Size
    exported_at: Time
    store_format: int
    kbproc: Annotated[str, Meta(max_length=100)]
    vectors: VectorsOf | None = None


class KbLine(_ExportLine, frozen=True, tag="kb"):
    slug: KbSlug
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    description: Annotated[str, Meta(max_length=2000)] = ""
    review: Review = "none"


class Origin(_ExportObject, frozen=True):
    """The origin of a document: at most one member is set."""

    path: Name | None = None
    url: Name | None = None
    source_id: Annotated[str, Meta(min_length=1, max_length=500)] | None = None


class ExportedChunk(ChunkText, kw_only=True, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1)]
    page: Count | None = None
    section: Annotated[str, Meta(max_length=1000)] | None = None
    overlap: Count = 0


class ExportedAnchor(Anchor, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A source as it was when an entry or a note was derived from it; see events.entry.Anchor.

    `document`: its id in the same file, where that holds it.
    """

    document: DocumentId | None = None
    revision: Annotated[int, Meta(ge=1, le=_MOST)] | None = None
    path: Name | None = None
    start_line: Annotated[int, Meta(ge=1, le=_MOST)] | None = None
    end_line: Annotated[int, Meta(ge=1, le=_MOST)] | None = None
    commit: Annotated[str, Meta(pattern=r"^[0-9a-f]{40,64}\Z", max_length=64)] | None = None
    sha256: Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?\Z", max_length=64)] = ""


Anchors = Annotated[list[ExportedAnchor], Meta(max_length=2 * MOST_SOURCES)]


class ExportedEntry(EntryFacts, _ExportObject, kw_only=True, frozen=True):
    """The members that only entries have; `superseded_by` is an entry's id in the same file.

    `derived_from`, `replaces`: ids of documents and entries, in the same file where it holds them.
    """

    confidence: Annotated[int, Meta(ge=0, le=100)]
    source: Annotated[str, Meta(max_length=1000)] = ""
    expires_at: Time | None = None
    task_id: TaskId | None = None
    task_kind: Literal["references", "produced"] | None = None
    superseded_by: DocumentId | None = None
    review_after: Time | None = None
    derived_from: Annotated[list[DocumentId], Meta(max_length=MOST_SOURCES)] = []
    verified_by: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None
    verified_at: Time | None = None
    valid_from: Time | None = None
    valid_to: Time | None = None
    anchors: Anchors = []  # type: ignore[assignment]  # the list is read and never added to
    replaces: Annotated[list[DocumentId], Meta(max_length=1000)] = []


class ExportedSourceFacts(SourceFacts, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Labels that the source states itself; see events.document.SourceFacts."""

    tags: Tags = []
    metadata: Annotated[dict[str, Scalar], Meta(max_length=1000)] = {}
    unread: Annotated[
        dict[Annotated[str, Meta(max_length=64)], Annotated[int, Meta(ge=1, le=_MOST)]],
        Meta(max_length=64),
    ] = {}


class _ExportedFacts(ParsedFacts, kw_only=True, frozen=True):
    pages: Count | None = None
    aliases: Annotated[list[Annotated[str, Meta(max_length=1000)]], Meta(max_length=1000)] = []


class DocumentLine(_ExportLine, _ExportedFacts, frozen=True, tag="document"):
    """A document. `sha256` and `size_bytes` are the source's, whether it is included or not.

    `entry`: only for a knowledge entry, whose body is the source and always included. `vectors`:
    one for each chunk in order, 16-bit floats, little-endian; null for a chunk without one.
    `origin`: left out where it is web for a document with a url, user for one that user created,
    and agent for others.
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
    chunks: list[ExportedChunk]
    source_base64: bytes | None = None
    entry: ExportedEntry | None = None
    source_facts: ExportedSourceFacts | None = None
    vectors: list[bytes | None] | None = None
    origin: From | None = None
    modified_at: Time | None = None

    @property
    def stated_origin(self) -> From:
        """The origin that the line states, or stands for."""
        by_default = origin_in_export(self.doc_type, self.source.url, self.created_by)
        return self.origin or by_default


class AgentLine(_ExportLine, frozen=True, tag="agent"):
    """An agent. Omitted members mean all knowledge bases, all scopes, the store's folder."""

    slug: Annotated[str, Meta(pattern=SLUG)]
    description: agents.Description = ""
    kbs: agents.KbList | None = None
    folder: agents.Folder | None = None
    scopes: agents.Scopes | None = None
    quotas: agents.Quotas = agents.Quotas()
    instructions: agents.Instructions = ""


class NoteLine(_ExportLine, frozen=True, tag="note"):
    """A note's file, byte for byte. `origin`: agent where it is left out. `anchors`: its sources as
    they were when it was written.
    """

    agent: Annotated[str, Meta(pattern=SLUG)]
    slug: Annotated[str, Meta(pattern=SLUG)]
    text: Annotated[str, Meta(min_length=1, max_length=MOST_BYTES)]
    updated_at: Time
    origin: From | None = None
    anchors: Anchors = []


class WatchLine(FolderWatched, frozen=True, forbid_unknown_fields=True, tag="watch"):
    """A watched folder and its rules; see events.watch.FolderWatched."""

    machine: Annotated[str, Meta(min_length=1, max_length=255)]
    path: Name
    kb: KbSlug
    root: Name | None = None
    glob: Name | None = None
    exclude: Annotated[list[Name], Meta(max_length=100)] = []
    tags: Tags = []
    prune: Prune = "ask"
    max_file_bytes: Annotated[int, Meta(ge=1, le=1 << 30)] = 64 << 20


class ExportedMessage(_ExportObject, frozen=True):
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


class SessionLine(_ExportLine, frozen=True, tag="session"):
    """A conversation with its questions and answers; `key` is unique across stores."""

    key: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
    created_at: Time
    created_by: Annotated[str, Meta(min_length=1, max_length=1000)]
    title: Annotated[str, Meta(max_length=200)] = ""
    kbs: agents.KbList | None = None
    agent: Annotated[str, Meta(pattern=SLUG)] | None = None
    messages: list[ExportedMessage] = []


class End(_ExportLine, frozen=True, tag="end"):
    """The last line. `sha256` is of all lines before it with their newlines; null in a stream."""

    documents: Size
    sha256: Sha256 | None
    agents: Size = 0
    notes: Size = 0
    sessions: Size = 0
    watches: Size = 0


# Which member of the end, and of an export's answer, counts these lines.
COUNTS: dict[type, str] = {
    KbLine: "kbs",
    DocumentLine: "documents",
    AgentLine: "agents",
    NoteLine: "notes",
    SessionLine: "sessions",
    WatchLine: "watches",
}

# Schemas publish these structs without the affix that tells them from structs of the same nouns.
for _line in COUNTS:
    _line.__name__ = _line.__name__.removesuffix("Line")
for _part in (ExportedAnchor, ExportedChunk, ExportedEntry, ExportedSourceFacts, ExportedMessage):
    _part.__name__ = _part.__name__.removeprefix("Exported")

Line = Header | KbLine | AgentLine | WatchLine | DocumentLine | NoteLine | SessionLine | End
encode = msgspec.json.Encoder().encode
line_decoder: Decoder[Line] = decoder(Line)  # type: ignore[arg-type]


def normalised(line: Line) -> Line:
    match line:
        case KbLine():
            return msgspec.structs.replace(line, name=clean_name(line.name, field="name"))
        case DocumentLine():
            return _normal_document(line)
        case AgentLine():
            return _normal_agent(line)
        case WatchLine():
            return _normal_watch(line)
        case NoteLine():
            _check_note(line)
        case SessionLine():
            return _normal_session(line)
    return line


def _normal_agent(line: AgentLine) -> AgentLine:
    if line.slug in agents.RESERVED:
        raise _wrong(f"slug is {line.slug}, which no agent can be called")
    if line.folder is not None and (not line.folder.startswith("/") or "\0" in line.folder):
        raise _wrong("folder is no absolute path")
    return line


def _normal_watch(line: WatchLine) -> WatchLine:
    for path in (line.path, line.root or "/"):
        if not path.startswith("/") or _CONTROL.search(path):
            raise _wrong("path or root is no absolute path")
    if _CONTROL.search(line.machine):
        raise _wrong("machine holds a control character")
    return msgspec.structs.replace(line, tags=clean_tags(line.tags))


def _normal_session(line: SessionLine) -> SessionLine:
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


def _check_note(line: NoteLine) -> None:
    try:
        require_text(line.text.encode())
    except NotANote as why:
        raise _wrong(f"text can't be a note's: {why}") from None
    for index, anchor in enumerate(line.anchors):
        _check_anchor(anchor, f"anchors[{index}]")


def _normal_entry(line: DocumentLine) -> ExportedEntry | None:
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
    if (entry.verified_by is None) != (entry.verified_at is None):
        raise _wrong("entry.verified_by and entry.verified_at go together")
    if entry.verified_by is not None:
        clean_name(entry.verified_by, field="entry.verified_by")
    moments = {
        name: instant(moment, field=f"entry.{name}")
        for name in ("expires_at", "verified_at", "review_after", "valid_from", "valid_to")
        if (moment := getattr(entry, name)) is not None
    }
    for index, anchor in enumerate(entry.anchors):
        _check_anchor(anchor, f"entry.anchors[{index}]")
    return msgspec.structs.replace(entry, **moments)


def _check_anchor(anchor: ExportedAnchor, where: str) -> None:
    """Checks that an anchor names a source, and lines in their order."""
    path = anchor.path
    if path is not None and (not path.startswith("/") or "\0" in path):
        raise _wrong(f"{where}.path is no absolute path")
    if path is None and (anchor.document is None or anchor.commit is not None):
        raise _wrong(f"{where} names no source")
    lines = anchor.start_line, anchor.end_line
    if (lines[0] is None) != (lines[1] is None) or (lines[0] or 0) > (lines[1] or 0):
        raise _wrong(f"{where}.start_line and end_line are no lines in their order")


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


def _normal_document(line: DocumentLine) -> DocumentLine:
    """Returns the document as an ingest would store it. Raises KbprocError naming the member."""
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
        modified_at=line.modified_at and instant(line.modified_at, field="modified_at"),
    )


def _check_origin(source: Origin) -> None:
    """Checks a document's origin; a path may have any name that a file system allows."""
    names = [name for name in ("path", "url", "source_id") if getattr(source, name) is not None]
    if len(names) > 1:
        raise _wrong(f"source has {' and '.join(names)}; it may have one")
    if source.path is not None and (not source.path.startswith("/") or "\0" in source.path):
        raise _wrong("source.path is no absolute path")
    for name in names:
        if name != "path":
            clean_name(getattr(source, name), field=f"source.{name}")


def _wrong(message: str) -> KbprocError:
    return KbprocError("input.invalid_params", f"{message}.")


# ----------------------------------------------------------------------- the file

VERSION = 6
MAX_LINE_BYTES = 256 << 20
_FIELD = "$.params.path"


class _Versioned(Struct, frozen=True, tag_field="type", tag="kbproc.export"):
    version: int


_decode_version = decoder(_Versioned).decode


class NumberedLine(NamedTuple):
    """A line, its number from 1, and the file's bytes up to its end."""

    number: int
    line: Line
    offset: int


def open_file(path: Path, *, within: Path | None = None) -> BinaryIO:
    """Opens a regular file that lies within that folder.

    Raises input.unsupported_type, path.outside_root, store.io.
    """
    try:
        return os.fdopen(paths.open_file(path, within=within), "rb")
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise _no_export(f"{path.name} is no regular file") from None
        message = f"{path} can't be read: {error.strerror}."
        raise KbprocError("store.io", message, lasting=is_lasting(error)) from error


def read(file: BinaryIO) -> Iterator[NumberedLine]:
    """Yields every line in order, checked and normalised; checks the file's end and hash, too.

    Raises input.invalid_params naming the line, input.too_large,
    input.unsupported_type, store.incompatible.
    """
    digest, number, offset = hashlib.sha256(), 0, 0
    order = _Order()
    for number, data in enumerate(_raw_lines(file), 1):
        line = _header(data) if number == 1 else _decode(number, data)
        order.check(number, line, digest.hexdigest() if isinstance(line, End) else "")
        digest.update(data)
        offset += len(data)
        yield NumberedLine(number, line, offset)
    if not order.ended:
        raise bad_line(number + 1, "the end is missing: the file was cut")


def _raw_lines(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    for number in itertools.count(1):
        data = _next_line(file)
        if not data:
            return
        if len(data) > MAX_LINE_BYTES:
            raise KbprocError(
                "input.too_large",
                f"Line {number} has more than {MAX_LINE_BYTES >> 20} MiB.",
                field=_FIELD,
                detail={"line": number},
            )
        if not data.endswith(b"\n"):
            raise bad_line(number, "it is not whole: the file was cut")
        yield data


def _next_line(file: BinaryIO) -> bytes:
    try:
        return file.readline(MAX_LINE_BYTES + 1)
    except OSError as error:
        raise KbprocError("store.io", f"The file can't be read: {error.strerror}.") from error


def _header(data: bytes) -> Header:
    """Returns the header; checks the version first, as another one may have other members."""
    try:
        version = _decode_version(data).version
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _no_export("Its first line is not the header of an export") from None
    if version != VERSION:
        raise KbprocError(
            "store.incompatible",
            f"The file is an export of version {version}; this kbproc reads version {VERSION}.",
            hint="A later kbproc has written it: install that one."
            if version > VERSION
            else "A version before the first release has written it. The commit "
            f"{LAST_EXPORTER} of kbproc imports it; export that store, and import its file here.",
            field=_FIELD,
        )
    line = _decode(1, data)
    if not isinstance(line, Header):
        raise _no_export("Its first line is not the header of an export")
    return line


def _no_export(why: str) -> KbprocError:
    return KbprocError(
        "input.unsupported_type",
        f"{why}.",
        field=_FIELD,
        hint="Name a file that store.export has written.",
    )


def _decode(number: int, data: bytes) -> Line:
    try:
        line: Line = line_decoder.decode(data)
        return normalised(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_line(number, str(error)) from None
    except KbprocError as error:
        raise bad_line(number, error.message.removesuffix(".")) from None


_PLACES = {kind: place for place, kind in enumerate(get_args(Line))}


class _Order:
    """The state of the check that lines are in order and that every link has a target."""

    def __init__(self) -> None:
        self.ended = False
        self._place = 0
        self._names: set[str] = set()
        self._counts = Counter[str]()
        self._dim: int | None = None
        self._entries: dict[int, str] = {}
        self._links: dict[int, tuple[int, int]] = {}  # entry → its successor, and the line

    def check(self, number: int, line: Line, sha256: str) -> None:
        if self.ended:
            raise bad_line(number, "it comes after the end")
        name, place = _name_of(line), _PLACES[type(line)]
        if place < self._place or name in self._names:
            raise bad_line(number, f"{name} is out of order, or there twice")
        match line:
            case Header():
                self._dim = line.vectors.dim if line.vectors is not None else None
            case WatchLine():
                self._require(number, f"the knowledge base {line.kb}")
            case DocumentLine():
                self._document(number, line)
            case NoteLine():
                self._require(number, f"the agent {line.agent}")
            case End():
                self._end(number, line, sha256)
        self._place = place
        self._names.add(name)
        self._counts[COUNTS.get(type(line), "")] += 1

    def _require(self, number: int, name: str) -> None:
        if name not in self._names:
            raise bad_line(number, f"no line before it names {name}")

    def _document(self, number: int, line: DocumentLine) -> None:
        self._require(number, f"the knowledge base {line.kb}")
        if line.vectors is not None:
            self._check_vectors(number, line, line.vectors)
        if line.entry is not None:
            self._entries[line.id] = line.kb
            if line.entry.superseded_by is not None:
                self._links[line.id] = line.entry.superseded_by, number

    def _check_vectors(
        self, number: int, line: DocumentLine, vectors: Sequence[bytes | None]
    ) -> None:
        if self._dim is None:
            raise bad_line(number, "it has vectors, but the header names no model of theirs")
        if len(vectors) != len(line.chunks):
            counted = plural(len(vectors), "vector"), plural(len(line.chunks), "chunk")
            raise bad_line(number, f"it has {counted[0]} for {counted[1]}")
        for vector in vectors:
            if vector is not None and not _is_vector(vector, self._dim):
                raise bad_line(number, f"one of its vectors is not {self._dim} numbers")

    def _end(self, number: int, line: End, sha256: str) -> None:
        for name in COUNTS.values():
            stated, count = getattr(line, name, None), self._counts[name]
            if stated not in {None, count}:
                raise bad_line(number, f"it counts {stated} {name}, but {count} came before")
        if line.sha256 not in {None, sha256}:
            raise bad_line(number, "its sha256 is not that of the lines before: one was changed")
        self._check_links()
        self.ended = True

    def _check_links(self) -> None:
        """Checks that successors are entries of the same knowledge base, and chains no circles."""
        done: set[int] = set()
        for id, (by, number) in self._links.items():
            if by not in self._entries or self._entries[by] != self._entries[id]:
                raise bad_line(number, f"entry {by}, which supersedes {id}, is not in its kb")
            at, path = id, set[int]()
            while at in self._links and at not in done:
                if at in path:
                    raise bad_line(number, f"entry {id} would come to supersede itself")
                path.add(at)
                at = self._links[at][0]
            done |= path


def _name_of(line: Line) -> str:
    """Returns what a line is called, by which no other line of the file may be."""
    match line:
        case KbLine():
            return f"the knowledge base {line.slug}"
        case AgentLine():
            return f"the agent {line.slug}"
        case WatchLine():
            return f"the watched folder {line.path} of {line.machine}"
        case DocumentLine():
            return f"document {line.id}"
        case NoteLine():
            return f"the note {line.agent}/{line.slug}"
        case SessionLine():
            return f"the session {line.key}"
    return "the header" if isinstance(line, Header) else "the end"


def _is_vector(data: bytes, dim: int) -> bool:
    """Returns True for `dim` finite 16-bit floats; their sum never overflows a double."""
    return len(data) == 2 * dim and math.isfinite(sum(struct.unpack(f"<{dim}e", data)))


def bad_line(number: int, why: str) -> KbprocError:
    return KbprocError(
        "input.invalid_params",
        f"Line {number}: {why}.",
        field=_FIELD,
        hint="Export again, or copy the file again.",
        detail={"line": number},
    )
