"""Answers made of the passages' own sentences."""

from __future__ import annotations

from kbproc.models.answering.extractive import best_sentences
from kbproc.models.answering.interface import Passage, Prompt


def test_a_question_is_no_answer_to_itself() -> None:
    """A page of help quotes it, with all of its words."""
    asked = "How do I restore a backup?"
    help, page = f"Try this: {asked}", "A backup is restored by opening it."
    passages = [Passage(1, 1, "Help", help, 0.6), Passage(2, 2, "Backups", page, 0.5)]
    assert best_sentences(Prompt(question=asked, passages=passages))[0].text == page
