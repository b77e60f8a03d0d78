"""review.list: list the entries that wait for an approval."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from kbproc.base.layout import Table
from kbproc.base.params import PastListParams
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.rows import EntryRow
from kbproc.knowledge.documents import entry, lookup
from kbproc.knowledge.documents.entry import Owner
from kbproc.knowledge.documents.selection import kbs_of
from kbproc.knowledge.search import params as search_params
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Page, Reply

_TEXT = 1000  # characters of an entry that the list shows


class ListReview(PastListParams, kw_only=True, frozen=True):
    kb: search_params.Where | None = None
    owner: Owner | None = None


class EntryInReview(entry.Entry, kw_only=True, frozen=True):
    """An entry in review. `text`: the first 1,000 characters of its body; knowledge.get has all."""

    text: str


def as_table(items: list[dict[str, Any]], params: dict[str, Any]) -> Table:
    columns = ("id", "kb", "title", "text", "origin", "created_by", "created_at")
    return Table(rows=items, columns=columns)


@method(
    "review.list",
    params=ListReview,
    result=list[EntryInReview],
    layout=as_table,
    summary="List the entries that wait for an approval.",
    when_to_use="To see what was stored where a knowledge base has a review (kb.update), and "
    "nobody finds yet. Who has the scope review:write sees all of them, others see their own.",
    scope="knowledge:read",
    errors=["resource.not_found"],
    examples=[
        Example(params={}, what="all of them"),
        Example(params={"owner": "scout", "limit": 20}, what="the first of an agent's"),
    ],
)
def list_review(call: Call, params: ListReview) -> Reply:
    page = Page(params, int)
    now = call.moment(params)
    with call.state(params) as state, state.reading_as(call.review_sight) as snapshot:
        lookup.require_kbs(snapshot.kbs, params.kb)
        filter = DocumentFilter(
            kbs=kbs_of(params.kb), types=["knowledge"], owner=params.owner, in_review=True
        )
        rows = snapshot.queries.entries(filter, after=page.after, limit=page.read_limit)

        def item(row: EntryRow) -> EntryInReview:
            body = call.store.blobs.get(row.sha256).decode()
            return EntryInReview(**asdict(entry.entry_of(row, state.model, now)), text=body[:_TEXT])

        return page.reply(
            rows,
            item,
            key=lambda row: row.id,
            seq=snapshot.seq,
            total=snapshot.queries.count(filter),
        )
