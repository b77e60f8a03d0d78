"""What a search says beside its hits: why there is none, what a low score means, and what
was left out.

Owns: the sentences for `meta.hint`.
Refuses to know: how candidates are found and scored, and how the query was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from kbproc.base.wording import plural
from kbproc.search import fusion
from kbproc.search.candidates import Pool, everything
from kbproc.search.params import Search
from kbproc.search.reading import quoted
from kbproc.search.vocabulary import Vocabulary
from kbproc.store.snapshot import Snapshot
from kbproc.text.query import Query
from kbproc.views.catalog.filters import DocumentFilter

if TYPE_CHECKING:
    from kbproc.search.confidence import Evidence
    from kbproc.search.hits import Results

_INCLUDE = "include_superseded and include_expired show them."


class Asked(Struct, frozen=True):
    """A search that was run. `mode` is the one that could be served."""

    snapshot: Snapshot
    params: Search
    query: Query
    mode: fusion.Mode
    filter: DocumentFilter

    def remark(self, results: Results, best: Evidence) -> str | None:
        """What to know of the hits; None: nothing."""
        return " ".join(self._remarks(results, best)) or None

    def _remarks(self, results: Results, best: Evidence) -> Iterator[str]:
        if results.confidence != "likely":
            yield _LOW[results.confidence].format(best.chance)
            if unknown := self._unknown():
                yield f"No chunk holds {unknown}."
        if self.query.excluded:
            yield f"Chunks with {', '.join(map(quoted, self.query.excluded))} are left out."

    def why_nothing(self, pool: Pool) -> str:
        """One sentence that says what to change."""
        params = self.params
        if not _chunks(self.snapshot):
            if params.types == ["knowledge"]:
                return "No entry is there yet: store one with knowledge.store."
            return "The store is empty: add documents with doc.ingest or doc.create."
        greatest = _greatest_score(params.fusion, self.mode)
        if params.min_score is not None and params.min_score > greatest:
            return (
                f"min_score {params.min_score:g} is above {greatest:g}, "
                f"the greatest score of {params.fusion}."
            )
        if pool.total and params.narrows:
            return f"{pool.total} candidates were left out by min_score or min_similarity."
        if pool.total and not params.offset:
            return f"Only words that nearly all chunks hold were found, not {self._unknown()}."
        if pool.total:
            matches = plural(pool.total, "match", "matches")
            return f"offset {params.offset} is beyond the last of {matches}."
        if self.query.reason:
            return self.query.reason
        return self._why_no_candidate()

    def _why_no_candidate(self) -> str:
        snapshot, filter = self.snapshot, self.filter
        if not filter.is_open and not snapshot.queries.count(filter):
            what = "entry" if filter.types == ["knowledge"] else "document"
            return f"No {what} matches the filters; leave some out."
        seen = everything(snapshot)
        matches = snapshot.fulltext.search(self.query, 1, restriction=seen).total
        if matches and filter.is_open:
            found = _all(matches, "match", "matches")
            return f"The entries that hold {found} are superseded or have expired; " + _INCLUDE
        if matches:
            return f"The filters removed {_all(matches, 'match', 'matches')}; leave some out."
        if unknown := self._unknown():
            return f"No chunk holds {unknown}; try other words."
        return self._why_none_is_left()

    def _why_none_is_left(self) -> str:
        """Every word is known: a phrase binds, or a dash leaves out all that matches."""
        phrases = " and ".join(map(quoted, self.query.phrases))
        without = " or ".join(map(quoted, self.query.excluded))
        if phrases and without:
            return f"No chunk holds the phrase {phrases} without {without}, which is left out."
        if without:
            return f"All that matches holds {without}, which the query leaves out."
        return f"No chunk holds the phrase {phrases}."

    def _unknown(self) -> str:
        """The query's words that stand in no chunk that may be seen."""
        seen = everything(self.snapshot)
        return ", ".join(Vocabulary(self.snapshot.fulltext, seen).unknown(self.query))


_LOW = {
    "none": "The store seems to know nothing of it: the best hit answers with a chance of {:.0%}.",
    "related": "The best hit is related, but perhaps no answer: the chance is {:.0%}.",
}


def _chunks(snapshot: Snapshot) -> int:
    return snapshot.queries.chunk_total()


def _all(count: int, one: str, many: str | None = None) -> str:
    return f"the one {one}" if count == 1 else f"all {plural(count, one, many)}"


def _greatest_score(kind: str, mode: str) -> float:
    if kind != "rrf":
        return 1.0
    channels = 2 if mode == "hybrid" else 1
    return round(channels / (fusion.RRF_K + 1), fusion.PLACES)
