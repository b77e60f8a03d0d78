"""kb.status: count a knowledge base's documents and chunks; cheap."""

from __future__ import annotations

from msgspec import Struct

from kbproc.base.params import ReadParams
from kbproc.base.values import KbSlug
from kbproc.engine.store.state import Freshness
from kbproc.knowledge.documents.kb import require
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class StatusOfKb(ReadParams, kw_only=True, frozen=True):
    slug: KbSlug


class KbStatus(Struct, kw_only=True, frozen=True):
    """`source_bytes`: size of the sources, not of the store."""

    slug: str
    documents: int
    chunks: int
    source_bytes: int
    freshness: Freshness


@method(
    "kb.status",
    params=StatusOfKb,
    result=KbStatus,
    summary="Count a knowledge base's documents and chunks; cheap.",
    when_to_use="To see whether there is anything to search, and whether it is all indexed.",
    errors=["resource.not_found"],
    positional=["slug"],
    examples=[Example(params={"slug": "default"}, what="counts")],
)
def status(call: Call, params: StatusOfKb) -> Reply:
    with call.store.reading() as snapshot:
        row = require(snapshot.queries, params.slug)
        documents, chunks, size = snapshot.queries.kb_counts([row.slug]).get(row.slug, (0, 0, 0))
        freshness = call.store.freshness(snapshot)
        data = KbStatus(
            slug=row.slug,
            documents=documents,
            chunks=chunks,
            source_bytes=size,
            freshness=freshness,
        )
        return Reply(data=data, seq=snapshot.seq, freshness=freshness)
