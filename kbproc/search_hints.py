"""Why a search has found nothing.

Owns: the sentence for `meta.hint`.
Refuses to know: how candidates are found and scored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbproc import fusion
from kbproc.words import plural

if TYPE_CHECKING:
    from kbproc.candidates import Pool
    from kbproc.search import Search
    from kbproc.snapshot import Snapshot
    from kbproc.text import Query
    from kbproc.views.filters import DocumentFilter


def why_nothing(
    snapshot: Snapshot,
    params: Search,
    query: Query,
    *,
    mode: str,
    filter: DocumentFilter,
    pool: Pool,
    notice: list[str],
) -> str:
    """One sentence that says what to change. `mode` is the one that could be served."""
    if not snapshot.published.chunks:
        return "The store is empty: add documents with doc.ingest or doc.create."
    greatest = _greatest_score(params.fusion, mode)
    if params.min_score is not None and params.min_score > greatest:
        return (
            f"min_score {params.min_score:g} is above {greatest:g}, "
            f"the greatest score of {params.fusion}."
        )
    if pool.total and params.narrows:
        return (
            f"{pool.total} candidates were left out by min_score, min_similarity or min_confidence."
        )
    if pool.total:
        matches = plural(pool.total, "match", "matches")
        return f"offset {params.offset} is beyond the last of {matches}."
    if query.reason and mode == "fts":
        return query.reason
    if mode == "none":
        return notice[0]
    return _why_no_candidate(snapshot, query, filter)


def _all(count: int, one: str, many: str | None = None) -> str:
    return f"the one {one}" if count == 1 else f"all {plural(count, one, many)}"


def _greatest_score(kind: str, mode: str) -> float:
    if kind == "blend":
        return 1.0
    channels = 2 if mode == "hybrid" else 1
    return round(channels / (fusion.RRF_K + 1), fusion.PLACES)


def _why_no_candidate(snapshot: Snapshot, query: Query, filter: DocumentFilter) -> str:
    if not filter.is_open:
        if not snapshot.queries.count(filter):
            return "No document matches the filters; leave some out."
        hits = snapshot.fulltext.search(query, 1)
        if hits.total:
            return f"The filters removed {_all(hits.total, 'match', 'matches')}; leave some out."
    unknown = snapshot.fulltext.unknown_words(query)
    if unknown:
        return f"No chunk holds {', '.join(unknown)}; try other words."
    return "No chunk matches; try fewer phrases and excluded words."
