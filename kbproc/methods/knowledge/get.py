"""knowledge.get: show one knowledge entry with its text."""

from __future__ import annotations

import msgspec

from kbproc.base.params import BudgetTokens, PastParams, TextOffset
from kbproc.knowledge.documents import entry as entries
from kbproc.knowledge.documents import selection
from kbproc.knowledge.documents.entry import EntryId, EntryText
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply, cut


class GetEntry(PastParams, kw_only=True, frozen=True):
    id: EntryId
    valid_at: entries.ValidAt | None = None
    offset: TextOffset = 0
    budget_tokens: BudgetTokens | None = None


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
        Example(params={"id": 4, "valid_at": "2000-01-01"}, what="one that began later", exit=5),
        Example(params={"id": 9_999_999}, what="one that does not exist", exit=5),
    ],
)
def get(call: Call, params: GetEntry) -> Reply:
    now = call.moment(params)
    with call.state(params) as state, state.reading_as(call.review_sight) as snapshot:
        row = entries.require(snapshot.queries, params.id)
        if params.valid_at is not None:
            chain = list(snapshot.queries.chains([row.id]))
            filter = selection.filter_of(params, types=["knowledge"], ids=chain)
            entries.require_true(row, snapshot.queries.entries(filter), params.valid_at)
        before = snapshot.queries.superseded_by([row.id])
        after = entries.successors_of(snapshot.queries, [row]).get(row.id)
        changed = call.sources(params, snapshot.queries).changes({row.id: row}).get(row.id)
        entry = msgspec.structs.asdict(entries.entry_of(row, state.model, now, changed, after))
        body = call.store.blobs.get(row.sha256).decode()
        part = cut(body[params.offset :], params.budget_tokens)
        data = EntryText(
            **entry, body=part, supersedes=[entry_row.id for entry_row in before[:100]]
        )
        more = True if params.offset + len(part) < len(body) else None
        return Reply(data=data, seq=snapshot.seq, has_more=more)
