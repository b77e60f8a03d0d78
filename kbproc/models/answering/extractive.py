"""Answers made of the passages' own sentences: no model, no network.

Owns: how well each sentence answers, and which of them the answer quotes, in which order.
Refuses to know: how the search finds passages. The same question and passages give the same answer.

A sentence is worth the words of the question that it holds, each by how rare it is among all
sentences, and something for the passage that it stands in. The answer quotes the best ones and
leaves out one that adds no word to those before it. A row of a table, a line of a log and a block
of code count as sentences that are quoted whole.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kbproc.models.answering.interface import (
    I_DO_NOT_KNOW,
    Part,
    Passage,
    Prompt,
    Talk,
    Told,
    about_tokens,
)
from kbproc.text.analysis import words
from kbproc.text.query import parse_query
from kbproc.text.stems import stems
from kbproc.text.verbatim import Piece, pieces

MOST_SENTENCES = 4
MOST_OF_A_PASSAGE = 2
_MOST_CHARS = 900
_LONGEST = 400  # characters of a sentence: a longer one is cut at a word
_LONGEST_WHOLE = 2000  # characters of a row, a line or a block: a longer one is not quoted
_PASSAGE_WEIGHT = 0.35
_FRAGMENT = 0.4  # so much is a heading, a broken line or a question worth: they answer nothing
_WHOLE = (".", "!", "…", ":", ";", ")", "]", '"', "”", "。", "！", "`")
_LEAST = 0.2  # of the words' worth that a further sentence must bring
_MARKUP = re.compile(r"^\s*(?:#{1,6}\s+|[-*+•]\s+|>\s+|\d+[.)]\s+)")


class _Sentence(NamedTuple):
    passage: Passage
    at: int
    piece: Piece
    text: str
    stems: frozenset[str]

    @property
    def is_whole(self) -> bool:
        """A row, a line or a block is quoted as it stands; a sentence may be cut."""
        return self.piece.kind != "sentence"


class Extractive:
    """The answerer of a store that names no other."""

    name = "extractive"
    model = None

    def prompt_tokens(self, prompt: Prompt) -> int:
        return sum(about_tokens(passage.text) for passage in prompt.passages)

    def answer(self, prompt: Prompt, talk: Talk) -> Told:
        found = best_sentences(prompt) if prompt.is_known and prompt.is_answered else []
        if not found:
            talk.say([Part(I_DO_NOT_KNOW, ())])
            return Told(status="refused", hint=_hint(prompt))
        talk.say(list(_parts(found)))
        return Told(status="finished")

    def prepare(self) -> None:
        """It needs nothing."""

    def close(self) -> None:
        """Nothing is open."""


def _hint(prompt: Prompt) -> str:
    if not prompt.passages:
        return "No passage was found: ask in other words, or add what answers it."
    return "What was found is only related: read the passages, or ask in other words."


def _parts(found: Sequence[_Sentence]) -> Iterator[Part]:
    before: _Sentence | None = None
    for one in found:
        quote = _quote(one, before)
        space = "" if before is None else _space(quote, before)
        mark = "\n" if one.piece.kind == "code" else " "
        yield Part(f"{space}{quote}{mark}[{one.passage.n}]", (one.passage.n,))
        before = one


def _quote(one: _Sentence, before: _Sentence | None) -> str:
    """A row follows the head of its table, unless it follows another row of it."""
    head = one.piece.head
    is_told = before is not None and before.passage is one.passage and before.piece.head == head
    return f"{head}\n{one.text}" if head and not is_told else one.text


def _space(quote: str, before: _Sentence) -> str:
    if before.piece.head and "\n" not in quote:
        return "\n"  # a further row
    return "\n\n" if "\n" in quote or before.is_whole else " "


def best_sentences(prompt: Prompt) -> list[_Sentence]:
    """In the order of their passages, and of the text within each."""
    question = parse_query(prompt.question)
    query = question if question.tells or not prompt.query else parse_query(prompt.query)
    asked = frozenset(stems(query.terms))
    sentences = [one for passage in prompt.passages for one in _sentences(passage)]
    worth = _worth(asked, sentences)
    chosen: list[_Sentence] = []
    missing, length = dict(worth), 0
    while sentences and len(chosen) < MOST_SENTENCES:
        best = max(sentences, key=lambda one: (_value(one, missing), -one.passage.n, -one.at))
        brings = sum(missing.get(stem, 0.0) for stem in best.stems)
        if chosen and brings < _LEAST:
            break
        if not chosen and not brings:
            best = sentences[0]  # found by its meaning
        if chosen and length + len(best.text) > _MOST_CHARS:
            sentences = [one for one in sentences if one is not best]
            continue
        chosen.append(best)
        length += len(best.text)
        missing = {stem: value for stem, value in missing.items() if stem not in best.stems}
        full = sum(one.passage.n == best.passage.n for one in chosen) >= MOST_OF_A_PASSAGE
        sentences = [
            one
            for one in sentences
            if one is not best and not (full and one.passage.n == best.passage.n)
        ]
    return sorted(chosen, key=lambda one: (one.passage.n, one.at))


def _value(sentence: _Sentence, missing: dict[str, float]) -> float:
    words_worth = sum(missing.get(stem, 0.0) for stem in sentence.stems)
    value = words_worth + _PASSAGE_WEIGHT * sentence.passage.score
    is_whole = sentence.is_whole or sentence.text.endswith(_WHOLE)
    return value if is_whole else _FRAGMENT * value


def _worth(asked: frozenset[str], sentences: Sequence[_Sentence]) -> dict[str, float]:
    """Each word of the question by how rare it is among the sentences; 1 together."""
    held = Counter(stem for one in sentences for stem in one.stems & asked)
    raw = {stem: math.log(1 + len(sentences) / held[stem]) for stem in asked if held[stem]}
    total = sum(raw.values())
    return {stem: value / total for stem, value in raw.items()} if total else {}


def _sentences(passage: Passage) -> Iterator[_Sentence]:
    parts = pieces(passage.text, passage.form, passage.blocks, passage.language)
    for at, piece in enumerate(parts):
        if piece.kind == "sentence":
            text = _cut(" ".join(_MARKUP.sub("", piece.text).split()))
        else:
            text = piece.text
        if len(text) <= _LONGEST_WHOLE and any(char.isalnum() for char in text):
            whole = f"{piece.head}\n{text}"
            yield _Sentence(passage, at, piece, text, frozenset(stems(words(whole))))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST].rsplit(" ", 1)[0] + " …"
