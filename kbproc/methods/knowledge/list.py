"""knowledge.list: list knowledge entries by id, filtered."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kbproc.base.layout import Table
from kbproc.base.params import PastListParams
from kbproc.base.values import Tags
from kbproc.knowledge.documents import entry, lookup, selection, trust
from kbproc.knowledge.documents.entry import TaskId
from kbproc.knowledge.search import params as search_params
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Page, Reply


class ListEntries(PastListParams, kw_only=True, frozen=True):
    kb: search_params.Where | None = None
    task_id: TaskId | None = None
    owner: entry.Owner | None = None
    tags: Tags | None = None
    tags_mode: selection.TagsMode = "all"
    min_confidence: search_params.MinConfidence | None = None
    include_superseded: search_params.IncludeSuperseded = False
    include_expired: search_params.IncludeExpired = False
    valid_at: entry.ValidAt | None = None
    updated_after: selection.UpdatedAfter | None = None
    min_trust: trust.MinTrust | None = None
    verified: (
        Annotated[bool, Meta(description="only entries that a person has verified, or has not")]
        | None
    ) = None
    due: Annotated[bool, Meta(description="only entries that a person should check now")] = False
    stale: Annotated[bool, Meta(description="only entries of which a source has changed since")] = (
        False
    )


def as_table(items: list[dict[str, Any]], params: dict[str, Any]) -> Table:
    columns: tuple[str, ...] = ("id", "title", "tags", "confidence", "state", "created_by")
    if params.get("due"):
        columns = ("id", "title", "review_after", "verified_by", "verified_at", "origin", "state")
    states = [", ".join(entry.status_in_words(item, expired=item["expired"])) for item in items]
    rows = [{**item, "state": state or None} for item, state in zip(items, states, strict=True)]
    return Table(rows=rows, columns=columns)


@method(
    "knowledge.list",
    params=ListEntries,
    result=list[entry.Entry],
    layout=as_table,
    summary="List knowledge entries by id, filtered.",
    when_to_use="To see what a task has produced or relied on, or what an agent has stored; "
    "with due, what a person should check again; with stale, what was derived from a document, a "
    "file or a commit that has changed since.",
    errors=["resource.not_found"],
    examples=[
        Example(params={"task_id": "T-17"}, what="what has to do with a task"),
        Example(params={"owner": "user", "limit": 5}, what="the first five of somebody's"),
        Example(params={"due": True}, what="what a person should check now"),
        Example(params={"stale": True}, what="what has to be compared with its source"),
    ],
)
def list_entries(call: Call, params: ListEntries) -> Reply:
    page = Page(params, int)
    now = call.moment(params)
    with call.state(params) as state, state.reading() as snapshot:
        lookup.require_kbs(snapshot.kbs, params.kb)
        filter = selection.filter_of(
            params,
            types=["knowledge"],
            hide_superseded=not params.include_superseded,
            valid_at=None if params.include_expired else now,
            due_at=now if params.due else None,
        )
        sources = call.sources(params, snapshot.queries)
        if params.stale:
            filter = msgspec.structs.replace(filter, ids=[*sources.all_changed(filter)])
        rows = snapshot.queries.entries(filter, after=page.after, limit=page.read_limit)
        changed = sources.changes({row.id: row for row in rows})
        after = entry.successors_of(snapshot.queries, rows)
        return page.reply(
            rows,
            lambda row: entry.entry_of(
                row, state.model, now, changed.get(row.id), after.get(row.id)
            ),
            key=lambda row: row.id,
            seq=snapshot.seq,
            total=snapshot.queries.count(filter),
        )
