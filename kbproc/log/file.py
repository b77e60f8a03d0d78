"""The append-only log: the truth that everything else is made from.

Owns: segments, finding a record in them, append, fsync, the torn tail.
Refuses to know: event types and what they mean, and what a line looks like
(records.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kbproc.base import failpoints
from kbproc.base.durable import make_folder, sync_folder, write_all
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.wording import plural
from kbproc.log import record as records
from kbproc.log.record import START, Draft, Position, Record
from kbproc.log.segment import check, cut_torn_tail, decode_line, lines_from, lines_from_end

SEGMENT_BYTES = 64 << 20


class Mark(NamedTuple):
    """What `rollback` needs to know."""

    size: int
    head: Position
    last_ts: str


def _refused(error: OSError) -> KbprocError:
    return KbprocError("store.io", f"The log could not be written: {error.strerror}.")


class Log:
    """The segments of one store. One thread appends; any number read."""

    def __init__(self, folder: Path, head: Position, last_ts: str) -> None:
        self.folder = folder
        self.head = head
        self.last_ts = last_ts
        self.failed: OSError | None = None
        self._fd = -1
        self._size = 0
        self._full = False

    @classmethod
    def open(cls, folder: Path, known: Position = START) -> Log:
        """Opens the log, cuts off a torn last line and verifies the chain after `known`.

        `known` is what a view has applied; a log that does not reach it, or
        holds another record there, has lost acknowledged records.
        Raises store.corrupt, store.io.
        """
        make_folder(folder)
        log = cls(folder, START, "")
        segments = log.segments()
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

    def segments(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.ndjson"))

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
        for segment in reversed(self.segments()):
            for line in lines_from_end(segment):
                return decode_line(segment, None, line).seq
        return 0

    # ------------------------------------------------------------------ reading

    def read(self, after_seq: int = 0, to_seq: int | None = None) -> Iterator[Record]:
        """Records with `after_seq` < seq ≤ `to_seq`, in order, each checked.

        Beyond the last synced record a writer may be in the middle of a line: name
        `to_seq` where one may be at work. Raises store.corrupt with segment, line and seq.
        """
        previous = START if after_seq == 0 else None
        for segment in self._segments_from(after_seq + 1):
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

    def _segments_from(self, seq: int) -> list[Path]:
        """The one that holds this record, and all after it."""
        segments = self.segments()
        before = [i for i, segment in enumerate(segments) if int(segment.stem) <= seq]
        return segments[before[-1] if before else 0 :]

    def verify(self) -> int:
        """Checks every record up to `head`; returns how many. Raises store.corrupt.

        Beyond `head` a writer may be in the middle of a line.
        """
        head, seq = self.head.seq, 0
        for record in self.read(to_seq=head) if head else ():
            seq = record.seq
        if seq < head:
            raise KbprocError(
                "store.corrupt",
                f"The log ends at seq {seq}, not at {head}.",
                detail={"expected_seq": head, "last_seq": seq},
            )
        return head

    # ------------------------------------------------------------------ writing

    def append(self, drafts: Sequence[Draft]) -> list[Record]:
        """Numbers, chains and writes `drafts`; durable only after `sync`.

        Raises store.io with nothing kept.
        """
        if self.failed is not None:
            raise _refused(self.failed)
        sealed: list[Record] = []
        head = self.head
        for draft in drafts:
            sealed.append(records.seal(draft, head))
            head = sealed[-1].position
        data = b"".join(records.encode(record) + b"\n" for record in sealed)
        start = self._size
        try:
            if self._fd < 0:
                self._open_segment()
                start = self._size
            self._write(data)
        except OSError as error:
            self._cut_to(start)
            raise _refused(error) from error
        self._size += len(data)
        self.head = head
        self.last_ts = sealed[-1].ts if sealed else self.last_ts
        reach("log.written")
        return sealed

    def _write(self, data: bytes) -> None:
        reach("log.write")
        view = memoryview(data)
        if failpoints.armed():
            half = len(view) // 2
            write_all(self._fd, view[:half])
            view = view[half:]
            reach("log.torn")
        write_all(self._fd, view)

    def mark(self) -> Mark:
        """Where the log stands, for `rollback` of what was appended since and not synced.

        A full segment ends here and never later, so that one batch lies in one segment.
        """
        if self.failed is not None:
            raise _refused(self.failed)
        try:
            if self._fd < 0 or self._size >= SEGMENT_BYTES or self._full:
                self._open_segment()
        except OSError as error:
            raise _refused(error) from error
        return Mark(self._size, self.head, self.last_ts)

    def rollback(self, mark: Mark) -> None:
        """Takes back appended, unsynced records."""
        self._cut_to(mark.size)
        self.head, self.last_ts = mark.head, mark.last_ts

    def sync(self) -> None:
        """Makes everything appended durable. After a failure no write is taken again."""
        if self._fd < 0:
            return
        try:
            reach("log.sync")
            os.fdatasync(self._fd)
        except OSError as error:
            self.failed = error
            raise _refused(error) from error
        reach("log.synced")

    def sweep(self) -> None:
        """Removes what a process left unfinished when it died; raises OSError."""
        for path in self.folder.glob("*.tmp"):
            path.unlink()

    def end_segment(self) -> None:
        """What comes next goes into a new one, so that nobody writes to those there are."""
        self._full = True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open_segment(self) -> None:
        segments = self.segments()
        if segments and segments[-1].stat().st_size < SEGMENT_BYTES and not self._full:
            path = segments[-1]
        else:
            reach("log.segment")
            path = self.folder / f"{self.head.seq + 1:012d}.ndjson"
        self.close()
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size
        self._full = False
        try:
            sync_folder(self.folder)
        except OSError:
            self.close()  # so that the next write tries again before it acknowledges anything
            raise

    def _cut_to(self, size: int) -> None:
        """Drops what a failed write left behind; if even that fails, no write is taken again."""
        if self._fd < 0:
            return
        try:
            os.ftruncate(self._fd, size)
            self._size = size
        except OSError as error:
            self.failed = error
