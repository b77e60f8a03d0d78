"""Patterns of names: the standard library is the reference, and no pattern takes long."""

from __future__ import annotations

import fnmatch
import random

import pytest

from kbproc.engine.sources.pattern import NamePattern, PathPattern

PARTS = ["a", "b", "*", "**", "?", "[ab]", "[!a]", "[a-c]", "[]a]", "[b-a]", ".", "["]


@pytest.mark.parametrize("seed", range(5))
def test_as_the_standard_library_matches(seed: int) -> None:
    chance = random.Random(seed)
    matched = 0
    for _ in range(2000):
        pattern = "".join(chance.choice(PARTS) for _ in range(chance.randint(0, 7)))
        name = "".join(chance.choice("aabc./") for _ in range(chance.randint(0, 8)))
        expected = fnmatch.fnmatchcase(name, pattern)
        assert NamePattern(pattern).matches(name) is expected, (pattern, name)
        matched += expected
    assert matched > 100


@pytest.mark.parametrize(
    ("pattern", "path", "is_match"),
    [
        ("a", "x/a", True),
        ("/a", "x/a", False),
        ("**/a/**/b", "x/a/y/a/z/b", True),
        ("a/**/b/**/c", "a/b/c", True),
        ("a/**/b/**/c", "a/c/b", False),
        ("a/**", "a", False),
        ("a/**", "a/b/c", True),
        ("a\\/b", "a/b", True),
        ("[a/b]c", "x/bc", True),
        ("a**b/c", "axxb/c", True),
        ("\\*", "*", True),
        ("\\*", "x", False),
        ("[--9]", "5", True),
        ("[[:nonsense:]]", "n", False),
        ("a\\", "a\\", True),
    ],
)
def test_paths(pattern: str, path: str, is_match: bool) -> None:
    assert PathPattern(pattern).matches(path.split("/")) is is_match
