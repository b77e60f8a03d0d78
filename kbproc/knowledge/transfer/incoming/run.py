"""One import: portable documents on their way in.

Owns: the survey of a file, gathering documents into records, the counts, and the plan.
Refuses to know: lines and their limits (moving/portable/), which documents are here already
(matching.py), and what becomes of agents, links, notes and sessions (agents.py, links.py, notes.py,
sessions.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import BinaryIO

import msgspec

from kbproc.agents.agent import row_of
from kbproc.base.wording import plural
from kbproc.documents.lookup import require_kb
from kbproc.documents.revision import Ids, written
from kbproc.events.agent import AgentWritten
from kbproc.events.document import DocWritten, SourceFacts
from kbproc.events.entry import EntryFacts
from kbproc.events.event import Event
from kbproc.events.kb import KbCreated
from kbproc.moving.incoming import notes, sessions
from kbproc.moving.incoming.agents import agents as agents_to_make
from kbproc.moving.incoming.contents import Contents, Emit, Import, Imported, Report
from kbproc.moving.incoming.links import Links
from kbproc.moving.incoming.matching import Brought, IncomingDocument, Match, Matches
from kbproc.moving.incoming.sessions import Sessions
from kbproc.moving.portable import lines
from kbproc.moving.portable.file import read
from kbproc.moving.portable.lines import Document
from kbproc.store.decision import Decision, Here
from kbproc.store.pipeline import LongWrite
from kbproc.store.state import SeenStore, StoreModel

_BATCH_DOCUMENTS = 100
_BATCH_CHUNKS = 1000
_BATCH_BYTES = 64 << 20
_AT_ONCE = 8
_MOST_IDS = 1000
_MOST_CHANGES = 100


def survey(file: BinaryIO, report: Report, check: Callable[[], None]) -> Contents:
    """Reads the whole file; `report` gets the bytes read so far. Raises what `read` raises."""
    kbs, agents, links = [], [], {}
    vectors: lines.VectorsOf | None = None
    documents = size = talks = 0
    notes = Counter[str]()
    cited: set[int] = set()
    for _, line, size in read(file):
        check()
        report(size, plural(documents, "document"))
        if isinstance(line, lines.Header):
            vectors = line.vectors
        elif isinstance(line, lines.Kb):
            kbs.append(line)
        elif isinstance(line, lines.Agent):
            agents.append(line)
        elif isinstance(line, Document):
            documents += 1
            if line.entry and line.entry.superseded_by:
                links[line.id] = line.entry.superseded_by
        elif isinstance(line, lines.Note):
            notes[line.agent] += 1
        elif isinstance(line, lines.Session):
            talks += 1
            references = (one for message in line.messages for one in message.references)
            cited |= {one.document_id for one in references if one.document_id is not None}
    return Contents(
        kbs=kbs,
        agents=agents,
        links=links,
        documents=documents,
        notes=notes,
        size=size,
        vectors=vectors,
        sessions=talks,
        cited=frozenset(cited),
    )


# ------------------------------------------------------------------ what is written


def run(
    store: SeenStore,
    file: BinaryIO,
    contents: Contents,
    work: Import,
    write: LongWrite,
    *,
    report: Report,
    emit: Emit,
    check: Callable[..., None],
) -> Imported:
    """Imports; each batch is durable when the next begins. Raises operation.cancelled."""
    kbs, agents = write.item(lambda here: _first(here, contents, work))
    result = Imported(
        kbs_created=kbs,
        agents_created=agents.created,
        agents_kept=agents.kept,
        folders_left=agents.left,
    )
    links, talks = Links(contents.links), Sessions(contents.cited)
    known, resumed = Matches(replace=work.replace), write.written()
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="import") as pool:
        for batch, offset in _batches(file, work):
            check(**counts(result))
            likely = _prepare(store, known, batch, pool)
            if contents.vectors is not None:
                result.vectors += _bring(store.model, contents.vectors, likely)
            outcomes = write.item(partial(_batch, store, known, batch))
            for item, outcome in zip(batch, outcomes, strict=True):
                links.note(item.document.id, outcome)
                talks.note(item.document.id, outcome)
                _count(result, item.document, _resumed(outcome, resumed), emit)
            report(offset, batch[-1].document.title)
    result.links = links.write(write, check)
    if work.kb is None and contents.notes:
        notes.write_notes(store, file, result, emit, check)
    if work.kb is None and contents.sessions:
        talks.write(file, result, write, check)
    return result


def _batches(file: BinaryIO, work: Import) -> Iterator[tuple[list[IncomingDocument], int]]:
    """The documents, some at a time, and how far into the file they reach."""
    batch: list[IncomingDocument] = []
    chunks = start = 0
    for _, line, offset in read(file):
        if isinstance(line, Document):
            batch.append(IncomingDocument(line, work.kb or line.kb))
            chunks += len(line.chunks)
        many = len(batch) >= _BATCH_DOCUMENTS or chunks >= _BATCH_CHUNKS
        if batch and (many or offset - start > _BATCH_BYTES or isinstance(line, lines.End)):
            yield batch, offset
            batch, chunks, start = [], 0, offset


def _prepare(
    store: SeenStore, known: Matches, batch: list[IncomingDocument], pool: Executor
) -> list[Document]:
    """Whatever is slow, outside the lane; sources are stored some at once. What will be written,
    unless another writer is faster.
    """
    with store.reading() as snapshot:
        known.follow(snapshot.queries)
        known.look_up(snapshot.queries, batch)
        likely = [known.judge(snapshot.queries, item) for item in batch]

    def store_source(item: IncomingDocument, outcome: Match) -> None:
        source = item.document.source_base64
        if outcome.action in {"added", "updated"}:
            item.content(store)
        elif source is not None and outcome.id is not None and known.has_source(outcome.id, item):
            store.blobs.heal(item.document.sha256, source)

    for _ in pool.map(store_source, batch, likely):
        continue  # raises what storing raised
    judged = zip(batch, likely, strict=True)
    return [item.document for item, found in judged if found.action in {"added", "updated"}]


def _bring(model: StoreModel, made_by: lines.VectorsOf, documents: list[Document]) -> int:
    """The documents' vectors lie ready before their chunks ask for them; how many are of use."""
    if model.fingerprint != made_by.fingerprint or model.dim != made_by.dim:
        return 0
    vectors: dict[str, bytes] = {}
    count = 0
    for document in documents:
        for chunk, vector in zip(document.chunks, document.vectors or (), strict=False):
            if vector is not None:
                vectors[model.string_of(document.title, chunk.section, chunk.text)] = vector
                count += 1
    model.bring(vectors)
    return count


def _first(here: Here, contents: Contents, work: Import) -> Decision:
    """What documents and notes need."""
    kbs, agents = _new_kbs(here, contents, work), agents_to_make(here, contents, work)
    data = len(kbs.events), agents.data
    return Decision(events=[*kbs.events, *agents.events], data=data)


def _new_kbs(here: Here, contents: Contents, work: Import) -> Decision:
    if work.kb is not None:
        require_kb(here, work.kb)
        return Decision(events=[], data=[])
    there = set(here.queries.kb_slugs())
    events: list[Event] = [
        KbCreated(slug=kb.slug, name=kb.name, description=kb.description)
        for kb in contents.kbs
        if kb.slug not in there
    ]
    return Decision(events=events, data=events)


def _batch(store: SeenStore, known: Matches, batch: list[IncomingDocument], here: Here) -> Decision:
    """Looks again at what is there. An outcome's id is final, a new document's too."""
    for kb in {item.kb for item in batch}:
        require_kb(here, kb)
    known.follow(here.queries)
    ids = Ids(here)
    events: list[Event] = []
    outcomes: list[Match] = []
    for item in batch:
        outcome = known.judge(here.queries, item)
        if outcome.action in {"added", "updated"}:
            event = _written(store, here, item, outcome.id, ids)
            events.append(event)
            outcome = Match(outcome.action, event.id)
        known.take(item, outcome.id)
        outcomes.append(outcome)
    return Decision(events=events, data=outcomes)


def _facts_of(document: lines.Document) -> SourceFacts | None:
    facts = document.source_facts
    return None if facts is None else SourceFacts(**msgspec.structs.asdict(facts))


def _written(
    store: SeenStore, here: Here, item: IncomingDocument, id: int | None, ids: Ids
) -> DocWritten:
    document = item.document
    event = written(
        here,
        item.content(store),
        kb=item.kb,
        existing=None if id is None else here.queries.document(id),
        ids=ids,
        tags=document.tags,
        metadata=document.metadata,
        source_facts=_facts_of(document),
        path=document.source.path,
        url=document.source.url,
        source_id=document.source.source_id,
    )
    created_at = document.created_at if id is None else None
    event = msgspec.structs.replace(event, parser=document.parser, created_at=created_at)
    if (entry := document.entry) is None:
        return event
    facts = EntryFacts(
        confidence=entry.confidence,
        source=entry.source,
        expires_at=entry.expires_at,
        task_id=entry.task_id,
        task_kind=entry.task_kind,
    )
    return msgspec.structs.replace(event, entry=facts, created_by=document.created_by)


# --------------------------------------------------------------------- what is reported


def counts(result: Imported) -> dict[str, int]:
    names = ("added", "updated", "unchanged", "conflicts", "kbs_created", "agents_created")
    return {name: getattr(result, name) for name in names}


def _resumed(outcome: Match, resumed: dict[int, int]) -> Match:
    """What an earlier, unfinished run of this command has written counts as its own."""
    if outcome.action != "unchanged" or outcome.id not in resumed:
        return outcome
    return Match("added" if resumed[outcome.id] == 1 else "updated", outcome.id)


def _count(result: Imported, document: Document, outcome: Match, emit: Emit) -> None:
    name = "conflicts" if outcome.action == "conflict" else outcome.action
    setattr(result, name, getattr(result, name) + 1)
    if outcome.action != "conflict" and outcome.id is not None and len(result.ids) < _MOST_IDS:
        result.ids[str(document.id)] = outcome.id
    item = Brought(old=document.id, new=outcome.id, action=outcome.action)
    emit("item", {"item": msgspec.to_builtins(item)})


def plan(
    store: SeenStore, file: BinaryIO, contents: Contents, work: Import, here: Here
) -> Decision:
    """What an import would do: a line of counts, then what is not there yet."""
    result, known = Imported(), Matches(replace=work.replace)
    known.follow(here.queries)
    changes = [f"create knowledge base {kb.slug}" for kb in _new_kbs(here, contents, work).data]
    for batch, _ in _batches(file, work):
        known.look_up(here.queries, batch)
        for item in batch:
            outcome = known.judge(here.queries, item)
            known.take(item, outcome.id)
            _count(result, item.document, outcome, lambda name, fields: None)
            if outcome.action != "unchanged" and len(changes) < _MOST_CHANGES:
                changes.append(f"{outcome.action}: {item.document.title}")
    summary = f"{result.added} added, {result.updated} updated, {result.unchanged} unchanged"
    first = f"{summary}, {result.conflicts} in conflict"
    changes += _planned_beside(store, contents, work, here)
    if work.kb is None and contents.sessions:
        changes += sessions.planned(here.queries, file)
    return Decision(events=[], data=None, changes=[first, *changes])


def _planned_beside(store: SeenStore, contents: Contents, work: Import, here: Here) -> list[str]:
    """What comes beside documents, as lines of a plan."""
    if work.kb is not None:
        return []
    made = [
        event
        for event in agents_to_make(here, contents, work).events
        if isinstance(event, AgentWritten)
    ]
    rows = {row.slug: row for row in here.queries.agents()}
    rows |= {event.slug: row_of(event, created_at=here.ts, now=here.ts) for event in made}
    elsewhere = [
        f"create agent {_named(event)}, whose notes lie in {event.folder}"
        for event in made
        if event.folder is not None
    ]
    own = [f"create agent {_named(event)}" for event in made if event.folder is None]
    written = notes.planned(store, contents.notes, rows)
    return [*elsewhere, *own[:_MOST_CHANGES], *written]


def _named(agent: AgentWritten) -> str:
    """With the scopes that the file gives it: whoever approves the import approves them."""
    return agent.slug + (f" with the scopes {', '.join(agent.scopes)}" if agent.scopes else "")
