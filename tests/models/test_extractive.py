"""Answers made of the passages' own sentences."""

from __future__ import annotations

from kbproc.engine.models.answering.extractive import best_quote
from kbproc.engine.models.answering.interface import Closeness, Prompt, PromptPassage

LEAVE = (
    "Announce the dates ten weeks ahead. Either parent may stay home for twenty weeks. "
    "Nobody expects you to read mail."
)


def quoted(
    question: str, *texts: str, is_sure: bool = True, closeness: Closeness | None = None
) -> tuple[str, bool]:
    """Returns the quote from passages with these texts, and whether it is plain."""
    passages = [PromptPassage(n, n, f"Text {n}", text, 1 / n) for n, text in enumerate(texts, 1)]
    prompt = Prompt(question=question, passages=passages, is_sure=is_sure, closeness=closeness)
    quote = best_quote(prompt)
    assert quote is not None
    return " ".join(one.text for one in quote.sentences), quote.is_plain


def test_a_question_is_no_answer_to_itself() -> None:
    """A help page that quotes the question holds all of its words, but is no answer."""
    question = "How do I restore a backup?"
    page = "A backup is restored by opening it."
    assert quoted(question, f"Try this: {question}", page) == (page, True)
    assert quoted(question, f"{question} Open it. We pay no rent.") == (
        f"{question} Open it.",
        True,
    )


def test_one_sentence_of_the_best_passage_is_the_answer() -> None:
    """Another passage does not count, even if it holds more of the question's words."""
    other = "Parents of a cluster may stay, home or not, for how long they like."
    answer = "Either parent may stay home for twenty weeks."
    assert quoted("How long may a parent stay home?", LEAVE, other) == (answer, True)
    assert quoted("How long may a parent stay home?", LEAVE, is_sure=False) == (answer, False)


def test_without_a_plain_sentence_the_piece_that_may_hold_the_answer_is_quoted() -> None:
    text, is_plain = quoted("Who reads?", "Ann reads. Bob reads. Zoe reads. " + LEAVE)
    assert text.startswith("Ann reads. Bob reads.")
    assert not is_plain


def test_meaning_decides_where_no_sentence_holds_many_words() -> None:
    embedded: list[str] = []

    def closeness(texts: list[str]) -> list[float]:
        embedded.extend(texts)
        return [0.9 if "twenty weeks" in text else 0.1 for text in texts]

    answer = "Either parent may stay home for twenty weeks."
    question = "vacation after a birth"
    assert quoted(question, LEAVE, closeness=closeness) == (answer, True)
    assert len(embedded) == 3
    assert quoted("How long may a parent stay home?", LEAVE, closeness=closeness) == (answer, True)
    assert len(embedded) == 3
    assert not quoted(question, LEAVE, closeness=lambda texts: [])[1]
