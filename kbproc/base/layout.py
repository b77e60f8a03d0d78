"""Shapes of an answer before it is drawn: table, record, report, lines or hits.

Times are written as people read them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d\.\d{3}Z")


class Table(Struct, frozen=True, kw_only=True):
    """Rows of members; `columns` are the members to show in order, by default the first simple
    ones. A column without any value is left out.

    `verbatim`: every column is shown, with names, nulls and values as they are.
    """

    rows: Sequence[dict[str, Any]]
    columns: Sequence[str] | None = None
    verbatim: bool = False


class LayoutRecord(Struct, frozen=True, kw_only=True):
    """One thing with all its members."""

    members: dict[str, Any]

    @classmethod
    def labelled(cls, data: dict[str, Any], labels: Mapping[str, str]) -> LayoutRecord:
        """Returns the record; `labels` name members whose own names say too little to people."""
        return cls(members={labels.get(name, name): value for name, value in data.items()})


class LayoutPart(Struct, frozen=True, kw_only=True):
    """Lines below a heading.

    `total`: the number of lines where only the first are there. `brief`: how many of them are shown
    unless details are requested; None shows all.
    """

    heading: str
    lines: Sequence[str]
    total: int = 0
    brief: int | None = None

    @classmethod
    def cut(
        cls, heading: str, lines: Sequence[str], total: int, *, brief: int | None = None
    ) -> LayoutPart:
        """Returns a part whose heading gives the full count if fewer lines are shown."""
        return cls(heading=heading, lines=lines, total=total, brief=brief)

    def shown(self, *, details: bool) -> tuple[str, Sequence[str]]:
        """Returns the heading and the lines below it."""
        lines = self.lines if details else self.lines[: self.brief]
        if len(lines) < self.total:
            return f"{self.heading}, the first {len(lines)} of {self.total}", lines
        return self.heading, lines


class Report(Struct, frozen=True, kw_only=True):
    """The outcome of several things: its parts first, then the counts."""

    parts: Sequence[LayoutPart]
    counts: dict[str, Any]


class TextLines(Struct, frozen=True, kw_only=True):
    lines: Sequence[str]


class HitLayout(Struct, frozen=True, kw_only=True):
    """One search result: `labels` follow its title; snippet, `more` and `where` stand below.

    `highlights`: (start, end) offsets of the matching words in the snippet.
    """

    score: float
    title: str
    labels: str
    snippet: str
    highlights: Sequence[Sequence[int]] = ()
    more: dict[str, Any] = {}
    where: str = ""


class Hits(Struct, frozen=True, kw_only=True):
    """Search results, numbered from `first` on, with a line before them."""

    hits: Sequence[HitLayout]
    head: str | None = None
    first: int = 1


Layout = Table | LayoutRecord | Report | TextLines | Hits


def in_minutes(text: str) -> str:
    """Returns the text with every time cut to its minute; its Z for UTC stays."""
    return _TIME.sub(r"\1 \2Z", text)
