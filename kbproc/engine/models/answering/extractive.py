"""Answers with the passages' own sentences, without a model or a network.

A sentence's value is the sum of its words of the question, each weighted by its rarity among all
sentences, and a part for the score of its passage. The answer quotes the best sentences, except
those that add no word to the others. A row of a table, a line of a log and a block of code count as
sentences that are quoted whole.
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
    Conversation,
    Prompt,
    PromptPassage,
    about_tokens,
)

MOST_SENTENCES = 4
MOST_OF_A_PASSAGE = 2
_MOST_CHARS = 900
_LONGEST = 400  # characters of a sentence: a longer one is cut at a word
LONGEST_WHOLE = 2000  # characters of a row, a line or a block: a longer one is not quoted
_PASSAGE_WEIGHT = 0.35
_FRAGMENT = 0.4  # factor of a heading, a broken line or a question, because they answer nothing
_WHOLE = (".", "!", "…", ":", ";", ")", "]", '"', "”", "。", "！", "`")
_LEAST = 0.2  # least share of the words' weight that a further sentence must add
_MARKUP = re.compile(r"^\s*(?:#{1,6}\s+|[-*+•]\s+|>\s+|\d+[.)]\s+)")


class _PassageSentence(NamedTuple):
    passage: PromptPassage
    at: int
    piece: Piece
    text: str
    stems: frozenset[str]

    @property
    def is_whole(self) -> bool:
        """True for a row, a line or a block, which is quoted whole; a sentence may be cut."""
        return self.piece.kind != "sentence"


class Extractive:
    """The answerer of a store without an endpoint."""

    name = "extractive"
    model = None

    def prompt_tokens(self, prompt: Prompt) -> int:
        return sum(about_tokens(passage.text) for passage in prompt.passages)

    def answer(self, prompt: Prompt, talk: Conversation) -> AnswerOutcome:
        sentences = best_sentences(prompt) if prompt.is_known and prompt.is_answered else []
        if not sentences:
            talk.say([AnswerPart(I_DO_NOT_KNOW, ())])
            return AnswerOutcome(status="refused", hint=_hint(prompt))
        talk.say(list(_parts(sentences)))
        return AnswerOutcome(status="finished")

    def prepare(self) -> None:
        """Does nothing, because there is nothing to prepare."""

    def close(self) -> None:
        """Does nothing, because nothing is open."""


def _hint(prompt: Prompt) -> str:
    if not prompt.passages:
        return "No passage was found: ask in other words, or add a document with the answer."
    return "The passages are only related: read them, or ask in other words."


def _parts(sentences: Sequence[_PassageSentence]) -> Iterator[AnswerPart]:
    previous: _PassageSentence | None = None
    for sentence in sentences:
        quote = _quote(sentence, previous)
        space = "" if previous is None else _space(quote, previous)
        mark = "\n" if sentence.piece.kind == "code" else " "
        n = sentence.passage.n
        yield AnswerPart(f"{space}{quote}{mark}[{n}]", (n,))
        previous = sentence


def _quote(sentence: _PassageSentence, previous: _PassageSentence | None) -> str:
    """Returns a sentence's text, with the head of its table before the first row of the table."""
    head = sentence.piece.head
    has_head = (
        previous is not None
        and previous.passage is sentence.passage
        and previous.piece.head == head
    )
    return f"{head}\n{sentence.text}" if head and not has_head else sentence.text


def _space(quote: str, previous: _PassageSentence) -> str:
    if previous.piece.head and "\n" not in quote:
        return "\n"  # because the quote is a further row
    return "\n\n" if "\n" in quote or previous.is_whole else " "


def best_sentences(prompt: Prompt) -> list[_PassageSentence]:
    """Returns the sentences to quote, in the order of passages and of each passage's text."""
    question = parse_query(prompt.question)
    query = question if question.tells or not prompt.query else parse_query(prompt.query)
    query_stems = frozenset(stems(query.terms))
    sentences = [s for passage in prompt.passages for s in _sentences(passage)]
    missing = _weights(query_stems, sentences)
    quotes: list[_PassageSentence] = []
    length = 0
    while sentences and len(quotes) < MOST_SENTENCES:
        best = max(sentences, key=lambda s: (_value(s, missing), -s.passage.n, -s.at))
        gain = sum(missing.get(stem, 0.0) for stem in best.stems)
        if quotes and gain < _LEAST:
            break
        if not quotes and not gain:
            best = sentences[0]  # the search found it by its meaning
        if quotes and length + len(best.text) > _MOST_CHARS:
            sentences = [s for s in sentences if s is not best]
            continue
        quotes.append(best)
        length += len(best.text)
        missing = {stem: weight for stem, weight in missing.items() if stem not in best.stems}
        is_full = sum(s.passage.n == best.passage.n for s in quotes) >= MOST_OF_A_PASSAGE
        sentences = [
            s
            for s in sentences
            if s is not best and not (is_full and s.passage.n == best.passage.n)
        ]
    return sorted(quotes, key=lambda s: (s.passage.n, s.at))


def _value(sentence: _PassageSentence, missing: dict[str, float]) -> float:
    gain = sum(missing.get(stem, 0.0) for stem in sentence.stems)
    value = gain + _PASSAGE_WEIGHT * sentence.passage.score
    is_whole = sentence.is_whole or sentence.text.endswith(_WHOLE)
    return value if is_whole else _FRAGMENT * value


def _weights(
    query_stems: frozenset[str], sentences: Sequence[_PassageSentence]
) -> dict[str, float]:
    """Returns the weight of each word of the question, by its rarity in the sentences; sum 1."""
    counts = Counter(stem for s in sentences for stem in s.stems & query_stems)
    raw = {s: math.log(1 + len(sentences) / counts[s]) for s in query_stems if counts[s]}
    total = sum(raw.values())
    return {stem: value / total for stem, value in raw.items()} if total else {}


def _sentences(passage: PromptPassage) -> Iterator[_PassageSentence]:
    parts = pieces(passage.text, passage.form, passage.blocks, passage.language)
    for at, piece in enumerate(parts):
        if piece.kind == "sentence":
            text = _cut(" ".join(_MARKUP.sub("", piece.text).split()))
        else:
            text = piece.text
        if len(text) <= LONGEST_WHOLE and any(char.isalnum() for char in text):
            with_head = f"{piece.head}\n{text}"
            yield _PassageSentence(passage, at, piece, text, frozenset(stems(words(with_head))))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST].rsplit(" ", 1)[0] + " …"
