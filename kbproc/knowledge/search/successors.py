"""Finds entries that answer for the ones they superseded.

A search leaves superseded entries out. Where one of them holds more of the query than any text that
holds now, the question is about what it said, and the entry at the end of its chain answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from kbproc.base.text.query import Query
from kbproc.engine.projections.catalog.filters import DocumentFilter, kb_of, superseded_labels
from kbproc.engine.projections.catalog.rows import HitRow
from kbproc.engine.projections.restriction import Restriction
from kbproc.engine.store.snapshot import Snapshot
from kbproc.knowledge.search.candidates import restriction_of
from kbproc.knowledge.search.fusion import Fused, Ranked, ordered

MOST = 3  # chunks of superseded entries that are looked at


def superseded_only(snapshot: Snapshot, filter: DocumentFilter) -> Restriction | None:
    """Returns the restriction to superseded entries; None where there are none to search.

    Other conditions than those of labels are about the entry that answers, so none is looked for.
    """
    roster = snapshot.published.roster
    if filter != filter.by_label:
        return None
    if snapshot.sight is not None and not snapshot.sight.entries:
        return None
    labels = restriction_of(snapshot, replace(filter, hide_superseded=False)).kbs
    visible = roster.superseded if labels is None else set(map(kb_of, labels))
    kbs = [kb for kb in roster.superseded if kb in visible]
    return Restriction(kbs=superseded_labels(kbs)) if kbs else None


def answering(
    snapshot: Snapshot,
    query: Query,
    ranked: Ranked,
    scores: Mapping[int, Fused],
    rows: Callable[[Iterable[int]], dict[int, HitRow]],
) -> dict[int, int]:
    """Returns superseded chunk → the chunk that answers for it, of the entry that holds now.

    `scores`: of superseded chunks. Only those count that are better than every hit, and hold a word
    of the query that the best hit lacks; of one chain the best. `rows`: the visible rows of chunks.
    """
    best = ranked[0][1].score if ranked else 0.0
    better = [id for id, fused in ordered(scores) if fused.score > best]
    if better and ranked:
        present = _words(snapshot, query, ranked[0][0])
        better = [id for id in better if not _words(snapshot, query, id) <= present]
    answers: dict[int, int] = {}
    for id, row in rows(better).items() if better else ():
        chunk_id = None if row.head is None else _best(snapshot, query, row.head)
        if chunk_id is not None and chunk_id not in answers.values():
            answers[id] = chunk_id
    return answers


def _words(snapshot: Snapshot, query: Query, chunk_id: int) -> set[str]:
    """Returns the words of the query that a chunk holds."""
    return {term.word for term in snapshot.fulltext.explain(query, [chunk_id])[chunk_id]}


def _best(snapshot: Snapshot, query: Query, document_id: int) -> int | None:
    """Returns the chunk that holds most of the query, else the first one."""
    import numpy as np  # not above, because this package is light to import

    within = Restriction(documents=np.array([document_id], np.int64))
    if best := snapshot.fulltext.search(query, 1, restriction=within).chunk_ids:
        return best[0]
    rows = snapshot.queries.first_index_rows([document_id])
    return rows[0].chunk_id if rows else None
