"""Shapes of an answer before it is drawn: table, record, report, lines or hits.

Times are written as people read them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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


class LayoutPart(Struct, frozen=True, kw_only=True):
    """Lines below a heading; `is_detail` ones are shown only on request."""

    heading: str
    lines: Sequence[str]
    is_detail: bool = False

    @classmethod
    def cut(
        cls, heading: str, lines: Sequence[str], count: int, *, is_detail: bool = False
    ) -> LayoutPart:
        """Returns a part whose heading gives the full count if `lines` are fewer."""
        if len(lines) < count:
            heading = f"{heading}, the first {len(lines)} of {count}"
        return cls(heading=heading, lines=lines, is_detail=is_detail)


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
