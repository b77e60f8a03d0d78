"""Escapes in data files are read as the characters that they stand for."""

from __future__ import annotations

import pytest

from kbproc.engine.sources.parse import code, trees
from kbproc.engine.sources.parse.escapes import unescaped


@pytest.mark.parametrize(
    ("suffix", "text", "plain"),
    [
        (".properties", r"city=Z\u00fcrich\:8000 C\d", r"city=Zürich\:8000 C\d"),
        (".yaml", r'a: "Z\u00fcrich\tmain" # "\u00e9', 'a: "Zürich main" # "é'),
        (".yaml", r"a: 'Z\u00fcrich' \u00e9", r"a: 'Z\u00fcrich' \u00e9"),
        (".toml", r'a = "C:\\dir \"x\" \U0001F600 \u000a \d"', r'a = "C:\dir "x" 😀   \d"'),
        (".json", r'"\U00110000 \u12"', r'"\U00110000 \u12"'),
        (".py", r'"\u00e9"', r'"\u00e9"'),
    ],
)
def test_escapes_are_read(suffix: str, text: str, plain: str) -> None:
    assert unescaped(text, suffix) == plain


def test_files_hold_the_characters_and_their_own_lines() -> None:
    [block] = code.parse(rb"flag = \ud83d\ude00 Z\u00fcrich", "a.properties").blocks
    assert block.text == "flag = 😀 Zürich"
    text = "".join(f'key{n}: "a\\n\\u00fc{n}"\n' for n in range(20))
    blocks = trees.parse(text.encode(), "a.yaml").blocks
    assert [(block.text, block.line) for block in blocks[:2]] == [
        ('key0: "a ü0"', 1),
        ('key1: "a ü1"', 2),
    ]
