"""The best hits of a blend, read once more by a cross-encoder together with the query.

Owns: what it reads of a chunk, and the new scores and order.
Refuses to know: how candidates are found and blended, and how a cross-encoder works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.models.reranking.interface import Reranker
from kbproc.search import fusion
from kbproc.views.catalog.rows import IndexRow

Ranked = list[tuple[int, fusion.Fused]]


class Judged(Struct, frozen=True, kw_only=True):
    """How a hit stood before: `rank` and `score` among the `candidates` that `model` has read.

    `value`: its judgement before words that say when count.
    """

    model: str | None
    candidates: int
    rank: int
    score: float
    value: float


def require(reranker: Reranker) -> None:
    """Raises model.unavailable where no cross-encoder can be used as it is configured."""
    if (problem := reranker.problem) is not None:
        raise KbprocError(
            "model.unavailable",
            problem.message,
            field="$.params.fusion",
            hint=problem.hint,
            lasting=True,
        )


def reread(
    reranker: Reranker,
    query: str,
    blended: Ranked,
    rows: Mapping[int, IndexRow],
    factor: Callable[[int], float],
) -> tuple[Ranked, dict[int, Judged]]:
    """The hits in the order of their new scores, and how each stood before.

    `factor`: what a score is multiplied by. Raises model.unavailable.
    """
    values = reranker.judge(query, _texts(rows[id] for id, _ in blended))
    judged = {
        id: Judged(
            model=reranker.name,
            candidates=len(blended),
            rank=rank,
            score=before.score,
            value=round(value, fusion.PLACES),
        )
        for rank, ((id, before), value) in enumerate(zip(blended, values, strict=True), 1)
    }
    scores = {
        id: fusion.Fused(round(one.value * factor(id), fusion.PLACES), None, None)
        for id, one in judged.items()
    }
    return fusion.ordered(scores), judged


def _texts(rows: Iterable[IndexRow]) -> list[str]:
    """Title, section and text of each, as an embedding model gets them."""
    from kbproc.sources.chunk import embed_text  # which cuts texts, too

    return [embed_text(row.title, row.section, row.text) for row in rows]
