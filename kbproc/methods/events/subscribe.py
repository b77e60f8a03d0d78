"""events.subscribe: follow the log: every record from a position on, as it is written, as items."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.errors import KbprocError
from kbproc.base.params import ReadParams
from kbproc.base.values import DocumentId
from kbproc.knowledge.history import feed
from kbproc.knowledge.history.feed import Actor, Full, Subscription, Types
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply, Tail, Wait


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
    "events.subscribe",
    scope="admin",
    streams=True,
    params=Subscribe,
    result=None,
    item=feed.ShownRecord,
    layout=feed.as_lines,
    summary="Stream each record of the log from a position on.",
    when_to_use="To keep something else up to date. It ends by $/cancel or timeout_ms only; come "
    "back with the last seq that you have dealt with as after_seq.",
    errors=["store.incompatible"],
    examples=[
        Example(params={"after_seq": 0, "timeout_ms": 0}, what="what there is already", exit=4),
    ],
)
def subscribe(call: Call, params: Subscribe) -> Wait:
    store = call.store
    criteria = feed.Filters(
        types=feed.check_types(params.types),
        actor=params.actor,
        document_id=params.document_id,
        full=params.full,
        most_bytes=feed.bytes_in_a_line(call.max_line_bytes),
    )
    subscription = Subscription(
        store,
        criteria,
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
