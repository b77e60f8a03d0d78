"""Which files of a log are as they were when somebody last read them whole.

Owns: a mark for each segment (its size, when it was changed, what was wrong with it), and the
file that keeps them from one process to the next.
Refuses to know: how a segment is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kbproc.base.durable import replace
from kbproc.base.values import decoder


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """How a segment looked when it was read; `wrong`: what was damaged, in words."""

    size: int
    changed_ns: int
    wrong: str | None = None


_decode = decoder(dict[str, Mark]).decode


def look_at(segment: Path) -> Mark:
    """Raises OSError."""
    found = segment.stat()
    return Mark(found.st_size, found.st_mtime_ns)


class Marks:
    """Of the segments of one log; without a file they end with the process.

    Threads put marks while others look: each looks at a copy, which takes one step.
    """

    def __init__(self, path: Path | None = None) -> None:
        """A file that can't be read means that nothing is known."""
        self._path = path
        self._marks: dict[str, Mark] = {}
        if path is not None:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                self._marks = _decode(path.read_bytes())
        self._kept = dict(self._marks)

    @property
    def damage(self) -> str | None:
        return next((mark.wrong for mark in dict(self._marks).values() if mark.wrong), None)

    def knows(self, segment: Path) -> bool:
        """Whether it was read, and nobody has touched it since."""
        mark = self._marks.get(segment.name)
        try:
            now = look_at(segment)
        except OSError:
            return False
        return mark is not None and (mark.size, mark.changed_ns) == (now.size, now.changed_ns)

    def unknown(self, segments: Iterable[Path]) -> list[Path]:
        """Those that are to be read: all, if one is gone."""
        there = list(segments)
        if not set(self._marks) <= {segment.name for segment in there}:
            return there
        return [segment for segment in there if not self.knows(segment)]

    def put(self, segment: Path, mark: Mark) -> None:
        self._marks[segment.name] = mark

    def doubt(self) -> None:
        """Everything is to be read again; what was wrong is until then."""
        self._marks = {n: Mark(-1, 0, mark.wrong) for n, mark in dict(self._marks).items()}

    def keep(self, segments: Iterable[Path]) -> None:
        """Forgets all others, and writes what is new into the file, if that can be written."""
        names = {segment.name for segment in segments}
        marks = {name: mark for name, mark in dict(self._marks).items() if name in names}
        self._marks = dict(marks)
        if self._path is None or marks == self._kept:
            return
        with contextlib.suppress(OSError):
            replace(self._path, msgspec.json.encode(marks), name_is_durable=False)
            self._kept = marks
