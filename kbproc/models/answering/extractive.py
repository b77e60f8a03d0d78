"""Answers made of the passages' own sentences: no model, no network.

Owns: sentences, how well each answers, and which are told in which order.
Refuses to know: how passages were found. The same question and passages give the same answer.

A sentence is worth the words of the question that it holds, each by how rare it is among all
sentences, and something for the passage that it stands in. The best ones are told, no word twice:
one that adds none to those before it is left out.
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
from kbproc.text.sentences import sentences as sentences_of
from kbproc.text.stems import stems

MOST_SENTENCES = 4
MOST_OF_A_PASSAGE = 2
_MOST_CHARS = 900
_LONGEST = 400  # characters of a sentence: what is longer is cut at a word
_PASSAGE_WEIGHT = 0.35
_FRAGMENT = 0.4  # so much is a heading, a broken line or a question worth: they answer nothing
_WHOLE = (".", "!", "…", ":", ";", ")", "]", '"', "”", "。", "！", "`")
_LEAST = 0.2  # of the words' worth that a further sentence must bring
_MARKUP = re.compile(r"^\s*(?:#{1,6}\s+|[-*+•]\s+|>\s+|\d+[.)]\s+)")


class _Sentence(NamedTuple):
    passage: Passage
    at: int
    text: str
    stems: frozenset[str]


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
    for number, one in enumerate(found):
        space = " " if number else ""
        yield Part(f"{space}{one.text} [{one.passage.n}]", (one.passage.n,))


def best_sentences(prompt: Prompt) -> list[_Sentence]:
    """In the order of their passages, and of the text within each."""
    asked = frozenset(stems(parse_query(prompt.question).terms))
    sentences = [one for passage in prompt.passages for one in _sentences(passage)]
    worth = _worth(asked, sentences)
    chosen: list[_Sentence] = []
    left, told = dict(worth), 0
    while sentences and len(chosen) < MOST_SENTENCES:
        best = max(sentences, key=lambda one: (_value(one, left), -one.passage.n, -one.at))
        brings = sum(left.get(stem, 0.0) for stem in best.stems)
        if chosen and (brings < _LEAST or told + len(best.text) > _MOST_CHARS):
            break
        if not chosen and not brings:
            best = sentences[0]  # found by its meaning
        chosen.append(best)
        told += len(best.text)
        left = {stem: value for stem, value in left.items() if stem not in best.stems}
        full = sum(one.passage.n == best.passage.n for one in chosen) >= MOST_OF_A_PASSAGE
        sentences = [
            one
            for one in sentences
            if one is not best and not (full and one.passage.n == best.passage.n)
        ]
    return sorted(chosen, key=lambda one: (one.passage.n, one.at))


def _value(sentence: _Sentence, left: dict[str, float]) -> float:
    words_worth = sum(left.get(stem, 0.0) for stem in sentence.stems)
    value = words_worth + _PASSAGE_WEIGHT * sentence.passage.score
    return value if sentence.text.endswith(_WHOLE) else _FRAGMENT * value


def _worth(asked: frozenset[str], sentences: Sequence[_Sentence]) -> dict[str, float]:
    """Each word of the question by how rare it is among the sentences; 1 together."""
    held = Counter(stem for one in sentences for stem in one.stems & asked)
    raw = {stem: math.log(1 + len(sentences) / held[stem]) for stem in asked if held[stem]}
    total = sum(raw.values())
    return {stem: value / total for stem, value in raw.items()} if total else {}


def _sentences(passage: Passage) -> Iterator[_Sentence]:
    for at, text in enumerate(sentences_of(passage.text)):
        told = " ".join(_MARKUP.sub("", text).split())
        if any(char.isalnum() for char in told):
            yield _Sentence(passage, at, _cut(told), frozenset(stems(words(told))))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[:_LONGEST].rsplit(" ", 1)[0] + " …"
