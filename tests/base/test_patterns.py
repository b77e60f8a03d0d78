"""Lazy patterns find what compiled ones find, and are compiled with their first use."""

from __future__ import annotations

import re

import pytest

from kbproc.base.patterns import lazy


def test_a_lazy_pattern_is_compiled_once_and_when_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[str] = []
    real = re.compile
    monkeypatch.setattr(re, "compile", lambda p, f=0: (compiled.append(p), real(p, f))[1])
    pattern = lazy(r"(?P<word>[a-z]+)", re.IGNORECASE)
    assert compiled == []
    assert [match["word"] for match in pattern.finditer("One two")] == ["One", "two"]
    assert pattern.sub("x", "One two") == "x x"
    assert pattern.fullmatch("One two") is None
    assert (pattern.pattern, pattern.groupindex["word"]) == (r"(?P<word>[a-z]+)", 1)
    assert compiled == [r"(?P<word>[a-z]+)"]


def test_an_unknown_member_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        lazy("a").unknown  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError):
        lazy("a").__unknown__  # type: ignore[attr-defined]  # noqa: B018
