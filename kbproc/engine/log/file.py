"""The log that is a folder of files.

Owns: which segments there are, finding a record in them, opening a log whose last line is
unfinished, keeping each batch in one segment.
Refuses to know: what events mean, and what a line looks like (record.py).
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

import msgspec

from kbproc.base.durable import make_folder
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.wording import plural
from kbproc.log import record as records
from kbproc.log import segment as segment_files
from kbproc.log import survey as surveys
from kbproc.log.interface import Batch, Change, LogFile, Survey, Unshared
from kbproc.log.marks import Marks, look_at
from kbproc.log.record import START, Draft, Position, Record
from kbproc.log.segment import check, cut_torn_tail, decode_line, lines_from, lines_from_end
from kbproc.log.tail import Tail

SEGMENT_BYTES = 64 << 20


class FileLog(Unshared):
    """The segments of one store; see interface.Log for what its methods promise."""

    def __init__(self, folder: Path, marks: Path | None = None) -> None:
        """Only `open` makes a log that can be used."""
        self.head = START
        self.last_ts = ""
        self._folder = folder
        self._tail = Tail()
        self._full = False
        self._strangers: list[str] = []
        self._marks = Marks(marks)
        self._writing = threading.Lock()

    @classmethod
    def open(cls, folder: Path, known: Position = START, *, marks: Path | None = None) -> Self:
        """Opens the log, cuts off a torn last line and verifies the chain after `known`.

        `known` is what a view has applied; a log that does not reach it, or
        holds another record there, has lost acknowledged records. `marks`: the file that
        keeps what is known of the segments. Raises store.corrupt, store.io.
        """
        make_folder(folder)
        segments = segment_files.segments(folder)
        segment_files.check_order(segments)
        for unfinished in segment_files.unfinished(folder):
            unfinished.unlink()
        log = cls(folder, marks)
        if not segments:
            if known.seq:
                raise KbprocError(
                    "store.corrupt",
                    f"The log is empty, yet the views hold {plural(known.seq, 'record')}.",
                    detail={"expected_seq": known.seq},
                )
            return log
        cut_torn_tail(segments[-1], known)
        if segments[-1].stat().st_size == 0 and len(segments) > 1:
            segments.pop().unlink()
        log._verify_tail(known)
        return log

    def _segments(self) -> list[Path]:
        return segment_files.segments(self._folder)

    def _verify_tail(self, known: Position) -> None:
        previous = START if known.seq == 0 else known
        at_known = known.seq == 0
        for record in self.read(max(known.seq - 1, 0)):
            if record.seq == known.seq:
                at_known = record.hash == known.hash
                if not at_known:
                    break
            self.last_ts = record.ts
            previous = record.position
        if not at_known:
            raise KbprocError(
                "store.corrupt",
                f"The log does not hold record {known.seq} as the views applied it: "
                "its end was cut off or replaced.",
                detail={"expected_seq": known.seq, "last_seq": self._last_seq()},
            )
        self.head = previous

    def _last_seq(self) -> int:
        """Of the last record on disk, whether it fits or not."""
        for segment in reversed(self._segments()):
            for line in lines_from_end(segment):
                return decode_line(segment, None, line).seq
        return 0

    # ------------------------------------------------------------------ reading

    def read(self, after_seq: int = 0, to_seq: int | None = None) -> Iterator[Record]:
        """See interface.Log. Each record is checked; damage is told with segment and line."""
        if to_seq is not None and to_seq <= after_seq:
            return
        previous = START if after_seq == 0 else None
        for segment in segment_files.segments_from(self._folder, after_seq + 1):
            for offset, line in lines_from(segment, after_seq + 1 if previous is None else 0):
                record = decode_line(segment, offset, line)
                if record.seq <= after_seq:
                    continue
                if to_seq is not None and record.seq > to_seq:
                    return
                check(segment, offset, record, previous, after_seq)
                previous = record.position
                yield record
                if record.seq == to_seq:
                    return

    @property
    def damage(self) -> str | None:
        return self._marks.damage

    @property
    def strangers(self) -> list[str]:
        return self._strangers

    def look(self, most_bytes: int | None = None) -> None:
        """See interface.Log. More than `most_bytes` is left for another time."""
        self._strangers = segment_files.strangers(self._folder)
        segments = self._segments()
        unknown = self._marks.unknown(segments)
        if most_bytes is None or sum(path.stat().st_size for path in unknown) <= most_bytes:
            for segment in unknown:
                seen = look_at(segment)
                wrong = self._wrong_in(segment, segments)
                self._marks.put(segment, msgspec.structs.replace(seen, wrong=wrong))
            self._marks.keep(segments)

    def _wrong_in(self, segment: Path, segments: list[Path]) -> str | None:
        """Its records, from the last one of the segment before it on."""
        first = segment_files.first_seq(segment)
        after = [segment_files.first_seq(path) for path in segments[segments.index(segment) + 1 :]]
        end = min([self.head.seq, *(seq - 1 for seq in after)])
        try:
            self._read_whole(max(first - 2, 0), end)
        except KbprocError as error:
            if error.type != "store.corrupt":
                raise
            return error.message
        return None

    def verify(self) -> int:
        self._marks.doubt()
        self.look()
        head = self.head.seq
        return head if self.damage is None else self._read_whole(0, head)

    def _read_whole(self, after_seq: int, head: int) -> int:
        seq = after_seq
        for record in self.read(after_seq, head):
            seq = record.seq
        if seq < head:
            raise KbprocError(
                "store.corrupt",
                f"The log ends at seq {seq}, not at {head}.",
                detail={"expected_seq": head, "last_seq": seq},
            )
        return head

    def as_files(self, to_seq: int) -> list[LogFile]:
        """Whole segments, and the last one up to the end of record `to_seq`."""
        segments = [path for path in self._segments() if segment_files.first_seq(path) <= to_seq]
        if not segments:
            return []
        *whole, last = segments
        end = next(
            offset + len(line)
            for offset, line in lines_from(last, to_seq)
            if records.seq_of(line) == to_seq
        )
        return [*(_file(path, path.stat().st_size) for path in whole), _file(last, end)]

    def survey(self) -> Survey:
        return survey_folder(self._folder, self.head)

    # ------------------------------------------------------------------ writing

    def batch(self) -> AbstractContextManager[Batch]:
        return self.own_batch()

    @contextlib.contextmanager
    def own_batch(self) -> Iterator[FileBatch]:
        """A batch of this folder."""
        with self._writing:
            self._make_room()
            known = not self._tail.size or self._marks.knows(self._tail.path)
            batch = FileBatch(self, self._tail)
            try:
                yield batch
            finally:
                batch.end()
                if known and self._tail.is_untouched():  # what has changed since is ours
                    self._marks.put(self._tail.path, look_at(self._tail.path))

    def _make_room(self) -> None:
        """A full segment ends before a batch, never within it: a batch lies in one segment."""
        if self._tail.in_doubt:
            self._settle()
        if self._tail.is_open and self._tail.size < SEGMENT_BYTES and not self._full:
            return
        segments = self._segments()
        segment_files.check_order(segments)  # a copy may have come since the log was opened
        if segments and segments[-1].stat().st_size < SEGMENT_BYTES and not self._full:
            path = segments[-1]
        else:
            path = self._folder / segment_files.name_of(self.head.seq + 1)
        self._tail.open(path)
        self._full = False

    def _settle(self) -> None:
        """Reads the segment from the disk before anything is acknowledged again.

        The next batch begins a segment of its own. Raises store.io, store.corrupt.
        """
        self._tail.settle()
        self._full = True
        segment = self._tail.path
        wrong = self._wrong_in(segment, self._segments())
        self._marks.put(segment, msgspec.structs.replace(look_at(segment), wrong=wrong))
        if wrong is not None:
            raise KbprocError("store.corrupt", wrong)

    def rewrite(self, change: Change, *, to_seq: int) -> int:
        """See interface.Log. Each segment is rewritten as a whole, or stays as it was.

        Raises store.io if no write is taken any more.
        """
        changed = 0

        def counted(record: Record) -> Record:
            nonlocal changed
            if record.seq > to_seq:
                return record
            other = records.replaced(record, change(record))
            changed += other is not record
            return other

        with self._writing:
            self._tail.check()
            self._full = True  # the next batch begins a segment of its own
        for segment in self._segments():
            if segment_files.first_seq(segment) <= to_seq:
                segment_files.rewrite(segment, counted)
        return changed

    def close(self) -> None:
        is_ours = not self._tail.is_open or self._tail.is_untouched()
        self._tail.close()
        if is_ours:
            self._marks.keep(self._segments())


class FileBatch:
    """What is written to the tail's end; see interface.Batch."""

    def __init__(self, log: FileLog, tail: Tail) -> None:
        self.head = log.head
        self.last_ts = log.last_ts
        self._log = log
        self._tail = tail

    def append(self, drafts: Sequence[Draft]) -> list[Record]:
        sealed = records.seal_all(drafts, self.head)
        if sealed:
            self.put(sealed)
        return sealed

    def put(self, sealed: Sequence[Record]) -> None:
        """Records that follow the last one; see `append`."""
        self._tail.write(b"".join(records.encode(record) + b"\n" for record in sealed))
        self.head, self.last_ts = sealed[-1].position, sealed[-1].ts
        reach("log.written")

    def commit(self) -> None:
        if self.head != self._log.head:
            self._tail.sync()
            self._log.head, self._log.last_ts = self.head, self.last_ts

    def end(self) -> None:
        """Takes back what is not committed."""
        self._tail.take_back()


def _file(path: Path, size: int) -> LogFile:
    return LogFile(path.name, size, lambda: path.open("rb"))


# ---------------------------------------------------------- logs that no process has open


def is_empty(folder: Path) -> bool:
    """Whether there is no record in `folder`, or no such folder."""
    return not any(path.stat().st_size for path in segment_files.segments(folder))


def survey_folder(folder: Path, known: Position = START) -> Survey:
    """What is damaged or lost; `known` is what a view has applied. Raises OSError."""
    return surveys.survey(folder, known)


def write_repaired(survey: Survey, folder: Path) -> None:
    """Makes `folder`, a durable log of what the survey found. Raises OSError."""
    segment_files.write(folder, survey.lines(), SEGMENT_BYTES)


def overlay(log: Path, folder: Path) -> None:
    """Makes `folder`, a log with the records of `log`, whose files are never written.

    Whole segments are links; the last one, to which a batch may be written, is a copy.
    Raises OSError.
    """
    folder.mkdir(mode=0o700)
    *whole, last = (path for path in segment_files.segments(log) if path.stat().st_size)
    for path in whole:
        (folder / path.name).symlink_to(path)
    shutil.copyfile(last, folder / last.name)
