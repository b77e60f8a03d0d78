"""The catalog's rows as structs.

Owns: which columns a read gets, in their order.
Refuses to know: SQL, and who asks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.json import encode

from kbproc.base.values import decoder
from kbproc.events.document import ChunkText, DocWritten, SourceFacts
from kbproc.events.entry import EntryFacts
from kbproc.events.event import Given
from kbproc.log.record import Position, Record
from kbproc.text.passage import Mark
from kbproc.views.catalog.filters import kb_of
from kbproc.views.catalog.reader import Sight

if TYPE_CHECKING:  # naming a row must not cost the time that numpy takes to load
    import numpy as np
    from numpy.typing import NDArray

Ids: TypeAlias = "NDArray[np.int64]"

_SAID = ("text", "page", "section", "overlap", "joint")
_decode = decoder(list[Mark]).decode
_decode_facts = decoder(SourceFacts).decode


class DocumentRow(Struct, frozen=True, array_like=True):
    """The catalog's columns of one document, in their order."""

    id: int
    kb: str
    title: str
    type: str
    path: str | None
    url: str | None
    source_id: str | None
    tags: list[str]
    metadata: str
    revision: int
    chunk_count: int
    size_bytes: int
    sha256: str
    parser: int
    pages: int | None
    created_at: str
    updated_at: str
    created_by: str
    deleted_at: str | None
    touched: int
    updated_by: str
    source_facts: str | None  # JSON of SourceFacts

    @property
    def facts(self) -> SourceFacts | None:
        """None: nothing is known of what the source states itself."""
        return None if self.source_facts is None else _decode_facts(self.source_facts)

    @property
    def unread(self) -> dict[str, int]:
        """How many parts of the source are not in the text, by kind."""
        facts = self.facts
        return facts.unread if facts else {}


def document_row(of: Record, event: DocWritten) -> DocumentRow:
    """Of a new document; one that is replaced keeps when and by whom it was made."""
    return DocumentRow(
        id=event.id,
        kb=event.kb,
        title=event.title,
        type=event.doc_type,
        path=event.path,
        url=event.url,
        source_id=event.source_id,
        tags=event.tags,
        metadata=encode(event.metadata).decode(),
        revision=event.revision,
        chunk_count=len(event.chunks),
        size_bytes=event.size_bytes,
        sha256=event.source_sha256,
        parser=event.parser,
        pages=event.pages,
        created_at=event.created_at or of.ts,
        updated_at=of.ts,
        created_by=event.created_by or of.actor,
        deleted_at=None,
        touched=of.seq,
        updated_by=of.actor,
        source_facts=encode(event.source_facts).decode() if event.source_facts else None,
    )


class NoteRow(Struct, frozen=True, array_like=True):
    """What is shown of a note: columns of its document."""

    id: int
    title: str
    source_id: str | None
    revision: int
    size_bytes: int
    sha256: str
    updated_at: str
    updated_by: str


def note_of(row: DocumentRow) -> NoteRow | None:
    """None: the document is no note."""
    columns = (getattr(row, name) for name in NoteRow.__struct_fields__)
    return NoteRow(*columns) if row.type == "note" else None


class ChunkRow(Struct, frozen=True):
    """`marks`: a JSON array, or None: see events.document.ChunkText."""

    id: int
    document_id: int
    idx: int
    text: str
    page: int | None
    section: str | None
    overlap: int
    joint: str | None
    marks: str | None

    @property
    def content(self) -> ChunkText:
        """As its event said it."""
        fields = {name: getattr(self, name) for name in _SAID}
        return ChunkText(**fields, marks=marks_of(self.marks))


def marks_of(column: str | None) -> list[Mark]:
    return [] if column is None else _decode(column)


def marks_column(marks: list[Mark]) -> str | None:
    return encode(marks).decode() if marks else None


class IndexRow(Struct, frozen=True, array_like=True):
    """A live chunk for the indexes: what is searched, and what a hit shows.

    `label`: what the indexes call its knowledge base, see filters. `marks`: as in ChunkRow.
    `document`, and of an entry `facts`: with the first chunk of one that was never written anew;
    `note`: with the first chunk of one.
    """

    chunk_id: int
    document_id: int
    label: str
    title: str
    section: str | None
    text: str
    page: int | None = None
    marks: str | None = None
    idx: int = 0
    chunk_count: int = 1
    type: str = "text"
    path: str | None = None
    url: str | None = None
    tags: list[str] = []
    confidence: int | None = None
    expires_at: str | None = None
    superseded_by: int | None = None
    document: DocumentRow | None = None
    facts: EntryFacts | None = None
    note: NoteRow | None = None

    @property
    def kb(self) -> str:
        return kb_of(self.label)


class KbRow(Struct, frozen=True):
    slug: str
    name: str
    description: str
    revision: int
    created_at: str
    updated_at: str


class TokenRow(Struct, frozen=True):
    """`params_hash` as the record has it, and the salt that is in it; "" once it is erased."""

    params_hash: str | None
    salt: str
    seq: int
    result: str | None


def token_row(of: Record) -> TokenRow:
    """Of a record with a token."""
    result = bytes(of.result).decode()
    return TokenRow(of.params_hash, of.salt, of.seq, None if result == "null" else result)


class EventRow(Struct, frozen=True):
    """That something happened; what it said is in the log. `idx` counts within the record."""

    seq: int
    idx: int
    ts: str
    actor: str
    method: str
    type: str
    kb: str | None
    document_id: int | None
    revision: int | None
    session_id: int | None
    message_id: int | None


class Head(Struct, frozen=True):
    seq: int
    hash: str
    ts: str
    next_document: int
    next_chunk: int
    next_session: int
    next_message: int

    @property
    def given(self) -> Given:
        return Given(*(getattr(self, name) for name in Given._fields))

    @property
    def position(self) -> Position:
        return Position(self.seq, self.hash)


class EntryRow(Struct, frozen=True):
    """A knowledge entry. `head`: the entry that holds now; itself unless superseded."""

    id: int
    kb: str
    title: str
    tags: list[str]
    revision: int
    chunk_count: int
    sha256: str
    created_at: str
    created_by: str
    deleted_at: str | None
    confidence: int
    expires_at: str | None
    task_id: str | None
    task_kind: str | None
    source: str
    superseded_by: int | None
    head: int


def facts_in(columns: Mapping[str, Any]) -> EntryFacts:
    """What an entry's event says of it, by its columns."""
    return EntryFacts(**{name: columns[name] for name in EntryFacts.__struct_fields__})


class ChainRow(Struct, frozen=True):
    """An entry as one link of a chain."""

    id: int
    superseded_by: int | None
    live: bool


class AgentRow(Struct, frozen=True):
    """None: all knowledge bases, all scopes. `quotas`: a JSON object."""

    slug: str
    description: str
    kbs: list[str] | None
    folder: str | None
    scopes: list[str] | None
    quotas: str
    instructions: str
    revision: int
    created_at: str
    updated_at: str
    deleted_at: str | None


class SessionRow(Struct, frozen=True):
    id: int
    key: str
    title: str
    kbs: list[str] | None
    agent: str | None
    created_at: str
    created_by: str
    updated_at: str
    deleted_at: str | None
    purged: bool
    message_count: int


class MessageRow(Struct, frozen=True):
    """`status` None: its answer is being made. `ending`, `references`: JSON, as the log has it."""

    id: int
    session_id: int
    question: str
    detail: str
    answerer: str
    model: str | None
    profile: str | None
    asked_at: str
    asked_by: str
    asked_seq: int
    attempt_seq: int
    status: str | None
    ending: str | None
    ended_at: str | None
    withdrawn_at: str | None
    text: str
    references: str | None


class PieceRow(Struct, frozen=True):
    """A piece of an answer. `documents`: those whose words it may repeat; None: any that its
    answer, or one before it in the session, refers to.
    """

    seq: int
    idx: int
    kind: str
    said: str | None
    documents: list[int] | None = []


class Roster(Struct, frozen=True):
    """What every request needs to know of agents, knowledge bases and entries, read once for all.

    `kbs`: slugs, sorted. `superseded`: knowledge bases that hold superseded entries; `entries`:
    any entries. `expiring`: ids of entries that expire, by their moments `moments`, sorted.
    `successors`: ids of entries that have taken another's place, and of some that had.
    """

    agents: dict[str, AgentRow]
    kbs: tuple[str, ...]
    entries: tuple[str, ...]
    superseded: tuple[str, ...]
    successors: frozenset[int]
    moments: list[str]
    expiring: list[int]

    def kbs_for(self, sight: Sight) -> list[str]:
        """The knowledge bases that may be seen."""
        return [kb for kb in self.kbs if sight.kbs is None or kb in sight.kbs]

    def expired(self, now: str) -> Ids | None:
        """Entries whose time is over at `now`, deleted ones too, sorted by id; None if none is."""
        over = bisect_right(self.moments, now)
        if not over:
            return None
        import numpy as np

        return np.array(sorted(self.expiring[:over]), dtype=np.int64)
