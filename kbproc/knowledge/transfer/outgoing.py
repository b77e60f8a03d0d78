"""Exports documents, entries, agents, notes and sessions as portable lines.

The lines are made in batches from one snapshot. The module also checks the path of a new export or
backup: an existing file is never overwritten, and a new file appears complete or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

import msgspec
from msgspec import Meta

from kbproc.base import paths
from kbproc.base.durable import create, sync_folder
from kbproc.base.errors import KbprocError, is_lasting
from kbproc.base.structs import common_members
from kbproc.base.values import decoder
from kbproc.engine.events.origin import Origin as From
from kbproc.engine.events.origin import origin_in_export
from kbproc.engine.events.session import AnswerEnded, Reference
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import (
    AgentRow,
    ChunkRow,
    DocumentRow,
    EntryRow,
    KbRow,
    MessageRow,
    SessionRow,
    WatchRow,
)
from kbproc.engine.store.state import SeenStore, StoreModel
from kbproc.knowledge.agents.agent import Quotas
from kbproc.knowledge.agents.quotas import quotas_of
from kbproc.knowledge.documents.document import DocType
from kbproc.knowledge.transfer.portable import (
    MAX_LINE_BYTES,
    AgentLine,
    DocumentLine,
    End,
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
    digest, counts = hashlib.sha256(), Counter[type[Line | None]]()
    for outgoing in _before_end(store, queries, header, filter, sources, most_bytes):
        digest.update(outgoing.data)
        counts[type(outgoing.line)] += 1
        yield outgoing
    sha256 = digest.hexdigest() if hashed else None
    yield _outgoing(
        End(
            documents=counts[DocumentLine],
            sha256=sha256,
            agents=counts[AgentLine],
            notes=counts[NoteLine],
            sessions=counts[SessionLine],
            watches=counts[WatchLine],
        )
    )


def vectors_of(model: StoreModel) -> VectorsOf | None:
    """Returns the model whose vectors can be exported; None without one."""
    if model.fingerprint is None or model.dim is None:
        return None
    return VectorsOf(model=model.model_name or "", fingerprint=model.fingerprint, dim=model.dim)


def _agents(queries: Queries, filter: DocumentFilter) -> list[AgentRow]:
    """Returns the agents to export: all, or none from an export of selected knowledge bases."""
    return queries.agents() if filter.kbs is None else []


def _sessions(queries: Queries, filter: DocumentFilter) -> list[SessionRow]:
    return queries.sessions() if filter.kbs is None else []


def _watches(queries: Queries, filter: DocumentFilter) -> list[WatchRow]:
    """Returns the watched folders of the exported knowledge bases."""
    kbs = set(queries.kb_slugs()) if filter.kbs is None else set(filter.kbs)
    return [row for row in queries.watches() if row.kb in kbs]


def _outgoing(line: Line, **more: Any) -> OutgoingLine:
    return OutgoingLine(line, encode(line) + b"\n", **more)


def _before_end(
    store: SeenStore,
    queries: Queries,
    header: Header,
    filter: DocumentFilter,
    sources: bool,
    most_bytes: int,
) -> Iterator[OutgoingLine]:
    yield _outgoing(header)
    for row in queries.kbs():
        if filter.kbs is None or row.slug in filter.kbs:
            yield _outgoing(KbLine(**_of_kb_row(row)))
    agents = _agents(queries, filter)
    yield from (_outgoing(_agent(row)) for row in agents)
    yield from (_outgoing(_watch(row)) for row in _watches(queries, filter))
    for rows in _batches(queries, msgspec.structs.replace(filter, types=_DOCUMENTS)):
        chunks, entries = chunks_of(queries, [row.id for row in rows]), _entries(queries, rows)
        for document_row in rows:
            own_chunks = chunks.get(document_row.id, [])
            line = _line_of(document_row, own_chunks, entries.get(document_row.id))
            if header.vectors is not None:
                line = msgspec.structs.replace(
                    line, vectors=_vectors(store.model, document_row, own_chunks)
                )
            yield _document(store, document_row, line, sources, most_bytes)
    for agent in agents:
        yield from (_note(store, agent.slug, row, most_bytes) for row in queries.notes(agent.slug))
    for session in _sessions(queries, filter):
        outgoing = _outgoing(_session(session, queries.messages(session.id)), title=session.title)
        too_long = OutgoingLine(None, b"", title=f"session {session.id}")
        yield outgoing if len(outgoing.data) <= most_bytes else too_long


_of_kb_row = common_members(KbLine, KbRow)
_of_agent_row = common_members(AgentLine, AgentRow, but=("quotas",))


def _agent(row: AgentRow) -> AgentLine:
    return AgentLine(**_of_agent_row(row), quotas=Quotas(**quotas_of(row)))


_watch_members = common_members(WatchLine, WatchRow)


def _watch(row: WatchRow) -> WatchLine:
    return WatchLine(**_watch_members(row))


_of_session_row = common_members(SessionLine, SessionRow)


def _session(row: SessionRow, messages: Sequence[MessageRow]) -> SessionLine:
    """Returns the session's line, without a question in flight."""
    exported = [_message(one) for one in messages if one.ending is not None]
    return SessionLine(**_of_session_row(row), messages=exported)


def _message(row: MessageRow) -> ExportedMessage:
    ending = _decode_ending(f"[{row.ending}]")[0]
    references = _decode_references(row.references) if row.references else []
    return ExportedMessage(
        question=row.question,
        asked_at=row.asked_at,
        asked_by=row.asked_by,
        answerer=row.answerer,
        model=row.model,
        detail=row.detail,  # type: ignore[arg-type]
        references=[msgspec.structs.replace(one, chunk_id=None) for one in references],
        text=row.text,
        status=ending.status,
        usage=ending.usage,
        hint=ending.hint,
        failure=ending.failure,
        ended_at=str(row.ended_at),
    )


def _note(store: SeenStore, agent: str, row: DocumentRow, most_bytes: int) -> OutgoingLine:
    data = _source(store, row, most_bytes)
    if data is None:
        return OutgoingLine(None, b"", row.id, row.title)
    line = NoteLine(
        agent=agent,
        slug=str(row.source_id),
        text=data.decode(),
        updated_at=row.updated_at,
        origin=_stated_origin(row),
    )
    outgoing = _outgoing(line, id=row.id, title=row.title)
    return (
        outgoing if len(outgoing.data) <= most_bytes else OutgoingLine(None, b"", row.id, row.title)
    )


_of_entry_row = common_members(ExportedEntry, EntryRow, but=("superseded_by",))


def _entries(queries: Queries, rows: Sequence[DocumentRow]) -> dict[int, ExportedEntry]:
    entries = queries.entries_by_id([row.id for row in rows if row.type == "knowledge"])
    successors = queries.entries_by_id(
        [row.superseded_by for row in entries.values() if row.superseded_by]
    )
    live = {id for id, row in successors.items() if row.deleted_at is None}
    return {
        id: ExportedEntry(
            **_of_entry_row(row),
            superseded_by=row.superseded_by if row.superseded_by in live else None,
        )
        for id, row in entries.items()
    }


def _batches(queries: Queries, filter: DocumentFilter) -> Iterator[list[DocumentRow]]:
    """Yields documents by id, in batches whose chunks fit in memory."""
    after = 0
    while rows := queries.documents(filter, after=after, limit=_BATCH_ROWS):
        batch: list[DocumentRow] = []
        count = 0
        for row in rows:
            if batch and count + row.chunk_count > _BATCH_CHUNKS:
                yield batch
                batch, count = [], 0
            batch.append(row)
            count += row.chunk_count
        yield batch
        after = rows[-1].id


def chunks_of(queries: Queries, ids: Sequence[int]) -> dict[int, list[ChunkRow]]:
    """Returns document id → its chunks in order, for many documents."""
    chunk_ids = [row.chunk_id for row in queries.index_rows(ids)]
    chunks = queries.chunks(chunk_ids)
    per_document: dict[int, list[ChunkRow]] = {}
    for id in chunk_ids:
        per_document.setdefault(chunks[id].document_id, []).append(chunks[id])
    return per_document


def _document(
    store: SeenStore, row: DocumentRow, bare: DocumentLine, sources: bool, most_bytes: int
) -> OutgoingLine:
    """Returns the document's line. `bare`: its line without the source."""
    with_source = sources or bare.entry is not None  # the body of an entry is more than its chunks
    source = _source(store, row, most_bytes) if with_source else None
    line = msgspec.structs.replace(bare, source_base64=source)
    data = encode(line) + b"\n"
    if len(data) > most_bytes and source is not None:
        source, line = None, bare
        data = encode(line) + b"\n"
    bodiless = bare.entry is not None and source is None
    if bodiless or len(data) > most_bytes:
        return OutgoingLine(None, b"", row.id, row.title)
    return OutgoingLine(line, data, row.id, row.title, with_source and source is None)


def _source(store: SeenStore, row: DocumentRow, most_bytes: int) -> bytes | None:
    if row.size_bytes * 4 // 3 > most_bytes:
        return None
    try:
        return store.blobs.get(row.sha256)
    except KbprocError as error:
        if error.type != "store.corrupt":
            raise
        return None


def _vectors(model: StoreModel, row: DocumentRow, chunks: list[ChunkRow]) -> list[bytes | None]:
    texts = ((row.title, chunk.content.section, chunk.content.text) for chunk in chunks)
    return model.kept([model.string_of(*text) for text in texts])


def _facts_of(row: DocumentRow) -> ExportedSourceFacts | None:
    return None if row.facts is None else ExportedSourceFacts(**msgspec.structs.asdict(row.facts))


_of_row = common_members(DocumentLine, DocumentRow, but=("metadata", "source_facts", "origin"))


def _line_of(row: DocumentRow, chunks: list[ChunkRow], entry: ExportedEntry | None) -> DocumentLine:
    return DocumentLine(
        **_of_row(row),
        doc_type=row.type,  # type: ignore[arg-type]
        source=Origin(path=row.path, url=row.url, source_id=row.source_id),
        metadata=msgspec.json.decode(row.metadata),
        chunks=[ExportedChunk(**msgspec.structs.asdict(row.content)) for row in chunks],
        source_facts=_facts_of(row),
        entry=entry,
        origin=_stated_origin(row),
    )


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
        raise _exists(target)
    if not target.parent.is_dir():
        raise KbprocError(
            "resource.not_found",
            f"There is no folder {target.parent}.",
            field=_FIELD,
            hint="Make that folder first, or name another.",
        )
    return target


def _exists(target: Path) -> KbprocError:
    return KbprocError(
        "resource.already_exists", f"{target} exists and is not overwritten.", field=_FIELD
    )


def write_new(target: Path, parts: Iterable[bytes]) -> None:
    """Writes a new, durable file of mode 0600; a failed one is removed.

    Unlike durable.replace it never replaces another file.
    Raises resource.already_exists, store.io.
    """
    temporary = target.with_name(f"{target.name[:100]}.partial-{os.urandom(4).hex()}")
    try:
        with create(temporary) as file:
            file.writelines(parts)
        _name(temporary, target)
        sync_folder(target.parent)
    except OSError as error:
        raise KbprocError(
            "store.io",
            f"{target} could not be written: {error.strerror or error}.",
            lasting=is_lasting(error),
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _name(temporary: Path, target: Path) -> None:
    """Gives the file its name with a link, which never replaces another file.

    Renames it instead where the file system has no links.
    """
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise _exists(target) from None
    except OSError:
        if os.path.lexists(target):
            raise _exists(target) from None
        temporary.rename(target)
