"""What is left of a damaged log: every line is judged by itself, whatever surrounds it.

Owns: telling sound lines from damaged ones, where each stands, and which records are
lost between them.
Refuses to know: what events mean, the views, and how a log is repaired.

The chain is followed from its end. Each record names the one before it by its hash. So of
two histories in one log, only the one that clients have seen can be followed.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from kbproc.log import record as records
from kbproc.log.interface import Lost, Place, Survey
from kbproc.log.record import START, Position
from kbproc.log.segment import segments

_START = re.compile(rb'\{"seq":\d')


class Line(NamedTuple):
    """A sound record, and where its bytes are; `line` counts from 1."""

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


def survey(folder: Path, known: Position = START) -> Survey:
    """Reads every line of the log in `folder`; `known` is what a view has applied.

    Raises OSError.
    """
    lines = _Lines(segments(folder), known)
    chain = _chain(lines, _end(lines, known))
    lines.judge(chain)
    return Survey(sorted(lines.places), chain)


class _Raw(NamedTuple):
    """A line as it lies in its segment, damaged or not."""

    segment: Path
    number: int
    offset: int
    data: bytes

    @property
    def is_torn(self) -> bool:
        """Whether it ends without a newline: its segment's last line may."""
        return not self.data.endswith(b"\n")

    def place(self, seq: int | None, wrong: str) -> Place:
        return Place(self.segment.name, self.number, seq, wrong)


class _Lines:
    """The sound lines in the order of the files, and what is wrong with the others.

    `trailing`: the damaged lines after the last sound one.
    """

    def __init__(self, segments: list[Path], known: Position) -> None:
        self.sound: list[Line] = []
        self.places: list[Place] = []
        self.trailing: list[bytes] = []
        self.ends_at = (segments[-1].name if segments else "the log", 1)
        self._known = known
        for segment in segments:
            self._read(segment, is_last=segment == segments[-1])

    def _read(self, segment: Path, *, is_last: bool) -> None:
        offset = 0
        with segment.open("rb") as file:
            for number, data in enumerate(file, 1):
                self._take(_Raw(segment, number, offset, data), is_last=is_last)
                offset += len(data)
                self.ends_at = (segment.name, number + 1)

    def _take(self, line: _Raw, *, is_last: bool) -> None:
        """`is_last`: the line is in the last segment, where a write may be unfinished."""
        found = _sound_in(line)
        acknowledged = any(kept.seq <= self._known.seq for kept in found)
        if is_last and line.is_torn and not acknowledged:
            if self._reached() < self._known.seq:
                self.places.append(line.place(records.seq_of(line.data), "is cut off"))
            return
        self.sound += found
        if found and found[-1].seq:
            self.trailing.clear()
        if len(found) != 1 or found[0].size != len(line.data) - (not line.is_torn):
            self.places.append(line.place(records.seq_of(line.data), _wrong(line)))
            if not found:
                self.trailing.append(line.data)
        elif line.is_torn:
            self.places.append(line.place(found[0].seq, "has lost its newline"))

    def _reached(self) -> int:
        """The last sound record's seq."""
        return self.sound[-1].seq if self.sound else 0

    def judge(self, chain: list[Line | Lost]) -> None:
        """Adds the sound lines that stand in the wrong place."""
        used = {id(part) for part in chain}
        positions = {part.position for part in chain if isinstance(part, Line)}
        highest = 0
        for kept in self.sound:
            if id(kept) in used:
                wrong = f"stands after seq {highest}" if kept.seq < highest else None
                highest = max(highest, kept.seq)
            elif kept.position in positions:
                wrong = "is repeated"
            else:
                wrong = "does not belong to this log's chain"
            if wrong is not None:
                self.places.append(Place(kept.segment.name, kept.line, kept.seq, wrong))


def _sound_in(line: _Raw) -> list[Line]:
    """The sound records of one line: more than one where the newline between them is damaged."""
    data = line.data.rstrip(b"\n")
    whole = _sound(line, 0, data)
    if whole is not None:
        return [whole]
    starts = [match.start() for match in _START.finditer(data)]
    found = []
    for start, after in itertools.pairwise([*starts, len(data) + 1]):
        for end in (after - 1, after):
            kept = _sound(line, start, data[start:end])
            if kept is not None:
                found.append(kept)
                break
    return found


def _sound(line: _Raw, start: int, data: bytes) -> Line | None:
    """The record of `data`, which begins at `start` of the line; None if it is not sound."""
    try:
        record = records.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not records.is_sound(record):
        return None
    return Line(
        record.first,
        record.seq,
        record.hash,
        record.prev,
        line.segment,
        line.number,
        line.offset + start,
        len(data),
    )


def _wrong(line: _Raw) -> str:
    if line.is_torn:
        return "is cut off"
    try:
        records.decode(line.data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "can't be read"
    return "holds a damaged record"


def _end(lines: _Lines, known: Position) -> Position:
    """Where the chain ends: at what a view has applied, or at what the log has beyond it."""
    last = max((kept.position for kept in lines.sound), default=START)
    if last.seq < known.seq:
        return known
    if last.seq == known.seq and any(kept.position == known for kept in lines.sound):
        last = known
    if not lines.trailing:
        return last
    # The trailing lines' numbers must not be given to new records. Their hashes are unknown.
    digest = blake2b(b"".join(lines.trailing), digest_size=16).hexdigest()
    return Position(last.seq + len(lines.trailing), digest)


def _chain(lines: _Lines, end: Position) -> list[Line | Lost]:
    by_position: dict[Position, Line] = {}
    for kept in lines.sound:
        by_position.setdefault(kept.position, kept)
    positions = sorted(by_position)
    chain: list[Line | Lost] = []
    want, (segment, line) = end, lines.ends_at
    while want.seq > 0:
        found = by_position.get(want)
        if found is None:
            below = bisect_left(positions, Position(want.seq, ""))
            before = positions[below - 1] if below else START
            chain.append(Lost(before.seq + 1, want, before.hash, segment, line))
            want = before
        else:
            chain.append(found)
            want = Position(found.first - 1, found.prev)
            segment, line = found.segment.name, found.line
    return chain[::-1]
