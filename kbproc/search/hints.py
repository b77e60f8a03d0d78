"""Why a search has found nothing.

Owns: the sentence for `meta.hint`.
Refuses to know: how candidates are found and scored.
"""

from __future__ import annotations

from kbproc.base.wording import plural
from kbproc.search import fusion
from kbproc.search.candidates import Pool, restriction_of
from kbproc.search.params import Search
from kbproc.store.snapshot import Snapshot
from kbproc.text.analysis import Query
from kbproc.views.catalog.filters import DocumentFilter

_INCLUDE = "include_superseded and include_expired show them."


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
    if not _chunks(snapshot):
        if params.types == ["knowledge"]:
            return "No entry is there yet: store one with knowledge.store."
        return "The store is empty: add documents with doc.ingest or doc.create."
    greatest = _greatest_score(params.fusion, mode)
    if params.min_score is not None and params.min_score > greatest:
        return (
            f"min_score {params.min_score:g} is above {greatest:g}, "
            f"the greatest score of {params.fusion}."
        )
    if pool.total and params.narrows:
        return f"{pool.total} candidates were left out by min_score or min_similarity."
    if pool.total:
        matches = plural(pool.total, "match", "matches")
        return f"offset {params.offset} is beyond the last of {matches}."
    if query.reason and mode == "fts":
        return query.reason
    if mode == "none":
        return notice[0]
    return _why_no_candidate(snapshot, query, filter)


def _chunks(snapshot: Snapshot) -> int:
    if snapshot.sight is None:
        return snapshot.published.chunks
    return snapshot.queries.chunk_total()


def _all(count: int, one: str, many: str | None = None) -> str:
    return f"the one {one}" if count == 1 else f"all {plural(count, one, many)}"


def _greatest_score(kind: str, mode: str) -> float:
    if kind == "blend":
        return 1.0
    channels = 2 if mode == "hybrid" else 1
    return round(channels / (fusion.RRF_K + 1), fusion.PLACES)


def _why_no_candidate(snapshot: Snapshot, query: Query, filter: DocumentFilter) -> str:
    if not filter.is_open and not snapshot.queries.count(filter):
        what = "entry" if filter.types == ["knowledge"] else "document"
        return f"No {what} matches the filters; leave some out."

    everything = restriction_of(snapshot, DocumentFilter())
    matches = snapshot.fulltext.search(query, 1, restriction=everything).total
    if matches and filter.is_open:
        found = _all(matches, "match", "matches")
        return f"The entries that hold {found} are superseded or have expired; " + _INCLUDE
    if matches:
        return f"The filters removed {_all(matches, 'match', 'matches')}; leave some out."
    if snapshot.sight is None and (unknown := snapshot.fulltext.unknown_words(query)):
        return f"No chunk holds {', '.join(unknown)}; try other words."
    return "No chunk matches; try fewer phrases and excluded words."
