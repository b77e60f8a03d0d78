"""events.read: list what was written, record by record, in order."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.params import ListParams
from kbproc.base.times import instant
from kbproc.base.values import DocumentId, Instant
from kbproc.knowledge.history import feed
from kbproc.knowledge.history.feed import Actor, Full, ShownRecord, Types
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply, decode_cursor, fitting, page_reply


class ReadEvents(ListParams, kw_only=True, frozen=True):
    after_seq: Annotated[
        int, Meta(ge=0, le=2**53, description="only records after this position")
    ] = 0
    since: Annotated[Instant, Meta(description="only records of that moment or later")] | None = (
        None
    )
    until: Annotated[Instant, Meta(description="only records before that moment")] | None = None
    types: Types | None = None
    actor: Actor | None = None
    document_id: DocumentId | None = None
    full: Full = False


@method(
    "events.read",
    scope="admin",
    params=ReadEvents,
    result=list[ShownRecord],
    layout=feed.as_lines,
    summary="List what was written, record by record, in order.",
    when_to_use="To see who changed what, or to catch up once; events.subscribe goes on for ever.",
    errors=["store.incompatible"],
    examples=[
        Example(params={"limit": 2}, what="the first two records"),
        Example(params={"after_seq": 1, "types": ["doc.written"]}, what="new and changed texts"),
        Example(params={"since": "2026-01-31"}, what="what has happened since then"),
        Example(params={"document_id": 1, "full": True}, what="all of one document"),
        Example(params={"types": ["doc.writen"]}, what="a type that does not exist", exit=1),
    ],
)
def read(call: Call, params: ReadEvents) -> Reply:
    since, until = (
        None if moment is None else instant(moment, field=f"$.params.{name}")
        for name, moment in (("since", params.since), ("until", params.until))
    )
    criteria = feed.Filters(
        since=since,
        until=until,
        types=feed.check_types(params.types),
        actor=params.actor,
        document_id=params.document_id,
        full=params.full,
        most_bytes=feed.bytes_in_a_line(call.max_line_bytes),
    )
    after_seq = max(params.after_seq, decode_cursor(params.cursor, int))
    if since is not None:
        with call.store.reading() as snapshot:
            after_seq = max(after_seq, snapshot.queries.seq_at(since, before=True))
    page = feed.scan(
        call.store, after_seq, criteria, limit=params.limit, most_bytes=criteria.most_bytes
    )
    count = fitting(params, params.budget_tokens, page.records)
    if count < len(page.records):
        return page_reply(page.records[:count], last=page.records[count - 1].seq, seq=page.seq)
    return page_reply(page.records, last=page.scanned if page.more else None, seq=page.seq)
