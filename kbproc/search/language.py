"""Whether a query may be in a language that the embedding model lacks.

Owns: what the query's script, its small words and the store's texts say of its language.
Refuses to know: how a tokenizer reads the query, and what a vector weighs.

A tokenizer cuts rare English words into as many pieces as words of another language, so pieces
alone say nothing of "nginx timeout". They count only where the query itself, or the store, leaves
room for another language.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kbproc.text.analysis import STOP_WORDS
from kbproc.text.language import is_foreign, is_other_script
from kbproc.text.query import Query
from kbproc.text.stems import stems

if TYPE_CHECKING:
    from kbproc.views.fulltext.search import FullTextSnapshot

# What a query's words say: English, another language, or nothing.
Language = Literal["english", "other", "unknown"]

_FEWEST_WORDS = 5  # in fewer words of Latin letters no small word is to be expected
# English small words that are words of other languages, too: alone they prove nothing.
_ALSO_FOREIGN = """
a am an as at be by do for had has he her i if in is it its me my no not of on or our so to was we
will
"""
_ENGLISH = STOP_WORDS - frozenset(_ALSO_FOREIGN.split())


def language(query: Query, fulltext: FullTextSnapshot) -> Language:
    """Returns which language the query's words are in, by their script first of all.

    Words in Latin letters are judged by the small words among them, then by the texts that hold
    them. Fewer than five of them are taken to be English: names, commands, technical words.
    """
    words = query.said
    other_script = sum(map(is_other_script, words))
    if 2 * other_script >= len(words) > 0:
        return "other"
    if len(words) < _FEWEST_WORDS:
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
