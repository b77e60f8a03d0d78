"""Answers made of the passages' own sentences."""

from __future__ import annotations

from kbproc.engine.models.answering.extractive import best_sentences
from kbproc.engine.models.answering.interface import Prompt, PromptPassage


def test_a_question_is_no_answer_to_itself() -> None:
    """A help page that quotes the question holds all of its words, but is no answer."""
    question = "How do I restore a backup?"
    help, page = f"Try this: {question}", "A backup is restored by opening it."
    passages = [PromptPassage(1, 1, "Help", help, 0.6), PromptPassage(2, 2, "Backups", page, 0.5)]
    assert best_sentences(Prompt(question=question, passages=passages))[0].text == page
