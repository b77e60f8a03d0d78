"""Defines the events of documents, their chunks, and files that can't become documents.

A document's event holds the extracted text of every chunk.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.structs import common_members
from kbproc.base.text.passage import Mark
from kbproc.base.values import Scalar
from kbproc.base.wording import plural
from kbproc.engine.events.entry import Anchor, EntryFacts
from kbproc.engine.events.event import Event, NextIds, Subject
from kbproc.engine.events.origin import Origin

CONVERSATION = "conversation"  # the type of a document that holds messages

_BLANK_LINE = "\n\n"


class ChunkText(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A passage of a document as the parser of its day cut it: a later parser changes no history.

    `page` is the page of its first new words, `section` the heading path that its parts share.
    The first `overlap` characters of `text` repeat the end of the chunk before, or the head of
    the table that continues. `joint`: the text between the two; None if it was a blank line or is
    unknown. `marks`: the place in the source of each part of `text`, unless `page` and `section`
    give the place of all of it.
    """

    text: str
    page: int | None = None
    section: str | None = None
    overlap: int = 0
    joint: str | None = None
    marks: list[Mark] = []


def whole_text(chunks: Iterable[ChunkText]) -> str:
    """Returns the text that was cut into `chunks`, without their overlaps."""
    parts: list[str] = []
    for chunk in chunks:
        new = chunk.text[chunk.overlap :]
        if chunk.joint is not None:
            parts += (chunk.joint if parts else "", new)
        elif chunk.overlap:  # cut by a version that recorded no joints
            parts += (" ", new.lstrip())
        else:
            parts += (_BLANK_LINE if parts else "", new)
    return "".join(parts)


def possible_sources(chunks: Iterable[ChunkText]) -> tuple[bytes, bytes]:
    """Returns the bytes of a text that may have been cut into `chunks`: without and with a last
    line break.
    """
    data = whole_text(chunks).encode("utf-8", "replace")
    return data, data + b"\n"


class SourceFacts(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Labels that a source states itself, and counts of its parts that are not in the text.

    `tags`, `metadata`: labels that the source states itself. The next revision drops those that
    the source no longer states, and keeps those that were set by hand. `unread`: the number of
    parts of the source that are not in the text, by kind; see sources.parse.unread. `stamp`: the
    size and time of the file when it was read, if the store keeps other bytes than the file's.
    """

    tags: list[str] = []
    metadata: dict[str, Scalar] = {}
    unread: dict[str, int] = {}
    stamp: str = ""


class ParsedFacts(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The facts that a parser reads in a source, and that stay with the document.

    A fact is named here once for the parser's result, the document's content, its event and its
    line in an export. The structs that store it as a column or show it name it, too, and take it by
    that name (base/structs.py). Every fact has a default, for events that were written before it.
    """

    pages: int | None = None  # their number, if the format has pages
    aliases: list[str] = []  # further names, of an entry those that its writer gave


# Returns the facts of an object that has them all as members, for the object that is made of it.
parsed_facts_of = common_members(ParsedFacts, ParsedFacts)


class WrittenContent(Event, ParsedFacts, frozen=True):
    """The first members of `doc.written`, up to the facts that its parser read.

    It is a class of its own because logs have these members first, and in this order: of a struct
    that is not kw_only, those that it inherits come after its own.
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


class DocWritten(WrittenContent, frozen=True, kw_only=True, tag="doc.written"):
    """A document's whole content. `revision` 1 is a new document.

    Chunk ids count up from `first_chunk`. `source_sha256` names the blob. `entry`: of
    type knowledge. A note lies in the pseudo knowledge base `notes/AGENT`, which no
    slug can name, under its own slug as `source_id`; its `anchors` are its sources as they were
    when it was written. `forgotten`: the seq of the record that erased its chunks and its source;
    see `without_content`.
    """

    created_at: str | None = None  # set if the document was imported
    created_by: str | None = None
    entry: EntryFacts | None = None
    forgotten: int | None = None
    moved_from: str | None = None  # the path that the file had before, if it has another now
    source_facts: SourceFacts | None = None  # None: the source states nothing
    origin: Origin
    modified_at: str | None = None  # when its file's text was last changed, where that is known
    anchors: list[Anchor] = []

    @property
    def next_chunk(self) -> int:
        """The first chunk id after its own."""
        return self.first_chunk + len(self.chunks)

    def without_content(self, forgotten: int) -> DocWritten:
        """Returns the event that replaces this one in the log once its content is forgotten.

        Its ids stay used.
        """
        return replace(
            self,
            source_sha256="",
            size_bytes=0,
            first_chunk=self.next_chunk,
            chunks=[],
            forgotten=forgotten,
            source_facts=None,
            anchors=[],
        )

    def summary(self) -> str:
        verb = "add" if self.revision == 1 else "replace"
        if self.forgotten is not None:
            return f"{verb} document {self.id} “{self.title}”, whose text then is forgotten"
        if self.moved_from is not None:
            return f"move document {self.id} “{self.title}” from {self.moved_from} to {self.path}"
        return f"{verb} document {self.id} “{self.title}” ({plural(len(self.chunks), 'chunk')})"

    def concerns(self) -> Subject:
        return Subject(document=self.id, within=self.kb, revision=self.revision)

    def gives(self) -> NextIds:
        return NextIds(next_document=self.id + 1, next_chunk=self.next_chunk)


class DocChanged(Event, frozen=True, tag="doc.changed"):
    """New title, tags or metadata; the text stays. `origin`: None where it stays, too."""

    id: int
    revision: int
    title: str
    tags: list[str]
    metadata: dict[str, Scalar]
    origin: Origin | None = None

    def summary(self) -> str:
        return f"change document {self.id} “{self.title}”"

    def concerns(self) -> Subject:
        return Subject(document=self.id, revision=self.revision)


class DocDeleted(Event, frozen=True, tag="doc.deleted"):
    """A document is hidden, not erased."""

    id: int

    def summary(self) -> str:
        return f"hide document {self.id}"

    def concerns(self) -> Subject:
        return Subject(document=self.id)


class ChunkDeleted(Event, frozen=True, tag="chunk.deleted"):
    document_id: int
    revision: int
    ids: list[int]

    def summary(self) -> str:
        return f"hide {plural(len(self.ids), 'chunk')} of document {self.document_id}"

    def concerns(self) -> Subject:
        return Subject(document=self.document_id, revision=self.revision)


class FileFailed(Event, frozen=True, tag="file.failed"):
    """A file that could not be read, so that a check can name it."""

    stays: ClassVar[str] = "it only notes a file that could not be read; ingest it again"

    kb: str
    path: str
    error: str
    message: str
    sha256: str | None = None

    def summary(self) -> str:
        return f"note that {self.path} can't be read"

    def concerns(self) -> Subject:
        return Subject(within=self.kb)


class FileCleared(Event, frozen=True, tag="file.cleared"):
    """A file that had failed is gone or can be read now."""

    stays: ClassVar[str] = "it only notes a file that had failed before; ingest it again"

    kb: str
    path: str

    def summary(self) -> str:
        return f"forget that {self.path} could not be read"

    def concerns(self) -> Subject:
        return Subject(within=self.kb)
