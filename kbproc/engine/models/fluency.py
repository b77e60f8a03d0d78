"""Measures how well a model's tokenizer knows a text: whether it reads words or letters.

A model that has learnt a language has whole words for it, or long pieces. If its tokenizer finds
single letters in a text, or tokens that it lacks, then the text's vector means little. The factor
of a text follows from its tokens per letter.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kbproc.base.patterns import lazy

# Tokens per five letters up to which the factor is 1, and at which it is a tenth. The default model
# has .9 for English, 1.1 for questions of medicine, 1.6 for German and 2.0 for Turkish, in which
# searches were worse than by words alone with a factor of a tenth at 2.0 tokens.
KNOWN_UNTIL, UNKNOWN_FROM = 1.2, 1.9
MOST_UNKNOWN_SHARE = 0.2  # share of all tokens
# For Turkish and Basque, of which the default model has some pieces of words. This factor still
# finds texts that share no word with the query.
LEAST_FACTOR = 0.02
# A tokenizer that splits nearly every word into letters makes cosines of noise: with LEAST_FACTOR
# searches in Arabic and Greek were worse than by words alone. This factor orders only hits whose
# words are worth the same.
LETTERS_FACTOR = 0.00025
# Times `unknown_from`. The default model has 2.6 tokens per five letters for Polish, 4.4 for Greek.
_LETTERS = 1.5
_FALLS_TO = 0.1
# The greatest factor where a model of English meets another language. With .4 nDCG@10 of XQuAD is
# .954 in German and .966 in Spanish, with the tokens' own factor .952 and .962.
MOST_FOREIGN_FACTOR = 0.4
_FIVE = 5
# Characters of a text that are counted: enough for a good estimate, and never slow.
SAMPLE_CHARS = 600

_WORD = lazy(r"[A-Za-z]+|[^\W\d_]+")


class Limits(Struct, frozen=True):
    """The tokens per five letters up to which the factor is 1, and at which it is a tenth.

    `foreign_from`: from so many on, a text in another language than English is hardly known.
    """

    known_until: float
    unknown_from: float
    foreign_from: float


# For a tokenizer with words of one script, and of many. Five letters of Chinese are three words to
# a tokenizer that knows Chinese.
FEW_SCRIPTS, MANY_SCRIPTS = Limits(KNOWN_UNTIL, UNKNOWN_FROM, 1.0), Limits(4.0, 6.0, 4.0)


class Fluency(Struct, frozen=True, kw_only=True):
    """A measure of how well a tokenizer knows a text.

    `tokens`: per five letters. `unknown`: the share of tokens that the tokenizer lacks. `factor`:
    how much a vector of such a text means, from LETTERS_FACTOR to 1.
    """

    tokens: float = 1.0
    unknown: float = 0.0
    factor: float = 1.0


FLUENT = Fluency()


def fluency(
    text: str,
    spans: Sequence[tuple[int, int]],
    unknown: Sequence[bool],
    limits: Limits = FEW_SCRIPTS,
    *,
    is_foreign: bool = False,
) -> Fluency:
    """Returns how well a tokenizer knows a text.

    `spans`: where in the text each token stands. `unknown`: whether the tokenizer lacks it.
    `is_foreign`: the text is known to be in another language than English.
    """
    unknown_flags = [
        lacking
        for (start, end), lacking in zip(spans, unknown, strict=True)
        if lacking or any(char.isalpha() for char in text[start:end])
    ]
    fives = sum(_fives(word) for word in _WORD.findall(text))
    if not unknown_flags or not (fives or any(unknown_flags)):
        return FLUENT
    per_five = len(unknown_flags) / fives if fives else limits.unknown_from
    share = sum(unknown_flags) / len(unknown_flags)
    slope = (per_five - limits.known_until) / (limits.unknown_from - limits.known_until)
    knowledge = 1 - (1 - _FALLS_TO) * max(0.0, slope)
    if is_foreign and per_five >= limits.foreign_from:
        knowledge = min(knowledge, MOST_FOREIGN_FACTOR)
    has_letters_alone = per_five >= _LETTERS * limits.unknown_from or share > MOST_UNKNOWN_SHARE
    factor = LETTERS_FACTOR if has_letters_alone else round(max(LEAST_FACTOR, knowledge), 3)
    return Fluency(tokens=round(per_five, 3), unknown=round(share, 3), factor=factor)


def _fives(word: str) -> float:
    """Returns a word's letters, divided by five.

    A short English word counts as five letters, because it is one token, too.
    """
    return max(1.0, len(word) / _FIVE) if word.isascii() else len(word) / _FIVE
