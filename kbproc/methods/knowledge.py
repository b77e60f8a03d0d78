"""Knowledge entries: what an agent has learned, with confidence, expiry and successors."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from kbproc.agents.quotas import check_quota
from kbproc.base import values
from kbproc.base.errors import KbprocError
from kbproc.base.paging import decode_cursor, encode_cursor, page
from kbproc.base.params import DestructiveParams, PastListParams, PastParams, WriteParams
from kbproc.base.values import Instant, KbSlug, Tags, clean_name, clean_tags
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.pages import found_reply
from kbproc.calls.reply import Reply
from kbproc.documents import documents, entries, revision
from kbproc.documents.content import content_of_text
from kbproc.documents.entries import EntryId, EntryText, Superseded, TaskId, TaskRef
from kbproc.events.document import DocDeleted
from kbproc.events.entry import EntryFacts, EntryRevived, EntrySuperseded
from kbproc.events.event import Event
from kbproc.search import params as asked
from kbproc.search import search as service
from kbproc.search.search import Results
from kbproc.settings.config import DEFAULT_KB
from kbproc.store.decision import Decide, Decision, Here


class StoreEntry(WriteParams, kw_only=True, frozen=True):
    title: Annotated[str, Meta(min_length=1, max_length=200, description="what it says, in short")]
    body: Annotated[
        str, Meta(min_length=1, max_length=entries.MAX_BODY, description="what was learned")
    ]
    kb: Annotated[KbSlug, Meta(description="knowledge base to put it in")] = DEFAULT_KB
    tags: Tags = []
    confidence: Annotated[int, Meta(ge=0, le=100, description="how sure it is, in percent")] = 80
    expires_at: (
        Annotated[Instant, Meta(description="when it ceases to hold: RFC 3339, in the future")]
        | None
    ) = None
    task_ref: Annotated[TaskRef, Meta(description="the task that it has to do with")] | None = None
    source: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=500,
                description="where it was learned, such as a URL; else agent or user",
            ),
        ]
        | None
    ) = None


class SearchEntries(PastParams, kw_only=True, frozen=True):
    query: asked.QueryText
    limit: asked.Limit = 10
    offset: asked.Offset = 0
    mode: asked.Mode = "hybrid"
    kb: asked.Where | None = None
    tags: Tags | None = None
    tags_mode: documents.TagsMode = "all"
    task_id: TaskId | None = None
    owner: entries.Owner | None = None
    created_after: documents.CreatedAfter | None = None
    created_before: documents.CreatedBefore | None = None
    include_superseded: asked.IncludeSuperseded = False
    include_expired: asked.IncludeExpired = False
    min_score: asked.MinScore | None = None
    min_similarity: asked.MinSimilarity | None = None
    min_confidence: asked.MinConfidence | None = None
    ef_search: asked.EfSearch = 64
    fusion: asked.Fusion = "blend"
    snippet_chars: asked.SnippetChars = 240
    explain: asked.Explain = False
    highlight: asked.Highlight = True


class GetEntry(PastParams, kw_only=True, frozen=True):
    id: EntryId


class ListEntries(PastListParams, kw_only=True, frozen=True):
    kb: asked.Where | None = None
    task_id: TaskId | None = None
    owner: entries.Owner | None = None
    tags: Tags | None = None
    tags_mode: documents.TagsMode = "all"
    min_confidence: asked.MinConfidence | None = None
    include_superseded: asked.IncludeSuperseded = False
    include_expired: asked.IncludeExpired = False


class Supersede(WriteParams, kw_only=True, frozen=True):
    old_id: entries.Replaced
    new_id: entries.Successor


class Unsupersede(WriteParams, kw_only=True, frozen=True):
    old_id: entries.Replaced
    new_id: entries.Successor


class DeleteEntries(DestructiveParams, kw_only=True, frozen=True):
    ids: Annotated[list[EntryId], Meta(min_length=1, max_length=1000, description="entries, by id")]


class DeletedEntries(Struct, kw_only=True, frozen=True):
    """`revived`: entries that hold again, as the one that superseded them is gone."""

    deleted: int
    ids: list[int]
    revived: list[int]


@method(
    "knowledge.store",
    kind="write",
    params=StoreEntry,
    result=entries.Entry,
    summary="Store what was learned, as a knowledge entry.",
    when_to_use="When something was found out that will be needed again. One fact or "
    "procedure an entry, with a title that says it. To correct an entry, store the right one "
    "and supersede the wrong one.",
    errors=["resource.not_found", "quota.exceeded", "operation.failed"],
    examples=[
        Example(
            params={
                "title": "The CI cache is keyed by lock file",
                "body": "Deleting the lock file drops the cache; builds take 12 minutes then.",
                "tags": ["ci"],
                "confidence": 90,
                "task_ref": {"task_id": "T-17", "kind": "produced"},
            },
            what="something that a task brought to light",
        ),
        Example(
            params={"title": "x", "body": "y", "expires_at": "2001-01-01"},
            what="one that would have expired already",
            exit=1,
        ),
    ],
)
def store(call: Call, params: StoreEntry) -> Decide:
    title = clean_name(params.title, field="$.params.title")
    tags = clean_tags(params.tags)
    facts = _facts(call, params)
    content = content_of_text(call.store, params.body, "markdown", title, field="$.params.body")
    content = msgspec.structs.replace(content, doc_type="knowledge")

    def decide(here: Here) -> Decision:
        documents.require_kb(here, params.kb)
        if facts.expires_at is not None and facts.expires_at <= here.now:
            raise KbprocError(
                "input.invalid_params",
                f"expires_at is {facts.expires_at}; it is {here.now} now.",
                field="$.params.expires_at",
                hint="Give a moment in the future, or leave it out.",
            )
        actor = call.peer.actor
        used = here.queries.entries_owned(actor)
        instead = "Delete entries that hold no more, with knowledge.delete"
        check_quota(here.queries.agent(actor), "knowledge_stored", used, instead=instead)
        event = revision.written(
            here,
            content,
            kb=params.kb,
            existing=None,
            ids=revision.Ids(here),
            tags=tags,
            metadata={},
        )
        event = msgspec.structs.replace(event, entry=facts)
        made = entries.Entry(
            id=event.id,
            kb=event.kb,
            title=title,
            tags=tags,
            confidence=facts.confidence,
            expires_at=facts.expires_at,
            expired=False,
            task_ref=entries.task_ref_of(facts.task_id, facts.task_kind),
            source=facts.source,
            created_by=actor,
            created_at=here.now,
            superseded_by=None,
            head=event.id,
            embedding_status=call.store.embedding.status_when_new,
        )
        return Decision(events=[event], data=made)

    return decide


def _facts(call: Call, params: StoreEntry) -> EntryFacts:
    task = params.task_ref
    field = "$.params.task_ref.task_id"
    source = "user" if call.agent is None else "agent"
    if params.source is not None:
        source = clean_name(params.source, field="$.params.source")
    expires_at = params.expires_at
    if expires_at is not None:
        expires_at = values.instant(expires_at, field="$.params.expires_at")
    return EntryFacts(
        confidence=params.confidence,
        source=source,
        expires_at=expires_at,
        task_id=None if task is None else clean_name(task.task_id, field=field),
        task_kind=None if task is None else task.kind,
    )


@method(
    "knowledge.search",
    params=SearchEntries,
    result=Results,
    summary="Search the knowledge entries by words and by meaning.",
    when_to_use="Before solving something again: has it been found out already? Hits are "
    "entries that hold now; superseded and expired ones come only when asked for.",
    errors=["resource.not_found"],
    positional=["query"],
    examples=[
        Example(params={"query": "ci cache"}, what="words and meaning"),
        Example(params={"query": "cache", "min_confidence": 90}, what="only what is quite sure"),
        Example(params={"query": ""}, what="an empty query", exit=1),
    ],
)
def search(call: Call, params: SearchEntries) -> Reply:
    given = msgspec.structs.asdict(params)
    task_id, owner = given.pop("task_id"), given.pop("owner")
    wanted = asked.Search(**given, types=["knowledge"], per_document=1)
    with call.state(params) as state:
        found = service.run(
            state, wanted, now=call.moment(params), centre="first", task_id=task_id, owner=owner
        )
    return found_reply(found)


@method(
    "knowledge.get",
    params=GetEntry,
    result=EntryText,
    summary="Show one knowledge entry with its text.",
    when_to_use="To read an entry that a search has found; of a superseded one, head names the "
    "entry that holds now.",
    errors=["resource.not_found"],
    positional=["id"],
    examples=[
        Example(params={"id": 4}, what="one with its text"),
        Example(params={"id": 9_999_999}, what="one that does not exist", exit=5),
    ],
)
def get(call: Call, params: GetEntry) -> Reply:
    now = call.moment(params)
    with call.state(params) as state, state.reading() as snapshot:
        row = entries.require(snapshot.queries, params.id)
        entry = msgspec.structs.asdict(entries.shown(row, state.embedding, now))
        before = snapshot.queries.superseded_by([row.id])
        body = call.store.blobs.get(row.sha256).decode()
        data = EntryText(**entry, body=body, supersedes=[one.id for one in before[:100]])
        return Reply(data=data, seq=snapshot.seq)


@method(
    "knowledge.list",
    params=ListEntries,
    result=list[entries.Entry],
    summary="List knowledge entries by id, filtered.",
    when_to_use="To see what a task has produced or relied on, or what an agent has stored.",
    errors=["resource.not_found"],
    examples=[
        Example(params={"task_id": "T-17"}, what="what has to do with a task"),
        Example(params={"owner": "user", "limit": 5}, what="the first five of somebody's"),
    ],
)
def list_entries(call: Call, params: ListEntries) -> Reply:
    after = decode_cursor(params.cursor, int)
    now = call.moment(params)
    with call.state(params) as state, state.reading() as snapshot:
        documents.require_kbs(snapshot.queries, params.kb)
        wanted = documents.filter_of(
            params,
            types=["knowledge"],
            hide_superseded=not params.include_superseded,
            valid_at=None if params.include_expired else now,
        )
        found = snapshot.queries.entries(wanted, after=after, limit=params.limit + 1)
        rows, more = page(found, params.limit)
        return Reply(
            data=[entries.shown(row, state.embedding, now) for row in rows],
            seq=snapshot.seq,
            count=len(rows),
            total=snapshot.queries.count(wanted),
            has_more=more,
            next_cursor=encode_cursor(rows[-1].id) if more else None,
        )


@method(
    "knowledge.supersede",
    kind="write",
    idempotent=True,
    params=Supersede,
    result=Superseded,
    summary="Let one entry take the place of another.",
    when_to_use="When an entry is outdated or wrong and a newer one says it right: searches find "
    "only the newer one from then on. One of the two must be yours.",
    errors=["resource.not_found", "knowledge.cycle", "auth.not_owner"],
    more_scopes=["knowledge:write_others"],
    positional=["old_id", "new_id"],
    examples=[
        Example(params={"old_id": 3, "new_id": 4}, what="the newer one holds"),
        Example(params={"old_id": 9998, "new_id": 9999}, what="no such entries", exit=5),
    ],
)
def supersede(call: Call, params: Supersede) -> Decide:
    def decide(here: Here) -> Decision:
        old, new = entries.require_both(here.queries, params.old_id, params.new_id)
        data = Superseded(old_id=old.id, new_id=new.id, head=new.head)
        if old.superseded_by == new.id:
            return Decision(events=[], data=data)
        entries.check_owner(old, new, call.peer.actor, call.scopes)
        entries.check_link(here.queries, old, new)
        return Decision(
            events=[EntrySuperseded(id=old.id, by=new.id)],
            data=data,
            targets=entries.targets_of([old, new]),
            changes=[f"“{new.title}” takes the place of “{old.title}”"],
        )

    return decide


@method(
    "knowledge.unsupersede",
    kind="write",
    params=Unsupersede,
    result=Superseded,
    summary="Undo that one entry took the place of another.",
    when_to_use="When the older entry was right after all: searches find it again.",
    errors=["resource.not_found", "auth.not_owner"],
    more_scopes=["knowledge:write_others"],
    positional=["old_id", "new_id"],
    examples=[
        Example(params={"old_id": 5, "new_id": 4}, what="it holds again"),
        Example(params={"old_id": 9998, "new_id": 9999}, what="no such entries", exit=5),
    ],
)
def unsupersede(call: Call, params: Unsupersede) -> Decide:
    def decide(here: Here) -> Decision:
        old, new = entries.require_both(here.queries, params.old_id, params.new_id)
        entries.check_owner(old, new, call.peer.actor, call.scopes)
        if old.superseded_by != new.id:
            by = "nothing" if old.superseded_by is None else f"entry {old.superseded_by}"
            raise KbprocError(
                "resource.conflict",
                f"Entry {old.id} is superseded by {by}, not by {new.id}.",
                field="$.params.new_id",
                hint="It holds already."
                if old.superseded_by is None
                else f"Give new_id {old.superseded_by}.",
                detail={"superseded_by": old.superseded_by},
            )
        return Decision(
            events=[EntryRevived(ids=[old.id], was=new.id)],
            data=Superseded(old_id=old.id, new_id=new.id, head=old.id),
            targets=entries.targets_of([old, new]),
            changes=[f"“{old.title}” holds again"],
        )

    return decide


@method(
    "knowledge.delete",
    kind="destructive",
    params=DeleteEntries,
    result=DeletedEntries,
    summary="Hide knowledge entries from every read; the log keeps their text.",
    when_to_use="When entries should never have been stored; what is merely outdated is better "
    "superseded. What a deleted entry had superseded directly holds again.",
    errors=["resource.not_found"],
    positional=["ids"],
    examples=[
        Example(params={"ids": [3], "dry_run": True}, what="only the plan"),
        Example(params={"ids": [9_999_999]}, what="one that does not exist", exit=5),
    ],
)
def delete(call: Call, params: DeleteEntries) -> Decide:
    def decide(here: Here) -> Decision:
        rows = entries.require_all(here.queries, params.ids, field="$.params.ids")
        chains = entries.without(here.queries, rows)
        changes = entries.told(here.queries, chains)
        gone: list[Event] = [DocDeleted(id=row.id) for row in rows]
        revived = [id for id in chains.changed if chains.by(id) is None]
        per_kb = {row.kb: sum(other.kb == row.kb for other in rows) for row in rows}
        return Decision(
            events=[*chains.events(), *gone],
            data=DeletedEntries(
                deleted=len(rows), ids=[row.id for row in rows], revived=revived[:1000]
            ),
            targets=entries.targets_of(rows),
            changes=[*(f"hide entry {row.id} “{row.title}”" for row in rows), *changes],
            bound=changes,  # a link that was made since changes what this would do
            bulk=any(documents.is_bulk(here, kb, count) for kb, count in per_kb.items()),
        )

    return decide
