"""Imports a file of portable lines: surveys it, writes its documents in batches, and plans it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO

import msgspec

from kbproc.base.structs import batches, common_members
from kbproc.base.threads import map_ahead
from kbproc.base.wording import plural
from kbproc.engine.events.agent import AgentWritten
from kbproc.engine.events.document import DocWritten, SourceFacts
from kbproc.engine.events.entry import Anchor, EntryFacts, EntryReviewed
from kbproc.engine.events.event import Event
from kbproc.engine.events.kb import KbCreated
from kbproc.engine.events.origin import IMPORT, PERSON
from kbproc.engine.events.watch import FolderWatched
from kbproc.engine.projections.catalog.reader import Sight
from kbproc.engine.store.decision import Decision, DecisionState
from kbproc.engine.store.pipeline import LongWrite
from kbproc.engine.store.state import SeenStore, StoreModel
from kbproc.knowledge.agents.agent import row_of
from kbproc.knowledge.documents.content import Intake
from kbproc.knowledge.documents.lookup import require_kb
from kbproc.knowledge.documents.revision import Ids, document_written
from kbproc.knowledge.transfer import portable
from kbproc.knowledge.transfer.incoming.agents import (
    missing_agents,
    planned_notes,
    planned_sessions,
    write_notes,
    write_sessions,
)
from kbproc.knowledge.transfer.incoming.matching import (
    Brought,
    Contents,
    Emit,
    Import,
    Imported,
    IncomingDocument,
    Match,
    Matches,
    NewIds,
    Omissions,
    Report,
    write_links,
    write_replaced,
)

_BATCH = 1500  # A hundred documents of five chunks weigh as much.
_THREADS = 8
MOST_IDS = 1000
_MOST_CHANGES = 100


def survey(file: BinaryIO, report: Report, check: Callable[[], None]) -> Contents:
    """Reads the whole file; `report` gets the bytes read so far. Raises what `read` raises."""
    contents = Contents()
    for _, line, contents.size in portable.read(file):
        check()
        report(contents.size, plural(contents.documents, "document"))
        match line:
            case portable.Header():
                contents.vectors = line.vectors
            case portable.KbLine():
                contents.kbs.append(line)
            case portable.AgentLine():
                contents.agents.append(line)
            case portable.WatchLine():
                contents.watches.append(line)
            case portable.DocumentLine():
                contents.documents += 1
                if (entry := line.entry) is not None:
                    contents.named.update(entry.derived_from, entry.replaces)
                    contents.named.update(one.document or 0 for one in entry.anchors)
                    if entry.replaces:
                        contents.replaces[line.id] = entry.replaces
                        contents.named.add(line.id)
                    if entry.superseded_by is not None:
                        contents.links[line.id] = entry.superseded_by
                        contents.named |= {line.id, entry.superseded_by}
            case portable.NoteLine():
                contents.notes[line.agent] = contents.notes.get(line.agent, 0) + 1
                contents.named.update(one.document or 0 for one in line.anchors)
            case portable.SessionLine():
                contents.sessions += 1
                for message in line.messages:
                    contents.named.update(one.document_id or 0 for one in message.references)
    return contents


# ------------------------------------------------------------------ what is written


def run(
    store: SeenStore,
    file: BinaryIO,
    contents: Contents,
    work: Import,
    write: LongWrite,
    *,
    sight: Sight,
    intake: Intake,
    report: Report,
    emit: Emit,
    check: Callable[..., None],
) -> Imported:
    """Imports the file; each batch is durable before the next. Raises operation.cancelled.

    `sight`: what the caller may see, entries in review among them.
    """
    contents = contents.into(work.kb)
    kbs, agents, watches = write.item(lambda here: _prerequisites(here, contents, work))
    result = Imported(
        watches_added=watches,
        kbs_created=kbs,
        agents_created=len(agents.events),
        agents_kept=agents.differing,
        folders_left=agents.folders_left,
    )
    ids = NewIds(contents.named)
    matches, resumed, done = Matches(replace=work.replace), write.written(), 0
    for batch in _batches(file, work):
        check(**counts(result))
        documents = _prepare(store, sight, matches, batch)
        if contents.vectors is not None:
            result.vectors += _hand_over_vectors(store.model, contents.vectors, documents)
        outcomes, omissions = write.item(partial(_batch, store, work, matches, ids, batch))
        omissions.count(result)
        for item, outcome in zip(batch, outcomes, strict=True):
            _count(result, item.document, _resumed(outcome, resumed), emit)
        done += len(batch)
        is_last = done == contents.documents
        report(contents.size if is_last else batch[-1].offset, batch[-1].document.title)
    result.links = write_links(contents.links, ids, write, check)
    write_replaced(contents.replaces, ids, write, check)
    if contents.notes:
        write_notes(store, intake, work, file, ids, result, write, emit, check)
    if contents.sessions:
        write_sessions(file, ids, result, write, check)
    return result


def _batches(file: BinaryIO, work: Import) -> Iterator[list[IncomingDocument]]:
    documents = (
        IncomingDocument(line, work.kb or line.kb, offset)
        for _, line, offset in portable.read(file)
        if isinstance(line, portable.DocumentLine)
    )
    return batches(documents, _weight, most=_BATCH)


def _weight(item: IncomingDocument) -> int:
    """Returns the work that a document makes: that of a chunk, of its own or 64 KiB of source."""
    return 10 + len(item.document.chunks) + len(item.document.source_base64 or b"") // (64 << 10)


def _prepare(
    store: SeenStore, sight: Sight, matches: Matches, batch: list[IncomingDocument]
) -> list[portable.DocumentLine]:
    """Does the slow work outside the lane: stores the sources, several at once.

    Returns the documents that will be written, unless another writer is faster.
    """
    with store.reading_as(sight) as snapshot:
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
    kbs, agents = _new_kbs(here, contents, work), missing_agents(here, contents, work)
    watches = _new_watches(here, contents, work)
    events: list[Event] = [*kbs, *agents.events, *watches]
    return Decision(events=events, data=(len(kbs), agents, len(watches)))


def _new_watches(here: DecisionState, contents: Contents, work: Import) -> list[FolderWatched]:
    """Returns the events for folders that are not watched yet.

    No process reads such a folder before a person has approved of it here: see watching.
    """
    existing = {(row.machine, row.path) for row in here.queries.watches()}
    return [
        FolderWatched(**_watched_members(line), origin=line.origin if work.keep_origins else IMPORT)
        for line in contents.watches
        if (line.machine, line.path) not in existing
    ]


def _new_kbs(here: DecisionState, contents: Contents, work: Import) -> list[KbCreated]:
    if work.kb is not None:
        require_kb(here, work.kb)
    existing = set(here.queries.kb_slugs())
    return [KbCreated(**_of_kb(kb)) for kb in contents.kbs if kb.slug not in existing]


def _batch(
    store: SeenStore,
    work: Import,
    matches: Matches,
    ids: NewIds,
    batch: list[IncomingDocument],
    here: DecisionState,
) -> Decision:
    """Decides one batch inside the lane, from the current state.

    The ids of its outcomes are final, those of new documents, too.
    """
    for kb in {item.kb for item in batch}:
        require_kb(here, kb)
    matches.follow(here.queries)
    is_vouched = work.keep_origins and here.origin == PERSON
    next_ids = Ids(here)
    events: list[Event] = []
    outcomes: list[Match] = []
    omissions = Omissions()
    for item in batch:
        outcome = matches.judge(here.queries, item)
        source = matches.source_of(outcome.id)
        if outcome.action in {"added", "updated"}:
            event = _written(store, work, here, item, outcome.id, next_ids)
            outcome, source = Match(outcome.action, event.id), event.source_sha256
            if (entry := item.document.entry) is None:
                events.append(event)
            else:
                anchors = omissions.anchors_here(entry.anchors, ids, vouched=is_vouched)
                events += _entry_events(work, here, event, item.document, entry, ids, anchors)
        matches.take(item, outcome.id)
        ids.note(item.document.id, outcome, stated=item.document.sha256, here=source)
        outcomes.append(outcome)
    return Decision(events=events, data=(outcomes, omissions))


def _written(
    store: SeenStore,
    work: Import,
    here: DecisionState,
    item: IncomingDocument,
    id: int | None,
    ids: Ids,
) -> DocWritten:
    """Returns the event for a document; what the file says of it stands, but for its ids."""
    document, facts = item.document, item.document.source_facts
    event = document_written(
        here,
        item.content(store),
        kb=item.kb,
        existing=None if id is None else here.queries.document(id),
        ids=ids,
        tags=document.tags,
        metadata=document.metadata,
        source_facts=facts and SourceFacts(**_source_facts_of(facts)),
        origin=document.stated_origin if work.keep_origins else IMPORT,
        **_origin_of(document.source),
    )
    created_at = document.created_at if id is None else None
    return msgspec.structs.replace(event, parser=document.parser, created_at=created_at)


def _entry_events(
    work: Import,
    here: DecisionState,
    event: DocWritten,
    document: portable.DocumentLine,
    entry: portable.ExportedEntry,
    ids: NewIds,
    anchors: list[Anchor],
) -> Iterator[Event]:
    """Yields the entry, and its review if a person takes over those of the file.

    Sources that are not here are left out. `anchors`: those that are.
    """
    sources = [id for old in entry.derived_from if (id := ids.here(old)) is not None]
    facts = EntryFacts(**_entry_facts_of(entry), derived_from=sources, anchors=anchors)
    yield msgspec.structs.replace(event, entry=facts, created_by=document.created_by)
    if entry.verified_at is not None and work.keep_origins and here.origin == PERSON:
        yield EntryReviewed(
            **_reviewed(facts),
            id=event.id,
            verified_by=entry.verified_by,
            verified_at=entry.verified_at,
        )


_of_kb = common_members(KbCreated, portable.KbLine)
_watched_members = common_members(FolderWatched, portable.WatchLine, but=("origin",))
_origin_of = common_members(portable.Origin, portable.Origin)
_source_facts_of = common_members(SourceFacts, portable.ExportedSourceFacts)
_named_by_id = ("derived_from", "anchors", "replaces")
_entry_facts_of = common_members(EntryFacts, portable.ExportedEntry, but=_named_by_id)
_reviewed = common_members(EntryReviewed, EntryFacts, but=("anchors",))


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
    if outcome.action in {"added", "updated"} and document.entry is not None:
        result.in_review += document.entry.in_review
    item = Brought(old=document.id, new=outcome.id, action=outcome.action)
    emit("item", {"item": msgspec.to_builtins(item)})


def plan(
    store: SeenStore, file: BinaryIO, contents: Contents, work: Import, here: DecisionState
) -> Decision:
    """Returns the plan of an import: a line of counts, then the missing objects."""
    contents = contents.into(work.kb)
    result, matches = Imported(), Matches(replace=work.replace)
    matches.follow(here.queries)
    changes = [f"create knowledge base {kb.slug}" for kb in _new_kbs(here, contents, work)]
    for batch in _batches(file, work):
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
    if contents.sessions:
        changes += planned_sessions(here.queries, file)
    return Decision(events=[], data=None, changes=[first, *changes])


def _plan_agents(
    store: SeenStore, contents: Contents, work: Import, here: DecisionState
) -> list[str]:
    """Returns the plan lines for agents and notes."""
    agents = missing_agents(here, contents, work).events
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
