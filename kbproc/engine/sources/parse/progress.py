"""Describes how far the reading of one document is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from msgspec import Meta, Struct

Unit = Literal["page", "character"]
Report = Callable[[Unit, int, int], None]
"""A function that gets the unit, how many are read, and how many there are."""

_Count = Annotated[int, Meta(ge=0, le=1 << 40)]


class Progress(Struct, frozen=True, kw_only=True, tag="progress", forbid_unknown_fields=True):
    """Progress as `done` of `total` units: first a PDF's pages, then the characters of any text."""

    unit: Unit
    done: _Count
    total: _Count

    def in_words(self) -> str:
        if self.unit == "page":
            return f"page {self.done} of {self.total}"
        return f"{min(100, 100 * self.done // max(1, self.total))} % of its text"


def no_report(unit: Unit, done: int, total: int) -> None:
    """Ignores a report."""
