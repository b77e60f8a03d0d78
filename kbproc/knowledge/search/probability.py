"""Computes the probability that a hit answers its query, and the level of confidence.

The constants were chosen near those that `python -m bench.probability` learns from hits of
questions that a collection answers, of the same questions without the texts that answer, and of
questions for other collections. docs/evidence/search.md says how often levels are right.

A longer query holds more words that no text has, so that its length counts for it; and the best of
many passages is nearer than the best of few, so that the number of chunks counts against it. A
pair of Chinese characters that no text holds counts as no word, because most pairs cross the border
between two words; nor does one that asks, such as 什么.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import astuple, replace

from kbproc.base.text.analysis import is_unspaced, words
from kbproc.base.text.names import names
from kbproc.base.text.query import Query
from kbproc.base.text.snippet import stems_in, stems_sought
from kbproc.base.text.stems import head, plurals, stem_of, stems
from kbproc.knowledge.search.fusion import PLACES

if TYPE_CHECKING:
    from kbproc.engine.projections.fulltext.search import FullTextSnapshot

Confidence = Literal["none", "related", "likely"]

# The least probabilities of the levels "related" and "likely". `only: "answers"` keeps the likely
# hits.
RELATED, LIKELY = 0.09, 0.35
# A hit that holds so many of the query's words is on its topic; below such a probability it does
# not answer, even if it is nearer than most texts.
ON_TOPIC, ANSWERS = 0.3, 0.24
# The least score of a hit: smaller ones would be shown as 0.000.
LEAST_SCORE = 0.0005
# Words that are worth as much as three that no other text holds tell as much as more of them, so do
# eight pairs of characters.
_ENOUGH, _ENOUGH_PAIRS = 3.0, 8.0
_BEGINNING = 2  # letters
_HALF = 0.5  # the least weight of a word's form that counts
_WHOLE = 0.999  # a share that differs from 1 by rounding only


class _Weights(Struct, frozen=True):
    """Weights of the features in the logit. `reach`: of its root, because half of it is much.
    `unnamed`: of the share of the query's names that the hit lacks. `length`: of the natural
    logarithm. `size`: of the decimal logarithm of chunks.
    """

    words: float = 0.0
    together: float = 0.0
    matched: float = 0.0
    reach: float = 0.0
    cosine: float = 0.0
    unnamed: float = 0.0
    length: float = 0.0
    size: float = 0.0
    constant: float = 0.0


_WITH_COSINE = _Weights(
    words=1.9, together=3.0, matched=1.0, cosine=7.0, length=0.6, size=-0.6, constant=-6.6
)
_BY_WORDS = _Weights(
    words=1.7, together=2.0, matched=2.9, reach=5.2, length=0.9, size=-0.2, constant=-7.7
)
# Pairs of characters are the words of scripts without spaces.
_BY_PAIRS = _Weights(words=3.6, together=4.4, matched=1.9, reach=3.0, constant=-7.1)
# For questions in other words than the text, times the square of the share of words that it lacks.
# A longer question has more words that a text which answers could share; fewer words count as six.
_BY_MEANING = _Weights(cosine=15.0, unnamed=-1.1, length=-1.3, size=-1.0, constant=-1.7)
_FEWEST_WORDS = 6
# The smallest and the largest store whose size makes a difference.
_FEWEST_CHUNKS, _MOST_CHUNKS = 10, 10_000
# A store of so many chunks determines half of a word's rarity. The other half is the rarity of most
# words in queries.
_FEW, _MOSTLY = 30, 0.7
# Chinese characters that ask, and those that stand in nearly every sentence.
_ASKING, _SMALL = frozenset("什么哪谁几怎吗呢麼誰幾嗎"), frozenset("的是了在为")
# Words with a capital after another word, and numbers.
_NAME = re.compile(r"(?<=[\w,;:] )[A-Z][\w'’-]+|\b\w*\d\w*")


class Evidence(Struct, frozen=True, kw_only=True):
    """The evidence that a hit answers. All numbers but `length` and `chunks` lie in [0, 1].

    `words`: the share of the query's words, each by its rarity, that the hit holds with its title
    and section. `together`: the same of its best passage, with title and section. `matched`: how
    much the words that it holds tell. `reach`: its BM25 as a share of the greatest that any text
    could reach; None if unknown. `cosine`: None where the vector is pending or the model lacks
    the query's language. `unnamed`: the share of the query's names and numbers that the hit lacks.
    `length`: the number of the query's words. `chunks`: the number of chunks in the store; None
    if hidden.
    """

    chance: float
    words: float
    together: float
    matched: float
    reach: float | None = None
    cosine: float | None = None
    unnamed: float = 0.0
    length: int = 0
    chunks: int | None = None

    @property
    def level(self) -> Confidence:
        if self.chance < RELATED:
            return "none"
        return "related" if self.chance < LIKELY else "likely"

    @property
    def lacks_answer(self) -> bool:
        """True for a hit on the query's topic that probably does not answer; only the cosine tells
        these from hits that answer in other words.
        """
        is_on_topic = self.cosine is not None and self.words >= ON_TOPIC
        return is_on_topic and self.chance < ANSWERS

    def at_least_related(self) -> Evidence:
        return replace(self, chance=max(self.chance, RELATED))


NOTHING = Evidence(chance=0.0, words=0.0, together=0.0, matched=0.0)


class _Word(Struct, frozen=True):
    """A word of a query in the form that weighs most. `rarity`: greatest if one text, or none,
    holds it.
    """

    field: str
    form: str
    weight: float
    rarity: float


class QueryWords:
    """The words of a query, each with its rarity in the store."""

    def __init__(self, fulltext: FullTextSnapshot, query: Query, text: str = "") -> None:
        """`text`: the query as typed, whose capitals show its names."""
        self._chunks = fulltext.clauses.counted
        self._words = list(_words(fulltext, query))
        self._has_pairs = any(map(is_unspaced, query.terms))
        self._has_heads = any(word.field == "head" for word in self._words)
        self._in_parts = query.in_parts
        self._marked = self._marked_in(query)
        nearly = dict(query.instead)
        named = stems([nearly.get(word, word) for word in words(" ".join(_NAME.findall(text)))])
        self._named = [word for word in self._words if word.form in named]
        self._total = math.fsum(word.weight * word.rarity for word in self._words)

    def _marked_in(self, query: Query) -> tuple[str, ...]:
        """Returns the words that a snippet marks if they have every form, else ().

        A snippet of the hit is made anyway, so its matches cost nothing more.
        """
        forms = {word.form for word in self._words}
        is_plain = not (self._has_heads or self._has_pairs)
        return query.marked if is_plain and forms <= stems_sought(query.marked) else ()

    def evidence(
        self,
        context: str,
        text: str,
        passage: str,
        *,
        reach: float | None = None,
        cosine: float | None = None,
    ) -> Evidence:
        """Returns the evidence for a hit.

        `context`: its title and section. `passage`: the part of `text` that holds most of the
        query's words, or "".
        """
        context_forms = self._forms(context)
        matches = self._matches(context_forms | self._forms(text))
        together = self._share(self._matches(context_forms | self._forms(passage)))
        enough = _ENOUGH_PAIRS if self._has_pairs else _ENOUGH
        evidence = Evidence(
            chance=0.0,
            words=self._share(matches),
            together=together,
            matched=_rounded(math.fsum(word.rarity**2 for word in matches) / enough),
            reach=None if reach is None else _rounded(reach),
            cosine=None if cosine is None else _rounded(cosine),
            unnamed=self._unnamed(matches),
            length=len(self._words),
            chunks=self._chunks,
        )
        evidence = replace(evidence, chance=chance(evidence, has_pairs=self._has_pairs))
        return evidence.at_least_related() if together >= _WHOLE else evidence

    def _forms(self, text: str) -> frozenset[tuple[str, str]]:
        """Returns the forms of the text's words, each with its field."""
        if self._marked:
            text_stems = stems_in(text, self._marked, self._in_parts)
            return frozenset([("stem", stem) for stem in text_stems])
        tokens = {*words(text), *(names(text) if self._in_parts else ())}
        if self._beginnings is not None:
            tokens = {token for token in tokens if token[:_BEGINNING] in self._beginnings}
        forms = {("stem", stem_of(token)) for token in tokens}
        if self._has_heads:
            forms |= {("head", head(token)) for token in tokens}
        return frozenset(forms)

    @cached_property
    def _beginnings(self) -> frozenset[str] | None:
        return _beginnings([word.form for word in self._words])

    def _matches(self, forms: frozenset[tuple[str, str]]) -> list[_Word]:
        return [word for word in self._words if (word.field, word.form) in forms]

    def _unnamed(self, matches: Sequence[_Word]) -> float:
        absent = sum(word not in matches for word in self._named)
        return _rounded(absent / len(self._named)) if self._named else 0.0

    def _share(self, matches: Sequence[_Word]) -> float:
        worth = math.fsum(word.weight * word.rarity for word in matches)
        return _rounded(worth / self._total) if self._total else 0.0


def _beginnings(forms: Sequence[str]) -> frozenset[str] | None:
    """Returns the beginnings of all words with these forms, so that few words need a stem.

    Returns None for other scripts, in which stems may lack the beginning of a word.
    """
    if not all(map(str.isascii, forms)):
        return None
    whole = itertools.chain(forms, *map(plurals, forms))
    return frozenset(form[:_BEGINNING] for form in whole)


def _words(fulltext: FullTextSnapshot, query: Query) -> Iterator[_Word]:
    clauses = fulltext.clauses
    # The greatest is the idf of a word in one chunk. A word in no chunk has a far greater idf in a
    # small store, but would say too much there.
    count = max(1, clauses.counted)
    greatest = math.log(1 + (count - 0.5) / 1.5)
    for term in clauses.terms(query):
        if term.field not in ("stem", "head") or term.most <= _HALF or term.instead:
            continue
        if is_unspaced(term.word) and (
            _says_nothing(term.word) or not clauses.frequency(term.field, term.word)
        ):
            continue
        rarity = min(1.0, clauses.idf(term) / greatest)
        rarity = (count * rarity + _FEW * _MOSTLY) / (count + _FEW)
        yield _Word(term.field, term.word, term.most, rarity)


def _says_nothing(pair: str) -> bool:
    return not _ASKING.isdisjoint(pair) or _SMALL.issuperset(pair)


def chance(evidence: Evidence, *, has_pairs: bool = False) -> float:
    """Returns the probability that a hit with this evidence answers.

    `has_pairs`: words are pairs of characters.
    """
    features = _features(evidence)
    if evidence.cosine is None:
        return round(_logistic(_BY_PAIRS if has_pairs else _BY_WORDS, features), 3)
    return round(max(_by_meaning(features), _logistic(_WITH_COSINE, features)), 3)


def _features(evidence: Evidence) -> _Weights:
    reach = evidence.words if evidence.reach is None else evidence.reach
    return _Weights(
        words=evidence.words,
        together=evidence.together,
        matched=evidence.matched,
        reach=math.sqrt(reach),
        cosine=evidence.cosine or 0.0,
        unnamed=evidence.unnamed,
        length=math.log1p(evidence.length),
        size=math.log10(min(_MOST_CHUNKS, max(_FEWEST_CHUNKS, evidence.chunks or 0))),
        constant=1.0,
    )


def _by_meaning(features: _Weights) -> float:
    features = replace(features, length=max(math.log1p(_FEWEST_WORDS), features.length))
    return (1 - features.words) ** 2 * _logistic(_BY_MEANING, features)


def _logistic(weights: _Weights, features: _Weights) -> float:
    pairs = zip(astuple(weights), astuple(features), strict=True)
    number = math.fsum(weight * value for weight, value in pairs)
    return 1 / (1 + math.exp(-number))


def _rounded(number: float) -> float:
    return round(min(1.0, max(0.0, number)), PLACES)
