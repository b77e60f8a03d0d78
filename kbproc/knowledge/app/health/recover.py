"""Recovers lost records of the log from an old catalog.

It reads a copy of the old catalog, names the objects that a lost stretch concerned, and finds the
events that lead from the state in the log to the state in the catalog.

The catalog is a fold of the log. So the readable records of the log are folded into a new catalog;
every difference between the two catalogs comes from a lost record.
"""

from __future__ import annotations

import contextlib
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from sqlite3 import Error as DatabaseError
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import asdict

from kbproc.base.structs import common_members
from kbproc.engine.events.agent import AgentDeleted, AgentWritten
from kbproc.engine.events.document import DocDeleted, DocWritten, FileCleared, FileFailed
from kbproc.engine.events.entry import EntryFacts, EntryReviewed, EntryRevived, EntrySuperseded
from kbproc.engine.events.event import Event, NextIds
from kbproc.engine.events.kb import KbCreated, KbDeleted, KbUpdated
from kbproc.engine.events.upkeep import DocPurged
from kbproc.engine.projections.catalog.files import WAL, beside, catalogs
from kbproc.engine.projections.catalog.rows import AgentRow, DocumentRow, anchors_of, facts_in
from kbproc.knowledge.agents import agent
from kbproc.knowledge.watching import watch

if TYPE_CHECKING:
    from kbproc.engine.projections.catalog.catalog import Catalog

_MOST_EVENTS = 100  # per record
_MOST_SHOWN = 5


class RewrittenRecord(NamedTuple):
    """A record to write again; `salt`: the salt that `params_hash` was made with."""

    actor: str
    method: str
    events: list[Event]
    token: str | None = None
    params_hash: str | None = None
    salt: str = ""
    result: str = "null"


def open_copy(views: Path, scratch: Path) -> Catalog | None:
    """Copies the catalog with the highest seq to `scratch`; None if no catalog can be read."""
    from kbproc.engine.projections.catalog.catalog import Catalog

    best: Catalog | None = None
    for path in catalogs(views):
        for part in (path, beside(path, WAL)):
            if part.is_file():
                shutil.copy(part, scratch)
        try:
            catalog = Catalog(scratch / path.name)
            seq = catalog.position.seq
        except DatabaseError:
            continue
        if catalog.damaged():  # because its rows would become events
            seq = 0
        if seq > (best.position.seq if best else 0):
            best, catalog = catalog, best
        if catalog is not None:
            catalog.close()
    return best


def concerned(catalog: Catalog, first: int, last: int) -> list[str]:
    """Returns the objects of the records from `first` to `last` that the catalog still names.

    Raises DatabaseError.
    """
    rows = _rows(
        catalog,
        "select distinct e.document_id, coalesce(d.title, ''), case when e.document_id is null "
        "then e.type || coalesce(' ' || e.kb, '') end from events e left join documents d "
        "on d.id = e.document_id where e.seq between ? and ? "
        "order by e.document_id is null, 1, 2, 3",
        first,
        last,
    )
    objects = [f"document {id} “{title}”" if other is None else other for id, title, other in rows]
    more = len(objects) - _MOST_SHOWN
    return objects[:_MOST_SHOWN] + ([f"{more} more"] if more > 0 else [])


def remainder(old: Catalog, new: Catalog) -> Iterator[RewrittenRecord]:
    """Yields the records that bring the fold of the log, `new`, to the state of `old`.

    Both catalogs are at the same seq. Raises DatabaseError.
    """
    shared = [*_kbs(old, new), *_agents(old, new), *_watches(old, new), *_failures(old, new)]
    by_actor, removals = _documents(old, new)
    shared += removals
    if shared:
        yield RewrittenRecord("kbproc", "doctor", shared)
    for actor, written in by_actor.items():
        for start in range(0, len(written), _MOST_EVENTS):
            # Under the name of the creator, because the document's owner follows from it.
            yield RewrittenRecord(actor, "doctor", [*written[start : start + _MOST_EVENTS]])
    again = {event.id for events in by_actor.values() for event in events}
    linked = [*_links(old, new, again), *_reviews(old, new, again)]
    for start in range(0, len(linked), _MOST_EVENTS):
        yield RewrittenRecord("kbproc", "doctor", linked[start : start + _MOST_EVENTS])
    yield from _tokens(old, new)


def next_ids(old: Catalog) -> NextIds:
    """Returns the first ids that were never assigned."""
    return old.queries.head().given


def _rows(catalog: Catalog, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    with contextlib.closing(catalog.cursor()) as db:
        return db.execute(sql, values).fetchall()


def _kbs(old: Catalog, new: Catalog) -> Iterator[Event]:
    sql = "select slug, name, description, review from kbs order by slug"
    old_rows, new_rows = ({row[0]: row for row in _rows(c, sql)} for c in (old, new))
    for slug, row in old_rows.items():
        if slug not in new_rows:
            yield KbCreated(*row)
        elif new_rows[slug] != row:
            yield KbUpdated(*row)
    yield from (KbDeleted(slug=slug) for slug in new_rows if slug not in old_rows)


def _agents(old: Catalog, new: Catalog) -> Iterator[Event]:
    """Yields the agents' events; a deleted agent is written before it is deleted again.

    So its name stays known.
    """
    old_rows, new_rows = (catalog.queries.roster().agents for catalog in (old, new))
    for slug, row in old_rows.items():
        now = new_rows.get(slug)
        lives = now is not None and now.deleted_at is None
        if now is None or (
            row.deleted_at is None and (not lives or _event_of(row) != _event_of(now))
        ):
            yield _event_of(row)
            lives = True
        if row.deleted_at is not None and lives:
            yield AgentDeleted(slug=slug)
    yield from (
        AgentDeleted(slug=slug)
        for slug, row in new_rows.items()
        if slug not in old_rows and row.deleted_at is None
    )


def _event_of(row: AgentRow) -> AgentWritten:
    return msgspec.structs.replace(agent.event_of(row), revision=row.revision)


def _watches(old: Catalog, new: Catalog) -> Iterator[Event]:
    old_rows, new_rows = (
        {(row.machine, row.path): row for row in catalog.queries.watches()}
        for catalog in (old, new)
    )
    for key, row in old_rows.items():
        if key not in new_rows or watch.event_of(new_rows[key]) != watch.event_of(row):
            yield watch.event_of(row)
    for key, row in new_rows.items():
        if key not in old_rows:
            yield watch.end_of(row)


def _links(old: Catalog, new: Catalog, again: Collection[int]) -> list[Event]:
    """Returns the events that restore the old catalog's links between entries.

    `again`: entries that are written anew. Links are removed first, then set, so that every head
    is right in any order.
    """
    sql = "select id, superseded_by, head from documents where type = 'knowledge' order by id"
    old_rows, new_rows = (
        {row[0]: row[1:] for row in _rows(catalog, sql)} for catalog in (old, new)
    )
    differ = [
        (id, new_rows[id][0] if id in new_rows else None, now[0])
        for id, now in old_rows.items()
        if new_rows.get(id) != now and (id in new_rows or id in again)
    ]
    events: list[Event] = [
        EntryRevived(ids=[id], was=was) for id, was, _ in differ if was is not None
    ]
    events += [EntrySuperseded(id=id, by=by, was=was) for id, was, by in differ if by]
    return events


def _reviews(old: Catalog, new: Catalog, again: Collection[int]) -> list[Event]:
    """Returns the events that restore the old catalog's reviews of entries.

    `again`: entries that are written anew.
    """
    sql = (
        "select id, verified_by, verified_at, review_after, anchors from documents "
        "where type = 'knowledge' order by id"
    )
    new_rows = {row[0]: row for row in _rows(new, sql)}
    return [
        EntryReviewed(
            id=id,
            verified_by=by,
            verified_at=at,
            review_after=review_after,
            anchors=anchors_of(anchors) or None,
        )
        for id, by, at, review_after, anchors in _rows(old, sql)
        if (id in new_rows and new_rows[id] != (id, by, at, review_after, anchors))
        or (id not in new_rows and id in again and at is not None)
    ]


def _failures(old: Catalog, new: Catalog) -> Iterator[Event]:
    sql = "select kb, path, error, message, sha256 from failures order by kb, path"
    old_rows, new_rows = ({row[:2]: row for row in _rows(c, sql)} for c in (old, new))
    for key, (kb, path, error, message, sha256) in old_rows.items():
        if new_rows.get(key) != old_rows[key]:
            yield FileFailed(kb=kb, path=path, error=error, message=message, sha256=sha256)
    yield from (
        FileCleared(kb=kb, path=path) for kb, path in new_rows if (kb, path) not in old_rows
    )


def _documents(old: Catalog, new: Catalog) -> tuple[dict[str, list[DocWritten]], list[Event]]:
    """Returns creator → documents to write again, and events that hide or purge others again."""
    old_rows, new_rows = _by_id(old), _by_id(new)
    facts_then, facts_now = _facts(old), _facts(new)
    chunks_then, chunks_now = _chunk_hashes(old), _chunk_hashes(new)
    written, removals = defaultdict[str, list[DocWritten]](list), list[Event]()
    next_chunk = next_ids(old).next_chunk
    for id, row in old_rows.items():
        now = new_rows.get(id)
        if row.deleted_at is None:
            same = facts_then.get(id) == facts_now.get(id) and (
                chunks_then.get(id) == chunks_now.get(id)
            )
            if now is None or not same or _differs(row, now):
                event = _written(old, row, facts_then.get(id), next_chunk)
                next_chunk = max(next_chunk, event.first_chunk + len(event.chunks))
                written[row.created_by].append(event)
        elif not row.kb:  # purged
            if now is not None and now.kb:
                removals.append(DocPurged(ids=[id]))
        elif now is not None and now.deleted_at is None:
            removals.append(DocDeleted(id=id))
    return written, removals


def _facts(catalog: Catalog) -> dict[int, EntryFacts]:
    return {row.id: facts_in(asdict(row)) for row in catalog.queries.all_entries()}


def _by_id(catalog: Catalog) -> dict[int, DocumentRow]:
    return {row.id: row for row in catalog.queries.all_documents()}


def _chunk_hashes(catalog: Catalog) -> dict[int, int]:
    """Returns document → a hash of its chunks."""
    hashes: dict[int, int] = {}
    sql = "select document_id, id, idx, text, page, section, overlap from chunks order by 1, 2"
    for id, *columns in _rows(catalog, sql):
        hashes[id] = hash((hashes.get(id), *columns))
    return hashes


def _differs(one: DocumentRow, other: DocumentRow) -> bool:
    """Returns whether the document has to be written again; the anchors of entries are among their
    facts.
    """
    if one.type == other.type == "knowledge":
        one, other = (msgspec.structs.replace(row, anchors=None) for row in (one, other))
    return msgspec.structs.replace(one, touched=0) != msgspec.structs.replace(other, touched=0)


_of_row = common_members(DocWritten, DocumentRow, but=("metadata", "source_facts", "anchors"))


def _written(
    old: Catalog, row: DocumentRow, facts: EntryFacts | None, next_chunk: int
) -> DocWritten:
    """Returns the document as the catalog has it; its chunks keep consecutive ids."""

    chunks = old.queries.chunks_of(row.id)
    in_a_row = all(one.id + 1 == two.id for one, two in pairwise(chunks))
    return DocWritten(
        **_of_row(row),
        doc_type=row.type,
        source_sha256=row.sha256,
        first_chunk=chunks[0].id if chunks and in_a_row else next_chunk,
        chunks=[chunk.content for chunk in chunks],
        metadata=msgspec.json.decode(row.metadata),
        source_facts=row.facts,
        entry=facts,
        anchors=anchors_of(row.anchors) if facts is None else [],
    )


def _tokens(old: Catalog, new: Catalog) -> Iterator[RewrittenRecord]:
    """Yields records for outcomes that repeated requests still need."""
    current = _outcomes(new)
    for (actor, method, token), outcome in _outcomes(old).items():
        if current.get((actor, method, token)) != outcome:
            params_hash, salt, result = outcome
            known_hash = params_hash if salt else None
            yield RewrittenRecord(actor, method, [], token, known_hash, salt, result or "null")


def _outcomes(catalog: Catalog) -> dict[tuple[str, str, str], tuple[str, str, str | None]]:
    """Returns the newest outcome under each token: params_hash, salt, result."""
    sql = "select actor, method, token, params_hash, salt, result from tokens order by 1, 2, 3, seq"
    outcomes = {}
    for key, rows in groupby(_rows(catalog, sql), key=lambda row: row[:3]):
        *_, last = rows
        outcomes[key] = last[3:]
    return outcomes
