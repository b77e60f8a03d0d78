"""kb.list: list the knowledge bases by slug."""

from __future__ import annotations

from kbproc.base.paging import decode_cursor, encode_cursor, page
from kbproc.base.params import ListParams
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply
from kbproc.documents.kb import KnowledgeBase, shown


class ListKbs(ListParams, kw_only=True, frozen=True):
    pass


@method(
    "kb.list",
    params=ListKbs,
    result=list[KnowledgeBase],
    summary="List the knowledge bases by slug.",
    when_to_use="To learn which knowledge bases there are before searching or adding.",
    examples=[Example(params={}, what="all of them")],
)
def list_kbs(call: Call, params: ListKbs) -> Reply:
    after = decode_cursor(params.cursor, str)
    with call.store.reading() as snapshot:
        rows, more = page(snapshot.queries.kbs(after, params.limit + 1), params.limit)
        return Reply(
            data=[shown(row) for row in rows],
            seq=snapshot.seq,
            count=len(rows),
            has_more=more,
            next_cursor=encode_cursor(rows[-1].slug) if more else None,
        )
