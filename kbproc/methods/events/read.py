"""events.read: list what was written, record by record, in order."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.params import ListParams
from kbproc.base.values import DocumentId
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.pages import decode_cursor, page_reply
from kbproc.calls.reply import Reply
from kbproc.history import feed
from kbproc.history.feed import Actor, Full, ShownRecord, Types


class ReadEvents(ListParams, kw_only=True, frozen=True):
    after_seq: Annotated[
        int, Meta(ge=0, le=2**53, description="only records after this position")
    ] = 0
    types: Types | None = None
    actor: Actor | None = None
    document_id: DocumentId | None = None
    full: Full = False


@method(
    "events.read",
    scope="admin",
    params=ReadEvents,
    result=list[ShownRecord],
    shown=feed.as_lines,
    summary="List what was written, record by record, in order.",
    when_to_use="To see who changed what, or to catch up once; events.subscribe goes on for ever.",
    errors=["store.incompatible"],
    examples=[
        Example(params={"limit": 2}, what="the first two records"),
        Example(params={"after_seq": 1, "types": ["doc.written"]}, what="new and changed texts"),
        Example(params={"document_id": 1, "full": True}, what="all of one document"),
        Example(params={"types": ["doc.writen"]}, what="a type that does not exist", exit=1),
    ],
)
def read(call: Call, params: ReadEvents) -> Reply:
    wanted = feed.Wanted(
        types=feed.check_types(params.types),
        actor=params.actor,
        document_id=params.document_id,
        full=params.full,
        most_bytes=feed.bytes_in_a_line(call.max_line_bytes),
    )
    after_seq = max(params.after_seq, decode_cursor(params.cursor, int))
    page = feed.scan(
        call.store, after_seq, wanted, limit=params.limit, most_bytes=wanted.most_bytes
    )
    return page_reply(page.records, last=page.scanned if page.more else None, seq=page.seq)
