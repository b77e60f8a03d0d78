"""A store's documents, entries, agents, notes and sessions on their way out as portable lines.

Owns: making the lines from one position, in batches; a new file for them that
appears whole or not at all.
Refuses to know: who asks for them, and how lines are read (moving/portable/file.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec

from kbproc.agents.agent import Quotas
from kbproc.agents.quotas import quotas_of
from kbproc.base.durable import create, sync_folder
from kbproc.base.errors import KbprocError, is_lasting
from kbproc.base.values import decoder
from kbproc.documents.document import DocType
from kbproc.events.session import AnswerEnded, Reference
from kbproc.moving.place import exists
from kbproc.moving.portable.file import MAX_LINE_BYTES, VERSION
from kbproc.moving.portable.lines import (
    Agent,
    Chunk,
    Document,
    End,
    Entry,
    Header,
    Kb,
    Line,
    Message,
    Note,
    Origin,
    Session,
    SourceFacts,
    VectorsOf,
    encode,
)
from kbproc.store.state import SeenStore, StoreModel
from kbproc.views.catalog.filters import DocumentFilter
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import AgentRow, ChunkRow, DocumentRow, MessageRow, SessionRow

_DOCUMENTS = [type for type in get_args(DocType) if type != "note"]
_BATCH_ROWS = 200
_BATCH_CHUNKS = 2000
_decode_ending = decoder(list[AnswerEnded]).decode
_decode_references = decoder(list[Reference]).decode


class OutgoingLine(NamedTuple):
    """A line on its way out; `line` is None for what fits none, or for a note that is lost.

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
    wanted: DocumentFilter,
    *,
    sources: bool,
    most_bytes: int = MAX_LINE_BYTES,
    hashed: bool = True,
) -> Iterator[OutgoingLine]:
    """Every line in order, made from what `queries` sees; memory stays that of a batch.

    A source that is lost, or that would make its line too long, is left out. Vectors come along
    where the header names their model.
    """
    digest, counts = hashlib.sha256(), Counter[type[Line | None]]()
    for made in _before_end(store, queries, header, wanted, sources, most_bytes):
        digest.update(made.data)
        counts[type(made.line)] += 1
        yield made
    sha256 = digest.hexdigest() if hashed else None
    yield _made(
        End(
            documents=counts[Document],
            sha256=sha256,
            agents=counts[Agent],
            notes=counts[Note],
            sessions=counts[Session],
        )
    )


def version_of(queries: Queries, wanted: DocumentFilter, vectors: VectorsOf | None) -> int:
    """The first that has a word for all that goes out."""
    if _sessions(queries, wanted):
        return VERSION
    if vectors is not None:
        return 3
    entries = msgspec.structs.replace(wanted, types=["knowledge"])
    return 2 if queries.count(entries) or _agents(queries, wanted) else 1


def vectors_of(model: StoreModel) -> VectorsOf | None:
    """The model whose vectors can go out."""
    if model.fingerprint is None or model.dim is None:
        return None
    return VectorsOf(model=model.model_name or "", fingerprint=model.fingerprint, dim=model.dim)


def _agents(queries: Queries, wanted: DocumentFilter) -> list[AgentRow]:
    """They and their notes belong to the store as a whole."""
    return queries.agents() if wanted.kbs is None else []


def _sessions(queries: Queries, wanted: DocumentFilter) -> list[SessionRow]:
    return queries.sessions() if wanted.kbs is None else []


def _made(line: Line, **more: Any) -> OutgoingLine:
    return OutgoingLine(line, encode(line) + b"\n", **more)


def _before_end(
    store: SeenStore,
    queries: Queries,
    header: Header,
    wanted: DocumentFilter,
    sources: bool,
    most_bytes: int,
) -> Iterator[OutgoingLine]:
    yield _made(header)
    for row in queries.kbs():
        if wanted.kbs is None or row.slug in wanted.kbs:
            yield _made(Kb(slug=row.slug, name=row.name, description=row.description))
    agents = _agents(queries, wanted)
    yield from (_made(_agent(row)) for row in agents)
    for rows in _batches(queries, msgspec.structs.replace(wanted, types=_DOCUMENTS)):
        chunks, entries = chunks_of(queries, [row.id for row in rows]), _entries(queries, rows)
        for found in rows:
            of_it = chunks.get(found.id, [])
            line = _line_of(found, of_it, entries.get(found.id))
            if header.vectors is not None:
                line = msgspec.structs.replace(line, vectors=_vectors(store.model, found, of_it))
            yield _document(store, found, line, sources, most_bytes)
    for agent in agents:
        yield from (_note(store, agent.slug, row, most_bytes) for row in queries.notes(agent.slug))
    for session in _sessions(queries, wanted):
        made = _made(_session(session, queries.messages(session.id)), title=session.title)
        too_long = OutgoingLine(None, b"", title=f"session {session.id}")
        yield made if len(made.data) <= most_bytes else too_long


def _agent(row: AgentRow) -> Agent:
    return Agent(
        slug=row.slug,
        description=row.description,
        kbs=row.kbs,
        folder=row.folder,
        scopes=row.scopes,
        quotas=Quotas(**quotas_of(row)),
        instructions=row.instructions,
    )


def _session(row: SessionRow, messages: Sequence[MessageRow]) -> Session:
    """Without what is being answered."""
    return Session(
        key=row.key,
        title=row.title,
        kbs=row.kbs,
        agent=row.agent,
        created_at=row.created_at,
        created_by=row.created_by,
        messages=[_message(one) for one in messages if one.ending is not None],
    )


def _message(row: MessageRow) -> Message:
    ending = _decode_ending(f"[{row.ending}]")[0]
    references = _decode_references(row.references) if row.references else []
    return Message(
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
    line = Note(agent=agent, slug=str(row.source_id), text=data.decode(), updated_at=row.updated_at)
    made = _made(line, id=row.id, title=row.title)
    return made if len(made.data) <= most_bytes else OutgoingLine(None, b"", row.id, row.title)


def _entries(queries: Queries, rows: Sequence[DocumentRow]) -> dict[int, Entry]:
    found = queries.entries_by_id([row.id for row in rows if row.type == "knowledge"])
    by = queries.entries_by_id([row.superseded_by for row in found.values() if row.superseded_by])
    live = {id for id, row in by.items() if row.deleted_at is None}
    return {
        id: Entry(
            confidence=row.confidence,
            source=row.source,
            expires_at=row.expires_at,
            task_id=row.task_id,
            task_kind=row.task_kind,  # type: ignore[arg-type]
            superseded_by=row.superseded_by if row.superseded_by in live else None,
        )
        for id, row in found.items()
    }


def _batches(queries: Queries, wanted: DocumentFilter) -> Iterator[list[DocumentRow]]:
    """Documents by id, as many at a time as have few chunks together."""
    after = 0
    while rows := queries.documents(wanted, after=after, limit=_BATCH_ROWS):
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
    """document id → its chunks in order, for many at once."""
    wanted = [row.chunk_id for row in queries.index_rows(ids)]
    found = queries.chunks(wanted)
    per_document: dict[int, list[ChunkRow]] = {}
    for id in wanted:
        per_document.setdefault(found[id].document_id, []).append(found[id])
    return per_document


def _document(
    store: SeenStore, row: DocumentRow, bare: Document, sources: bool, most_bytes: int
) -> OutgoingLine:
    """`bare`: its line without the source."""
    wanted = sources or bare.entry is not None  # the body of an entry is more than its chunks
    source = _source(store, row, most_bytes) if wanted else None
    line = msgspec.structs.replace(bare, source_base64=source)
    data = encode(line) + b"\n"
    if len(data) > most_bytes and source is not None:
        source, line = None, bare
        data = encode(line) + b"\n"
    bodiless = bare.entry is not None and source is None
    if bodiless or len(data) > most_bytes:
        return OutgoingLine(None, b"", row.id, row.title)
    return OutgoingLine(line, data, row.id, row.title, wanted and source is None)


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


def _facts_of(row: DocumentRow) -> SourceFacts | None:
    return None if row.facts is None else SourceFacts(**msgspec.structs.asdict(row.facts))


def _line_of(row: DocumentRow, chunks: list[ChunkRow], entry: Entry | None) -> Document:
    return Document(
        id=row.id,
        kb=row.kb,
        title=row.title,
        doc_type=row.type,  # type: ignore[arg-type]
        source=Origin(path=row.path, url=row.url, source_id=row.source_id),
        tags=list(row.tags),
        metadata=msgspec.json.decode(row.metadata),
        revision=row.revision,
        created_at=row.created_at,
        updated_at=row.updated_at,
        created_by=row.created_by,
        parser=row.parser,
        sha256=row.sha256,
        size_bytes=row.size_bytes,
        chunks=[Chunk(**msgspec.structs.asdict(row.content)) for row in chunks],
        pages=row.pages,
        source_facts=_facts_of(row),
        entry=entry,
    )


def write_new(target: Path, parts: Iterable[bytes]) -> None:
    """A new, durable file of mode 0600; nothing is left of one that fails.

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
    """A link never takes another file's place; not every file system has them."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise exists(target) from None
    except OSError:
        if os.path.lexists(target):
            raise exists(target) from None
        temporary.rename(target)
