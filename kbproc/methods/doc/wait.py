"""doc.wait: wait until documents are embedded and so found by meaning, too."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.params import ReadParams
from kbproc.base.wording import plural
from kbproc.engine.embedding.background import EMBED, PREPARE, chunks_by_document
from kbproc.engine.embedding.status import Pending
from kbproc.knowledge.documents import lookup
from kbproc.knowledge.documents.selection import DocumentIds
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply, Wait


class WaitFor(ReadParams, kw_only=True, frozen=True):
    ids: Annotated[DocumentIds, Meta(description="all that are pending if left out")] | None = None
    after_seq: (
        Annotated[int, Meta(ge=0, description="only those changed after this log position")] | None
    ) = None


class Waited(Struct, kw_only=True, frozen=True):
    ready: int


def _needed_ms(waited_ms: int, done: int, remaining: int) -> int:
    """Returns the time for the remaining chunks at the pace so far, and a quarter; 0 without a
    pace.
    """
    return waited_ms * remaining * 5 // (done * 4) if done > 0 else 0


@method(
    "doc.wait",
    streams=True,
    params=WaitFor,
    result=Waited,
    summary="Wait until documents are embedded.",
    when_to_use="After adding documents, before a hybrid or vector search that must see them all. "
    "Keyword search finds them at once.",
    errors=["resource.not_found", "operation.failed", "model.unavailable"],
    positional=["ids"],
    examples=[Example(params={"timeout_ms": 60_000}, what="all that are pending")],
)
def wait(call: Call, params: WaitFor) -> Wait:
    store, ids = call.store, params.ids
    with store.reading() as snapshot:
        if ids is not None:
            lookup.require_all(snapshot.queries, ids, field="$.params.ids")
        if params.after_seq is not None or (ids is None and call.sight is not None):
            changed = snapshot.queries.chunk_counts(params.after_seq or 0)
            ids = sorted(changed if ids is None else changed.keys() & set(ids))
    waiting = Pending(call.library.embedding, chunks_by_document(store), ids)
    total = waiting.chunks
    at_first = waiting.pending()

    def ready() -> bool:
        remaining: int = waiting.pending()
        if total and remaining and not call.library.embedding.is_prepared:
            call.progress(PREPARE, 0, None, "")
        elif total:
            call.progress(EMBED, max(total - remaining, 0), total, "chunks")
        return remaining == 0

    def expired() -> KbprocError:
        remaining = waiting.pending()
        needed_ms = _needed_ms(params.timeout_ms or 0, at_first - remaining, remaining)
        return KbprocError(
            "operation.timeout",
            f"{plural(remaining, 'chunk')} still {'waits' if remaining == 1 else 'wait'} to be "
            "embedded.",
            field="$.params.timeout_ms",
            hint=f"At this pace they need {needed_ms // 1000 + 1} s more: ask again with that much "
            "time. A search by words finds them already."
            if needed_ms
            else "Ask again with more time. A search by words finds them already.",
            detail={"pending": remaining, **({"needed_ms": needed_ms} if needed_ms else {})},
        )

    return Wait(
        ready=ready,
        resume=lambda: Reply(data=Waited(ready=waiting.documents)),
        timeout_ms=params.timeout_ms,
        expired=expired,
    )
