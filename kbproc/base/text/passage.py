"""Where a passage stands in its source: on which pages, in which section, on which lines.

Owns: marks, which say it for a text from some character on, and what they say of a passage.
Refuses to know: what a text is a part of, and formats.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Mark(Struct, frozen=True, array_like=True):
    """From character `at` of a text on. `line`: of the source, for that character, from 1.

    Until the next mark, each line break of the text is one of the source.
    """

    at: int
    page: int | None = None
    section: str | None = None
    line: int | None = None

    def line_at(self, text: str, at: int) -> int | None:
        return None if self.line is None else self.line + text.count("\n", self.at, at)


class Passage(Struct, frozen=True, kw_only=True):
    """First and last page and line; the section of its beginning."""

    page: int | None = None
    page_end: int | None = None
    section: str | None = None
    start_line: int | None = None
    end_line: int | None = None


def passage(marks: Sequence[Mark], text: str, start: int, end: int) -> Passage:
    """The place in the source of the characters of `text` from `start` to before `end`.

    Characters without a line, such as a table's repeated head, count for no line: the passage
    begins with the first line after them.
    """
    last = max(start, end - 1)
    first = _mark_at(marks, start)
    final = _mark_at(marks, last)
    lines = (mark.line for mark in marks if start < mark.at <= last and mark.line is not None)
    return Passage(
        page=first.page,
        page_end=final.page,
        section=first.section,
        start_line=first.line_at(text, start) or next(lines, None),
        end_line=final.line_at(text, last),
    )


def _mark_at(marks: Sequence[Mark], at: int) -> Mark:
    found = Mark(0)
    for mark in marks:
        if mark.at > at:
            break
        found = mark
    return found
