"""Reads, checks, cuts, rewrites and writes segments, the files of a log.

Lines are found from either end or in the middle; errors say exactly where a segment is damaged.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from kbproc.base import disk
from kbproc.base.durable import create, remove, rename, sync_folder
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.paths import listed, printable
from kbproc.engine.log import record as records

if TYPE_CHECKING:
    from kbproc.engine.log.record import Position, Record

_BLOCK = 1 << 16
# The name of a segment: so many digits and an end.
_DIGITS, _END, _UNFINISHED = 12, ".ndjson", ".tmp"
_SECTOR = 512  # the size of a disk's smallest blocks; pages are multiples of it
_ZEROS = re.compile(rb"\0+")


def segments(folder: Path) -> list[Path]:
    """Returns the segments of the log in `folder`, in order."""
    return [path for path in listed(folder, "", _END) if _is_number(path.stem)]


def unfinished(folder: Path) -> list[Path]:
    """Returns the temporary files that an interrupted rewrite has left."""
    return [path for path in listed(folder, "", _UNFINISHED) if _is_number(path.stem)]


def _is_number(stem: str) -> bool:
    return len(stem) == _DIGITS and stem.isascii() and stem.isdecimal()


def _is_ours(name: str) -> bool:
    stem, point, end = name.partition(".")
    return _is_number(stem) and point + end in {_END, _UNFINISHED}


def segments_from(folder: Path, seq: int) -> list[Path]:
    """Returns the segment that holds record `seq`, and all later ones."""
    paths = segments(folder)
    before = [i for i, path in enumerate(paths) if first_seq(path) <= seq]
    return paths[before[-1] if before else 0 :]


def strangers(folder: Path) -> list[str]:
    """Returns the names of foreign files, such as the copies that a synchronised folder gets."""
    foreign = (path for path in folder.iterdir() if not _is_ours(path.name))
    return sorted(printable(Path(path.name)) for path in foreign)


def check_order(segments: list[Path]) -> None:
    """Raises store.corrupt for a file that has a segment's name and repeats others' records.

    Only first and last lines are read. Lost and damaged records are found when all is read.
    """
    last = 0
    for segment in segments:
        first, first_in_file = first_seq(segment), _begins(segment)
        repeats = first <= last or (first_in_file is not None and first_in_file <= last)
        if repeats or (first != last + 1 and not segment.stat().st_size):
            raise _stray_error(segment, first_in_file, last)
        line = next(lines_from_end(segment), b"")
        last = max(last, records.seq_of(line) or 0)


def _begins(segment: Path) -> int | None:
    """Returns the first seq of the segment's first line; None if the line can't be read."""
    with segment.open("rb") as file:
        line = file.readline()
    if records.seq_of(line) == first_seq(segment):  # the usual case needs no decoding
        return first_seq(segment)
    try:
        return records.decode(line).first
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _stray_error(segment: Path, first_in_file: int | None, last: int) -> KbprocError:
    content = "holds no record" if first_in_file is None else f"begins with record {first_in_file}"
    return KbprocError(
        "store.corrupt",
        f"{segment} is no part of this log: it {content}, and record {last + 1} comes next.",
        hint="It looks like a copy of another segment. Move it out of that folder, then open the "
        "store again; nothing was written. If that is not it: kbproc doctor --repair.",
        detail={"segment": segment.name, "expected_seq": last + 1},
    )


def name_of(first_seq: int) -> str:
    return f"{first_seq:012d}.ndjson"


def first_seq(segment: Path) -> int:
    return int(segment.stem)


def corrupt(segment: Path, message: str, **detail: object) -> KbprocError:
    return KbprocError(
        "store.corrupt",
        f"The log segment {segment.name} {message}.",
        detail={"segment": segment.name, **detail},
    )


def lines_from_end(path: Path) -> Iterator[bytes]:
    """Yields the file's lines without their newline, last first; reads blocks on demand."""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        rest = b""
        while position > 0:
            step = min(max(_BLOCK, len(rest)), position)
            position -= step
            file.seek(position)
            parts = (file.read(step) + rest).split(b"\n")
            rest = parts[0]
            yield from (line for line in reversed(parts[1:]) if line)
        if rest:
            yield rest


def cut_torn_tail(segment: Path, applied_position: Position) -> None:
    """Cuts off an unfinished last line: it was never acknowledged.

    A record that a projection has applied was acknowledged: then the line is damaged, and stays
    for a salvage. Raises store.corrupt in that case.
    """
    size = segment.stat().st_size
    if not size:
        return
    with segment.open("rb") as file:
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return
    lines = lines_from_end(segment)
    unfinished_line, last_line = next(lines, b""), next(lines, None)
    last = records.seq_of(last_line) if last_line else first_seq(segment) - 1
    if last is None:
        return  # a hole, or damage, before it
    if last < applied_position.seq:
        raise corrupt(
            segment,
            f"is damaged after seq {last}",
            expected_seq=applied_position.seq,
            last_seq=last,
        )
    _cut(segment, size - len(unfinished_line))


def _cut(segment: Path, size: int) -> None:
    fd = disk.open(segment, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        disk.truncate(fd, size)
        disk.sync(fd)
    finally:
        disk.close(fd)


def cut_hole(segment: Path, seq: int) -> bool:
    """Cuts off everything after record `seq` if a hole follows it; returns False if none does.

    See `is_hole`. The record and those before it are sound, and the segment is the last one.
    """
    before = first_seq(segment) - 1
    for offset, line in lines_from(segment, seq):
        if before == seq:
            if has_hole := is_hole(line, offset, seq):
                _cut(segment, offset)
            return has_hole
        before = records.seq_of(line) or before
    return False


def is_hole(line: bytes, offset: int, seq: int) -> bool:
    """Returns True if whole blocks of the line at `offset`, after record `seq`, are zeros.

    No record's line has a zero byte. The pages of a write reach the disk in any order, and the
    file's size may be there before them. So a power failure leaves zeros in the place of a page,
    and later pages after them. The zeros begin where the write began, which is a line's start, or
    where a block does.

    Nothing after such a hole was acknowledged if no projection has applied any of it: a sync makes
    every byte durable that the file has by then, so the missing block belongs to a write that was
    not synced, and what follows it was appended even later. Zeros within durable bytes are damage
    that looks the same: a projection that has applied the record tells them apart. Without any
    projection, as in a backup, nothing does, so there a hole is damage.
    """
    zeros = [match.span() for match in _ZEROS.finditer(line)]
    return (
        bool(zeros)
        and records.seq_of(line) in {None, seq + 1}
        and all(
            (start == 0 or (offset + start) % _SECTOR == 0) and (offset + end) % _SECTOR == 0
            for start, end in zeros
        )
    )


def rewrite(segment: Path, change: Callable[[Record], Record]) -> None:
    """Puts `change(record)` in the place of every record; unchanged records keep their bytes.

    The old file stands until the new one is durable. Raises OSError, store.corrupt.
    """
    temporary = segment.with_suffix(".tmp")
    differs = False
    try:
        remove(temporary)
        with create(temporary) as file:
            for offset, line in lines_from(segment):
                record = decode_line(segment, offset, line)
                replacement = change(record)
                differs |= replacement is not record
                file.write(line if replacement is record else records.encode(replacement) + b"\n")
        if differs:
            reach("purge.segment")
            rename(temporary, segment)
    finally:
        with contextlib.suppress(OSError):
            remove(temporary)


def write(folder: Path, lines: Iterable[tuple[int, bytes]], most_bytes: int) -> None:
    """Makes a log of these lines, each with its first seq; every file is durable on return.

    A segment ends once it has `most_bytes`. Raises OSError.
    """
    disk.make_folder(folder, 0o700)
    with contextlib.ExitStack() as stack:
        file: BinaryIO | None = None
        for first, line in lines:
            if file is None or file.tell() >= most_bytes:
                stack.close()
                file = stack.enter_context(create(folder / name_of(first)))
            file.write(line + b"\n")
    sync_folder(folder)


def lines_from(segment: Path, seq: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yields offset and bytes of each line, from shortly before record `seq` on."""
    with segment.open("rb") as file:
        offset = _near(file, seq) if seq else 0
        file.seek(offset)
        for line in file:
            yield offset, line
            offset += len(line)


def _near(file: BinaryIO, seq: int) -> int:
    """Returns the start of a line at or before record `seq`, found by halving.

    At an unreadable line it returns 0, so that the caller reads that line and reports it.
    """
    low, high = 0, file.seek(0, os.SEEK_END)
    while high - low > _BLOCK:
        middle = (low + high) // 2
        file.seek(middle)
        start = middle + len(file.readline())
        line_seq = records.seq_of(file.readline(64)) if start < high else seq
        if line_seq is None:
            return 0
        if line_seq < seq:
            low = start
        else:
            high = middle
    return low


def decode_line(segment: Path, offset: int | None, line: bytes) -> Record:
    try:
        return records.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        number = _line_number(segment, offset)
        raise corrupt(
            segment, f"holds a line that can't be read (line {number}): {error}", line=number
        ) from error


def _line_number(segment: Path, offset: int | None) -> int | None:
    if offset is None:
        return None
    with segment.open("rb") as file:
        return 1 + file.read(offset).count(b"\n")


def check(
    segment: Path, offset: int, record: Record, previous: Position | None, after_seq: int
) -> None:
    """Raises store.corrupt for a faulty record; without `previous` only `after_seq` is compared."""
    seq, hash = (after_seq, None) if previous is None else (previous.seq, previous.hash)
    fault = records.fault(record, seq, hash)
    if fault is not None:
        raise corrupt(segment, fault, line=_line_number(segment, offset), seq=record.seq)
