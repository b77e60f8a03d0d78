"""A hit as it is shown.

Owns: the structs of a search's result, and how a score is explained.
Refuses to know: how hits are found and scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.values import Percent, Share
from kbproc.models.calibration import AS_IT_IS, Scale
from kbproc.models.fluency import Fluency
from kbproc.search import fusion
from kbproc.search.candidates import Candidate
from kbproc.search.confidence import Confidence, Evidence
from kbproc.search.rereading import Judged
from kbproc.search.stress import Stress
from kbproc.search.support import Support
from kbproc.search.times import Told
from kbproc.text.passage import Mark, Passage, passage
from kbproc.text.snippet import Snippet
from kbproc.views.catalog.rows import IndexRow, marks_of


class HitSource(Struct, kw_only=True, frozen=True):
    """Where a hit stands. `chunk_index` counts from 0.

    Pages, section and lines are those of the passage in the chunk that answers best, or
    of the whole chunk where no word of it matches; lines where the source is text.
    `cite`: the source as it can be cited.
    """

    document_id: int
    title: str
    path: str | None
    type: str
    page: int | None
    section: str | None
    chunk_index: int
    total_chunks: int
    tags: list[str]
    kb: str
    page_end: int | None
    start_line: int | None
    end_line: int | None
    cite: str


class Breakdown(Struct, kw_only=True, frozen=True):
    """What each channel gave to the score; null where it takes no part.

    `rerank`: the whole score of a hit that the cross-encoder has judged.
    """

    fts: Share | None
    vector: Share | None
    rerank: Share | msgspec.UnsetType = msgspec.UNSET


class Hit(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """`highlights`: character offsets into `snippet`. `explain` only on request.

    `head`: of an entry that is superseded, the one that holds now. `repeated_by`: with `distinct`,
    the chunks that were left out because they say nearly the same, by id.
    """

    chunk_id: int
    score: Share
    score_breakdown: Breakdown
    text: str
    snippet: str
    highlights: list[tuple[int, int]]
    source: HitSource
    confidence: Percent | None
    expires_at: str | None
    superseded_by: int | None
    head: int | msgspec.UnsetType = msgspec.UNSET
    repeated_by: list[int] | msgspec.UnsetType = msgspec.UNSET
    explain: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Results(Struct, kw_only=True, frozen=True):
    """`confidence`: whether the store knows an answer, by the chance that the best hit is one."""

    query: str
    results: list[Hit]
    total_matches: int
    total_is_exact: bool
    returned: int
    confidence: Confidence


def hit_of(
    id: int,
    fused: fusion.Fused,
    row: IndexRow,
    short: Snippet,
    *,
    judged: bool,
    head: int | None,
    repeated: list[int] | None,
    explain: dict[str, Any] | msgspec.UnsetType,
) -> Hit:
    return Hit(
        chunk_id=id,
        score=fused.score,
        score_breakdown=Breakdown(
            fts=fused.fts,
            vector=fused.vector,
            rerank=fused.score if judged else msgspec.UNSET,
        ),
        text=row.text,
        snippet=short.text,
        highlights=short.highlights,
        source=_source_of(row, short),
        confidence=row.confidence,
        expires_at=row.expires_at,
        superseded_by=row.superseded_by,
        head=head or msgspec.UNSET,
        repeated_by=repeated or msgspec.UNSET,
        explain=explain,
    )


def _source_of(row: IndexRow, short: Snippet) -> HitSource:
    marks = marks_of(row.marks) or [Mark(0, row.page, row.section)]
    where = passage(marks, row.text, *(short.best or (0, len(row.text))))
    section = where.section if short.best else row.section
    return HitSource(
        document_id=row.document_id,
        title=row.title,
        path=row.path or row.url,
        type=row.type,
        page=where.page,
        section=section,
        chunk_index=row.idx,
        total_chunks=row.chunk_count,
        tags=list(row.tags),
        kb=row.kb,
        page_end=where.page_end,
        start_line=where.start_line,
        end_line=where.end_line,
        cite=_cite(row, where, section),
    )


def _cite(row: IndexRow, where: Passage, section: str | None) -> str:
    """The title, and what helps most to find the passage: a page, else a section, else lines
    of the file.
    """
    parts = [row.title]
    if row.type == "knowledge":
        return row.title
    if where.page is not None:
        parts.append(_range("p. ", "pp. ", where.page, where.page_end))
    elif section is not None:
        parts.append(f"§ {section}")
    if row.path and where.start_line is not None and (len(parts) == 1 or row.type == "code"):
        parts.append(_range("line ", "lines ", where.start_line, where.end_line))
    return ", ".join(parts)


def _range(one: str, many: str, first: int, last: int | None) -> str:
    return f"{one}{first}" if last in (None, first) else f"{many}{first}–{last}"


def explanation(
    candidate: Candidate,
    terms: Sequence[Any],
    *,
    bound: float,
    weights: fusion.Weights,
    fluency: Fluency,
    scale: Scale,
    stress: Stress | None,
    time: Told | None,
    evidence: Evidence,
    support: Support | None,
    by_rank: bool,
    judged: Judged | None,
    sees_all: bool,
) -> dict[str, Any]:
    """How the score came about.

    `sees_all` False: how rare a word is would say what else is there, so it is left out.
    """
    formula = (
        {"fusion": "rrf", "k": fusion.RRF_K}
        if by_rank
        else {
            "fusion": "blend" if judged is None else "rerank",
            "fts_weight": weights.fts,
            "vector_weight": weights.vector,
        }
    )
    words = [
        term._asdict() if sees_all else {"word": term.word, "form": term.form} for term in terms
    ]
    shown = evidence if sees_all else msgspec.structs.replace(evidence, chunks=None)
    factors = {
        "rerank": judged,
        "stress": stress,
        "time": time,
        "evidence": shown,
        "support": support,
    }
    return {
        "fts": {
            "rank": candidate.fts_rank,
            "bm25": candidate.bm25,
            **({"bound": bound} if sees_all else {}),
            "terms": words,
        },
        "vector": {
            "rank": candidate.vector_rank,
            "cosine": candidate.cosine,
            "fluency": msgspec.to_builtins(fluency),
            **({} if scale == AS_IT_IS else {"scale": msgspec.to_builtins(scale)}),
        },
        "formula": formula,
        **{name: msgspec.to_builtins(factor) for name, factor in factors.items() if factor},
    }
