"""Searches the full-text index at one commit.

A text's raw score is the BM25 of its stems plus a quarter of the BM25 of its words, so that the
form in the query ranks before other forms of the word. A word counts less if it is only in the name
of the text's file, or in parts (base/text/forms.py). BM25 is tantivy's: k1 = 1.2, b = 0.75,
idf = ln(1 + (N − df + 0.5) / (df + 0.5)), in 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import fsum
from typing import Any

import tantivy
from msgspec import Struct
from msgspec.structs import replace
from tantivy import Occur

from kbproc.base.errors import KbprocError
from kbproc.base.text.query import Query
from kbproc.engine.projections.fulltext.query import FOREIGN, K1, B, Clauses
from kbproc.engine.projections.restriction import Restriction

_DAMAGE_ERRORS = (ValueError, LookupError)
_REBUILD_HINT = "Run kbproc index rebuild, which builds it again from the log."
_FEW_IDS = 1_000  # a filter of fewer ids is cheap for every query
_NO_RESTRICTION = Restriction()

_Ranked = tuple[float, int]  # −score, chunk id


class FullTextHits(Struct, frozen=True):
    """The best chunks, best first, ties by chunk id. `total` counts all matches, not only these."""

    chunk_ids: list[int]
    raw_scores: list[float]
    total: int


class TermMatch(Struct, frozen=True):
    """The part of a chunk's raw score for one form of one query word; the weights add up to it."""

    word: str
    form: str
    idf: float
    boost: float
    weight: float


class FullTextSnapshot:
    """The index at one commit. Threads may share it."""

    def __init__(self, schema: tantivy.Schema, searcher: tantivy.Searcher) -> None:
        self.schema = schema
        self.searcher = searcher
        self.clauses = Clauses(schema, searcher)

    @property
    def num_docs(self) -> int:
        return self.searcher.num_docs

    @property
    def dead_ratio(self) -> float:
        return 1 - self.num_docs / self.clauses.counted if self.clauses.counted else 0.0

    def is_whole(self, restriction: Restriction) -> bool:
        """Returns whether a restriction leaves no chunk out, as far as labels tell."""
        kbs, excluded = restriction.kbs, restriction.exclude
        return (
            restriction.documents is None
            and restriction.tags is None
            and not restriction.without
            and (excluded is None or not len(excluded))
            and (kbs is None or self.clauses.holds_only(kbs))
        )

    def chunk_ids(self) -> list[int]:
        """Returns the sorted ids of all chunks."""
        hits = self._search(tantivy.Query.all_query(), max(1, self.num_docs)).hits
        return sorted(self.column("chunk_id", hits))

    def _search(self, query: tantivy.Query, limit: int, *, count: bool = False) -> Any:
        return self._guarded(lambda: self.searcher.search(query, limit, count=count))

    def _guarded(self, call: Callable[[], Any]) -> Any:
        """Calls tantivy. Raises store.corrupt if tantivy fails or panics.

        It does so if a file of its index was damaged after it was opened.
        """
        try:
            return call()
        except BaseException as error:
            if type(error).__name__ != "PanicException" and not isinstance(error, _DAMAGE_ERRORS):
                raise
            message = "The full-text index is damaged."
            raise KbprocError("store.corrupt", message, hint=_REBUILD_HINT) from error

    def search(
        self, query: Query, limit: int, *, restriction: Restriction = _NO_RESTRICTION
    ) -> FullTextHits:
        """Returns the best chunks, with their raw BM25 and the exact total."""
        scored = self.clauses.scored(query)
        if scored is None:
            return FullTextHits([], [], 0)
        if self.should_sift(query, restriction):
            without_ids = replace(restriction, documents=None, exclude=None)
            within = self.clauses.within(scored, query, without_ids)
            ranked, total = self._search_and_sift(within, restriction)
        else:
            within = self.clauses.within(scored, query, restriction)
            ranked, total = self._search_ranked(within, max(1, limit))
        best = ranked[:limit]
        return FullTextHits([id for _, id in best], [-score for score, _ in best], total)

    def _search_ranked(self, query: tantivy.Query, limit: int) -> tuple[list[_Ranked], int]:
        """Returns the best chunks in order, and the total.

        More than `limit` chunks are returned if equal scores straddle the end.
        """
        fetch_count = limit + 16
        while True:
            answer = self._search(query, fetch_count, count=True)
            hits: Any = answer.hits
            if len(hits) < fetch_count or hits[-1][0] < hits[limit - 1][0]:
                break
            fetch_count *= 4
        return self._sorted_hits(hits), answer.count

    def should_sift(self, query: Query, restriction: Restriction) -> bool:
        """Returns whether to fetch every match and drop hidden ones, instead of filtering.

        An id in a filter costs as much as a fetched match, about 0.4 µs, so the smaller number
        decides. Both give the same hits, scores and total.
        """
        documents = None if restriction.tags is not None else restriction.documents
        ids = sum(len(a) for a in (documents, restriction.exclude) if a is not None)
        if ids < _FEW_IDS:
            return False
        most = sum(
            self.clauses.frequency(term.field, term.word)
            for term in self.clauses.terms(query)
            if term.field not in ("word", "head")
        )
        return min(most, self.clauses.counted) < ids

    def _search_and_sift(
        self, query: tantivy.Query, restriction: Restriction
    ) -> tuple[list[_Ranked], int]:
        import numpy as np  # here, because the import takes longer than most searches

        hits: Any = self._search(query, max(1, self.num_docs)).hits
        documents = np.array(self.column("document_id", hits), dtype=np.int64)
        is_visible = np.ones(len(documents), dtype=bool)
        if restriction.documents is not None:
            is_visible &= np.isin(documents, restriction.documents)
        if restriction.exclude is not None:
            is_visible &= np.isin(documents, restriction.exclude, invert=True)
        visible_hits = [hits[i] for i in np.flatnonzero(is_visible)]
        return self._sorted_hits(visible_hits), len(visible_hits)

    def scores(self, query: Query, chunk_ids: Sequence[int]) -> dict[int, float]:
        """Returns the raw BM25 of those `chunk_ids` that match, equal to the bit to `search`'s."""
        scored = self.clauses.scored(query)
        if scored is None or not chunk_ids:
            return {}
        within = self.clauses.within(scored, query, _NO_RESTRICTION, chunk_ids)
        return self._scores_of(within, len(chunk_ids))

    def count_foreign(self, stem: str) -> int:
        """Returns how many chunks hold the stem among those in another language than English."""
        terms = [("stem", stem), ("any", FOREIGN)]
        clauses = [
            (Occur.Must, tantivy.Query.term_query(self.schema, *term, "basic")) for term in terms
        ]
        return int(self._search(tantivy.Query.boolean_query(clauses), 1, count=True).count)

    def permitted(self, query: Query, chunk_ids: Sequence[int]) -> set[int]:
        """Returns those `chunk_ids` that hold every phrase and no excluded words.

        The query's other words need not match: the candidates come from another channel.
        """
        if not chunk_ids or not (query.phrases or query.excluded):
            return set(chunk_ids)
        clauses = [(Occur.Must, self.clauses.among("chunk_id", chunk_ids))]
        clauses += [(Occur.Must, self.clauses.phrase(phrase)) for phrase in query.phrases]
        clauses += [(Occur.MustNot, self.clauses.phrase(words)) for words in query.excluded]
        return set(self._scores_of(tantivy.Query.boolean_query(clauses), len(chunk_ids)))

    def bound(self, query: Query) -> float:
        """Returns the BM25 that no text can exceed: Σ most·idf·(k1+1) over all words and forms.

        Words that no chunk holds count, too. The bound is 0 for a query without words.
        """
        return fsum(t.most * self.clauses.idf(t) * (K1 + 1) for t in self.clauses.terms(query))

    def share_of_most(self, count: int, length: float) -> float:
        """Returns the share of a word's greatest BM25 that a text reaches.

        The text holds the word `count` times; `length` is its length relative to the average.
        """
        return count / (count + K1 * (1 - B + B * length))

    def explain(self, query: Query, chunk_ids: Sequence[int]) -> dict[int, list[TermMatch]]:
        """Returns the matching words of each chunk, heaviest first."""
        matches: dict[int, list[TermMatch]] = {id: [] for id in chunk_ids}
        for term in self.clauses.terms(query):
            idf = self.clauses.idf(term)
            one_term = tantivy.Query.boolean_query(
                [
                    (Occur.Must, self.clauses.term(term)),
                    (Occur.Must, self.clauses.among("chunk_id", chunk_ids)),
                ]
            )
            for id, weight in self._scores_of(one_term, max(1, len(chunk_ids))).items():
                matches[id].append(TermMatch(term.word, term.field, idf, term.boost, weight))
        for term_matches in matches.values():
            term_matches.sort(key=lambda match: (-match.weight, match.word))
        return matches

    def column(self, field: str, hits: Iterable[Any]) -> list[int]:
        return self.searcher.fast_field_values(field, [hit[1] for hit in hits])  # type: ignore

    def _scores_of(self, query: tantivy.Query, most: int) -> dict[int, float]:
        hits = self._search(query, most).hits
        return dict(zip(self.column("chunk_id", hits), (hit[0] for hit in hits), strict=True))

    def _sorted_hits(self, hits: Sequence[Any]) -> list[_Ranked]:
        ids = self.column("chunk_id", hits)
        return sorted([(-score, id) for (score, _), id in zip(hits, ids, strict=True)])
