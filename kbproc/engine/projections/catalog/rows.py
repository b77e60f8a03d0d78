"""Defines the catalog's rows as structs: which columns a read gets, in which order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import asdict

from kbproc.base.structs import common_members
from kbproc.base.text.passage import Mark
from kbproc.base.values import decoder
from kbproc.engine.events.document import ChunkText, DocWritten, SourceFacts
from kbproc.engine.events.entry import Anchor, EntryFacts
from kbproc.engine.events.event import NextIds
from kbproc.engine.events.kb import Review
from kbproc.engine.events.origin import Origin
from kbproc.engine.events.watch import FolderWatched
from kbproc.engine.log.record import Position, Record
from kbproc.engine.projections.catalog.reader import Sight

if TYPE_CHECKING:  # naming a row must not cost the time that numpy takes to load
    import numpy as np
    from numpy.typing import NDArray

Ids: TypeAlias = "NDArray[np.int64]"
BigInt: TypeAlias = int  # a column of 64 bits, where others have 32; see tables.py

_decode = decoder(list[Mark]).decode
_decode_facts = decoder(SourceFacts).decode
_decode_anchors = decoder(list[Anchor]).decode


class DocumentRow(Struct, frozen=True, array_like=True):
    """The catalog's columns of one document, in their order.

    `anchors`: those of an entry or a note, a JSON array or None; see events.entry.Anchor.
    """

    id: BigInt
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
    size_bytes: BigInt
    sha256: str
    parser: int
    pages: int | None
    created_at: str
    updated_at: str
    created_by: str
    deleted_at: str | None
    touched: BigInt
    updated_by: str
    source_facts: str | None = None  # JSON of SourceFacts
    origin: Origin = "agent"
    aliases: list[str] = []
    modified_at: str | None = None
    anchors: str | None = None

    @property
    def facts(self) -> SourceFacts | None:
        """The facts that the source states about itself; None if these are unknown."""
        return None if self.source_facts is None else _decode_facts(self.source_facts)

    @property
    def unread(self) -> dict[str, int]:
        """The number of parts of the source that the text lacks, by kind."""
        facts = self.facts
        return facts.unread if facts else {}

    @property
    def stamp(self) -> str:
        """The size and time of the file when it was read; "" if the store keeps its bytes."""
        facts = self.facts
        return facts.stamp if facts else ""


_own_columns = ("metadata", "source_facts", "origin", "anchors")
_of_event = common_members(DocumentRow, DocWritten, but=_own_columns)


def document_row(record: Record, event: DocWritten) -> DocumentRow:
    """Returns the row of a new document.

    The fold of a replaced document puts its old times and creator in place of these.
    """
    members = _of_event(event)
    members["created_at"] = event.created_at or record.ts
    members["created_by"] = event.created_by or record.actor
    return DocumentRow(
        **members,
        type=event.doc_type,
        metadata=encode(event.metadata).decode(),
        chunk_count=len(event.chunks),
        sha256=event.source_sha256,
        updated_at=record.ts,
        deleted_at=None,
        touched=record.seq,
        updated_by=record.actor,
        source_facts=encode(event.source_facts).decode() if event.source_facts else None,
        origin=event.origin,
        anchors=anchors_column(event.anchors),
    )


class ChunkRow(Struct, frozen=True):
    """A chunk. `marks`: a JSON array, or None; see events.document.ChunkText."""

    id: BigInt
    document_id: BigInt
    idx: int
    text: str
    page: int | None
    section: str | None
    overlap: int
    joint: str | None
    marks: str | None

    @property
    def content(self) -> ChunkText:
        """The chunk's content as its event holds it."""
        return ChunkText(**_of_chunk_row(self), marks=marks_of(self.marks))


_of_chunk_row = common_members(ChunkText, ChunkRow, but=("marks",))


_CONTENT_COLUMNS = ChunkRow.__struct_fields__[3:]
_content_of = attrgetter(*_CONTENT_COLUMNS)
_MARKS = _CONTENT_COLUMNS.index("marks")


def chunk_columns(chunk: ChunkText) -> tuple[Any, ...]:
    """Returns the columns of a chunk's content, which are those of its row after `idx`."""
    columns = list(_content_of(chunk))
    columns[_MARKS] = marks_column(chunk.marks)
    return tuple(columns)


def marks_of(column: str | None) -> list[Mark]:
    return [] if column is None else _decode(column)


def marks_column(marks: list[Mark]) -> str | None:
    return encode(marks).decode() if marks else None


class IndexRow(Struct, frozen=True, array_like=True):
    """A live chunk for the indexes: what they search by. `label`: see filters."""

    chunk_id: int
    document_id: int
    label: str
    title: str
    section: str | None
    text: str
    path: str | None = None
    url: str | None = None
    aliases: list[str] = []
    tags: list[str] = []


class HitRow(Struct, frozen=True):
    """A live chunk as hits show it. Each member is a column of the chunk or of its document.

    `marks`: as in ChunkRow. `head`: for an entry, the last one of its chain. `anchors`: as in
    DocumentRow.
    """

    chunk_id: int
    document_id: int
    kb: str
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
    origin: Origin = "agent"
    verified_at: str | None = None
    superseded_by: int | None = None
    head: int | None = None
    created_at: str = ""
    updated_at: str = ""
    aliases: list[str] = []
    modified_at: str | None = None
    anchors: str | None = None
    valid_from: str | None = None
    valid_to: str | None = None


class StandingRow(Struct, frozen=True):
    """The characters of a chunk that are a standing instruction, and when it was said.

    `number`: how many of the requested subjects it is about. `text`: the characters, to choose by;
    the chunk's row has a checksum.
    """

    chunk_id: int
    at: int
    size: int
    said_at: str
    number: int
    text: str


class KbRow(Struct, frozen=True):
    slug: str
    name: str
    description: str
    revision: int
    created_at: str
    updated_at: str
    review: Review


class TokenRow(Struct, frozen=True):
    """The answer to a request with a token.

    `params_hash`: as in the record. `salt`: the salt in that hash; "" once it is erased.
    """

    params_hash: str | None
    salt: str
    seq: BigInt
    result: str | None


def token_row(record: Record) -> TokenRow:
    """Returns the row of a record that has a token."""
    result = bytes(record.result).decode()
    return TokenRow(
        record.params_hash, record.salt, record.seq, None if result == "null" else result
    )


class EventRow(Struct, frozen=True):
    """An event without its content, which is in the log. `idx`: its place in the record."""

    seq: BigInt
    idx: int
    ts: str
    actor: str
    method: str
    type: str
    kb: str | None
    document_id: BigInt | None
    revision: int | None
    session_id: BigInt | None
    message_id: BigInt | None


class Head(Struct, frozen=True):
    seq: BigInt
    hash: str
    ts: str
    next_document: BigInt
    next_chunk: BigInt
    next_session: BigInt
    next_message: BigInt

    @property
    def given(self) -> NextIds:
        return NextIds(*(getattr(self, name) for name in NextIds.__struct_fields__))

    @property
    def position(self) -> Position:
        return Position(self.seq, self.hash)


class EntryRow(Struct, frozen=True):
    """A knowledge entry. `head`: the last entry of its chain; itself unless superseded.

    `anchors`: as in DocumentRow.
    """

    id: BigInt
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
    superseded_by: BigInt | None
    head: BigInt
    origin: Origin
    derived_from: list[int]
    verified_by: str | None
    verified_at: str | None
    review_after: str | None
    aliases: list[str] = []
    in_review: bool = False
    replaces: list[int] = []
    anchors: str | None = None
    valid_from: str | None = None
    valid_to: str | None = None

    @property
    def began(self) -> str:
        """When it began to be true: when it was stored, unless its writer says otherwise."""
        return self.valid_from or self.created_at


def facts_in(columns: Mapping[str, Any]) -> EntryFacts:
    """Returns the facts of an entry from its columns."""
    members = {name: columns[name] for name in EntryFacts.__struct_fields__}
    return EntryFacts(**members | {"anchors": anchors_of(columns["anchors"])})


def entry_columns(facts: EntryFacts) -> dict[str, Any]:
    """Returns the columns of an entry's facts."""
    return asdict(facts) | {"anchors": anchors_column(facts.anchors)}


def anchors_of(column: str | None) -> list[Anchor]:
    return [] if column is None else _decode_anchors(column)


def anchors_column(anchors: list[Anchor]) -> str | None:
    return encode(anchors).decode() if anchors else None


class ChainRow(Struct, frozen=True):
    """An entry as one link of a chain."""

    id: int
    superseded_by: int | None
    live: bool


class AgentRow(Struct, frozen=True):
    """An agent. `kbs`, `scopes`: None stands for all. `quotas`: a JSON object."""

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


class WatchRow(Struct, frozen=True):
    """A watched folder; its members are those of FolderWatched."""

    machine: str
    path: str
    kb: str
    root: str | None
    glob: str | None
    exclude: list[str]
    tags: list[str]
    prune: str
    all_files: bool
    max_file_bytes: BigInt
    poll: bool
    origin: Origin
    added_at: str
    added_by: str


_of_watched = common_members(WatchRow, FolderWatched)


def watch_row(event: FolderWatched, *, added_at: str, added_by: str) -> WatchRow:
    return WatchRow(**_of_watched(event), added_at=added_at, added_by=added_by)


class SessionRow(Struct, frozen=True):
    id: BigInt
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


class TurnRow(Struct, frozen=True):
    """A question and its answer, with facts of their session. `number` counts from 1."""

    id: BigInt
    session_id: BigInt
    number: int
    title: str
    agent: str | None
    question: str
    text: str
    asked_at: str
    asked_by: str


class MessageRow(Struct, frozen=True):
    """A question and its answer. `status`: None while the answer is being generated. `ending`,
    `references`: JSON as in the log.
    """

    id: BigInt
    session_id: BigInt
    question: str
    detail: str
    answerer: str
    model: str | None
    profile: str | None
    asked_at: str
    asked_by: str
    asked_seq: BigInt
    attempt_seq: BigInt
    status: str | None
    ending: str | None
    ended_at: str | None
    withdrawn_at: str | None
    text: str
    references: str | None


class PieceRow(Struct, frozen=True):
    """A piece of an answer. `documents`: the documents whose words it may repeat; None: any that
    this answer or an earlier one in the session refers to.
    """

    seq: BigInt
    idx: int
    kind: str
    said: str | None
    documents: list[int] | None = []


class Roster(Struct, frozen=True):
    """The facts about agents, knowledge bases and entries that every request needs.

    They are read once and shared by all requests until they change. `kbs`: sorted slugs.
    `entries`: knowledge bases that hold entries; `superseded`: those that hold superseded ones.
    `expiring`: ids of entries that expire, in the order of `moments`, their sorted times.
    `successors`: ids of all entries that supersede another, and of some that did once. `watches`:
    the watched folders.
    """

    agents: dict[str, AgentRow]
    kbs: tuple[str, ...]
    entries: tuple[str, ...]
    superseded: tuple[str, ...]
    successors: frozenset[int]
    moments: list[str]
    expiring: list[int]
    watches: list[WatchRow] = []

    def kbs_for(self, sight: Sight) -> list[str]:
        """Returns the visible knowledge bases."""
        return [kb for kb in self.kbs if sight.kbs is None or kb in sight.kbs]

    def expired(self, now: str) -> Ids | None:
        """Returns the sorted ids of entries that have expired at `now`, deleted ones included;
        None without any.
        """
        expired_count = bisect_right(self.moments, now)
        if not expired_count:
            return None
        import numpy as np

        return np.array(sorted(self.expiring[:expired_count]), dtype=np.int64)
