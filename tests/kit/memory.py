"""A log and a lease in memory that fulfil the same interfaces as those on disk.

Records stand in a list, sealed and chained as on disk; the lease is among the threads of a process.
"""

from __future__ import annotations

import contextlib
import io
import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO, NamedTuple

from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.engine.log import record as records
from kbproc.engine.log.interface import Change, LogBatch, LogFile, Survey, UnsharedLog
from kbproc.engine.log.lease import NOBODY, Holder, locked
from kbproc.engine.log.record import START, Position, Record, RecordDraft
from kbproc.engine.log.segment import name_of


class MemoryLog(UnsharedLog):
    """The records of one store; interface.Log describes its methods."""

    strangers: Sequence[str] = ()

    def __init__(self, copied: Iterable[Record] = ()) -> None:
        """Copies the records of another log, from its first. Raises store.corrupt."""
        self._records = list(copied)
        self._changing = threading.Lock()
        self._writing = threading.Lock()
        self.head = self._records[-1].position if self._records else START
        self.last_ts = self._records[-1].ts if self._records else ""
        self.verify()

    def read(self, after_seq: int = 0, to_seq: int | None = None) -> Iterator[Record]:
        with self._changing:
            seqs, rows = attrgetter("seq"), self._records
            start = bisect_right(rows, after_seq, key=seqs)
            end = len(rows) if to_seq is None else bisect_right(rows, to_seq, key=seqs)
            return iter(rows[start:end])

    def verify(self) -> int:
        previous = START
        for record in self.read(to_seq=self.head.seq):
            wrong = records.fault(record, previous.seq, previous.hash)
            if wrong is not None:
                raise KbprocError("store.corrupt", f"The log {wrong}.", detail={"seq": record.seq})
            previous = record.position
        return previous.seq

    @contextlib.contextmanager
    def batch(self) -> Iterator[LogBatch]:
        with self._writing:
            batch = _MemoryBatch(self)
            try:
                yield batch
            finally:
                self.cut_to(self.head.seq)

    def extend(self, sealed: Iterable[Record]) -> None:
        """Appends a batch's records."""
        with self._changing:
            self._records.extend(sealed)

    def cut_to(self, seq: int) -> None:
        """Removes every record after `seq`, for a batch that failed."""
        with self._changing:
            del self._records[bisect_right(self._records, seq, key=attrgetter("seq")) :]

    def look(self, most_bytes: int | None = None) -> None:
        """Does nothing: no other process can change this log."""

    def rewrite(self, change: Change, *, to_seq: int) -> int:
        old = list(self.read(to_seq=to_seq))
        new = [records.replaced(record, change(record)) for record in old]
        with self._changing:
            self._records[: len(new)] = new
        return sum(one is not other for one, other in zip(old, new, strict=True))

    def as_files(self, to_seq: int) -> list[LogFile]:
        """Returns all records in one file."""
        copied = list(self.read(to_seq=to_seq))
        if not copied:
            return []

        def read() -> BinaryIO:
            return io.BytesIO(b"".join(_line(record) for record in copied))

        return [LogFile(name_of(copied[0].first), sum(len(_line(r)) for r in copied), read)]

    def survey(self) -> Survey:
        """Reports no damage: memory has none."""
        return Survey([], [_Kept(record) for record in self.read(to_seq=self.head.seq)])

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


class _MemoryBatch:
    def __init__(self, log: MemoryLog) -> None:
        self.head = log.head
        self.last_ts = log.last_ts
        self._log = log

    def append(self, drafts: Sequence[RecordDraft]) -> list[Record]:
        sealed = records.seal_all(drafts, self.head)
        if sealed:
            self._log.extend(sealed)
            self.head, self.last_ts = sealed[-1].position, sealed[-1].ts
        return sealed

    def commit(self) -> None:
        self._log.head, self._log.last_ts = self.head, self.last_ts


class _Kept(NamedTuple):
    record: Record

    @property
    def first(self) -> int:
        return self.record.first

    @property
    def position(self) -> Position:
        return self.record.position

    def read(self) -> bytes:
        return records.encode(self.record)


def _line(record: Record) -> bytes:
    return records.encode(record) + b"\n"


class Seat:
    """The lock that all leases on one store share."""

    def __init__(self, store: str) -> None:
        """`store`: its name, for the error of a refused lease."""
        self.store = store
        self.taken = threading.Lock()
        self.holder = NOBODY


class MemoryLease:
    """A lease that competes for the seat; see lease.Lease."""

    def __init__(self, seat: Seat) -> None:
        self.was_abandoned = False  # threads that share a seat end only with the process
        self._seat = seat

    def take(self, pid: int) -> None:
        if not self._seat.taken.acquire(blocking=False):
            raise locked(self._seat.store, self._seat.holder.pid)
        self._seat.holder = Holder(str(pid), None)

    def announce(self, address: Path) -> None:
        self._seat.holder = replace(self._seat.holder, address=address)

    def holder(self) -> Holder:
        return self._seat.holder

    def check(self) -> None:
        """Does nothing: a store in memory can't be moved away."""

    def release(self) -> None:
        self._seat.holder = NOBODY
        self._seat.taken.release()
