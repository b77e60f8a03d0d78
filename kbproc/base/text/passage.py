"""Finds a passage's place in its source: its pages, section and lines."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Mark(Struct, frozen=True, array_like=True):
    """The place of a text from character `at` on; `line` is the source's, from 1.

    Until the next mark, each line break of the text is one of the source.
    """

    at: int
    page: int | None = None
    section: str | None = None
    line: int | None = None

    def line_at(self, text: str, at: int) -> int | None:
        return None if self.line is None else self.line + text.count("\n", self.at, at)


class Passage(Struct, frozen=True, kw_only=True):
    """The first and last page and line, and the section at the end.

    A passage runs up to the last word that a query shares with it, and more often than not it
    begins within the section before the one that answers.
    """

    page: int | None = None
    page_end: int | None = None
    section: str | None = None
    start_line: int | None = None
    end_line: int | None = None


def passage(marks: Sequence[Mark], text: str, start: int, end: int) -> Passage:
    """Returns the place in the source of the characters of `text` from `start` to before `end`.

    Characters without a line, such as a table's repeated head, don't count: the passage begins with
    the first line after them.
    """
    last = max(start, end - 1)
    first = _mark_at(marks, start)
    final = _mark_at(marks, last)
    lines = (mark.line for mark in marks if start < mark.at <= last and mark.line is not None)
    return Passage(
        page=first.page,
        page_end=final.page,
        section=final.section,
        start_line=first.line_at(text, start) or next(lines, None),
        end_line=final.line_at(text, last),
    )


def _mark_at(marks: Sequence[Mark], at: int) -> Mark:
    last = Mark(0)
    for mark in marks:
        if mark.at > at:
            break
        last = mark
    return last
