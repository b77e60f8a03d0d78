"""What an old catalog still knows of records that the log has lost.

Owns: reading a copy of the old catalog, naming what a lost stretch concerned, and
the events that lead from what the log says to what the catalog knew.
Refuses to know: lines, segments, and where the events are written (salvage.py).

The catalog is a fold of the log. So the fold of what is left of the log is held
against it, and whatever differs was in what is lost.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kbproc.events.agent import AgentDeleted, AgentWritten
from kbproc.events.document import DocDeleted, DocWritten, FileCleared, FileFailed
from kbproc.events.entry import EntryFacts, EntryRevived, EntrySuperseded
from kbproc.events.event import Event, Given
from kbproc.events.kb import KbCreated, KbDeleted, KbUpdated
from kbproc.events.upkeep import DocPurged
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import AgentRow, DocumentRow

if TYPE_CHECKING:
    from kbproc.views.catalog.catalog import Catalog

_MOST_EVENTS = 100  # in one record
_MOST_SHOWN = 5


class Said(NamedTuple):
    """A record that is to be written again; `salt`: the one that `params_hash` was made with."""

    actor: str
    method: str
    events: list[Event]
    token: str | None = None
    params_hash: str | None = None
    salt: str = ""
    result: str = "null"


def open_copy(views: Path, scratch: Path) -> Catalog | None:
    """A copy in `scratch` of the catalog that has come furthest; None if none can be read."""
    import duckdb

    from kbproc.views.catalog.catalog import Catalog

    best: Catalog | None = None
    for path in sorted(views.glob("catalog*.duckdb")):
        for part in views.glob(path.name + "*"):
            if part.is_file():
                shutil.copy(part, scratch)
        try:
            found = Catalog(scratch / path.name)
            seq = found.position.seq
        except duckdb.Error:
            continue
        if seq > (best.position.seq if best else 0):
            best, found = found, best
        if found is not None:
            found.close()
    return best


def concerned(catalog: Catalog, first: int, last: int) -> list[str]:
    """What the records from `first` to `last` were about, as far as the catalog knows.

    Raises duckdb.Error.
    """
    rows = (
        catalog.cursor()
        .execute(
            "select distinct e.document_id, coalesce(d.title, ''), case when e.document_id is null "
            "then e.type || coalesce(' ' || e.kb, '') end from events e left join documents d "
            "on d.id = e.document_id where e.seq between ? and ? order by all",
            [first, last],
        )
        .fetchall()
    )
    named = [f"document {id} “{title}”" if other is None else other for id, title, other in rows]
    more = len(named) - _MOST_SHOWN
    return named[:_MOST_SHOWN] + ([f"{more} more"] if more > 0 else [])


def remainder(old: Catalog, new: Catalog) -> Iterator[Said]:
    """What to write so that the fold of the log, `new`, says what `old` knew.

    Both stand at the same seq. Raises duckdb.Error.
    """
    shared = [*_kbs(old, new), *_agents(old, new), *_failures(old, new)]
    by_actor, gone = _documents(old, new)
    shared += gone
    if shared:
        yield Said("kbproc", "doctor", shared)
    for actor, written in by_actor.items():
        for start in range(0, len(written), _MOST_EVENTS):
            # Under the name of whoever made them: who owns a document depends on it.
            yield Said(actor, "doctor", [*written[start : start + _MOST_EVENTS]])
    links = _links(old, new, {event.id for events in by_actor.values() for event in events})
    for start in range(0, len(links), _MOST_EVENTS):
        yield Said("kbproc", "doctor", links[start : start + _MOST_EVENTS])
    yield from _tokens(old, new)


def next_ids(old: Catalog) -> Given:
    """The first ids that were never given away."""
    names = ", ".join(Given._fields)
    return Given(*old.cursor().execute(f"select {names} from head").fetchall()[0])  # noqa: S608


def _rows(catalog: Catalog, sql: str) -> list[tuple[Any, ...]]:
    return catalog.cursor().execute(sql).fetchall()


def _kbs(old: Catalog, new: Catalog) -> Iterator[Event]:
    sql = "select slug, name, description from kbs order by slug"
    had, has = ({row[0]: row for row in _rows(c, sql)} for c in (old, new))
    for slug, row in had.items():
        if slug not in has:
            yield KbCreated(slug=slug, name=row[1], description=row[2])
        elif has[slug] != row:
            yield KbUpdated(slug=slug, name=row[1], description=row[2])
    yield from (KbDeleted(slug=slug) for slug in has if slug not in had)


def _agents(old: Catalog, new: Catalog) -> Iterator[Event]:
    """One that had been deleted is said once more before its end, so that its name stays known."""
    had, has = ({row.slug: row for row in _agent_rows(c)} for c in (old, new))
    for slug, row in had.items():
        now = has.get(slug)
        lives = now is not None and now.deleted_at is None
        if now is None or (
            row.deleted_at is None and (not lives or _said_of(row) != _said_of(now))
        ):
            yield _said_of(row)
            lives = True
        if row.deleted_at is not None and lives:
            yield AgentDeleted(slug=slug)
    yield from (
        AgentDeleted(slug=slug)
        for slug, row in has.items()
        if slug not in had and row.deleted_at is None
    )


def _agent_rows(catalog: Catalog) -> list[AgentRow]:

    return [AgentRow(*row) for row in _rows(catalog, "from agents order by slug")]


def _said_of(row: AgentRow) -> AgentWritten:
    return AgentWritten(
        slug=row.slug,
        revision=row.revision,
        description=row.description,
        kbs=row.kbs,
        folder=row.folder,
        scopes=row.scopes,
        quotas=msgspec.json.decode(row.quotas),
        instructions=row.instructions,
    )


def _links(old: Catalog, new: Catalog, again: Collection[int]) -> list[Event]:
    """What supersedes whom, as the old catalog knew it; `again`: entries that are written anew.

    Freed first, then linked: so every head comes out right in any order.
    """
    sql = "select id, superseded_by, head from documents where type = 'knowledge' order by id"
    had, has = ({row[0]: row[1:] for row in _rows(catalog, sql)} for catalog in (old, new))
    differ = [
        (id, has[id][0] if id in has else None, now[0])
        for id, now in had.items()
        if has.get(id) != now and (id in has or id in again)
    ]
    events: list[Event] = [
        EntryRevived(ids=[id], was=was) for id, was, _ in differ if was is not None
    ]
    events += [EntrySuperseded(id=id, by=by, was=was) for id, was, by in differ if by]
    return events


def _failures(old: Catalog, new: Catalog) -> Iterator[Event]:
    sql = "select kb, path, error, message, sha256 from failures order by kb, path"
    had, has = ({row[:2]: row for row in _rows(c, sql)} for c in (old, new))
    for key, (kb, path, error, message, sha256) in had.items():
        if has.get(key) != had[key]:
            yield FileFailed(kb=kb, path=path, error=error, message=message, sha256=sha256)
    yield from (FileCleared(kb=kb, path=path) for kb, path in has if (kb, path) not in had)


def _documents(old: Catalog, new: Catalog) -> tuple[dict[str, list[DocWritten]], list[Event]]:
    """What must be written again, by whoever made it; and what must be hidden or erased again."""
    had, has = _by_id(old), _by_id(new)
    facts_then, facts_now = _facts(old), _facts(new)
    chunks_then, chunks_now = _chunk_hashes(old), _chunk_hashes(new)
    written, gone = defaultdict[str, list[DocWritten]](list), list[Event]()
    next_chunk = next_ids(old).next_chunk
    for id, row in had.items():
        now = has.get(id)
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
                gone.append(DocPurged(ids=[id]))
        elif now is not None and now.deleted_at is None:
            gone.append(DocDeleted(id=id))
    return written, gone


def _facts(catalog: Catalog) -> dict[int, EntryFacts]:
    sql = (
        "select id, confidence, source, expires_at, task_id, task_kind from documents "
        "where type = 'knowledge'"
    )
    return {
        id: EntryFacts(
            confidence=confidence,
            source=source,
            expires_at=expires_at,
            task_id=task_id,
            task_kind=task_kind,
        )
        for id, confidence, source, expires_at, task_id, task_kind in _rows(catalog, sql)
    }


def _by_id(catalog: Catalog) -> dict[int, DocumentRow]:

    columns = ", ".join(DocumentRow.__struct_fields__)
    sql = f"select {columns} from documents order by id"  # noqa: S608
    return {row[0]: DocumentRow(*row) for row in _rows(catalog, sql)}


def _chunk_hashes(catalog: Catalog) -> dict[int, int]:
    sql = (
        "select document_id, hash(list((id, idx, text, page, section, overlap) order by id)) "
        "from chunks group by document_id"
    )
    return dict(_rows(catalog, sql))


def _differs(one: DocumentRow, other: DocumentRow) -> bool:
    return msgspec.structs.replace(one, touched=0) != msgspec.structs.replace(other, touched=0)


def _written(
    old: Catalog, row: DocumentRow, facts: EntryFacts | None, next_chunk: int
) -> DocWritten:
    """The document as the catalog has it; its chunks keep their ids where they are in a row."""

    chunks = Queries(old.cursor()).chunks_of(row.id)
    in_a_row = all(one.id + 1 == two.id for one, two in pairwise(chunks))
    return DocWritten(
        id=row.id,
        kb=row.kb,
        revision=row.revision,
        title=row.title,
        doc_type=row.type,
        source_sha256=row.sha256,
        size_bytes=row.size_bytes,
        first_chunk=chunks[0].id if chunks and in_a_row else next_chunk,
        chunks=[chunk.content for chunk in chunks],
        parser=row.parser,
        path=row.path,
        url=row.url,
        source_id=row.source_id,
        tags=list(row.tags),
        metadata=msgspec.json.decode(row.metadata),
        pages=row.pages,
        source_facts=row.facts,
        created_at=row.created_at,
        created_by=row.created_by,
        entry=facts,
    )


def _tokens(old: Catalog, new: Catalog) -> Iterator[Said]:
    """Outcomes that a repeated request must still be answered with."""
    has = _outcomes(new)
    for (actor, method, token), outcome in _outcomes(old).items():
        if has.get((actor, method, token)) != outcome:
            params_hash, salt, result = outcome
            known = params_hash if salt else None
            yield Said(actor, method, [], token, known, salt, result or "null")


def _outcomes(catalog: Catalog) -> dict[tuple[str, str, str], tuple[str, str, str | None]]:
    """The newest under each token."""
    sql = "select actor, method, token, params_hash, salt, result from tokens order by 1, 2, 3, seq"
    found = {}
    for key, rows in groupby(_rows(catalog, sql), key=lambda row: row[:3]):
        *_, last = rows
        found[key] = last[3:]
    return found
