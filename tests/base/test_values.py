"""Tags are normalised, or refused with their name."""

from __future__ import annotations

import unicodedata

import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.times import why_no_time
from kbproc.base.values import clean_tags


@pytest.mark.parametrize(
    ("tag", "clean"),
    [
        ("हिन्दी", "हिन्दी"),
        ("สำคัญ", "สำคัญ"),
        ("தமிழ் மொழி", "தமிழ்-மொழி"),
        ("עִבְרִית", "עִבְרִית"),
        (unicodedata.normalize("NFD", "Café"), "café"),
        (unicodedata.normalize("NFD", "TIẾNG Việt"), "tiếng-việt"),
        (unicodedata.normalize("NFD", "한국어"), "한국어"),
        ("ΟΔΟΣ", "οδος"),
        ("ЁЛКА", "ёлка"),
        ("می\u200cخواهم", "میخواهم"),
        ("क्\u200dष", "क्ष"),
        ("C++", "c++"),
        ("C#", "c#"),
        (".net", ".net"),
        ("v1.2", "v1.2"),
        (" Release_Notes/2024 ", "release-notes-2024"),
    ],
)
def test_tags_of_every_script(tag: str, clean: str) -> None:
    assert clean_tags([tag, clean]) == [clean]


@pytest.mark.parametrize(
    "tag", ["🎉", "👩\u200d💻", "❤️", "rust🦀", "!", "...", "+", "#", "\u0301", "a?b"]
)
def test_what_is_no_tag_is_refused_by_name(tag: str) -> None:
    with pytest.raises(KbprocError, match="a tag is letters, digits, hyphens and") as caught:
        clean_tags(["fine", tag])
    assert caught.value.field == "$.params.tags[1]"


@pytest.mark.parametrize("tag", ["\u200d", "a\u200bb", "a\u202eb"])
def test_hidden_characters_are_refused(tag: str) -> None:
    with pytest.raises(KbprocError, match="which names may not hold"):
        clean_tags([tag])


@pytest.mark.parametrize(
    ("reason", "same"),
    [
        ("day 31 must be in range 1..28 for month 2 in year 2026", "day is out of range for month"),
        ("day is out of range for month", "day is out of range for month"),
        ("month must be in 1..12, not 13", "month must be in 1..12"),
        ("Invalid isoformat string: 'x'", "Invalid isoformat string: 'x'"),
    ],
)
def test_a_moment_is_refused_in_the_same_words_by_every_python(reason: str, same: str) -> None:
    assert why_no_time(ValueError(reason)) == same
