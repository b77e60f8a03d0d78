"""One file of the log: its name, its lines, found from either end or in the middle.

Owns: reading a segment, saying exactly where it is damaged, cutting off its torn
tail, rewriting it, writing new ones.
Refuses to know: which of them is appended to, and how (tail.py).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from kbproc.base.durable import create, rename, sync_folder
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.paths import printable
from kbproc.log import record as records
from kbproc.log.record import Position, Record

_BLOCK = 1 << 16
_NAME = re.compile(r"\d{12}\.ndjson")
_UNFINISHED = re.compile(r"\d{12}\.tmp")


def segments(folder: Path) -> list[Path]:
    """Those of the log in `folder`, in order."""
    return sorted(path for path in folder.glob("*.ndjson") if _NAME.fullmatch(path.name))


def unfinished(folder: Path) -> list[Path]:
    """What a rewriting that was cut off has left."""
    return [path for path in folder.glob("*.tmp") if _UNFINISHED.fullmatch(path.name)]


def _is_ours(name: str) -> bool:
    return bool(_NAME.fullmatch(name) or _UNFINISHED.fullmatch(name))


def segments_from(folder: Path, seq: int) -> list[Path]:
    """The one that holds this record, and all after it."""
    found = segments(folder)
    before = [i for i, path in enumerate(found) if first_seq(path) <= seq]
    return found[before[-1] if before else 0 :]


def strangers(folder: Path) -> list[str]:
    """Names of what is no part of the log, such as the copies that a synchronised folder gets."""
    found = (path for path in folder.iterdir() if not _is_ours(path.name))
    return sorted(printable(Path(path.name)) for path in found)


def check_order(segments: list[Path]) -> None:
    """Raises store.corrupt for a file that has a segment's name and repeats what others hold.

    Only first and last lines are read. What is lost or damaged is left to whoever reads on.
    """
    last = 0
    for segment in segments:
        first, begins = first_seq(segment), _begins(segment)
        repeats = first <= last or (begins is not None and begins <= last)
        if repeats or (first != last + 1 and not segment.stat().st_size):
            raise _stray(segment, begins, last)
        line = next(lines_from_end(segment), b"")
        last = max(last, records.seq_of(line) or 0)


def _begins(segment: Path) -> int | None:
    """The first seq that its first line stands for; None if that can't be told."""
    with segment.open("rb") as file:
        line = file.readline()
    if records.seq_of(line) == first_seq(segment):  # as a rule: it need not be decoded
        return first_seq(segment)
    try:
        return records.decode(line).first
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _stray(segment: Path, begins: int | None, last: int) -> KbprocError:
    told = "holds no record" if begins is None else f"begins with record {begins}"
    return KbprocError(
        "store.corrupt",
        f"{segment} is no part of this log: it {told}, and record {last + 1} comes next.",
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
    """The file's lines without their newline, last first, reading only as far as asked."""
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


def cut_torn_tail(segment: Path, known: Position) -> None:
    """Cuts off an unfinished last line: it was never acknowledged.

    One that a view has applied was: then it is damage, and stays for a salvage.
    """
    size = segment.stat().st_size
    if not size:
        return
    with segment.open("rb+") as file:
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return
        lines = lines_from_end(segment)
        torn, whole = next(lines, b""), next(lines, None)
        last = decode_line(segment, None, whole).seq if whole else first_seq(segment) - 1
        if last < known.seq:
            raise corrupt(
                segment, f"is damaged after seq {last}", expected_seq=known.seq, last_seq=last
            )
        file.truncate(size - len(torn))
        os.fsync(file.fileno())


def rewrite(segment: Path, change: Callable[[Record], Record]) -> None:
    """Puts `change(record)` in the place of every record; the same bytes where it is the same.

    The old file stands until the new one is durable. Raises OSError, store.corrupt.
    """
    beside = segment.with_suffix(".tmp")
    differs = False
    try:
        beside.unlink(missing_ok=True)
        with create(beside) as file:
            for offset, line in lines_from(segment):
                record = decode_line(segment, offset, line)
                other = change(record)
                differs |= other is not record
                file.write(line if other is record else records.encode(other) + b"\n")
        if differs:
            reach("purge.segment")
            rename(beside, segment)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def write(folder: Path, lines: Iterable[tuple[int, bytes]], most_bytes: int) -> None:
    """Makes a log of these lines, each with its first seq; every file is durable then.

    A segment ends once it has `most_bytes`. Raises OSError.
    """
    folder.mkdir(mode=0o700)
    with contextlib.ExitStack() as open_now:
        file: BinaryIO | None = None
        for first, line in lines:
            if file is None or file.tell() >= most_bytes:
                open_now.close()
                file = open_now.enter_context(create(folder / name_of(first)))
            file.write(line + b"\n")
    sync_folder(folder)


def lines_from(segment: Path, seq: int = 0) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of each line, from shortly before record `seq` on."""
    with segment.open("rb") as file:
        offset = _near(file, seq) if seq else 0
        file.seek(offset)
        for line in file:
            yield offset, line
            offset += len(line)


def _near(file: BinaryIO, seq: int) -> int:
    """The start of a line at or before record `seq`, found by halving.

    Where a line can't be read the search ends early: whoever reads on finds it.
    """
    low, high = 0, file.seek(0, os.SEEK_END)
    while high - low > _BLOCK:
        middle = (low + high) // 2
        file.seek(middle)
        start = middle + len(file.readline())
        found = records.seq_of(file.readline(64)) if start < high else seq
        if found is None:
            return 0
        if found < seq:
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
    """Raises store.corrupt; `previous` None: only the seq before it is known."""
    seq, hash = (after_seq, None) if previous is None else previous
    wrong = records.fault(record, seq, hash)
    if wrong is not None:
        raise corrupt(segment, wrong, line=_line_number(segment, offset), seq=record.seq)
