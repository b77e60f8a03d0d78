"""store.compact: forget what documents held before a moment."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from kbproc.base.params import DestructiveParams
from kbproc.base.times import instant
from kbproc.base.values import Instant
from kbproc.engine.store.decision import Decide
from kbproc.engine.store.pipeline import LongWrite
from kbproc.knowledge.history import purge
from kbproc.knowledge.history.compact import compaction
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class Compact(DestructiveParams, kw_only=True, frozen=True):
    before: Annotated[
        Instant, Meta(description="what was replaced or deleted until then goes; RFC 3339")
    ]


class Compacted(Struct, kw_only=True, frozen=True):
    """How many `contents` were forgotten, and what was erased: `records` of the log, `sources`,
    `vectors`, and `bytes` of log and sources.
    """

    contents: int
    records: int
    sources: int
    vectors: int
    bytes: int


def plan(call: Call, params: Compact) -> Decide:
    return lambda here: compaction(
        here, call.store.log, instant(params.before, field="$.params.before")
    )


@method(
    "store.compact",
    kind="destructive",
    undone_by=(),
    whole=True,
    streams=True,
    params=Compact,
    result=Compacted,
    plan=plan,
    summary="Forget what documents held before a moment.",
    when_to_use="When the past takes more room than it is worth. What documents hold now stays; "
    "titles, times and authors of what is forgotten stay, too: store.purge erases those. It is "
    "never done unasked.",
    positional=["before"],
    examples=[
        Example(params={"before": "2026-06-30"}, what="without approval", exit=10),
        Example(params={"before": "2026-06-30", "dry_run": True}, what="only the plan"),
        Example(params={"before": "long ago"}, what="no date", exit=1),
    ],
)
def compact(call: Call, params: Compact, write: LongWrite) -> Reply:
    """Compacts the store; an interrupted request can be repeated, and forgets the rest."""
    with call.library.store.exclusive(call.check_cancelled):
        contents, hint = write.item(plan(call, params))
        erased = purge.finish(
            call.library.reach(), lambda stage: call.progress(*purge.progress_of(stage), last=True)
        )
    data = Compacted(
        contents=contents,
        records=erased.records,
        sources=erased.sources,
        vectors=erased.vectors,
        bytes=erased.bytes,
    )
    outcome = write.end(data)
    return Reply(data=outcome.data, seq=max(outcome.seq, call.store.seq), hint=hint)
