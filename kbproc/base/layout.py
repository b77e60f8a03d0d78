"""What people see of an answer, before it is drawn: a table, a record, lines or hits.

Owns: these four shapes, and times as people read them.
Refuses to know: widths, colours and terminals (shell/printing/tables.py), and what answers are
about.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d\.\d{3}Z")


class Table(Struct, frozen=True, kw_only=True):
    """`columns`: the members of each row, in order; the first simple ones if left out."""

    rows: Sequence[dict[str, Any]]
    columns: Sequence[str] | None = None


class Record(Struct, frozen=True, kw_only=True):
    """One thing with all its members."""

    members: dict[str, Any]


class Lines(Struct, frozen=True, kw_only=True):
    lines: Sequence[str]


class Hit(Struct, frozen=True, kw_only=True):
    """One finding: `labels` stand behind its title; the snippet, `more` and `where` below."""

    score: float
    title: str
    labels: str
    snippet: str
    more: dict[str, Any] = {}
    where: str = ""


class Hits(Struct, frozen=True, kw_only=True):
    """Findings, numbered from `first` on, with a line before them."""

    hits: Sequence[Hit]
    head: str | None = None
    first: int = 1


Layout = Table | Record | Lines | Hits


def in_minutes(text: str) -> str:
    """With every time in it cut to its minute, and its Z for UTC kept."""
    return _TIME.sub(r"\1 \2Z", text)
