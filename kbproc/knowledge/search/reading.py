"""Adapts a query to the texts of the store.

It decides which phrases must match, which dashes exclude a word, which words are mistyped, which
are written as one or in parts, and which language they are in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from kbproc.base.text.analysis import STOP_WORDS
from kbproc.base.text.language import SMALL_WORDS, is_foreign, is_other_script
from kbproc.base.text.query import Query
from kbproc.base.text.stems import stem_of, stems
from kbproc.base.text.typos import may_be_mistyped, one_slip_away
from kbproc.engine.projections.restriction import Restriction
from kbproc.engine.store.snapshot import Snapshot
from kbproc.knowledge.search.candidates import everything

if TYPE_CHECKING:
    from kbproc.engine.projections.fulltext.search import FullTextSnapshot

# The quotes in a query of more words are taken for quotations, not for phrases that must match.
LONG = 30
# How many of the hits that a dash would exclude are searched for the option itself.
_LOOKED_AT = 20


def read(snapshot: Snapshot, query: Query, within: Restriction) -> tuple[Query, list[str]]:
    """Returns the query to search, and notices of how it differs from the typed one.

    `within`: the restriction of the search.
    """
    for option in query.options:
        if _is_option(snapshot, query, option):
            query = query.with_words(option)
    query, notices = _loosen_phrases(snapshot, query, within) if query.phrases else (query, [])
    vocabulary = Vocabulary(snapshot.fulltext, everything(snapshot))
    joined = tuple(filter(vocabulary.knows_joined, query.neighbours()))
    names = tuple(name for name in query.names if vocabulary.knows_name(name))
    instead = tuple(_replacements(query, vocabulary, (*joined, *names)))
    nearly = ", ".join(f"{replacement} instead of {word}" for word, replacement in instead)
    notices += (
        [f"No chunk contains these words, so similar ones were searched: {nearly}."]
        if nearly
        else []
    )
    in_parts = tuple(filter(vocabulary.is_in_parts, dict.fromkeys((*query.terms, *names))))
    query = replace(query, joined=joined, instead=instead, names=names, in_parts=in_parts)
    return query, notices


def without_exclusions(
    snapshot: Snapshot, query: Query, within: Restriction
) -> tuple[Query, str] | None:
    """Returns the query without its exclusions, and a notice.

    Returns None unless the exclusions exclude every match.
    """
    everything_matching = replace(query, excluded=(), options=())
    if not query.excluded or snapshot.fulltext.search(query, 1, restriction=within).total:
        return None
    if not snapshot.fulltext.search(everything_matching, 1, restriction=within).total:
        return None
    excluded = " or ".join(map(quoted, query.excluded))
    return everything_matching, f"Every match contains {excluded}, so nothing was excluded."


def _replacements(
    query: Query, vocabulary: Vocabulary, known_words: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    """Returns each word that no text holds, with a known word of similar spelling."""
    for word in dict.fromkeys(query.terms):
        if may_be_mistyped(word) and not vocabulary.knows(word):
            if any(word in known_word for known_word in known_words):
                continue  # because it is a part of a word that is written as one
            replacement = vocabulary.nearest(word)
            if replacement is not None:
                yield word, replacement


def _is_option(snapshot: Snapshot, query: Query, option: str) -> bool:
    """Returns whether a text that the dash would exclude holds the option with its dash."""
    with_option = query.with_words(option)
    option_query = replace(
        with_option, phrases=((*with_option.terms[len(query.terms) :],),), excluded=()
    )
    hits = snapshot.fulltext.search(option_query, _LOOKED_AT, restriction=everything(snapshot))
    pattern = re.compile(rf"(?<![\w-])-{re.escape(option)}(?![\w-])")
    rows = snapshot.queries.hit_rows(hits.chunk_ids).values()
    return any(pattern.search(row.text) for row in rows)


def _loosen_phrases(
    snapshot: Snapshot, query: Query, within: Restriction
) -> tuple[Query, list[str]]:
    """Returns the query with only those phrases that can match, and notices of the others.

    Phrases must match if one searched text holds them all; otherwise their words are searched.
    """
    if len(query.all_words) > LONG:
        notice = (
            "In a query this long a phrase need not match word for word: its words are searched."
        )
        return replace(query, phrases=()), [notice]

    def count_matches(*phrases: tuple[str, ...]) -> int:
        phrase_query = Query(phrases[0], phrases)
        return snapshot.fulltext.search(phrase_query, 1, restriction=within).total

    binding = tuple(phrase for phrase in query.phrases if count_matches(phrase))
    unbound = [quoted(phrase) for phrase in query.phrases if phrase not in binding]
    notices = []
    if unbound:
        phrases = ", nor ".join(unbound)
        notices.append(f"No chunk contains the phrase {phrases}, so its words are searched.")
    if len(binding) > 1 and not count_matches(*binding):
        quotes = " and ".join(map(quoted, binding))
        notices.append(f"No chunk contains {quotes} together, so their words are searched.")
        binding = ()
    return replace(query, phrases=binding), notices


def quoted(words: tuple[str, ...]) -> str:
    return f"“{' '.join(words)}”"


# ---------------------------------------------------------- words of the store


_STEMMED = ("stem", "name", "file", "folder")
_EVERYTHING = Restriction()


class Vocabulary:
    """The words of the visible chunks."""

    def __init__(self, fulltext: FullTextSnapshot, visible: Restriction = _EVERYTHING) -> None:
        self._fulltext = fulltext
        self._visible = visible

    def unknown(self, query: Query) -> list[str]:
        """Returns the query's words that no chunk holds, in any form or as a part of a name."""
        names = tuple(filter(self.knows_name, query.names))
        alone = (w for w in dict.fromkeys(query.terms) if not any(w in name for name in names))
        return [word for word in alone if not self.knows(word)]

    def knows(self, word: str) -> bool:
        """Returns whether any chunk holds a word; a word with the same beginning doesn't count.

        Mostly the index's statistics decide without a search.
        """
        frequency = self._fulltext.clauses.frequency
        count = frequency("word", word)
        if not count or count <= self._hidden:  # stems come second, because few words need them
            stem = stem_of(word)
            count = max(count, *(frequency(field, stem) for field in _STEMMED))
        if not count or count > self._hidden:
            return bool(count)
        return self._fulltext.search(Query((word,)), 1, restriction=self._visible).total > 0

    def knows_joined(self, word: str) -> bool:
        """Returns whether any chunk holds a word in this form; the statistics rule out most."""
        return self._fulltext.clauses.frequency("word", word) > 0 and self.knows(word)

    def knows_name(self, name: str) -> bool:
        """True if a chunk holds the name as a whole, in parts or as a plain word."""
        frequency, stem = self._fulltext.clauses.frequency, stem_of(name)
        return frequency("name", stem) > 0 or frequency("stem", stem) > 0

    def is_in_parts(self, word: str) -> bool:
        """True if a chunk writes a form of the word in parts."""
        return self._fulltext.clauses.frequency("name", stem_of(word)) > 0

    def nearest(self, word: str) -> str | None:
        """Returns the most frequent word that differs from `word` by one typing error."""
        # Not by the cache, from which hundreds of spellings would drive the words of queries.
        frequency = self._fulltext.searcher.doc_freq
        counts = {spelling: frequency("word", spelling) for spelling in one_slip_away(word)}
        ordered = sorted(
            (-count, spelling)
            for spelling, count in counts.items()
            if count and spelling not in STOP_WORDS
        )
        return next((spelling for _, spelling in ordered if self.knows(spelling)), None)

    @cached_property
    def _hidden(self) -> int:
        """The greatest number of chunks in the statistics that may be deleted or hidden."""
        visible, clauses = self._visible, self._fulltext.clauses
        if any(part is not None for part in (visible.kbs, visible.documents)):
            return clauses.counted
        labelled = sum(clauses.frequency("kb", label) for label in visible.without)
        excluded = clauses.counted if visible.exclude is not None else 0
        return clauses.counted - self._fulltext.num_docs + labelled + excluded


# -------------------------------------------------------------------- language


# A tokenizer cuts rare English words such as "nginx" into as many pieces as words of another
# language. So the number of pieces counts as a sign of a language that the embedding model lacks
# only if neither the query nor the store's texts show that the query is English.

# The language that a query's words are in; "unknown" if they don't show it.
Language = Literal["english", "other", "unknown"]

_FEWEST_WORDS = 5  # because a shorter query in Latin letters often has no small word
# English small words that other languages have, too, so that they prove nothing.
_ALSO_FOREIGN = """
a am an as at be by do for had has he her i if in is it its me my no not of on or our so to was we
will
"""
_ENGLISH = STOP_WORDS - frozenset(_ALSO_FOREIGN.split())


def language(query: Query, fulltext: FullTextSnapshot) -> Language:
    """Returns the language of the query's words, by their script first.

    Words in Latin letters are judged by the small words among them, then by the texts that hold
    them. Fewer than five words count as English, because they are mostly names, commands and
    technical words, except beside two small words of another language.
    """
    words = query.all_words
    other_script = sum(map(is_other_script, words))
    if 2 * other_script >= len(words) > 0:
        return "other"
    if len(words) < _FEWEST_WORDS and sum(map(SMALL_WORDS.__contains__, words)) < 2:
        return "english"
    if is_foreign(words):
        return "other"
    if not _ENGLISH.isdisjoint(words) or _are_in_english_texts(query.terms, fulltext):
        return "english"
    return "unknown"


def _are_in_english_texts(terms: tuple[str, ...], fulltext: FullTextSnapshot) -> bool:
    """Returns whether half of the words or more stand in texts of no other language."""
    frequencies = {stem: fulltext.clauses.frequency("stem", stem) for stem in stems(terms)}
    english = [s for s, count in frequencies.items() if count > fulltext.count_foreign(s)]
    return 2 * len(english) >= len(frequencies)
