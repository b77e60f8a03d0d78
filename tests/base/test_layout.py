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


@given(visible=st.integers(0, 5), more=st.integers(0, 5), brief=st.none() | st.integers(0, 6))
def test_a_heading_gives_the_full_count_if_lines_are_left_out(
    visible: int, more: int, brief: int | None
) -> None:
    part = LayoutPart.cut("Errors", ["line"] * visible, visible + more, brief=brief)
    for details in (False, True):
        heading, lines = part.shown(details=details)
        is_cut = brief is not None and not details
        assert len(lines) == (min(visible, brief) if is_cut and brief is not None else visible)
        full = visible + more
        expected = "Errors" if len(lines) == full else f"Errors, the first {len(lines)} of {full}"
        assert heading == expected
