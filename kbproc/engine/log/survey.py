"""Surveys a damaged log: sound lines, damaged lines, and the records lost between them.

Every line is judged by itself, independently of its neighbours. Then the chain is followed from
its end, because each record names the one before it by its hash. So of two histories in one log,
only the one that clients have seen can be followed.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple

import msgspec

from kbproc.base.hashes import blake2b
from kbproc.engine.log import record as records
from kbproc.engine.log.interface import DamagedLine, Lost, Survey
from kbproc.engine.log.record import START, Position
from kbproc.engine.log.segment import is_hole, segments

_START = re.compile(rb'\{"seq":\d')


class SoundLine(NamedTuple):
    """A sound record and the place of its bytes; `line` counts from 1."""

    first: int
    seq: int
    hash: str
    prev: str
    segment: Path
    line: int
    offset: int
    size: int

    @property
    def position(self) -> Position:
        return Position(self.seq, self.hash)

    def read(self) -> bytes:
        with self.segment.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


def survey(folder: Path, applied_position: Position = START) -> Survey:
    """Reads every line of the log in `folder`.

    `applied_position`: the last record that a projection has applied. Raises OSError.
    """
    lines = _SurveyLines(segments(folder), applied_position)
    chain = _chain(lines, _end(lines, applied_position))
    lines.judge(chain)
    return Survey(sorted(lines.places), chain)


class _RawLine(NamedTuple):
    """A line as it lies in its segment, damaged or not."""

    segment: Path
    number: int
    offset: int
    data: bytes

    @property
    def is_torn(self) -> bool:
        """True if the line ends without a newline, as only a segment's last line can."""
        return not self.data.endswith(b"\n")

    def place(self, seq: int | None, wrong: str) -> DamagedLine:
        return DamagedLine(self.segment.name, self.number, seq, wrong)


class _SurveyLines:
    """The sound lines in the order of the files, and the faults of the others.

    `trailing`: the damaged lines after the last sound one.
    """

    def __init__(self, segments: list[Path], applied_position: Position) -> None:
        self.sound: list[SoundLine] = []
        self.places: list[DamagedLine] = []
        self.trailing: list[bytes] = []
        self.ends_at = (segments[-1].name if segments else "the log", 1)
        self._applied_position = applied_position
        for segment in segments:
            self._read(segment, is_last=segment == segments[-1])

    def _read(self, segment: Path, *, is_last: bool) -> None:
        offset = 0
        with segment.open("rb") as file:
            for number, data in enumerate(file, 1):
                if is_last and is_hole(data, offset, self._reached()) and self._may_end():
                    break
                self._take(_RawLine(segment, number, offset, data), is_last=is_last)
                offset += len(data)
                self.ends_at = (segment.name, number + 1)

    def _take(self, line: _RawLine, *, is_last: bool) -> None:
        """Judges one line; `is_last`: it is in the last segment, which may end unfinished."""
        sound_lines = _sound_records_in(line)
        acknowledged = any(
            sound_line.seq <= self._applied_position.seq for sound_line in sound_lines
        )
        if is_last and line.is_torn and not acknowledged:
            if self._reached() < self._applied_position.seq:
                self.places.append(line.place(records.seq_of(line.data), "is cut off"))
            return
        self.sound += sound_lines
        if sound_lines and sound_lines[-1].seq:
            self.trailing.clear()
        if len(sound_lines) != 1 or sound_lines[0].size != len(line.data) - (not line.is_torn):
            self.places.append(line.place(records.seq_of(line.data), _fault_of(line)))
            if not sound_lines:
                self.trailing.append(line.data)
        elif line.is_torn:
            self.places.append(line.place(sound_lines[0].seq, "has lost its newline"))

    def _may_end(self) -> bool:
        """Returns True if an opening would cut a hole off that comes next; see FileLog.open."""
        return (
            0 < self._applied_position.seq <= self._reached()
            and not self.places
            and all(
                (line.first, line.prev) == (before.seq + 1, before.hash)
                for before, line in itertools.pairwise(self.sound)
            )
        )

    def _reached(self) -> int:
        """Returns the last sound record's seq."""
        return self.sound[-1].seq if self.sound else 0

    def judge(self, chain: list[SoundLine | Lost]) -> None:
        """Adds the sound lines that stand in the wrong place."""
        used = {id(part) for part in chain}
        positions = {part.position for part in chain if isinstance(part, SoundLine)}
        highest = 0
        for line in self.sound:
            if id(line) in used:
                fault = f"stands after seq {highest}" if line.seq < highest else None
                highest = max(highest, line.seq)
            elif line.position in positions:
                fault = "is repeated"
            else:
                fault = "does not belong to this log's chain"
            if fault is not None:
                self.places.append(DamagedLine(line.segment.name, line.line, line.seq, fault))


def _sound_records_in(line: _RawLine) -> list[SoundLine]:
    """Returns the sound records of one line: several if a newline between them is damaged."""
    data = line.data.rstrip(b"\n")
    only_line = _sound(line, 0, data)
    if only_line is not None:
        return [only_line]
    starts = [match.start() for match in _START.finditer(data)]
    sound_lines = []
    for start, after in itertools.pairwise([*starts, len(data) + 1]):
        for end in (after - 1, after):
            sound_line = _sound(line, start, data[start:end])
            if sound_line is not None:
                sound_lines.append(sound_line)
                break
    return sound_lines


def _sound(line: _RawLine, start: int, data: bytes) -> SoundLine | None:
    """Returns the record in `data`, which begins at `start` of the line; None if not sound."""
    try:
        record = records.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not records.is_sound(record):
        return None
    return SoundLine(
        record.first,
        record.seq,
        record.hash,
        record.prev,
        line.segment,
        line.number,
        line.offset + start,
        len(data),
    )


def _fault_of(line: _RawLine) -> str:
    if line.is_torn:
        return "is cut off"
    try:
        records.decode(line.data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "can't be read"
    return "holds a damaged record"


def _end(lines: _SurveyLines, applied_position: Position) -> Position:
    """Returns the end of the chain: the applied position, or the log's end if it is later."""
    last = max((line.position for line in lines.sound), default=START)
    if last.seq < applied_position.seq:
        return applied_position
    if last.seq == applied_position.seq and any(
        line.position == applied_position for line in lines.sound
    ):
        last = applied_position
    if not lines.trailing:
        return last
    # The trailing lines' numbers must not be given to new records. Their hashes are unknown.
    digest = blake2b(b"".join(lines.trailing), digest_size=16).hexdigest()
    return Position(last.seq + len(lines.trailing), digest)


def _chain(lines: _SurveyLines, end: Position) -> list[SoundLine | Lost]:
    by_position: dict[Position, SoundLine] = {}
    for sound_line in lines.sound:
        by_position.setdefault(sound_line.position, sound_line)
    positions = sorted(by_position)
    chain: list[SoundLine | Lost] = []
    expected, (segment, line) = end, lines.ends_at
    while expected.seq > 0:
        record = by_position.get(expected)
        if record is None:
            below = bisect_left(positions, Position(expected.seq, ""))
            previous = positions[below - 1] if below else START
            chain.append(Lost(previous.seq + 1, expected, previous.hash, segment, line))
            expected = previous
        else:
            chain.append(record)
            expected = Position(record.first - 1, record.prev)
            segment, line = record.segment.name, record.line
    return chain[::-1]
