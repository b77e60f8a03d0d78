"""Ranks the best hits of a blend anew with a cross-encoder, which reads them with the query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.engine.models.reranking.reranker import Reranker
from kbproc.engine.projections.catalog.rows import HitRow
from kbproc.knowledge.search import fusion
from kbproc.knowledge.search.fusion import Ranked


class Judgement(Struct, frozen=True, kw_only=True):
    """The cross-encoder's judgement of a hit.

    `rank`, `score`: those of the blend, among the `candidates` that `model` has read. `value`: the
    cross-encoder's score, before a factor for the hit's time.
    """

    model: str | None
    candidates: int
    rank: int
    score: float
    value: float


def require(reranker: Reranker) -> None:
    """Raises model.unavailable if no usable cross-encoder is configured."""
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
    rows: Mapping[int, HitRow],
    factor: Callable[[int], float],
) -> tuple[Ranked, dict[int, Judgement]]:
    """Returns the hits in the order of their new scores, and the judgement of each.

    `factor`: returns the factor for a chunk's score. Raises model.unavailable.
    """
    values = reranker.judge(query, _texts(rows[id] for id, _ in blended))
    judgements = _judgements(reranker, blended, values)
    scores = {
        id: fusion.Fused(round(judgement.value * factor(id), fusion.PLACES), None, None)
        for id, judgement in judgements.items()
    }
    return fusion.ordered(scores), judgements


def reorder(
    reranker: Reranker,
    query: str,
    blended: Ranked,
    rows: Mapping[int, HitRow],
    factor: Callable[[int], float],
) -> tuple[Ranked, dict[int, Judgement]]:
    """Returns the hits with those first that the cross-encoder could read in its budget of time.

    These stand in the order of its scores; scores stay those of the blend. Raises
    model.unavailable.
    """
    texts = list(_texts(rows[id] for id, _ in blended))
    values = reranker.judge_within(query, texts, reranker.budget_s or 0.0)
    read, rest = blended[: len(values)], blended[len(values) :]
    judgements = _judgements(reranker, read, values)
    first = sorted(read, key=lambda hit: -judgements[hit[0]].value * factor(hit[0]))
    return [*first, *rest], judgements


def _judgements(reranker: Reranker, hits: Ranked, values: Sequence[float]) -> dict[int, Judgement]:
    """Returns the judgement of each hit. `values`: what the cross-encoder said of each."""
    return {
        id: Judgement(
            model=reranker.name,
            candidates=len(hits),
            rank=rank,
            score=before.score,
            value=round(value, fusion.PLACES),
        )
        for rank, ((id, before), value) in enumerate(zip(hits, values, strict=True), 1)
    }


def _texts(rows: Iterable[HitRow]) -> list[str]:
    """Returns title, section and text of each row, in the form that embedding models get."""
    from kbproc.engine.sources.chunk import embed_text  # here, because few searches need the module

    return [embed_text(row.title, row.section, row.text) for row in rows]
