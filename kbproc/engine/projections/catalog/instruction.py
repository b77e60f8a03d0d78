"""Derives the rows of standing instructions from the chunks of a conversation.

Only what a person said counts. A question begins a turn, and each turn has a section of its own, so
the marks of a chunk say where one begins. The words "User: " alone do not, because what a tool has
read may hold them, and an agent acts on what is found here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kbproc.base.text.instruction import is_general, standing_in, subjects
from kbproc.base.text.passage import Mark
from kbproc.engine.events.document import ChunkText

# Subjects of rows that no text has: each instruction has one row of the first, and a general one
# has one of the second.
EVERY, GENERAL = "*", "+"
# How a person's message begins, and where another's may; see engine.sources.parse.conversation.
_USER = "User: "
_NEXT = re.compile(r"\n\n(?!User: )[^\n:]{1,60}: ")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d) > turn \d+, (\d\d:\d\d)")

Row = tuple[str, str, int, int, int, int]


def rows_of(
    document: int, first_chunk: int, chunks: Sequence[ChunkText], added_at: str
) -> Iterator[Row]:
    """Yields a row for each subject of each standing instruction in a conversation.

    `added_at`: the time of an instruction without one.
    """
    for index, start, end, section in _messages(chunks):
        text, id = chunks[index].text, first_chunk + index
        said_at = time_of(section) or added_at
        for at, to in standing_in(text[start:end]):
            sentence = text[start + at : start + to]
            every = {EVERY, *subjects(sentence), *([GENERAL] if is_general(sentence) else [])}
            for subject in sorted(every):
                yield subject, said_at, id, start + at, to - at, document


def time_of(section: str | None) -> str | None:
    """Returns the time that a turn's section tells; None without one."""
    match = _TIME.fullmatch(section or "")
    return None if match is None else f"{match[1]}T{match[2]}:00.000Z"


def _messages(chunks: Iterable[ChunkText]) -> Iterator[tuple[int, int, int, str | None]]:
    """Yields what a person said: the chunk's index, start and end, and the turn's section."""
    last, is_person = None, False
    for index, chunk in enumerate(chunks):
        marks = chunk.marks or [Mark(0, section=chunk.section)]
        ends = [*(mark.at for mark in marks[1:]), len(chunk.text)]
        for mark, end in zip(marks, ends, strict=True):
            if end <= chunk.overlap and end < len(chunk.text):
                continue
            start = max(mark.at, chunk.overlap)
            if mark.section != last:
                last, is_person = mark.section, chunk.text.startswith(_USER, mark.at)
                start = max(start, mark.at + len(_USER))
            elif index and start == chunk.overlap and not chunk.text.startswith(_USER, start):
                is_person = is_person and not _begins(chunk.text, start)
            if not is_person:
                continue
            other = _NEXT.search(chunk.text, max(0, start - len("\n\n")), end)
            yield index, start, other.start() if other else end, mark.section
            is_person = other is None


def _begins(text: str, start: int) -> bool:
    """Returns whether a text begins like a message, at the beginning of a chunk."""
    return re.match(r"[^\n:]{1,60}: ", text[start : start + 64]) is not None
