"""Searching the full-text index at one commit.

Owns: hits and their order, the score's terms and its bound.
Refuses to know: how the index is written, and what the score is blended with.

A text's raw score is the BM25 of its stems plus a quarter of that of its words, so the
form that was asked for comes before its relatives. A word that stands only in the name of a text's
file, or in parts, counts less (text/forms.py). BM25 is tantivy's: k1 = 1.2,
b = 0.75, idf = ln(1 + (N − df + 0.5) / (df + 0.5)), in 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tantivy
from msgspec import DecodeError
from tantivy import Occur

from kbproc.base.errors import KbprocError
from kbproc.base.values import packed_decoder
from kbproc.text.query import Query
from kbproc.views.catalog.rows import IndexRow
from kbproc.views.fulltext.query import FOREIGN, K1, Clauses, note_mark
from kbproc.views.restriction import Restriction

_decode = packed_decoder(IndexRow).decode

_ROTTED = (ValueError, LookupError, DecodeError)
_HOW = "Run kbproc index rebuild: it is made again from the log."
_FEW_IDS = 1_000  # a filter of fewer is cheap whatever the query
_NO_RESTRICTION = Restriction()

Places = Mapping[int, tantivy.DocAddress]  # where the index keeps a chunk, by its id
_NOWHERE: Places = {}
_Ranked = tuple[float, int, tantivy.DocAddress]  # −score, chunk id, place


class FullTextHits(NamedTuple):
    """Best first, ties by chunk id; `total` counts every match, not only these.

    `places`: for `rows` of the same snapshot.
    """

    chunk_ids: list[int]
    raw_scores: list[float]
    total: int
    places: Places


class TermMatch(NamedTuple):
    """What one form of one query word gave a chunk; the weights add up to its raw score."""

    word: str
    form: str
    idf: float
    boost: float
    weight: float


class FullTextSnapshot:
    """The index at one commit; threads may share it."""

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
            and not restriction.without
            and (excluded is None or not len(excluded))
            and (kbs is None or self.clauses.holds_only(kbs))
        )

    def chunk_ids(self) -> list[int]:
        """Every chunk's id, sorted."""
        hits = self._found(tantivy.Query.all_query(), max(1, self.num_docs)).hits
        return sorted(self.column("chunk_id", hits))

    def _found(self, query: tantivy.Query, most: int, *, count: bool = False) -> Any:
        return self._read(lambda: self.searcher.search(query, most, count=count))

    def _read(self, ask: Callable[[], Any]) -> Any:
        """tantivy fails, or panics, where a file of its index has rotted since it was opened."""
        try:
            return ask()
        except BaseException as error:
            if type(error).__name__ != "PanicException" and not isinstance(error, _ROTTED):
                raise
            why = "The full-text index is damaged."
            raise KbprocError("store.corrupt", why, hint=_HOW) from error

    def search(
        self, query: Query, limit: int, *, restriction: Restriction = _NO_RESTRICTION
    ) -> FullTextHits:
        """The best chunks, with their raw BM25 and the exact total."""
        scored = self.clauses.scored(query)
        if scored is None:
            return FullTextHits([], [], 0, _NOWHERE)
        if self.should_sift(query, restriction):
            by_label = Restriction(kbs=restriction.kbs, without=restriction.without)
            within = self.clauses.within(scored, query, by_label)
            ranked, total = self._sifted(within, restriction)
        else:
            within = self.clauses.within(scored, query, restriction)
            ranked, total = self._ranked(within, max(1, limit))
        best = ranked[:limit]
        ids, scores = [id for _, id, _ in best], [-score for score, _, _ in best]
        return FullTextHits(ids, scores, total, {id: place for _, id, place in best})

    def _ranked(self, query: tantivy.Query, wanted: int) -> tuple[list[_Ranked], int]:
        """Sorted: more than `wanted` if equal scores straddle the end."""
        take = wanted + 16
        while True:
            found = self._found(query, take, count=True)
            hits: Any = found.hits
            if len(hits) < take or hits[-1][0] < hits[wanted - 1][0]:
                break
            take *= 4
        return _in_order(self, hits), found.count

    def should_sift(self, query: Query, restriction: Restriction) -> bool:
        """Whether to fetch every match and drop what may not be seen, rather than to filter.

        An id in a filter costs as much as a match to fetch, about 0.4 µs, so the
        fewer decide; both give the same hits, scores and total.
        """
        ids = sum(len(a) for a in (restriction.documents, restriction.exclude) if a is not None)
        if ids < _FEW_IDS:
            return False
        most = sum(
            self.clauses.frequency(term.field, term.word)
            for term in self.clauses.terms(query)
            if term.field not in ("word", "head")
        )
        return min(most, self.clauses.counted) < ids

    def _sifted(self, query: tantivy.Query, restriction: Restriction) -> tuple[list[_Ranked], int]:
        import numpy as np  # its import takes longer than most searches

        hits: Any = self._found(query, max(1, self.num_docs)).hits
        documents = np.array(self.column("document_id", hits), dtype=np.int64)
        seen = np.ones(len(documents), dtype=bool)
        if restriction.documents is not None:
            seen &= np.isin(documents, restriction.documents)
        if restriction.exclude is not None:
            seen &= np.isin(documents, restriction.exclude, invert=True)
        kept = [hits[i] for i in np.flatnonzero(seen)]
        return _in_order(self, kept), len(kept)

    def scores(self, query: Query, chunk_ids: Sequence[int]) -> dict[int, float]:
        """Raw BM25 of those of `chunk_ids` that match: to the bit what `search` gives them."""
        scored = self.clauses.scored(query)
        if scored is None or not chunk_ids:
            return {}
        within = self.clauses.within(scored, query, _NO_RESTRICTION, chunk_ids)
        return self._scores_of(within, len(chunk_ids))

    def rows(self, chunk_ids: Sequence[int], places: Places = _NOWHERE) -> dict[int, IndexRow]:
        """Those of the chunks that are there, as they were indexed.

        `places`: where some of them are kept; the others are looked for.
        """
        at = [places[id] for id in chunk_ids if id in places]
        if len(at) < len(chunk_ids):
            sought = [id for id in chunk_ids if id not in places]
            found = self._found(self.clauses.among("chunk_id", sought), len(sought))
            at += [place for _, place in found.hits]
        return {row.chunk_id: row for row in map(self._row, at)}

    def rows_of(self, document_id: int, most: int) -> list[IndexRow]:
        """Of a document, `most` of them, in order."""
        found = self._found(self.clauses.among("document_id", [document_id]), max(1, most))
        return sorted([self._row(place) for _, place in found.hits], key=lambda row: row.chunk_id)

    def note(self, kb: str, slug: str) -> IndexRow | None:
        """The first chunk of a note."""
        term = tantivy.Query.term_query(self.schema, "any", note_mark(kb, slug), "basic")
        hits = self._found(term, 1).hits
        return self._row(hits[0][1]) if hits else None

    def _row(self, place: tantivy.DocAddress) -> IndexRow:
        found: IndexRow = self._read(lambda: _decode(self.searcher.doc(place)["row"][0]))
        return found

    def count_foreign(self, stem: str) -> int:
        """Returns how many chunks hold the stem among those in another language than English."""
        terms = [("stem", stem), ("any", FOREIGN)]
        clauses = [
            (Occur.Must, tantivy.Query.term_query(self.schema, *term, "basic")) for term in terms
        ]
        return int(self._found(tantivy.Query.boolean_query(clauses), 1, count=True).count)

    def permitted(self, query: Query, chunk_ids: Sequence[int]) -> set[int]:
        """Those of `chunk_ids` that hold every phrase and nothing excluded, words or not.

        For candidates that another channel found.
        """
        if not chunk_ids or not (query.phrases or query.excluded):
            return set(chunk_ids)
        clauses = [(Occur.Must, self.clauses.among("chunk_id", chunk_ids))]
        clauses += [(Occur.Must, self.clauses.phrase(phrase)) for phrase in query.phrases]
        clauses += [(Occur.MustNot, self.clauses.phrase(words)) for words in query.excluded]
        return set(self._scores_of(tantivy.Query.boolean_query(clauses), len(chunk_ids)))

    def bound(self, query: Query) -> float:
        """The BM25 that no text can exceed: Σ most·idf·(k1+1) over all words and forms.

        Words that the index does not know count too. 0 if nothing is asked for.
        """
        return sum(t.most * self.clauses.idf(t) * (K1 + 1) for t in self.clauses.terms(query))

    def explain(self, query: Query, chunk_ids: Sequence[int]) -> dict[int, list[TermMatch]]:
        """For each chunk the words that matched, heaviest first."""
        matches: dict[int, list[TermMatch]] = {id: [] for id in chunk_ids}
        for term in self.clauses.terms(query):
            idf = self.clauses.idf(term)
            only = tantivy.Query.boolean_query(
                [
                    (Occur.Must, self.clauses.term(term)),
                    (Occur.Must, self.clauses.among("chunk_id", chunk_ids)),
                ]
            )
            for id, weight in self._scores_of(only, max(1, len(chunk_ids))).items():
                matches[id].append(TermMatch(term.word, term.field, idf, term.boost, weight))
        for found in matches.values():
            found.sort(key=lambda match: (-match.weight, match.word))
        return matches

    def column(self, field: str, hits: Iterable[Any]) -> list[int]:
        return self.searcher.fast_field_values(field, [hit[1] for hit in hits])  # type: ignore

    def _scores_of(self, query: tantivy.Query, most: int) -> dict[int, float]:
        hits = self._found(query, most).hits
        return dict(zip(self.column("chunk_id", hits), (hit[0] for hit in hits), strict=True))


def _in_order(snapshot: FullTextSnapshot, hits: Sequence[Any]) -> list[_Ranked]:
    ids = snapshot.column("chunk_id", hits)
    return sorted([(-score, id, place) for (score, place), id in zip(hits, ids, strict=True)])
