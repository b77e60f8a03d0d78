"""Tags are normalised, or refused with their name."""

from __future__ import annotations

import unicodedata

import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.times import instant
from kbproc.base.values import MOST_LEVELS, check_depth, clean_tags


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
    "text", ["2026-02-30", "2026-13-01", "2026-01-01T24:00:00Z", "2026-01-01T12:60Z", "0000-01-01"]
)
def test_a_moment_that_does_not_exist_is_refused_in_the_same_words_by_every_python(
    text: str,
) -> None:
    with pytest.raises(KbprocError) as caught:
        instant(text, field="$.params.before")
    assert caught.value.message == f"$.params.before is {text!r}: there is no such moment."


@pytest.mark.parametrize("pair", ["[]", "{}"])
def test_json_has_a_limit_of_levels_whatever_the_stack_has_room_for(pair: str) -> None:
    """Brackets count where they nest: not side by side, not within strings."""
    opening, closing = pair
    for levels in (1, 63, 64, 65, MOST_LEVELS):
        check_depth(opening * levels + closing * levels)
        check_depth((opening * (levels - 1) + pair * 1000 + closing * (levels - 1)).encode())
        check_depth((opening * levels + f'"\\"{opening * 600}"' + closing * levels).encode())
        check_depth(f"[{(opening * 500 + closing * 500) * 9}]")
    for deep in (opening * (MOST_LEVELS + 1), "[" * 512 + '["\\\\"]', pair * 700 + "[{" * 257):
        with pytest.raises(RecursionError):
            check_depth(deep)
        with pytest.raises(RecursionError):
            check_depth(deep.encode())
