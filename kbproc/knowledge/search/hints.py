"""Writes the sentences of a search for `meta.hint`: why there are no hits, or what they mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from kbproc.base.text.query import Query
from kbproc.base.wording import plural
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.store.snapshot import Snapshot
from kbproc.knowledge.search import fusion
from kbproc.knowledge.search.candidates import CandidatePool, everything
from kbproc.knowledge.search.params import Search
from kbproc.knowledge.search.reading import Vocabulary, quoted

if TYPE_CHECKING:
    from kbproc.knowledge.search.hits import Results
    from kbproc.knowledge.search.probability import Evidence

_INCLUDE = "include_superseded and include_expired show them."


class SearchHints(Struct, frozen=True):
    """The hints for a search.

    `mode`: the mode that could be served. `is_complete` False: many passages lack their vectors, so
    that nothing is known of what they mean.
    """

    snapshot: Snapshot
    params: Search
    query: Query
    mode: fusion.Mode
    filter: DocumentFilter
    is_complete: bool = True

    def remark(self, results: Results, best: Evidence) -> str | None:
        """Returns remarks on the hits; None without any."""
        return " ".join(self._remarks(results, best)) or None

    def _remarks(self, results: Results, best: Evidence) -> Iterator[str]:
        if results.confidence != "likely":
            is_unknown = results.confidence == "none" and not self.is_complete
            yield _UNKNOWN if is_unknown else _LOW[results.confidence].format(_percent(best.chance))
            if unknown := self._unknown():
                yield f"No chunk contains: {unknown}."
        if self.query.excluded:
            yield f"Chunks with {', '.join(map(quoted, self.query.excluded))} are excluded."

    def why_nothing(self, pool: CandidatePool, ranked_count: int = 0) -> str:
        """Returns a sentence that says why there are no hits, or what to change.

        `ranked_count`: the number of hits before `about` left some out.
        """
        params = self.params
        if params.about and ranked_count and not pool.total:
            return (
                f"about left out {plural(ranked_count, 'hit')}: none is about what the query names."
            )
        if not _chunk_count(self.snapshot):
            if params.as_of is not None:
                return "The store held no texts at that time."
            if params.types == ["knowledge"]:
                return "There is no entry yet: store one with knowledge.store."
            return "The store is empty: add documents with doc.ingest or doc.create."
        greatest = _greatest_score(params.fusion, self.mode)
        if params.min_score is not None and params.min_score > greatest:
            return (
                f"min_score {params.min_score:g} is above {greatest:g}, "
                f"the greatest score of {params.fusion}."
            )
        if pool.total and params.narrows:
            return f"min_score or min_similarity excluded {plural(pool.total, 'candidate')}."
        if pool.total and not params.offset:
            return (
                f"Only words that nearly every chunk contains were found, not: {self._unknown()}."
            )
        if pool.total:
            matches = plural(pool.total, "match", "matches")
            return f"offset {params.offset} skips {matches}, which is all of them."
        if self.query.reason:
            return self.query.reason
        return self._why_no_candidate()

    def _why_no_candidate(self) -> str:
        snapshot, filter = self.snapshot, self.filter
        if not filter.is_open and not snapshot.queries.count(filter):
            noun = "entry" if filter.types == ["knowledge"] else "document"
            return f"No {noun} matches the filters: use fewer of them."
        restriction = everything(snapshot)
        matches = snapshot.fulltext.search(self.query, 1, restriction=restriction).total
        if matches and filter.is_open:
            matching = _all_of(matches, "match", "matches")
            return f"The entries with {matching} are superseded or expired: " + _INCLUDE
        if matches:
            return f"The filters exclude {_all_of(matches, 'match', 'matches')}: use fewer of them."
        if unknown := self._unknown():
            return f"No chunk contains: {unknown}. Try other words."
        return self._why_none_is_left()

    def _why_none_is_left(self) -> str:
        """Returns the reason if chunks hold every word: a phrase, or an exclusion."""
        phrases = " and ".join(map(quoted, self.query.phrases))
        without = " or ".join(map(quoted, self.query.excluded))
        if phrases and without:
            return (
                f"Every chunk with the phrase {phrases} also contains {without}, which is excluded."
            )
        if without:
            return f"Every match contains {without}, which the query excludes."
        return f"No chunk contains the phrase {phrases}."

    def _unknown(self) -> str:
        """Returns the query's words that no visible chunk holds."""
        restriction = everything(self.snapshot)
        return ", ".join(Vocabulary(self.snapshot.fulltext, restriction).unknown(self.query))


_SHOWN_AS_ZERO = 0.005  # the greatest that rounds to 0%
_LOW = {
    "none": "The store seems to know nothing about this: the best hit answers it with a chance of "
    "{}.",
    "related": "The best hit is related, but may not answer the question: the chance is {}.",
}
_UNKNOWN = (
    "No hit seems to answer this, but the store may: many passages can't be found by meaning yet. "
    "Ask again later, or in words that an answer would hold."
)


def _percent(chance: float) -> str:
    return f"{chance:.0%}" if chance > _SHOWN_AS_ZERO else "less than 1%"


def _chunk_count(snapshot: Snapshot) -> int:
    return snapshot.queries.chunk_total()


def _all_of(count: int, one: str, many: str | None = None) -> str:
    return f"the one {one}" if count == 1 else f"all {plural(count, one, many)}"


def _greatest_score(kind: str, mode: str) -> float:
    if kind != "rrf":
        return 1.0
    channels = 2 if mode == "hybrid" else 1
    return round(channels / (fusion.RRF_K + 1), fusion.PLACES)
