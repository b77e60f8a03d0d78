"""Which passages an answer cites.

Owns: how a text cites passages by number, and the split of references by it.
Refuses to know: who wrote the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kbproc.base.values import decoder
from kbproc.events.session import Reference

_CODE = re.compile(r"(`{3,}).*?(?:\1|\Z)|`[^`\n]*`", re.DOTALL)
_CITATION = re.compile(r"\[(\d{1,3}(?:\s*[,;–-]\s*\d{1,3})*)\]")
_decode = decoder(list[Reference]).decode
_RANGE = re.compile(r"(\d+)(?:\s*[–-]\s*(\d+))?")


class Split(NamedTuple):
    """`cited`: references that the answer cites; `see_also`: the others. Both in their order."""

    cited: list[Reference]
    see_also: list[Reference]


def split(text: str, references: str | None) -> Split:
    """`references`: as the log has them."""
    numbers = frozenset(_numbers(text))
    every = [] if references is None else _decode(references)
    return Split(
        [one for one in every if one.n in numbers],
        [one for one in every if one.n not in numbers],
    )


def _numbers(text: str) -> Iterator[int]:
    """As in "[1]", "[1, 3]" and "[2–4]"; code cites nothing."""
    for citation in _CITATION.findall(_CODE.sub(" ", text)):
        for first, last in _RANGE.findall(citation):
            yield from range(int(first), int(last or first) + 1)


def lines(cited: Sequence[dict[str, object]], see_also: Sequence[dict[str, object]]) -> list[str]:
    """References for people."""
    own = [f"[{one['n']}] {one['cite']}" for one in cited]
    others = [f"[{one['n']}] {one['cite']}" for one in see_also]
    return [*own, *(["See also:", *others] if others else [])]
