"""The log as it is read from outside: events.read, events.verify, events.subscribe."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.errors import KbprocError
from kbproc.base.paging import decode_cursor, encode_cursor
from kbproc.base.params import ListParams, ReadParams
from kbproc.base.values import DocumentId
from kbproc.calls.call import Call
from kbproc.calls.method import Example, method
from kbproc.calls.reply import Reply, Tail, Wait
from kbproc.history import feed
from kbproc.history.feed import ShownRecord, Subscription, Verified

Types = Annotated[
    list[Annotated[str, Meta(max_length=64)]],
    Meta(min_length=1, max_length=50, description="only events of these types"),
]
Actor = Annotated[str, Meta(max_length=200, description="only what this actor wrote")]
Full = Annotated[bool, Meta(description="with the events as they stand in the log, texts included")]


class ReadEvents(ListParams, kw_only=True, frozen=True):
    after_seq: Annotated[
        int, Meta(ge=0, le=2**53, description="only records after this position")
    ] = 0
    types: Types | None = None
    actor: Actor | None = None
    document_id: DocumentId | None = None
    full: Full = False


class VerifyEvents(ReadParams, kw_only=True, frozen=True):
    pass


class Subscribe(ReadParams, kw_only=True, frozen=True):
    after_seq: (
        Annotated[
            int,
            Meta(ge=0, le=2**53, description="start after this position; now if left out"),
        ]
        | None
    ) = None
    types: Types | None = None
    actor: Actor | None = None
    document_id: DocumentId | None = None
    full: Full = False


@method(
    "events.read",
    scope="admin",
    params=ReadEvents,
    result=list[ShownRecord],
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
    return Reply(
        data=page.records,
        seq=page.seq,
        count=len(page.records),
        has_more=page.more,
        next_cursor=encode_cursor(page.scanned) if page.more else None,
    )


@method(
    "events.verify",
    scope="admin",
    params=VerifyEvents,
    result=Verified,
    summary="Check the whole log: every record, and that each follows from the one before.",
    when_to_use="After a crash, a copy or a doubt about the disk. Opening a store checks only "
    "what is new to its views.",
    examples=[Example(params={}, what="the whole chain")],
)
def verify(call: Call, params: VerifyEvents) -> Reply:
    found = feed.verify(call.store, call.check_cancelled)
    return Reply(data=found, seq=found.head.seq)


@method(
    "events.subscribe",
    scope="admin",
    streams=True,
    params=Subscribe,
    result=None,
    summary="Follow the log: every record from a position on, as it is written, as items.",
    when_to_use="To keep something else up to date. It ends by $/cancel or timeout_ms only; come "
    "back with the last seq that you have dealt with as after_seq.",
    errors=["store.incompatible"],
    examples=[
        Example(params={"after_seq": 0, "timeout_ms": 0}, what="what there is already", exit=4),
    ],
)
def subscribe(call: Call, params: Subscribe) -> Wait:
    store = call.store
    wanted = feed.Wanted(
        types=feed.check_types(params.types),
        actor=params.actor,
        document_id=params.document_id,
        full=params.full,
        most_bytes=feed.bytes_in_a_line(call.max_line_bytes),
    )
    subscription = Subscription(
        store,
        wanted,
        after_seq=store.seq if params.after_seq is None else params.after_seq,
        emit=call.emit,
        crowded=call.crowded,
    )
    if subscription.seq > store.seq:
        message = f"after_seq is {subscription.seq}, but the log ends at {store.seq}: waiting."
        call.emit("warning", {"message": message})

    def ready() -> bool:
        subscription.turn()
        return False

    def expired() -> KbprocError:
        return KbprocError(
            "operation.timeout",
            f"timeout_ms passed; everything up to position {subscription.seq} was sent.",
            hint="Subscribe again with this seq as after_seq.",
            field="$.params.timeout_ms",
            seq=subscription.seq,
            detail={"seq": subscription.seq},
        )

    return Wait(
        ready=ready,
        resume=lambda: Reply(data=None),
        timeout_ms=params.timeout_ms,
        expired=expired,
        tail=Tail(more=lambda: subscription.more, detail=lambda: {"seq": subscription.seq}),
    )
