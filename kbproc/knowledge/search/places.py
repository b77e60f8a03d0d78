"""Makes the map of a store: its chunks as points, near where they mean alike."""

from __future__ import annotations

from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.engine.projections.catalog.filters import DocumentFilter, kb_of
from kbproc.engine.store.state import State
from kbproc.knowledge.documents.lookup import require_kbs
from kbproc.knowledge.search.candidates import restriction_of

_DIGITS = 3  # a screen has about a thousand points on a side


class MapPlace(Struct, kw_only=True, frozen=True):
    """A place on the map: both coordinates are in [−1, 1], those of a query may lie beyond."""

    x: float
    y: float


class MapPoint(Struct, kw_only=True, frozen=True):
    """A chunk on the map. `kb`: index of its knowledge base in `kbs`."""

    chunk_id: int
    document_id: int
    kb: int
    x: float
    y: float


class ChunkMap(Struct, kw_only=True, frozen=True):
    """An even sample of the `total` chunks with a vector, and the place of the query."""

    total: int
    kbs: list[str]
    points: list[MapPoint]
    query: MapPlace | None


def chunk_map(
    state: State, *, kbs: list[str] | None, query: str | None, most: int
) -> tuple[ChunkMap, int]:
    """Returns the map and its position. Raises resource.not_found, model.unavailable."""
    state.open_vectors()
    with state.reading() as snapshot:
        embedding, index = snapshot.model, snapshot.vectors
        require_kbs(snapshot.kbs, kbs)
        restriction = restriction_of(snapshot, DocumentFilter(kbs=kbs), indexed=False)
        seq = snapshot.seq
    vector, reason = (None, None) if query is None else embedding.query_vector(query)
    if index is None or (query is not None and vector is None):
        raise KbprocError(
            "model.unavailable",
            f"There is no map without vectors. {reason or 'No chunk is embedded yet.'}",
            hint="Run kbproc doctor: it checks the model.",
        )
    from kbproc.engine.projections.vectors.plane import plane  # numpy is loaded by now

    drawn = plane(index, most, restriction)
    names = {code: kb_of(label) for label, code in index.kb_codes.items()}
    labels = [names[code] for code in drawn.labels.tolist()]
    present = sorted(set(labels))
    numbers = {name: number for number, name in enumerate(present)}
    places = drawn.places.round(_DIGITS) + 0.0  # a plain 0 in place of −0
    columns = zip(
        drawn.chunks.tolist(), drawn.documents.tolist(), labels, places.tolist(), strict=True
    )
    points = [
        MapPoint(chunk_id=chunk, document_id=document, kb=numbers[label], x=x, y=y)
        for chunk, document, label, (x, y) in columns
    ]
    star = None
    if vector is not None:
        x, y = (drawn.place(vector).round(_DIGITS) + 0.0).tolist()
        star = MapPlace(x=x, y=y)
    return ChunkMap(total=drawn.total, kbs=present, points=points, query=star), seq
