"""Exports documents, entries, agents, notes and sessions as portable lines.

The lines are made in batches from one snapshot. The module also checks the path of a new export or
backup: an existing file is never overwritten, and a new file appears complete or not at all.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, get_args

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.structs import batches, common_members
from kbproc.base.values import decoder
from kbproc.engine.events.document import SourceFacts
from kbproc.engine.events.entry import Anchor, EntryFacts
from kbproc.engine.events.origin import Origin as From
from kbproc.engine.events.origin import origin_in_export
from kbproc.engine.events.session import AnswerEnded, Reference
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import (
    AgentRow,
    ChunkRow,
    DocumentRow,
    KbRow,
    MessageRow,
    SessionRow,
    WatchRow,
    anchors_of,
    facts_in,
)
from kbproc.engine.store.state import SeenStore, StoreModel
from kbproc.knowledge.agents.agent import Quotas
from kbproc.knowledge.agents.quotas import quotas_of
from kbproc.knowledge.documents.document import DocType
from kbproc.knowledge.transfer.portable import (
    COUNTS,
    MAX_LINE_BYTES,
    AgentLine,
    DocumentLine,
    End,
    ExportedAnchor,
    ExportedChunk,
    ExportedEntry,
    ExportedMessage,
    ExportedSourceFacts,
    Header,
    KbLine,
    Line,
    NoteLine,
    Origin,
    SessionLine,
    VectorsOf,
    WatchLine,
    encode,
)

_DOCUMENTS = [type for type in get_args(DocType) if type != "note"]
_BATCH_ROWS = 200
_BATCH_CHUNKS = 2000
_decode_ending = decoder(list[AnswerEnded]).decode
_decode_references = decoder(list[Reference]).decode


class OutgoingLine(NamedTuple):
    """A line to write; `line` is None where it would be too long, or where a note is lost.

    `id` is a document's.
    """

    line: Line | None
    data: bytes
    id: int = 0
    title: str = ""
    lacks_source: bool = False


def lines(
    store: SeenStore,
    queries: Queries,
    header: Header,
    filter: DocumentFilter,
    *,
    sources: bool,
    most_bytes: int = MAX_LINE_BYTES,
    hashed: bool = True,
) -> Iterator[OutgoingLine]:
    """Yields every line in order, made from what `queries` sees; only one batch is in memory.

    A source that is lost, or that would make its line too long, is left out. Vectors are included
    where the header names their model.
    """
    digest, counts = hashlib.sha256(), Counter[str]()
    for outgoing in _Export(store, queries, header, filter, sources, most_bytes).before_end():
        digest.update(outgoing.data)
        counts[COUNTS.get(type(outgoing.line), "")] += 1
        yield outgoing
    numbers = {name: counts[name] for name in COUNTS.values() if name in End.__struct_fields__}
    end = End(**numbers, sha256=digest.hexdigest() if hashed else None)
    yield OutgoingLine(end, encode(end) + b"\n")


def vectors_of(model: StoreModel) -> VectorsOf | None:
    """Returns the model whose vectors can be exported; None without one."""
    if model.fingerprint is None or model.dim is None:
        return None
    return VectorsOf(model=model.model_name or "", fingerprint=model.fingerprint, dim=model.dim)


class _Export(Struct, frozen=True):
    """Makes the lines of one export; only that of all knowledge bases has agents and sessions."""

    store: SeenStore
    queries: Queries
    header: Header
    filter: DocumentFilter
    sources: bool
    most_bytes: int

    def before_end(self) -> Iterator[OutgoingLine]:
        queries, chosen = self.queries, self.filter.kbs
        agents = queries.agents() if chosen is None else []
        yield self._fitting(self.header)
        for kb in queries.kbs():
            if chosen is None or kb.slug in chosen:
                yield self._fitting(KbLine(**_of_kb_row(kb)))
        for agent in agents:
            line = AgentLine(**_of_agent_row(agent), quotas=Quotas(**quotas_of(agent)))
            yield self._fitting(line)
        for watch in queries.watches():
            if watch.kb in (queries.kb_slugs() if chosen is None else chosen):
                yield self._fitting(WatchLine(**_of_watch_row(watch)))
        yield from self._documents()
        for agent in agents:
            yield from (self._note(agent.slug, row) for row in queries.notes(agent.slug))
        for session in queries.sessions() if chosen is None else []:
            yield self._fitting(
                _session(session, queries.messages(session.id)), title=f"session {session.id}"
            )

    def _fitting(self, line: Line, *, id: int = 0, title: str = "") -> OutgoingLine:
        """Returns the line, or that it is too long."""
        data = encode(line) + b"\n"
        fits = len(data) <= self.most_bytes
        return OutgoingLine(line if fits else None, data if fits else b"", id, title)

    def _documents(self) -> Iterator[OutgoingLine]:
        for rows in self._batches(msgspec.structs.replace(self.filter, types=_DOCUMENTS)):
            chunks = chunks_of(self.queries, [row.id for row in rows])
            entries = _entries(self.queries, rows)
            for row in rows:
                yield self._document(row, chunks.get(row.id, []), entries.get(row.id))

    def _batches(self, filter: DocumentFilter) -> Iterator[list[DocumentRow]]:
        """Yields documents by id, in batches whose chunks fit in memory."""
        after = 0
        while rows := self.queries.documents(filter, after=after, limit=_BATCH_ROWS):
            yield from batches(rows, lambda row: row.chunk_count, most=_BATCH_CHUNKS)
            after = rows[-1].id

    def _document(
        self, row: DocumentRow, chunks: Sequence[ChunkRow], entry: ExportedEntry | None
    ) -> OutgoingLine:
        with_source = self.sources or entry is not None  # an entry's body is more than its chunks
        source = self._source(row) if with_source else None
        line = DocumentLine(
            **_of_row(row),
            doc_type=row.type,  # type: ignore[arg-type]
            source=Origin(**_of_origin(row)),
            metadata=msgspec.json.decode(row.metadata),
            chunks=[ExportedChunk(**asdict(chunk.content)) for chunk in chunks],
            source_facts=ExportedSourceFacts(**_of_source_facts(row.facts)) if row.facts else None,
            entry=entry,
            origin=_stated_origin(row),
            source_base64=source,
            vectors=self._vectors(row, chunks),
        )
        outgoing = self._fitting(line, id=row.id, title=row.title)
        if outgoing.line is None and source is not None:
            source, line = None, msgspec.structs.replace(line, source_base64=None)
            outgoing = self._fitting(line, id=row.id, title=row.title)
        if entry is not None and source is None:
            return OutgoingLine(None, b"", row.id, row.title)
        return outgoing._replace(lacks_source=with_source and source is None)

    def _note(self, agent: str, row: DocumentRow) -> OutgoingLine:
        data = self._source(row)
        if data is None:
            return OutgoingLine(None, b"", row.id, row.title)
        line = NoteLine(
            agent=agent,
            slug=str(row.source_id),
            text=data.decode(),
            updated_at=row.updated_at,
            origin=_stated_origin(row),
            anchors=_exported(anchors_of(row.anchors)),
        )
        return self._fitting(line, id=row.id, title=row.title)

    def _source(self, row: DocumentRow) -> bytes | None:
        if row.size_bytes * 4 // 3 > self.most_bytes:
            return None
        try:
            return self.store.blobs.get(row.sha256)
        except KbprocError as error:
            if error.type != "store.corrupt":
                raise
            return None

    def _vectors(self, row: DocumentRow, chunks: Sequence[ChunkRow]) -> list[bytes | None] | None:
        if self.header.vectors is None:
            return None
        model = self.store.model
        texts = ((row.title, chunk.content.section, chunk.content.text) for chunk in chunks)
        return model.kept([model.string_of(*text) for text in texts])


_of_kb_row = common_members(KbLine, KbRow)
_of_agent_row = common_members(AgentLine, AgentRow, but=("quotas",))
_of_watch_row = common_members(WatchLine, WatchRow)
_of_row = common_members(DocumentLine, DocumentRow, but=("metadata", "source_facts", "origin"))
_of_source_facts = common_members(ExportedSourceFacts, SourceFacts)
_of_origin = common_members(Origin, DocumentRow)
_of_facts = common_members(ExportedEntry, EntryFacts, but=("anchors",))
_of_session_row = common_members(SessionLine, SessionRow)
_of_message_row = common_members(ExportedMessage, MessageRow, but=("references", "ending"))
_of_ending = common_members(ExportedMessage, AnswerEnded, but=("ended_at",))


def _session(row: SessionRow, messages: Sequence[MessageRow]) -> SessionLine:
    """Returns the session's line, without a question in flight."""
    exported = [_message(one, one.ending) for one in messages if one.ending is not None]
    return SessionLine(**_of_session_row(row), messages=exported)


def _message(row: MessageRow, ending: str) -> ExportedMessage:
    references = _decode_references(row.references) if row.references else []
    members = _of_message_row(row) | _of_ending(_decode_ending(f"[{ending}]")[0])
    members["references"] = [msgspec.structs.replace(one, chunk_id=None) for one in references]
    return ExportedMessage(**members)


def _entries(queries: Queries, rows: Sequence[DocumentRow]) -> dict[int, ExportedEntry]:
    entries = queries.entries_by_id([row.id for row in rows if row.type == "knowledge"])
    successors = queries.entries_by_id(
        [row.superseded_by for row in entries.values() if row.superseded_by]
    )
    live = {id for id, row in successors.items() if row.deleted_at is None}
    facts = {id: facts_in(asdict(row)) for id, row in entries.items()}
    return {
        id: ExportedEntry(
            **_of_facts(facts[id]),
            anchors=_exported(facts[id].anchors),
            verified_by=row.verified_by,
            verified_at=row.verified_at,
            superseded_by=row.superseded_by if row.superseded_by in live else None,
        )
        for id, row in entries.items()
    }


def _exported(anchors: Sequence[Anchor]) -> list[ExportedAnchor]:
    return [ExportedAnchor(**asdict(one)) for one in anchors]


def chunks_of(queries: Queries, ids: Sequence[int]) -> dict[int, list[ChunkRow]]:
    """Returns document id → its chunks in order, for many documents."""
    chunk_ids = [row.chunk_id for row in queries.index_rows(ids)]
    chunks = queries.chunks(chunk_ids)
    per_document: dict[int, list[ChunkRow]] = {}
    for id in chunk_ids:
        per_document.setdefault(chunks[id].document_id, []).append(chunks[id])
    return per_document


def _stated_origin(row: DocumentRow) -> From | None:
    """Returns the origin as a line states it: None where the line stands for it."""
    return None if row.origin == origin_in_export(row.type, row.url, row.created_by) else row.origin


# --------------------------------------------------------------------- the new file

_FIELD = "$.params.path"

NewPath = Annotated[str, Meta(min_length=1, max_length=4096, description="must not exist yet")]


def new_place(path: str, *, cwd: Path, root: Path | None, outside: Path) -> Path:
    """Returns the resolved path. `outside`: the store's own folder, which may not contain it.

    Raises resource.already_exists, resource.not_found, path.outside_root.
    """
    target = paths.locate(path, cwd=cwd, root=root, field=_FIELD)
    if target.is_relative_to(outside.resolve()):
        raise KbprocError(
            "input.invalid_params",
            f"{target} lies inside the store itself.",
            field=_FIELD,
            hint="Name a place outside of it, better still on another disk.",
        )
    if os.path.lexists(target):
        raise KbprocError(
            "resource.already_exists", f"{target} exists and is not overwritten.", field=_FIELD
        )
    if not target.parent.is_dir():
        raise KbprocError(
            "resource.not_found",
            f"There is no folder {target.parent}.",
            field=_FIELD,
            hint="Make that folder first, or name another.",
        )
    return target
