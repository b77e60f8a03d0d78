"""A rule recognises standing instructions among questions, narrations and single requests."""

from __future__ import annotations

import json

import pytest

from kbproc.base.text import instruction
from tests.kit.start import REPO

CASES = json.loads((REPO / "bench" / "standing.json").read_text(encoding="utf-8"))


def texts(message: str) -> list[str]:
    return [message[start:end] for start, end in instruction.standing_in(message)]


def test_instructions_are_found_and_near_misses_are_not() -> None:
    instructions = {sentence for case in CASES for sentence in case["holds"]}
    others = {sentence for case in CASES for sentence in case["said"]} - instructions
    assert len(instructions) > 40 and len(others) > 60
    missing = [sentence for sentence in instructions if texts(sentence) != [sentence]]
    false = [sentence for sentence in others if texts(sentence)]
    assert (len(missing) <= 2, false) == (True, []), missing


@pytest.mark.parametrize(
    "message",
    [
        "Always use tabs?",
        "Please always use tabs for this file.",
        "```\nAlways use tabs.\n```",
        "> Always use tabs.",
        "It says `always use tabs`.",
        "Always use tabs " + "and more " * 40,
        "Always use tabs.\n" + "A pasted line.\n" * 500,
    ],
)
def test_questions_tasks_quotations_and_pasted_texts_are_none(message: str) -> None:
    assert texts(message) == []


def test_each_sentence_of_a_message_stands_alone() -> None:
    message = "It broke, e.g. here. From now on, log errors.\n- never use `print`\nWhy?"
    assert texts(message) == ["From now on, log errors.", "never use `print`"]


def test_subjects_are_words_without_endings_and_without_common_ones() -> None:
    subjects = instruction.query_subjects("When are the libraries updated?")
    assert {"librar", "date", "deadli"} <= subjects
    assert instruction.subjects("Please always use the library.") == {"librar"}
    text = "Always format dates as ISO when I ask about deadlines."
    assert instruction.subjects(instruction.condition_of(text)) == {"deadli"}
    assert instruction.revoked_subjects("Use pnpm instead of npm.") == {"npm"}
    assert instruction.topics("Always answer in German.") == instruction.topics("请用中文回答")
    assert not instruction.topics("Always write commit messages in German.")
