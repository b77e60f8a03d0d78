"""chunk.map: place chunks in a plane by their meaning."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kbproc.base.params import ReadParams
from kbproc.knowledge.documents.selection import Kbs, kbs_of
from kbproc.knowledge.search.places import ChunkMap, chunk_map
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Example, method
from kbproc.methods.calls.reply import Reply


class MapChunks(ReadParams, kw_only=True, frozen=True):
    kb: Annotated[Kbs, Meta(description="knowledge base, or several; all if left out")] | None = (
        None
    )
    query: (
        Annotated[str, Meta(min_length=1, max_length=2000, description="a text to place, too")]
        | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=20_000, description="most chunks, an even sample")] = 5000


@method(
    "chunk.map",
    params=MapChunks,
    result=ChunkMap,
    summary="Place chunks in a plane by their meaning.",
    when_to_use="To draw a map of a store for a person: near points mean alike. The axes are the "
    "first two principal components, so most of the meaning is not in them.",
    errors=["resource.not_found", "model.unavailable"],
    examples=[
        Example(params={"kb": "nowhere"}, what="a knowledge base that does not exist", exit=5),
    ],
)
def map_chunks(call: Call, params: MapChunks) -> Reply:
    data, seq = chunk_map(call.store, kbs=kbs_of(params.kb), query=params.query, most=params.limit)
    return Reply(data=data, seq=seq, count=len(data.points))
