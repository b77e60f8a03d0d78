"""Splits an answer's references into those that its text cites by number, and the others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kbproc.base.values import decoder
from kbproc.engine.events.session import Reference

_CODE = re.compile(r"(`{3,}).*?(?:\1|\Z)|`[^`\n]*`", re.DOTALL)
_CITATION = re.compile(r"\[(\d{1,3}(?:\s*[,;–-]\s*\d{1,3})*)\]")
_decode = decoder(list[Reference]).decode
_RANGE = re.compile(r"(\d+)(?:\s*[–-]\s*(\d+))?")


class Split(NamedTuple):
    """References in order: `cited` are those that the answer cites, `see_also` the others."""

    cited: list[Reference]
    see_also: list[Reference]


def split(text: str, references: str | None) -> Split:
    """Returns the references split by the citations in `text`. `references`: JSON from the log."""
    numbers = frozenset(_numbers(text))
    every = [] if references is None else _decode(references)
    return Split(
        [one for one in every if one.n in numbers],
        [one for one in every if one.n not in numbers],
    )


def _numbers(text: str) -> Iterator[int]:
    """Yields the numbers in citations such as "[1]", "[1, 3]" and "[2–4]", but not in code."""
    for citation in _CITATION.findall(_CODE.sub(" ", text)):
        for first, last in _RANGE.findall(citation):
            yield from range(int(first), int(last or first) + 1)


def lines(cited: Sequence[dict[str, object]], see_also: Sequence[dict[str, object]]) -> list[str]:
    """Returns the references as lines for people."""
    own = [f"[{one['n']}] {one['cite']}" for one in cited]
    others = [f"[{one['n']}] {one['cite']}" for one in see_also]
    return [*own, *(["See also:", *others] if others else [])]
