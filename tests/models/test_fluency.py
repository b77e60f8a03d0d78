"""How well a tokenizer knows a text: it finds words in its languages, only letters in others."""

from __future__ import annotations

import pytest

from kbproc.engine.models.fluency import FLUENT, LEAST_FACTOR, LETTERS_FACTOR, fluency
from kbproc.engine.models.hashing import HashEmbedder
from kbproc.engine.models.onnx import TOKENIZER, tokenized
from tests.kit import models


def spelled(text: str, *, unknown: bool = False) -> float:
    """Returns the factor of a text that the tokenizer splits into letters."""
    spans = [(at, at + 1) for at in range(len(text))]
    return fluency(text, spans, [unknown] * len(text)).factor


def test_whole_words_are_known_and_letters_are_not() -> None:
    assert fluency("столица", [(0, 7)], [False]).factor == 1
    assert spelled("столица") == LETTERS_FACTOR
    assert spelled("abc") == LETTERS_FACTOR
    assert spelled("столица", unknown=True) == LETTERS_FACTOR


def test_between_the_two_it_falls_evenly() -> None:
    thirds = [(0, 3), (3, 6), (6, 10)]
    result = fluency("абвгдежзик", thirds, [False] * 3)
    assert result.tokens == 1.5
    assert result.factor == pytest.approx(1 - 0.9 * (1.5 - 1.2) / 0.7, abs=1e-3)
    assert fluency("а" * 50, [(at, at + 1) for at in range(19)], [False] * 19).factor == 0.1


def test_where_a_tenth_was_left_it_falls_on_to_the_least() -> None:
    tokens = [(at, at + 1) for at in range(39)]
    assert LEAST_FACTOR < fluency("а" * 100, tokens, [False] * 39).factor < 0.1
    assert fluency("а" * 100, [*tokens, (39, 40)], [False] * 40).factor == LEAST_FACTOR


def test_from_nearly_three_tokens_per_five_letters_on_it_reads_letters() -> None:
    tokens = [(at, at + 1) for at in range(58)]
    assert fluency("а" * 100, tokens[:56], [False] * 56).factor == LEAST_FACTOR
    assert fluency("а" * 100, tokens, [False] * 58).factor == LETTERS_FACTOR


def test_short_words_numbers_and_signs_say_nothing() -> None:
    assert fluency("to be", [(0, 2), (3, 5)], [False] * 2) == FLUENT
    assert fluency("3.14!", [(0, 1), (1, 2), (2, 4), (4, 5)], [False] * 4) == FLUENT
    assert fluency("", [], []) == FLUENT
    assert HashEmbedder().fluency("столица") == FLUENT


def test_a_fifth_of_the_tokens_may_be_unknown() -> None:
    spans = [(at, at + 5) for at in range(0, 25, 5)]
    text = "абвгд" * 5
    assert fluency(text, spans, [True, *[False] * 4]).factor == 1
    assert fluency(text, spans, [True, True, *[False] * 3]).factor == LETTERS_FACTOR


def test_what_the_default_model_knows(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, float, float]] = [
        ("How do I install the latest version of git?", 1, 1),
        ("to be or not to be", 1, 1),
        ("Quel est le président de la République ?", 0.9, 1),
        ("Wer hat im Jahr 1999 die Meisterschaft gewonnen?", 0.2, 0.9),
        ("Какой университет основан в Москве?", LETTERS_FACTOR, LETTERS_FACTOR),
        ("ما هي عاصمة فرنسا؟", LETTERS_FACTOR, LETTERS_FACTOR),
        ("फ्रांस की राजधानी क्या है?", LETTERS_FACTOR, LETTERS_FACTOR),
        ("เมืองหลวงของฝรั่งเศสคืออะไร", LETTERS_FACTOR, LETTERS_FACTOR),
        ("Ποια είναι η πρωτεύουσα της Γαλλίας;", LETTERS_FACTOR, LETTERS_FACTOR),
        ("法国的首都是哪里？", LETTERS_FACTOR, LETTERS_FACTOR),
        ("🎉🎉", LETTERS_FACTOR, LETTERS_FACTOR),
        ("\ud800 a lone surrogate", 1, 1),
    ]
    for text, least, most in cases:
        with subtests.test(text=text, least=least, most=most):
            folder = models.default_source().folder
            if folder is None:
                pytest.skip("the default model is not installed")
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
            assert least <= tokenized(tokenizer, text).factor <= most
