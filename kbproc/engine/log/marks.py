"""Remembers which segments of a log are unchanged since they were last read whole.

Each segment has a mark: its size, when it was changed, and its damage. A file keeps the marks
from one process to the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kbproc.base.durable import replace
from kbproc.base.values import decoder


class FileMark(msgspec.Struct, frozen=True, array_like=True):
    """A segment's state when it was read; `wrong`: its damage in words."""

    size: int
    changed_ns: int
    wrong: str | None = None


_decode = decoder(dict[str, FileMark]).decode


def look_at(segment: Path) -> FileMark:
    """Returns the segment's mark as it is now, without damage. Raises OSError."""
    status = segment.stat()
    return FileMark(status.st_size, status.st_mtime_ns)


class Marks:
    """The marks of one log's segments; without a file they end with the process.

    Threads put marks while others read them, so each reader takes a copy in one step.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Reads the marks from `path`; an unreadable file counts as one without marks."""
        self._path = path
        self._marks: dict[str, FileMark] = {}
        if path is not None:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                self._marks = _decode(path.read_bytes())
        self._saved = dict(self._marks)

    @property
    def damage(self) -> str | None:
        return next((mark.wrong for mark in dict(self._marks).values() if mark.wrong), None)

    def knows(self, segment: Path) -> bool:
        """Returns True if the segment was read and is unchanged since."""
        mark = self._marks.get(segment.name)
        try:
            current = look_at(segment)
        except OSError:
            return False
        return mark is not None and (mark.size, mark.changed_ns) == (
            current.size,
            current.changed_ns,
        )

    def unknown(self, segments: Iterable[Path]) -> list[Path]:
        """Returns the segments that must be read: all of them, if a marked one is gone."""
        existing = list(segments)
        if not set(self._marks) <= {segment.name for segment in existing}:
            return existing
        return [segment for segment in existing if not self.knows(segment)]

    def put(self, segment: Path, mark: FileMark) -> None:
        self._marks[segment.name] = mark

    def doubt(self) -> None:
        """Makes every segment unknown; the recorded damage stays until it is read again."""
        self._marks = {n: FileMark(-1, 0, mark.wrong) for n, mark in dict(self._marks).items()}

    def keep(self, segments: Iterable[Path]) -> None:
        """Forgets the marks of other segments, and writes changed marks to the file if it can."""
        names = {segment.name for segment in segments}
        marks = {name: mark for name, mark in dict(self._marks).items() if name in names}
        self._marks = dict(marks)
        if self._path is None or marks == self._saved:
            return
        with contextlib.suppress(OSError):
            replace(self._path, msgspec.json.encode(marks), name_is_durable=False)
            self._saved = marks
