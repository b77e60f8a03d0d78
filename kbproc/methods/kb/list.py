"""kb.list: list the knowledge bases by slug."""

from __future__ import annotations

from kbproc.base.params import ListParams
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.pages import Page
from kbproc.calls.reply import Reply
from kbproc.documents.kb import KnowledgeBase, shown


class ListKbs(ListParams, kw_only=True, frozen=True):
    pass


@method(
    "kb.list",
    params=ListKbs,
    result=list[KnowledgeBase],
    shown=("slug", "name", "description", "updated_at"),
    summary="List the knowledge bases by slug.",
    when_to_use="To learn which knowledge bases there are before searching or adding.",
    examples=[Example(params={}, what="all of them")],
)
def list_kbs(call: Call, params: ListKbs) -> Reply:
    page = Page(params, str)
    with call.store.reading() as snapshot:
        found = snapshot.queries.kbs(page.after, page.wanted)
        return page.reply(found, shown, key=lambda row: row.slug, seq=snapshot.seq)
