"""Answers with the best passage's own sentences, without a model or a network.

A sentence's value is the share of the question's words that it holds, each weighted by its rarity
in the passage. Where no sentence holds many, as of a question in other words, its closeness in
meaning counts, too. The values become chances that sum to 1: a sentence that stands out is the
answer. Else the answer is the piece of the passage, a run of neighbouring sentences, that probably
holds it, and says so. Further passages are not quoted, because search has put the best one first.
A row of a table, a line of a log and a block of code count as sentences that are quoted whole.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kbproc.base.text.analysis import words
from kbproc.base.text.query import parse_query
from kbproc.base.text.stems import stems
from kbproc.base.text.verbatim import Piece, pieces
from kbproc.engine.models.answering.interface import (
    I_DO_NOT_KNOW,
    AnswerOutcome,
    AnswerPart,
    Closeness,
    Conversation,
    Prompt,
    PromptPassage,
    about_tokens,
)

MAY_HOLD = "This may hold the answer:"
# Fitted by `python -m bench.eval_answers --fit`. With cosines for sentences that
# share many words, or for languages that the model hardly knows, answers were worse.
_SHARPNESS = 4.0
_MEANING = 2.0  # weight of a cosine, where one of the words is 1
_MANY = 0.3  # share of the question's words with which words alone decide
_MOST_EMBEDDED = 6
_PLAIN = 0.7  # least chance of a quote
_MOST_CHARS = 600  # length limit for several sentences
_LONGEST = 400  # characters of a sentence: a longer one is cut at a word
LONGEST_WHOLE = 2000  # characters of a row, a line or a block: a longer one is not quoted
_FRAGMENT = 0.25  # taken from a heading or a broken line, because it answers nothing
_WHOLE = (".", "!", "…", ":", ";", ")", "]", '"', "”", "。", "！", "`")
_ASKS = ("?", "？")
_MARKUP = re.compile(r"^\s*(?:#{1,6}\s+|[-*+•]\s+|>\s+|\d+[.)]\s+)")


class _PassageSentence(NamedTuple):
    passage: PromptPassage
    piece: Piece
    text: str
    stems: frozenset[str]

    @property
    def is_whole(self) -> bool:
        """True for a row, a line or a block, which is quoted whole; a sentence may be cut."""
        return self.piece.kind != "sentence"

    @property
    def is_finished(self) -> bool:
        return self.is_whole or self.text.endswith(_WHOLE)


class Quote(NamedTuple):
    """Neighbouring sentences. `is_plain` False: they may hold the answer."""

    sentences: Sequence[_PassageSentence]
    is_plain: bool


class Extractive:
    """The answerer of a store without an endpoint."""

    name = "extractive"
    model = None

    def prompt_tokens(self, prompt: Prompt) -> int:
        return sum(about_tokens(passage.text) for passage in prompt.passages)

    def answer(self, prompt: Prompt, talk: Conversation) -> AnswerOutcome:
        quote = best_quote(prompt) if prompt.is_known and prompt.is_answered else None
        if quote is None:
            talk.say([AnswerPart(I_DO_NOT_KNOW, ())])
            return AnswerOutcome(status="refused", hint=_hint(prompt))
        text = _text(quote.sentences)
        if not quote.is_plain:
            text = MAY_HOLD + ("\n\n" if "\n" in text else " ") + text
        talk.say([AnswerPart(text, (quote.sentences[0].passage.n,))])
        return AnswerOutcome(status="finished")

    def prepare(self) -> None:
        """Does nothing, because there is nothing to prepare."""

    def close(self) -> None:
        """Does nothing, because nothing is open."""


def _hint(prompt: Prompt) -> str:
    if not prompt.passages:
        return "No passage was found: ask in other words, or add a document with the answer."
    return "The passages are only related: read them, or ask in other words."


def _text(sentences: Sequence[_PassageSentence]) -> str:
    """Returns neighbouring sentences of a passage, with its citation."""
    text = ""
    previous: _PassageSentence | None = None
    for sentence in sentences:
        quote = _quoted(sentence, previous)
        text += ("" if previous is None else _space(sentence, quote, previous)) + quote
        previous = sentence
    mark = "\n" if sentences[-1].piece.kind == "code" else " "
    return f"{text}{mark}[{sentences[-1].passage.n}]"


def _quoted(sentence: _PassageSentence, previous: _PassageSentence | None) -> str:
    """Returns a sentence's text, with the head of its table before the first row of the table."""
    head = sentence.piece.head
    has_head = previous is not None and previous.piece.head == head
    return f"{head}\n{sentence.text}" if head and not has_head else sentence.text


def _space(sentence: _PassageSentence, quote: str, previous: _PassageSentence) -> str:
    is_further_row = previous.piece.head and "\n" not in quote
    if is_further_row or not (previous.is_finished and sentence.is_finished):
        return "\n"
    return "\n\n" if "\n" in quote or previous.is_whole else " "


def best_quote(prompt: Prompt) -> Quote | None:
    """Returns the quote from the first passage that has a sentence; None if none has."""
    question = parse_query(prompt.question)
    query = question if question.tells or not prompt.query else parse_query(prompt.query)
    query_stems = frozenset(stems(query.terms))
    for passage in prompt.passages:
        if sentences := list(_sentences(passage)):
            chances = _chances(_values(query_stems, sentences, prompt.closeness))
            return _quote(sentences, chances, is_sure=prompt.is_sure)
    return None


def _quote(
    sentences: Sequence[_PassageSentence], chances: Sequence[float], *, is_sure: bool
) -> Quote:
    """Returns the likeliest sentence, with likely neighbours until the chance is high enough."""
    first = max(range(len(sentences)), key=chances.__getitem__)
    last, chance, length = first, chances[first], len(sentences[first].text)
    is_plain = is_sure and chance >= _PLAIN
    while chance < _PLAIN:
        room = _MOST_CHARS - length
        neighbours = [
            at
            for at in (first - 1, last + 1)
            if 0 <= at < len(sentences) and len(sentences[at].text) <= room
        ]
        if not neighbours:
            break
        best = max(neighbours, key=chances.__getitem__)
        first, last = min(first, best), max(last, best)
        chance += chances[best]
        length += len(sentences[best].text)
    return Quote(sentences[first : last + 1], is_plain)


def _chances(values: Sequence[float]) -> list[float]:
    """Returns chances that sum to 1 (softmax)."""
    raw = [math.exp(_SHARPNESS * value) for value in values]
    total = math.fsum(raw)
    return [one / total for one in raw]


def _values(
    query_stems: frozenset[str],
    sentences: Sequence[_PassageSentence],
    closeness: Closeness | None,
) -> list[float]:
    weights = _weights(query_stems, sentences)
    shares = [math.fsum(weights[stem] for stem in s.stems & query_stems) for s in sentences]
    values = [
        share if sentence.is_finished else share - _FRAGMENT
        for share, sentence in zip(shares, sentences, strict=True)
    ]
    if closeness is None or len(sentences) == 1 or max(shares) >= _MANY:
        return values
    best = sorted(range(len(sentences)), key=values.__getitem__, reverse=True)[:_MOST_EMBEDDED]
    cosines = dict(zip(best, closeness([sentences[at].text for at in best]), strict=False))
    least = min(cosines.values(), default=0.0)
    return [value + _MEANING * cosines.get(at, least) for at, value in enumerate(values)]


def _weights(
    query_stems: frozenset[str], sentences: Sequence[_PassageSentence]
) -> dict[str, float]:
    """Returns the weight of each word of the question, by its rarity in the passage; sum 1."""
    counts = Counter(stem for s in sentences for stem in s.stems & query_stems)
    raw = {stem: math.log(1 + len(sentences) / max(1, counts[stem])) for stem in query_stems}
    total = math.fsum(raw.values())
    return {stem: value / total for stem, value in raw.items()}


def _sentences(passage: PromptPassage) -> Iterator[_PassageSentence]:
    """Yields what may be quoted; a question stands with the sentence that answers it."""
    question = ""
    for piece in pieces(passage.text, passage.form, passage.blocks, passage.language):
        is_sentence = piece.kind == "sentence"
        text = piece.text
        if is_sentence:
            text = question + _cut(" ".join(_MARKUP.sub("", piece.text).split()))
        question = f"{text} " if is_sentence and text.endswith(_ASKS) else ""
        if not question and len(text) <= LONGEST_WHOLE and any(char.isalnum() for char in text):
            with_head = f"{piece.head}\n{text}"
            yield _PassageSentence(passage, piece, text, frozenset(stems(words(with_head))))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST].rsplit(" ", 1)[0] + " …"
