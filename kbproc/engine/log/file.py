"""Keeps a log as a folder of segment files.

It finds records in the segments, opens a log whose last line is unfinished, and keeps each batch
in one segment.
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

from kbproc.base import disk
from kbproc.base.durable import make_folder
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.wording import plural
from kbproc.engine.log import record as records
from kbproc.engine.log import segment as segment_files
from kbproc.engine.log.interface import Accept, Change, LogBatch, LogFile, Survey, UnsharedLog
from kbproc.engine.log.marks import Marks, look_at
from kbproc.engine.log.record import START, Position, Record, RecordDraft
from kbproc.engine.log.segment import (
    check,
    cut_hole,
    cut_torn_tail,
    decode_line,
    lines_from,
    lines_from_end,
)
from kbproc.engine.log.tail import LogTail

SEGMENT_BYTES = 64 << 20


class FileLog(UnsharedLog):
    """The segments of one store; see interface.Log for what its methods promise."""

    def __init__(self, folder: Path, marks: Path | None = None) -> None:
        """Only `open` makes a log that can be used."""
        self.head = START
        self.last_ts = ""
        self._folder = folder
        self._tail = LogTail()
        self._full = False
        self._strangers: list[str] = []
        self._marks = Marks(marks)
        self._writing = threading.Lock()
        self._pending: list[Record] = []  # records of the open batch that no file has yet

    @classmethod
    def open(
        cls, folder: Path, applied_position: Position = START, *, marks: Path | None = None
    ) -> Self:
        """Opens the log, cuts off a write that never ended, verifies the chain after the position.

        Such a write has a torn last line or a hole; see segment.is_hole. A log that ends before
        `applied_position`, or holds another record there, has lost acknowledged records: a
        projection has applied them. `marks`: the file that keeps the marks of the segments; see
        Marks. Raises store.corrupt, store.io.
        """
        make_folder(folder)
        segments = segment_files.segments(folder)
        segment_files.check_order(segments)
        for unfinished in segment_files.unfinished(folder):
            disk.unlink(unfinished)
        log = cls(folder, marks)
        if not segments:
            if applied_position.seq:
                raise KbprocError(
                    "store.corrupt",
                    "The log is empty, yet the views hold "
                    f"{plural(applied_position.seq, 'record')}.",
                    detail={"expected_seq": applied_position.seq},
                )
            return log
        cut_torn_tail(segments[-1], applied_position)
        try:
            log._verify_tail(applied_position)
        except KbprocError:
            is_rest_unknown = 0 < applied_position.seq <= log.head.seq
            if not is_rest_unknown or not cut_hole(segments[-1], log.head.seq):
                raise
        if segments[-1].stat().st_size == 0 and len(segments) > 1:
            disk.unlink(segments[-1])
        return log

    def _segments(self) -> list[Path]:
        return segment_files.segments(self._folder)

    def _verify_tail(self, applied_position: Position) -> None:
        """Moves `head` to the last record. At damage it stays at the sound record before that."""
        reaches_applied = applied_position.seq == 0
        for record in self.read(max(applied_position.seq - 1, 0)):
            if record.seq == applied_position.seq:
                reaches_applied = record.hash == applied_position.hash
                if not reaches_applied:
                    break
            self.head, self.last_ts = record.position, record.ts
        if not reaches_applied:
            raise KbprocError(
                "store.corrupt",
                f"The log does not hold record {applied_position.seq} as the views applied it: "
                "its end was cut off or replaced.",
                detail={"expected_seq": applied_position.seq, "last_seq": self._last_seq()},
            )

    def _last_seq(self) -> int:
        """Returns the seq of the last record on disk, even if it breaks the chain."""
        for segment in reversed(self._segments()):
            for line in lines_from_end(segment):
                return decode_line(segment, None, line).seq
        return 0

    # ------------------------------------------------------------------ reading

    def read(self, after_seq: int = 0, to_seq: int | None = None) -> Iterator[Record]:
        """Yields checked records; see interface.Log. An error names segment and line."""
        last = after_seq
        for record in self._read_files(after_seq, to_seq):
            last = record.seq
            yield record
        for record in self._pending:
            if last < record.seq and (to_seq is None or record.seq <= to_seq):
                yield record

    def _read_files(self, after_seq: int, to_seq: int | None) -> Iterator[Record]:
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
        """Reads segments that have changed; see interface.Log.

        It reads none if they have more than `most_bytes` together.
        """
        self._strangers = segment_files.strangers(self._folder)
        segments = self._segments()
        unknown = self._marks.unknown(segments)
        if most_bytes is None or sum(path.stat().st_size for path in unknown) <= most_bytes:
            for segment in unknown:
                mark = look_at(segment)
                damage = self._damage_in(segment, segments)
                self._marks.put(segment, msgspec.structs.replace(mark, wrong=damage))
            self._marks.keep(segments)

    def _damage_in(self, segment: Path, segments: list[Path]) -> str | None:
        """Returns the damage of a segment in words, or None.

        Reading begins at the last record of the segment before it, so that the link between the
        two is checked.
        """
        first = segment_files.first_seq(segment)
        after = [segment_files.first_seq(path) for path in segments[segments.index(segment) + 1 :]]
        end = min([self.head.seq, *(seq - 1 for seq in after)])
        try:
            self._read_to(max(first - 2, 0), end)
        except KbprocError as error:
            if error.type != "store.corrupt":
                raise
            return error.message
        return None

    def verify(self) -> int:
        self._marks.doubt()
        self.look()
        head = self.head.seq
        return head if self.damage is None else self._read_to(0, head)

    def _read_to(self, after_seq: int, head: int) -> int:
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
        """Returns full segments, and the last one up to the end of record `to_seq`."""
        segments = [path for path in self._segments() if segment_files.first_seq(path) <= to_seq]
        if not segments:
            return []
        *full_segments, last = segments
        end = next(
            offset + len(line)
            for offset, line in lines_from(last, to_seq)
            if records.seq_of(line) == to_seq
        )
        return [*(_file(path, path.stat().st_size) for path in full_segments), _file(last, end)]

    def survey(self) -> Survey:
        return survey_folder(self._folder, self.head)

    # ------------------------------------------------------------------ writing

    def batch(self) -> AbstractContextManager[LogBatch]:
        return self.own_batch()

    @contextlib.contextmanager
    def own_batch(self) -> Iterator[FileBatch]:
        """Opens a batch that writes to this folder."""
        with self._writing:
            self._make_room()
            was_checked = not self._tail.size or self._marks.knows(self._tail.path)
            batch = FileBatch(self, self._tail)
            try:
                yield batch
            finally:
                batch.end()
                # Only this process has changed the file since, so the mark may follow.
                if was_checked and self._tail.is_untouched():
                    self._marks.put(self._tail.path, look_at(self._tail.path))

    def hold(self, sealed: Sequence[Record]) -> None:
        """Makes the open batch's records readable before they are written."""
        self._pending = [*self._pending, *sealed]

    def let_go(self) -> list[Record]:
        """Returns the records held, and forgets them: they are written, or not wanted."""
        pending, self._pending = self._pending, []
        return pending

    def _make_room(self) -> None:
        """Begins a new segment if the last one is full, so that a batch lies in one segment."""
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
        damage = self._damage_in(segment, self._segments())
        self._marks.put(segment, msgspec.structs.replace(look_at(segment), wrong=damage))
        if damage is not None:
            raise KbprocError("store.corrupt", damage)

    def rewrite(self, change: Change, *, to_seq: int) -> int:
        """Rewrites each segment as a whole, or leaves it as it was; see interface.Log.

        Raises store.io while the last segment is in doubt.
        """
        changed = 0

        def counting_change(record: Record) -> Record:
            nonlocal changed
            if record.seq > to_seq:
                return record
            replacement = records.replaced(record, change(record))
            changed += replacement is not record
            return replacement

        with self._writing:
            self._tail.check()
            self._full = True  # the next batch begins a segment of its own
        for segment in self._segments():
            if segment_files.first_seq(segment) <= to_seq:
                segment_files.rewrite(segment, counting_change)
        return changed

    def close(self) -> None:
        is_ours = not self._tail.is_open or self._tail.is_untouched()
        self._tail.close()
        if is_ours:
            self._marks.keep(self._segments())


class FileBatch:
    """Records that are written to the tail; see interface.Batch."""

    def __init__(self, log: FileLog, tail: LogTail) -> None:
        self.head = log.head
        self.last_ts = log.last_ts
        self._log = log
        self._tail = tail

    def append(
        self, drafts: Sequence[RecordDraft], accept: Accept = lambda records: None
    ) -> list[Record]:
        sealed = records.seal_all(drafts, self.head)
        if sealed:
            accept(sealed)
            self._log.hold(sealed)
            self.head, self.last_ts = sealed[-1].position, sealed[-1].ts
        return sealed

    def write(self) -> None:
        if pending := self._log.let_go():
            self.put(pending)

    def put(self, sealed: Sequence[Record]) -> None:
        """Writes records that are numbered and chained already."""
        self._tail.write(b"".join(records.encode(record) + b"\n" for record in sealed))
        self.head, self.last_ts = sealed[-1].position, sealed[-1].ts
        reach("log.written")

    def commit(self) -> None:
        self.write()
        if self.head != self._log.head:
            self._tail.sync()
            self._log.head, self._log.last_ts = self.head, self.last_ts

    def end(self) -> None:
        """Takes back the records that are not committed."""
        self._log.let_go()
        self._tail.take_back()


def _file(path: Path, size: int) -> LogFile:
    return LogFile(path.name, size, lambda: path.open("rb"))


# ---------------------------------------------------------- logs that no process has open


def is_empty(folder: Path) -> bool:
    """Returns True if `folder` holds no record or does not exist."""
    return not any(path.stat().st_size for path in segment_files.segments(folder))


def survey_folder(folder: Path, applied_position: Position = START) -> Survey:
    """Returns the damaged and the lost records of the log in `folder`.

    `applied_position`: the last record that a projection has applied. Raises OSError.
    """
    from kbproc.engine.log import survey as surveys  # not above: hardly any log is damaged

    return surveys.survey(folder, applied_position)


def write_repaired(survey: Survey, folder: Path) -> None:
    """Makes `folder`, a durable log of the records that the survey found. Raises OSError."""
    segment_files.write(folder, survey.lines(), SEGMENT_BYTES)


def overlay(log: Path, folder: Path) -> None:
    """Makes `folder`, a log with the records of `log`, whose files are never written.

    Full segments are links; the last one, to which a batch may be written, is a copy.
    Raises OSError.
    """
    disk.make_folder(folder, 0o700)
    *full_segments, last = (path for path in segment_files.segments(log) if path.stat().st_size)
    for path in full_segments:
        (folder / path.name).symlink_to(path)
    shutil.copyfile(last, folder / last.name)
