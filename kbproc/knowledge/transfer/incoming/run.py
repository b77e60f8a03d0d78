"""Imports a file of portable lines: surveys it, writes its documents in batches, and plans it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO

import msgspec

from kbproc.base.structs import common_members
from kbproc.base.threads import map_ahead
from kbproc.base.wording import plural
from kbproc.engine.events.agent import AgentWritten
from kbproc.engine.events.document import DocWritten, SourceFacts
from kbproc.engine.events.entry import EntryFacts, EntryReviewed
from kbproc.engine.events.event import Event
from kbproc.engine.events.kb import KbCreated
from kbproc.engine.events.origin import IMPORT, PERSON
from kbproc.engine.events.watch import FolderWatched
from kbproc.engine.store.decision import Decision, DecisionState
from kbproc.engine.store.pipeline import LongWrite
from kbproc.engine.store.state import SeenStore, StoreModel
from kbproc.knowledge.agents.agent import row_of
from kbproc.knowledge.documents.content import Intake
from kbproc.knowledge.documents.lookup import require_kb
from kbproc.knowledge.documents.revision import Ids, document_written
from kbproc.knowledge.transfer import portable
from kbproc.knowledge.transfer.incoming.agents import (
    IncomingSessions,
    planned_notes,
    planned_sessions,
    write_notes,
)
from kbproc.knowledge.transfer.incoming.agents import agents as agents_to_make
from kbproc.knowledge.transfer.incoming.matching import (
    Brought,
    Contents,
    Emit,
    Import,
    Imported,
    IncomingDocument,
    IncomingLinks,
    IncomingSources,
    Match,
    Matches,
    Report,
)

_BATCH_DOCUMENTS = 100
_BATCH_CHUNKS = 1000
_BATCH_BYTES = 64 << 20
_THREADS = 8
MOST_IDS = 1000
_MOST_CHANGES = 100


def survey(file: BinaryIO, report: Report, check: Callable[[], None]) -> Contents:
    """Reads the whole file; `report` gets the bytes read so far. Raises what `read` raises."""
    kbs, agents, watches, links = [], [], [], {}
    vectors: portable.VectorsOf | None = None
    documents = size = session_count = 0
    notes = Counter[str]()
    cited, sources = set[int](), set[int]()
    for _, line, size in portable.read(file):
        check()
        report(size, plural(documents, "document"))
        if isinstance(line, portable.Header):
            vectors = line.vectors
        elif isinstance(line, portable.KbLine):
            kbs.append(line)
        elif isinstance(line, portable.AgentLine):
            agents.append(line)
        elif isinstance(line, portable.WatchLine):
            watches.append(line)
        elif isinstance(line, portable.DocumentLine):
            documents += 1
            if line.entry and line.entry.superseded_by:
                links[line.id] = line.entry.superseded_by
            sources.update(line.entry.derived_from if line.entry else ())
        elif isinstance(line, portable.NoteLine):
            notes[line.agent] += 1
        elif isinstance(line, portable.SessionLine):
            session_count += 1
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
        sessions=session_count,
        cited=frozenset(cited),
        sources=frozenset(sources),
        watches=watches,
    )


# ------------------------------------------------------------------ what is written


def run(
    store: SeenStore,
    file: BinaryIO,
    contents: Contents,
    work: Import,
    write: LongWrite,
    *,
    intake: Intake,
    report: Report,
    emit: Emit,
    check: Callable[..., None],
) -> Imported:
    """Imports the file; each batch is durable before the next. Raises operation.cancelled."""
    kbs, agents, watches = write.item(lambda here: _prerequisites(here, contents, work))
    result = Imported(
        watches_added=watches,
        kbs_created=kbs,
        agents_created=agents.created,
        agents_kept=agents.differing,
        folders_left=agents.folders_left,
    )
    links, conversations = IncomingLinks(contents.links), IncomingSessions(contents.cited)
    sources = IncomingSources(contents.sources)
    matches, resumed = Matches(replace=work.replace), write.written()
    for batch, offset in _batches(file, work):
        check(**counts(result))
        documents = _prepare(store, matches, batch)
        if contents.vectors is not None:
            result.vectors += _hand_over_vectors(store.model, contents.vectors, documents)
        outcomes = write.item(partial(_batch, store, work, matches, sources, batch))
        for item, outcome in zip(batch, outcomes, strict=True):
            links.note(item.document.id, outcome)
            conversations.note(item.document.id, outcome)
            _count(result, item.document, _resumed(outcome, resumed), emit)
        report(offset, batch[-1].document.title)
    result.links = links.write(write, check)
    if work.kb is None and contents.notes:
        write_notes(store, intake, work, file, result, write, emit, check)
    if work.kb is None and contents.sessions:
        conversations.write(file, result, write, check)
    return result


def _batches(file: BinaryIO, work: Import) -> Iterator[tuple[list[IncomingDocument], int]]:
    """Yields the documents in batches, with the file offset after each batch."""
    batch: list[IncomingDocument] = []
    chunks = start = 0
    for _, line, offset in portable.read(file):
        if isinstance(line, portable.DocumentLine):
            batch.append(IncomingDocument(line, work.kb or line.kb))
            chunks += len(line.chunks)
        many = len(batch) >= _BATCH_DOCUMENTS or chunks >= _BATCH_CHUNKS
        if batch and (many or offset - start > _BATCH_BYTES or isinstance(line, portable.End)):
            yield batch, offset
            batch, chunks, start = [], 0, offset


def _prepare(
    store: SeenStore, matches: Matches, batch: list[IncomingDocument]
) -> list[portable.DocumentLine]:
    """Does the slow work outside the lane: stores the sources, several at once.

    Returns the documents that will be written, unless another writer is faster.
    """
    with store.reading() as snapshot:
        matches.follow(snapshot.queries)
        matches.look_up(snapshot.queries, batch)
        outcomes = [matches.judge(snapshot.queries, item) for item in batch]

    def store_source(pair: tuple[IncomingDocument, Match]) -> None:
        item, outcome = pair
        source = item.document.source_base64
        if outcome.action in {"added", "updated"}:
            item.content(store)
        elif source is not None and outcome.id is not None and matches.has_source(outcome.id, item):
            store.blobs.heal(item.document.sha256, source)

    pairs = list(zip(batch, outcomes, strict=True))
    for _ in map_ahead(store_source, pairs, threads=_THREADS, name="import"):
        continue  # so that errors of `store_source` are raised
    return [item.document for item, match in pairs if match.action in {"added", "updated"}]


def _hand_over_vectors(
    model: StoreModel, made_by: portable.VectorsOf, documents: list[portable.DocumentLine]
) -> int:
    """Hands the documents' vectors to the model before their chunks need them.

    Returns the number of usable vectors.
    """
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


def _prerequisites(here: DecisionState, contents: Contents, work: Import) -> Decision:
    """Creates the knowledge bases and agents that documents and notes need, and the watches."""
    kbs, agents = _new_kbs(here, contents, work), agents_to_make(here, contents, work)
    watches = _new_watches(here, contents, work)
    data = len(kbs.events), agents.data, len(watches)
    return Decision(events=[*kbs.events, *agents.events, *watches], data=data)


def _new_watches(here: DecisionState, contents: Contents, work: Import) -> list[Event]:
    """Returns the events for folders that are not watched yet.

    No process reads such a folder before a person has approved of it here: see watching.
    """
    coming = [] if work.kb is not None else contents.watches
    existing = {(row.machine, row.path) for row in here.queries.watches()}
    return [
        FolderWatched(**_watched_members(line), origin=line.origin if work.keep_origins else IMPORT)
        for line in coming
        if (line.machine, line.path) not in existing
    ]


_watched_members = common_members(FolderWatched, portable.WatchLine, but=("origin",))


_of_kb_line = common_members(KbCreated, portable.KbLine)


def _new_kbs(here: DecisionState, contents: Contents, work: Import) -> Decision:
    if work.kb is not None:
        require_kb(here, work.kb)
        return Decision(events=[], data=[])
    existing = set(here.queries.kb_slugs())
    events: list[Event] = [
        KbCreated(**_of_kb_line(kb)) for kb in contents.kbs if kb.slug not in existing
    ]
    return Decision(events=events, data=events)


def _batch(
    store: SeenStore,
    work: Import,
    matches: Matches,
    sources: IncomingSources,
    batch: list[IncomingDocument],
    here: DecisionState,
) -> Decision:
    """Decides one batch inside the lane, from the current state.

    The ids of its outcomes are final, those of new documents, too.
    """
    for kb in {item.kb for item in batch}:
        require_kb(here, kb)
    matches.follow(here.queries)
    ids = Ids(here)
    events: list[Event] = []
    outcomes: list[Match] = []
    for item in batch:
        outcome = matches.judge(here.queries, item)
        if outcome.action in {"added", "updated"}:
            event = _written(store, work, here, item, outcome.id, ids)
            if event.entry is not None:
                derived_from = sources.here(event.entry.derived_from)
                facts = msgspec.structs.replace(event.entry, derived_from=derived_from)
                event = msgspec.structs.replace(event, entry=facts)
            events += [event, *_review(work, here, item, event.id)]
            outcome = Match(outcome.action, event.id)
        matches.take(item, outcome.id)
        sources.note(item.document.id, outcome.id)
        outcomes.append(outcome)
    return Decision(events=events, data=outcomes)


_entry_facts_of = common_members(EntryFacts, portable.ExportedEntry)


def _facts_of(document: portable.DocumentLine) -> SourceFacts | None:
    facts = document.source_facts
    return None if facts is None else SourceFacts(**msgspec.structs.asdict(facts))


def _review(
    work: Import, here: DecisionState, item: IncomingDocument, id: int
) -> Iterator[EntryReviewed]:
    """Yields the review of an entry, if a person takes over those of the file."""
    entry = item.document.entry
    if entry is None or entry.verified_at is None:
        return
    if work.keep_origins and here.origin == PERSON:
        yield EntryReviewed(
            id=id,
            verified_by=entry.verified_by,
            verified_at=entry.verified_at,
            review_after=entry.review_after,
        )


def _written(
    store: SeenStore,
    work: Import,
    here: DecisionState,
    item: IncomingDocument,
    id: int | None,
    ids: Ids,
) -> DocWritten:
    document = item.document
    event = document_written(
        here,
        item.content(store),
        kb=item.kb,
        existing=None if id is None else here.queries.document(id),
        ids=ids,
        tags=document.tags,
        metadata=document.metadata,
        source_facts=_facts_of(document),
        origin=document.stated_origin if work.keep_origins else IMPORT,
        path=document.source.path,
        url=document.source.url,
        source_id=document.source.source_id,
    )
    created_at = document.created_at if id is None else None
    event = msgspec.structs.replace(event, parser=document.parser, created_at=created_at)
    if (entry := document.entry) is None:
        return event
    facts = EntryFacts(**_entry_facts_of(entry))
    return msgspec.structs.replace(event, entry=facts, created_by=document.created_by)


# --------------------------------------------------------------------- what is reported


def counts(result: Imported) -> dict[str, int]:
    names = ("added", "updated", "unchanged", "conflicts", "kbs_created", "agents_created")
    return {name: getattr(result, name) for name in names}


def _resumed(outcome: Match, resumed: dict[int, int]) -> Match:
    """Returns the outcome, with writes of an earlier, unfinished run counted as this run's."""
    if outcome.action != "unchanged" or outcome.id not in resumed:
        return outcome
    return Match("added" if resumed[outcome.id] == 1 else "updated", outcome.id)


def _count(result: Imported, document: portable.DocumentLine, outcome: Match, emit: Emit) -> None:
    name = "conflicts" if outcome.action == "conflict" else outcome.action
    setattr(result, name, getattr(result, name) + 1)
    if outcome.action != "conflict" and outcome.id is not None and len(result.ids) < MOST_IDS:
        result.ids[str(document.id)] = outcome.id
    item = Brought(old=document.id, new=outcome.id, action=outcome.action)
    emit("item", {"item": msgspec.to_builtins(item)})


def plan(
    store: SeenStore, file: BinaryIO, contents: Contents, work: Import, here: DecisionState
) -> Decision:
    """Returns the plan of an import: a line of counts, then the missing objects."""
    result, matches = Imported(), Matches(replace=work.replace)
    matches.follow(here.queries)
    changes = [f"create knowledge base {kb.slug}" for kb in _new_kbs(here, contents, work).data]
    for batch, _ in _batches(file, work):
        matches.look_up(here.queries, batch)
        for item in batch:
            outcome = matches.judge(here.queries, item)
            matches.take(item, outcome.id)
            _count(result, item.document, outcome, lambda name, fields: None)
            if outcome.action != "unchanged" and len(changes) < _MOST_CHANGES:
                changes.append(f"{outcome.action}: {item.document.title}")
    summary = f"{result.added} added, {result.updated} updated, {result.unchanged} unchanged"
    first = f"{summary}, {result.conflicts} in conflict"
    changes += _plan_agents(store, contents, work, here)
    if work.kb is None and contents.sessions:
        changes += planned_sessions(here.queries, file)
    return Decision(events=[], data=None, changes=[first, *changes])


def _plan_agents(
    store: SeenStore, contents: Contents, work: Import, here: DecisionState
) -> list[str]:
    """Returns the plan lines for agents and notes."""
    if work.kb is not None:
        return []
    agents = [
        event
        for event in agents_to_make(here, contents, work).events
        if isinstance(event, AgentWritten)
    ]
    rows = {row.slug: row for row in here.queries.agents()}
    rows |= {event.slug: row_of(event, created_at=here.ts, now=here.ts) for event in agents}
    elsewhere = [
        f"create agent {_agent_with_scopes(event)}, whose notes lie in {event.folder}"
        for event in agents
        if event.folder is not None
    ]
    own = [f"create agent {_agent_with_scopes(event)}" for event in agents if event.folder is None]
    note_lines = planned_notes(store, contents.notes, rows)
    return [*elsewhere, *own[:_MOST_CHANGES], *note_lines]


def _agent_with_scopes(agent: AgentWritten) -> str:
    """Returns the agent's slug and scopes, because approving the import approves the scopes."""
    return agent.slug + (f" with the scopes {', '.join(agent.scopes)}" if agent.scopes else "")
