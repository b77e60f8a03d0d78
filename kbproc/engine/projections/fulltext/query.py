"""Turns a `Query` and a restriction into tantivy queries.

A restriction never changes a score.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache

import tantivy
from tantivy import Occur

from kbproc.base.text.forms import ENGLISH, Term, terms
from kbproc.base.text.query import Query
from kbproc.engine.projections.restriction import Restriction

# A set of terms walks the field's whole dictionary, so fewer ids than this are looked up singly.
_FEW = 500

_MOST_KNOWN = 10_000  # cached frequencies; a search asks for the same ones several times

K1, B = 1.2, 0.75  # tantivy's
# Values of the field `any`.
EVERY, FOREIGN = "1", "foreign"


class Clauses:
    """The tantivy queries for one commit of the index, and the frequencies that they need."""

    def __init__(self, schema: tantivy.Schema, searcher: tantivy.Searcher) -> None:
        self._schema = schema
        self._searcher = searcher
        # The terms of the latest query are cached, because one search asks for them often.
        self._latest: tuple[Query | None, list[Term]] = (None, [])
        # Takes (field, word); returns the number of chunks that hold it, deleted ones included.
        self.frequency = lru_cache(maxsize=_MOST_KNOWN)(searcher.doc_freq)

    @cached_property
    def counted(self) -> int:
        """The number of chunks that the statistics count, deleted ones included."""
        return self.frequency("any", EVERY)

    def scored(self, query: Query) -> tantivy.Query | None:
        """Returns the tantivy query that gives the score; None if no chunk can match."""
        clauses = [(Occur.Should, self.term(term)) for term in self.terms(query)]
        if not clauses:
            return None
        any_word = tantivy.Query.boolean_query(clauses)
        if not query.phrases:
            return any_word
        required = [(Occur.Must, _unscored(self.phrase(p))) for p in query.phrases]
        return tantivy.Query.boolean_query([*required, (Occur.Should, any_word)])

    def terms(self, query: Query) -> list[Term]:
        """Returns the terms that a query looks up."""
        latest, lookups = self._latest
        if latest is not query and latest != query:
            any_foreign = self.frequency("any", FOREIGN) > 0
            lookups = terms(
                query,
                any_foreign=any_foreign,
                is_in_foreign=self._is_in_foreign,
                frequency=self.frequency,
            )
            self._latest = (query, lookups)
        return lookups

    def is_foreign(self, query: Query) -> bool:
        """Returns whether a word of the query is looked up as one of another language."""
        return any(term.field == "head" and term.most >= 1 for term in self.terms(query))

    def _is_in_foreign(self, stem: str, head: str) -> bool:
        return self.frequency("head", head) >= max(1, self.frequency("stem", stem))

    @property
    def word_worth(self) -> float:
        """The greatest BM25 that a text could have for an English word that no text holds."""
        return sum(ENGLISH.values()) * math.log(1 + (self.counted + 0.5) / 0.5) * (K1 + 1)

    def idf(self, term: Term) -> float:
        """Returns how rare a term is; a word in several spellings counts with all of them."""
        df = self.frequency(term.field, term.word)
        if term.others:
            df = min(self.counted, df + max(self.frequency(*form) for form in term.others))
        return math.log(1 + (self.counted - df + 0.5) / (df + 0.5))

    def term(self, term: Term) -> tantivy.Query:
        """Returns the query for a term.

        A name has a constant score, because most texts hold no other names, so that their number
        says nothing.
        """
        if term.is_flat:
            return self._flat(term)
        query = tantivy.Query.term_query(self._schema, term.field, term.word, "freq")
        return query if term.boost == 1 else tantivy.Query.boost_query(query, term.boost)

    def _flat(self, term: Term) -> tantivy.Query:
        match = tantivy.Query.term_query(self._schema, term.field, term.word, "basic")
        weight = term.boost * self.idf(term) * (K1 + 1)
        scored = tantivy.Query.const_score_query(match, weight)
        other_forms = (
            [form for form in term.others if self.frequency(*form)] if term.instead else []
        )
        if not other_forms:
            return scored
        without = (tantivy.Query.term_query(self._schema, *form, "basic") for form in other_forms)
        clauses = [(Occur.Must, scored), *((Occur.MustNot, form_query) for form_query in without)]
        return tantivy.Query.boolean_query(clauses)

    def phrase(self, phrase: tuple[str, ...]) -> tantivy.Query:
        if len(phrase) == 1:
            return tantivy.Query.term_query(self._schema, "word", phrase[0])
        return tantivy.Query.phrase_query(self._schema, "word", list(phrase))

    def within(
        self,
        scored: tantivy.Query,
        query: Query,
        restriction: Restriction,
        chunk_ids: Sequence[int] | None = None,
    ) -> tantivy.Query:
        """Narrows `scored` to the visible chunks, without a change of any score."""
        clauses = [(Occur.MustNot, self.phrase(words)) for words in query.excluded]
        clauses += [(Occur.Must, _unscored(part)) for part in self._required(restriction)]
        if chunk_ids is not None:
            clauses.append((Occur.Must, self.among("chunk_id", chunk_ids)))
        if any(self.frequency("kb", label) for label in restriction.without):
            labelled = tantivy.Query.term_set_query(self._schema, "kb", restriction.without)
            clauses.append((Occur.MustNot, _unscored(labelled)))
        if restriction.exclude is not None and len(restriction.exclude):
            excluded = self.among("document_id", restriction.exclude.tolist())
            clauses.append((Occur.MustNot, excluded))
        if not clauses:
            return scored
        return tantivy.Query.boolean_query([(Occur.Must, scored), *clauses])

    def _required(self, restriction: Restriction) -> Iterator[tantivy.Query]:
        if restriction.kbs is not None and not self.holds_only(restriction.kbs):
            yield tantivy.Query.term_set_query(self._schema, "kb", restriction.kbs)
        if restriction.any_tag:
            yield tantivy.Query.term_set_query(self._schema, "tag", restriction.tags or ())
        elif restriction.tags is not None:
            for tag in restriction.tags:
                yield tantivy.Query.term_query(self._schema, "tag", tag, "basic")
        elif restriction.documents is not None:
            yield self.among("document_id", restriction.documents.tolist())

    def holds_only(self, kbs: Iterable[str]) -> bool:
        """Returns whether the index has no other labels.

        If so, the search needs no filter, which is half of its cost.
        """
        return sum(self.frequency("kb", kb) for kb in set(kbs)) == self.counted

    def among(self, field: str, ids: Sequence[int]) -> tantivy.Query:
        if len(ids) > _FEW:
            return _unscored(tantivy.Query.term_set_query(self._schema, field, ids))
        terms = (tantivy.Query.term_query(self._schema, field, id) for id in ids)
        return _unscored(tantivy.Query.boolean_query([(Occur.Should, term) for term in terms]))


def _unscored(query: tantivy.Query) -> tantivy.Query:
    return tantivy.Query.const_score_query(query, 0)
