"""What happens to documents, their chunks, and files that can't become one.

Owns: a document's events, with the extracted text of every chunk.
Refuses to know: how a file is read and cut, and what an entry is worth (entry.py).
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.values import Scalar
from kbproc.base.wording import plural
from kbproc.events.entry import EntryFacts
from kbproc.events.event import Concerned, Event, Given
from kbproc.text.passage import Mark


class ChunkText(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A chunk as the parser of its day cut it: a later parser never changes history.

    The first `overlap` characters of `text` repeat the chunk before. `joint`: what stood
    between the two; None: a blank line, or nobody knows. `marks`: where in its source each
    part of `text` stands, if `page` and `section` do not say it for all of it.
    """

    text: str
    page: int | None = None
    section: str | None = None
    overlap: int = 0
    joint: str | None = None
    marks: list[Mark] = []


class SourceFacts(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Labels that a source states itself, and counts of its parts that are not in the text.

    `tags`, `metadata`: those that the source states itself. The next revision drops what the
    source no longer states, and keeps what was given by hand. `unread`: how many parts of the
    source are not in the text, by kind; see sources.parse.unread.
    """

    tags: list[str] = []
    metadata: dict[str, Scalar] = {}
    unread: dict[str, int] = {}


class DocWritten(Event, frozen=True, tag="doc.written"):
    """A document's whole content. `revision` 1 is a new document.

    Chunk ids count up from `first_chunk`. `source_sha256` names the blob. `entry`: of
    type knowledge. A note lies in the pseudo knowledge base `notes/AGENT`, which no
    slug can name, under its own slug as `source_id`. `forgotten`: the record that took
    its chunks and its source away; see `without_content`.
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
    forgotten: int | None = None
    moved_from: str | None = None  # the path that the file had before, if it has another now
    source_facts: SourceFacts | None = None  # None: the source states nothing

    @property
    def next_chunk(self) -> int:
        """The first chunk id that it leaves to others."""
        return self.first_chunk + len(self.chunks)

    def without_content(self, forgotten: int) -> DocWritten:
        """What stands for it in the log once its content is forgotten; its ids stay given away."""
        return replace(
            self,
            source_sha256="",
            size_bytes=0,
            first_chunk=self.next_chunk,
            chunks=[],
            forgotten=forgotten,
            source_facts=None,
        )

    def summary(self) -> str:
        verb = "add" if self.revision == 1 else "replace"
        if self.forgotten is not None:
            return f"{verb} document {self.id} “{self.title}”, whose text then is forgotten"
        if self.moved_from is not None:
            return f"move document {self.id} “{self.title}” from {self.moved_from} to {self.path}"
        return f"{verb} document {self.id} “{self.title}” ({plural(len(self.chunks), 'chunk')})"

    def concerns(self) -> Concerned:
        return Concerned(document=self.id, within=self.kb, revision=self.revision)

    def gives(self) -> Given:
        return Given(next_document=self.id + 1, next_chunk=self.next_chunk)

    @property
    def can_wait(self) -> bool:
        if self.moved_from is not None:
            return False  # the catalog alone knows which document came from the former path
        return self.entry is None or (self.revision == 1 and self.entry.expires_at is None)


class DocChanged(Event, frozen=True, tag="doc.changed"):
    """New title, tags or metadata; the text stays."""

    id: int
    revision: int
    title: str
    tags: list[str]
    metadata: dict[str, Scalar]

    def summary(self) -> str:
        return f"change document {self.id} “{self.title}”"

    def concerns(self) -> Concerned:
        return Concerned(document=self.id, revision=self.revision)


class DocDeleted(Event, frozen=True, tag="doc.deleted"):
    """Hidden, not erased."""

    id: int

    def summary(self) -> str:
        return f"hide document {self.id}"

    def concerns(self) -> Concerned:
        return Concerned(document=self.id)


class ChunkDeleted(Event, frozen=True, tag="chunk.deleted"):
    document_id: int
    revision: int
    ids: list[int]

    def summary(self) -> str:
        return f"hide {plural(len(self.ids), 'chunk')} of document {self.document_id}"

    def concerns(self) -> Concerned:
        return Concerned(document=self.document_id, revision=self.revision)


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

    def concerns(self) -> Concerned:
        return Concerned(within=self.kb)


class FileCleared(Event, frozen=True, tag="file.cleared"):
    """A file that had failed is gone or can be read now."""

    stays: ClassVar[str] = "it only notes a file that had failed before; ingest it again"

    kb: str
    path: str

    def summary(self) -> str:
        return f"forget that {self.path} could not be read"

    def concerns(self) -> Concerned:
        return Concerned(within=self.kb)
