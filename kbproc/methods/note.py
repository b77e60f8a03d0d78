"""Notes: an agent's folder of Markdown."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.paging import decode_cursor, encode_cursor, page
from kbproc.base.params import DestructiveParams, PastListParams, PastParams, WriteParams
from kbproc.base.values import SLUG, clean_name
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply, Wait, once
from kbproc.documents import ingest
from kbproc.events.document import DocDeleted
from kbproc.notes import notes
from kbproc.notes.diff import Synced, total
from kbproc.notes.notebooks import foretold_of, removal_of
from kbproc.notes.notes import DeletedNote, Note, NoteHead, NoteInfo
from kbproc.notes.revision import content_of
from kbproc.notes.sync import Notebook
from kbproc.search.params import Fusion, MinScore, Mode, QueryText, Search, SnippetChars
from kbproc.search.search import run as run_search
from kbproc.store.decision import Decide, Decision
from kbproc.store.pipeline import LongWrite
from kbproc.store.plan import Plan, confirm, plan_of

AgentSlug = Annotated[
    str,
    Meta(
        pattern=SLUG,
        description="whose notes; a process that is bound to an agent may leave it out",
    ),
]
NoteSlug = Annotated[str, Meta(pattern=SLUG, description="note: its file's name without .md")]


class SearchNotes(PastParams, kw_only=True, frozen=True):
    agent: AgentSlug | None = None
    query: QueryText
    limit: Annotated[int, Meta(ge=1, le=100, description="most notes to return")] = 5
    mode: Mode = "hybrid"
    fusion: Fusion = "blend"
    min_score: MinScore | None = None
    snippet_chars: SnippetChars = 240


class GetNote(PastParams, kw_only=True, frozen=True):
    agent: AgentSlug | None = None
    slug: NoteSlug


class ListNotes(PastListParams, kw_only=True, frozen=True):
    agent: AgentSlug | None = None


class PutNote(WriteParams, kw_only=True, frozen=True):
    agent: AgentSlug | None = None
    slug: NoteSlug
    text: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=notes.MOST_BYTES,
            description="the whole note, Markdown; at most 64 KiB of UTF-8",
        ),
    ]
    expected_revision: (
        Annotated[int, Meta(ge=1, description="fail if it has changed since")] | None
    ) = None


class DeleteNote(DestructiveParams, kw_only=True, frozen=True):
    agent: AgentSlug | None = None
    slug: NoteSlug


class SyncNotes(DestructiveParams, kw_only=True, frozen=True):
    agent: (
        Annotated[str, Meta(pattern=SLUG, description="only this agent's notes; all if left out")]
        | None
    ) = None
    restore: Annotated[
        bool, Meta(description="write notes whose files are gone again, instead of removing them")
    ] = False


class NoteHit(Struct, kw_only=True, frozen=True):
    """The best passage of a note. `highlights`: character offsets into `snippet`."""

    id: int
    slug: str
    title: str
    score: float
    snippet: str
    highlights: list[tuple[int, int]]
    section: str | None
    updated_at: str


@method(
    "note.search",
    params=SearchNotes,
    result=list[NoteHit],
    summary="Search an agent's notes, one hit a note.",
    when_to_use="To recall what was written down before; scores are absolute, as those of search.",
    errors=["resource.not_found"],
    positional=["query"],
    examples=[
        Example(params={"agent": "gitea", "query": "deploy hooks"}, what="an agent's notes"),
        Example(params={"agent": "nobody", "query": "x"}, what="an unknown agent", exit=5),
        Example(params={"query": "deploy hooks"}, what="no agent said, none bound", exit=1),
    ],
)
def search_notes(call: Call, params: SearchNotes) -> Reply | Wait:
    if params.as_of is not None:
        return _searched(call, params)
    agent = notes.require_agent(call.store.published.roster, params.agent, call.agent)
    return once(
        lambda: call.store.notebooks.ready(agent.slug),
        lambda: _searched(call, params),
        timeout_ms=params.timeout_ms,
        expired=lambda: notes.still_read(agent),
    )


def _searched(call: Call, params: SearchNotes) -> Reply:
    from kbproc.views.catalog.reader import NOTES

    asked = Search(
        query=params.query,
        limit=params.limit,
        mode=params.mode,
        fusion=params.fusion,
        min_score=params.min_score,
        snippet_chars=params.snippet_chars,
        per_document=1,
    )
    with call.state(params) as state:
        agent = notes.require_agent(state.published.roster, params.agent, call.agent)
        found = run_search(state, asked, now=call.moment(params), kbs=[NOTES + agent.slug])
        with state.reading() as snapshot:
            ids = [hit.source.document_id for hit in found.results.results]
            rows = snapshot.queries.documents_by_id(ids)
            some = bool(ids) or snapshot.queries.notes_count(agent.slug)
    hits = [
        NoteHit(
            id=row.id,
            slug=str(row.source_id),
            title=hit.source.title,
            score=hit.score,
            snippet=hit.snippet,
            highlights=hit.highlights,
            section=hit.source.section,
            updated_at=row.updated_at,
        )
        for hit in found.results.results
        if (row := rows.get(hit.source.document_id)) is not None
    ]
    warnings = call.store.notebooks.warnings(agent) if params.as_of is None else None
    empty = f"{agent.slug} has no notes yet: note.put writes one."
    return Reply(
        data=hits,
        seq=found.freshness.seq,
        count=len(hits),
        has_more=found.has_more,
        hint=found.hint if some else empty,
        notice=[*found.notice, *(warnings or [])] or None,
        freshness=found.freshness,
    )


@method(
    "note.get",
    params=GetNote,
    result=Note,
    summary="Show one note with its whole text.",
    when_to_use="To read a note that a search or a list has named; its revision guards a put.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[
        Example(params={"agent": "gitea", "slug": "gitea-webhooks"}, what="one with its text"),
        Example(params={"agent": "nobody", "slug": "todo"}, what="an unknown agent", exit=5),
        Example(params={"slug": "To Do"}, what="no slug", exit=1),
    ],
)
def get_note(call: Call, params: GetNote) -> Reply | Wait:
    if params.as_of is not None:
        return _got(call, params)
    agent = notes.require_agent(call.store.published.roster, params.agent, call.agent)
    return once(
        lambda: call.store.notebooks.ready(agent.slug),
        lambda: _got(call, params),
        timeout_ms=params.timeout_ms,
        expired=lambda: notes.still_read(agent),
    )


def _got(call: Call, params: GetNote) -> Reply:
    with call.state(params) as state, state.reading() as snapshot:
        agent = notes.require_agent(state.published.roster, params.agent, call.agent)
        row = notes.require_note(snapshot.queries, agent.slug, params.slug)
        data = call.store.blobs.get(row.sha256)
        note = notes.whole(snapshot.queries, row, agent.slug, data)
        warnings = call.store.notebooks.warnings(agent) if params.as_of is None else None
        return Reply(data=note, seq=snapshot.seq, notice=warnings)


@method(
    "note.list",
    params=ListNotes,
    result=list[NoteHead],
    summary="List an agent's notes by slug.",
    when_to_use="To see what there is; to find a note by its words use note.search.",
    errors=["resource.not_found"],
    examples=[
        Example(params={"agent": "gitea"}, what="all of an agent's"),
        Example(params={"agent": "nobody"}, what="an unknown agent", exit=5),
        Example(params={"agent": "nobody", "limit": 0}, what="a limit out of range", exit=1),
    ],
)
def list_notes(call: Call, params: ListNotes) -> Reply | Wait:
    if params.as_of is not None:
        return _listed(call, params)
    agent = notes.require_agent(call.store.published.roster, params.agent, call.agent)
    return once(
        lambda: call.store.notebooks.ready(agent.slug),
        lambda: _listed(call, params),
        timeout_ms=params.timeout_ms,
        expired=lambda: notes.still_read(agent),
    )


def _listed(call: Call, params: ListNotes) -> Reply:
    after = decode_cursor(params.cursor, str)
    with call.state(params) as state, state.reading() as snapshot:
        agent = notes.require_agent(state.published.roster, params.agent, call.agent)
        found = snapshot.queries.notes(agent.slug, after=after, limit=params.limit + 1)
        rows, more = page(found, params.limit)
        return Reply(
            data=[notes.head(row) for row in rows],
            seq=snapshot.seq,
            count=len(rows),
            total=snapshot.queries.notes_count(agent.slug),
            has_more=more,
            next_cursor=encode_cursor(str(rows[-1].source_id)) if more else None,
            notice=call.store.notebooks.warnings(agent) if params.as_of is None else None,
        )


@method(
    "note.put",
    kind="write",
    idempotent=True,
    params=PutNote,
    result=NoteInfo,
    summary="Create a note or replace it, and write its file.",
    when_to_use="To write something down for later. An edit of the file that was not seen yet is "
    "kept as a revision of its own first; expected_revision refuses to write over it.",
    errors=["resource.not_found", "quota.exceeded", "input.too_large"],
    positional=["slug", "text"],
    examples=[
        Example(
            params={"agent": "gitea", "slug": "deploys", "text": "# Deploys\n\nOn Friday.\n"},
            what="a new note",
        ),
        Example(params={"agent": "nobody", "slug": "todo", "text": ""}, what="no text", exit=1),
    ],
)
def put_note(call: Call, params: PutNote) -> Decide:
    clean_name(params.slug, field="$.params.slug")  # the pattern's $ lets a newline follow
    agent = notes.require_agent(call.store.published.roster, params.agent, call.agent)
    data = notes.bytes_of(params.text)
    books = call.store.notebooks  # a dry run records nothing that was done by hand
    book = books.book(agent) if params.dry_run else books.ensure(agent)
    change = notes.Put(
        book,
        params.slug,
        data=data,
        content=content_of(call.store, params.slug, data),
        expected_revision=params.expected_revision,
    )
    change.prepare(dry_run=params.dry_run)
    return change


@method(
    "note.delete",
    kind="destructive",
    params=DeleteNote,
    result=DeletedNote,
    summary="Hide a note and remove its file; the log keeps its text.",
    when_to_use="When a note is wrong or no longer wanted. store.purge erases it for good.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[
        Example(
            params={"agent": "gitea", "slug": "gitea-webhooks"},
            what="without a person's approval",
            exit=10,
        ),
        Example(params={"agent": "nobody", "slug": "todo"}, what="an unknown agent", exit=5),
    ],
)
def delete_note(call: Call, params: DeleteNote) -> Decide:
    clean_name(params.slug, field="$.params.slug")
    agent = notes.require_agent(call.store.published.roster, params.agent, call.agent)
    books = call.store.notebooks  # a dry run records nothing that was done by hand
    book = books.book(agent) if params.dry_run else books.ensure(agent)
    change = notes.Delete(book, params.slug, confirmed=params.confirm is not None)
    change.prepare(dry_run=params.dry_run)
    return change


@method(
    "note.sync",
    kind="write",
    streams=True,
    idempotent=True,
    params=SyncNotes,
    result=Synced,
    summary="Record what people did to the files of notes: added, changed, renamed, removed.",
    when_to_use="After editing notes by hand, if no process watches the folder; or to have it "
    "approved that more than half of the files are gone.",
    errors=["resource.not_found", "input.confirmation_required", "resource.plan_stale"],
    examples=[
        Example(params={}, what="all agents"),
        Example(params={"dry_run": True}, what="what would be recorded"),
        Example(params={"agent": "nobody"}, what="an unknown agent", exit=5),
    ],
)
def sync_notes(call: Call, params: SyncNotes, write: LongWrite) -> Reply:
    everyone = params.agent is None and call.agent is None
    roster = call.store.published.roster
    if everyone:
        agents = notes.agents_seen(roster, None)
    else:
        agents = [notes.require_agent(roster, params.agent, call.agent)]
    books = [call.store.notebooks.book(agent) for agent in agents]
    if params.dry_run:
        return Reply(data=None, plan=_plan(call, books, params, write))
    approved = _approved(call, books, params, write)
    parts = [_synced(call, book, params, approved) for book in books]
    outcome = write.end(total(parts))
    return Reply(data=outcome.data, duplicate=outcome.duplicate or None)


def _synced(call: Call, book: Notebook, params: SyncNotes, approved: frozenset[int]) -> Synced:
    def tell(current: int, count: int, slug: str) -> None:
        if _may_read(call):
            call.emit("progress", ingest.progress("sync", current, count, f"{book.agent}/{slug}"))

    done, _ = book.sync(
        approved=approved, restore=params.restore, tell=tell, check=call.check_cancelled
    )
    if not _may_read(call):
        return Synced(agents=1)
    for warning in done.warnings:
        call.emit("warning", {"message": warning})
    return done


def _may_read(call: Call) -> bool:
    """Who may not read notes learns nothing of what was done to them."""
    return "note:read" in call.scopes


def _approved(
    call: Call, books: list[Notebook], params: SyncNotes, write: LongWrite
) -> frozenset[int]:
    """More than half of an agent's notes goes only with a person's approval.

    Whoever can't be given that leaves them as they are. Raises
    input.confirmation_required, resource.plan_stale, auth.insufficient_scope.
    """
    asked = removal_of([] if params.restore else books)
    if not asked.events or not _may_read(call):
        return frozenset()
    if "admin" not in call.scopes:
        if params.confirm is None:
            return frozenset()
        raise KbprocError(
            "auth.insufficient_scope",
            "Removing more than half needs the scope admin.",
            field="$.params.confirm",
            detail={"needed": "admin"},
        )
    confirm(msgspec.structs.replace(write.request, destructive=True), asked)
    return frozenset(event.id for event in asked.events if isinstance(event, DocDeleted))


def _plan(call: Call, books: list[Notebook], params: SyncNotes, write: LongWrite) -> Plan:
    if not _may_read(call):
        return plan_of(write.request, Decision(events=[], data=None, changes=["sync"]))
    asked = removal_of([] if params.restore else books)
    changes = [*asked.changes, *foretold_of(books, restore=params.restore)]
    asks = msgspec.structs.replace(write.request, destructive=asked.bulk)
    return plan_of(asks, msgspec.structs.replace(asked, changes=changes))
