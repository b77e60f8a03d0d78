"""Characters that can't be seen are those of Unicode's rule, and none of a visible text."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.base.unseen import EMOJI, JOINED, UNSEEN, one_line, visible
from tests.kit.patience import all_or

# Parts of the property that categories do not tell: UAX 44, DerivedCoreProperties.txt.
OTHER_IGNORABLE = "\u034f\u115f\u1160\u17b4\u17b5\u2065\u3164\uffa0" + "".join(
    map(chr, [*range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000)])
)
SELECTORS = "".join(map(chr, [*range(0x180B, 0x180E), 0x180F, *range(0xFE00, 0xFE10)]))
PREPENDED = re.compile("[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd]")
EGYPTIAN = re.compile("[\U00013430-\U00013440]")
BLANK = set("\u2800\U00013441\U00013442\U00016fe4\U0001d159")

# Planes 0, 1 and 14, which have all such characters but the last two of each plane.
QUICK = [*range(0x20000), *range(0xE0000, 0xF0000), *range(0x10FF00, 0x110000)]


def is_unseen(char: str) -> bool:
    """Returns whether Unicode's property, or the category of a control, says so."""
    category = unicodedata.category(char)
    if category == "Cf":
        return not (PREPENDED.match(char) or EGYPTIAN.match(char))
    is_control = category in {"Cc", "Zl", "Zp", "Cs"} and char not in "\t\n"
    is_no_character = ord(char) & 0xFFFE == 0xFFFE or 0xFDD0 <= ord(char) <= 0xFDEF
    return is_control or is_no_character or char in OTHER_IGNORABLE or char in SELECTORS


def test_the_ranges_are_those_of_unicode() -> None:
    every = list(map(chr, all_or(QUICK, range(0x110000))))
    ranges = {char for char in every if UNSEEN.match(char)}
    assert {char for char in every if is_unseen(char)} == ranges - BLANK
    assert ranges >= BLANK
    staying = re.compile(f"[{JOINED}{EMOJI}]")  # or a joiner could stay beside one that goes
    assert not [char for char in ranges if staying.match(char)]


@pytest.mark.parametrize(
    "text",
    [
        "می\u200cخواهم",
        "क्\u200dष",
        "ක්\u200dෂ",
        "👩🏽\u200d💻 ❤️\u200d🔥 👁️\u200d🗨️ 1️⃣ ☎️",
        "naïve café, 한국어, 備份\t\n東京",
    ],
)
def test_what_a_script_needs_stays(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("a\u200db\u200c", "ab"),
        ("म\u200d a\u200dम", "म aम"),
        ("م\u200c\u200dن", "من"),
        ("😀\u200b\u200d😀", "😀😀"),
        ("a\ufe0f\u200d😀", "a😀"),
        ("1\ufe0f2", "12"),
        ("❤️\ufe0f\ufe0e\U000e0101", "❤️"),
        ("I\U000e0067\U000e006e\u2800\u034f\u3164\u115f\u2062", "I "),
        ("one\u2028two\x0bthree\rfour", "one two three four"),
    ],
)
def test_the_rest_goes(text: str, rest: str) -> None:
    assert visible(text) == rest


@given(st.text(st.sampled_from("aم😀❤क\u200c\u200d\ufe0f\u200b 1\u20e3") | st.characters()))
def test_a_second_pass_finds_nothing(text: str) -> None:
    assert not UNSEEN.search(visible(text))
    assert not UNSEEN.search(one_line(text, 5, "…"))
    assert len(one_line(text, 5, "…")) <= 5
