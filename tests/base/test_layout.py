"""Shapes of answers: times as people read them, and headings that say what was left out."""

from __future__ import annotations

from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from kbproc.base.layout import LayoutPart, in_minutes


@given(moment=st.datetimes(), before=st.text(max_size=5), after=st.text(max_size=5))
def test_every_time_loses_its_seconds_and_nothing_else(
    moment: datetime, before: str, after: str
) -> None:
    full = moment.isoformat(timespec="milliseconds") + "Z"
    short = moment.isoformat(" ", timespec="minutes") + "Z"
    assert in_minutes(f"{before}|{full}|{full}|{after}") == f"{before}|{short}|{short}|{after}"


@given(visible=st.integers(0, 5), more=st.integers(0, 5))
def test_a_heading_gives_the_full_count_if_lines_are_left_out(visible: int, more: int) -> None:
    part = LayoutPart.cut("Errors", ["line"] * visible, visible + more, is_detail=True)
    expected = f"Errors, the first {visible} of {visible + more}" if more else "Errors"
    assert (part.heading, len(part.lines), part.is_detail) == (expected, visible, True)
