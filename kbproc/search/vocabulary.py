"""Which words the chunks hold that may be seen.

Owns: telling a word that some text holds from one that none does, and which is spelt nearly so.
Refuses to know: what a query is searched for instead.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from kbproc.text.analysis import STOP_WORDS
from kbproc.text.query import Query
from kbproc.text.stems import stems
from kbproc.text.typos import one_slip_away
from kbproc.views.restriction import Restriction

if TYPE_CHECKING:
    from kbproc.views.fulltext.search import FullTextSnapshot

_STEMMED = ("stem", "name", "file", "folder")
_EVERYTHING = Restriction()


class Vocabulary:
    """The words of the chunks that may be seen."""

    def __init__(self, fulltext: FullTextSnapshot, seen: Restriction = _EVERYTHING) -> None:
        self._fulltext = fulltext
        self._seen = seen

    def unknown(self, query: Query) -> list[str]:
        """The query's words that stand in no chunk, in any form, nor as a part of a name."""
        names = tuple(filter(self.knows_name, query.names))
        alone = (w for w in dict.fromkeys(query.terms) if not any(w in name for name in names))
        return [word for word in alone if not self.knows(word)]

    def knows(self, word: str) -> bool:
        """Whether any chunk holds it. Mostly the statistics tell.

        That a word begins alike says nothing.
        """
        frequency = self._fulltext.clauses.frequency
        count = frequency("word", word)
        if not count or count <= self._hidden:  # most words are told without their stems
            (stem,) = stems([word])
            count = max(count, *(frequency(field, stem) for field in _STEMMED))
        if not count or count > self._hidden:
            return bool(count)
        return self._fulltext.search(Query((word,)), 1, restriction=self._seen).total > 0

    def knows_joined(self, word: str) -> bool:
        """Whether any chunk holds it as it is: few of many are."""
        return self._fulltext.clauses.frequency("word", word) > 0 and self.knows(word)

    def knows_name(self, name: str) -> bool:
        """True if a chunk holds the name as a whole, in parts or as a plain word."""
        frequency, (stem,) = self._fulltext.clauses.frequency, stems([name])
        return frequency("name", stem) > 0 or frequency("stem", stem) > 0

    def is_in_parts(self, word: str) -> bool:
        """True if a chunk writes a form of the word in parts."""
        return self._fulltext.clauses.frequency("name", *stems([word])) > 0

    def nearest(self, word: str) -> str | None:
        """The most frequent word that is spelt like `word` but for one slip."""
        frequency = self._fulltext.clauses.frequency
        others = (other for other in one_slip_away(word) if other not in STOP_WORDS)
        counts = {other: frequency("word", other) for other in others}
        found = sorted((-count, other) for other, count in counts.items() if count)
        return next((other for _, other in found if self.knows(other)), None)

    @cached_property
    def _hidden(self) -> int:
        """So many that the statistics count may be dead or not to be seen."""
        seen, clauses = self._seen, self._fulltext.clauses
        if any(part is not None for part in (seen.kbs, seen.documents)):
            return clauses.counted
        labelled = sum(clauses.frequency("kb", label) for label in seen.without)
        excluded = clauses.counted if seen.exclude is not None else 0
        return clauses.counted - self._fulltext.num_docs + labelled + excluded
