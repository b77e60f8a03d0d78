"""Defines the interfaces of a log and of a batch, and how a log's damage is described.

One contract test runs over every implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.engine.log import record as records
from kbproc.engine.log.record import START, Position, Record, RecordDraft

# Gets records before they join a batch; raises what keeps them out.
Accept = Callable[[Sequence[Record]], None]
# Puts a record in the place of another; the same object where nothing changes.
Change = Callable[[Record], Record]


class LogBatch(Protocol):
    """Records on their way into a log; the end of a batch takes uncommitted ones back."""

    @property
    def head(self) -> Position:
        """The last record's position, committed or not."""

    @property
    def last_ts(self) -> str:
        """The last record's `ts`, committed or not."""

    def append(
        self, drafts: Sequence[RecordDraft], accept: Accept = lambda records: None
    ) -> list[Record]:
        """Numbers and chains `drafts`; they are written by `write`, and durable after `commit`.

        `accept` gets the records first. Raises what it raises, and store.io, with nothing of
        `drafts` kept.
        """

    def write(self) -> None:
        """Writes everything appended; a killed process may leave it, so sources come first.

        Raises store.io with nothing written. A shared log writes nothing before `commit`.
        """

    def commit(self) -> None:
        """Makes everything appended durable, all of it or nothing; calls `write` before.

        Raises store.io; the log then looks at what is on the disk before it takes another batch.
        Raises Behind where others write to the log, too.
        """


class Behind(Exception):
    """Another process has written first, so nothing was written: `gather`, and decide again."""


class LogFile(Struct, frozen=True):
    """A file of a log's copy: the first `size` bytes of what `open` reads."""

    name: str
    size: int
    open: Callable[[], BinaryIO]


class Shelf(Protocol):
    """Bytes under names that a shared log keeps for every node."""

    def put(self, name: str, data: bytes) -> None:
        """Stores the bytes durably. Raises store.io."""

    def get(self, name: str) -> bytes | None:
        """Returns the bytes, or None if the name has none. Raises store.io."""


class Log(Protocol):
    """The records of one store. One thread at a time has a batch; any number of threads read."""

    shelf: Shelf | None  # has the store's sources, too; None for a log in a folder alone

    @property
    def head(self) -> Position:
        """The last committed record's position; START in an empty log."""

    @property
    def last_ts(self) -> str:
        """The last committed record's `ts`; empty in an empty log."""

    def read(self, after_seq: int = 0, to_seq: int | None = None) -> Iterator[Record]:
        """Yields records with `after_seq` < seq ≤ `to_seq`, in order. Raises store.corrupt.

        Appended records can be read before their batch is committed. A reader that is not
        the batch's own thread names a `to_seq` up to `head`, or may find half a record.
        """

    @property
    def damage(self) -> str | None:
        """The known damage in words; None without any."""

    @property
    def remedy(self) -> str:
        """Advice about the damage, in words."""

    def refused(self) -> KbprocError:
        """Returns the error for a write while there is damage."""

    @property
    def strangers(self) -> Sequence[str]:
        """Names of foreign files in the log's folder, as `look` saw them."""

    def look(self, most_bytes: int | None = None) -> None:
        """Reads files that may have changed since they were read last, and updates `damage`."""

    def verify(self) -> int:
        """Checks every record up to `head`; returns its seq. Raises store.corrupt."""

    def begin(self, write: Callable[[], object]) -> None:
        """Calls `write`, which writes the first record, if the log is empty.

        Raises what `write` raises where no record can come from elsewhere.
        """

    def awaits_erasure(self, seq: int) -> bool:
        """Returns True if this copy may hold texts that record `seq`, of another process, purges.

        Such a record is not shown before the texts are erased from here.
        """

    def gather(self) -> int:
        """Takes in the records that others have written; returns how far `head` has moved.

        Call it outside of a batch, from one thread at a time. Raises store.io.
        """

    def batch(self) -> AbstractContextManager[LogBatch]:
        """Opens a batch once no other is open. Raises store.io."""

    def rewrite(self, change: Change, *, to_seq: int) -> int:
        """Puts `change(record)` in the place of every record up to `to_seq`.

        A changed record keeps its number and its place in the chain. Batches may be written at
        the same time. Returns how many records have changed. Raises OSError, store.corrupt and
        store.io; changes that were made before the error stay.
        """

    def as_files(self, to_seq: int) -> list[LogFile]:
        """Returns the files of a copy of the log up to the committed record `to_seq`.

        A folder with these files is a file log. They may be read while batches are written,
        but not during a rewrite. Raises OSError, store.corrupt.
        """

    def survey(self) -> Survey:
        """Returns everything that is damaged or lost up to `head`. Raises OSError."""

    def close(self) -> None: ...


class OpenLog(Protocol):
    """Opens the log in a folder, of the kind that a store's table [log] names."""

    def __call__(
        self, folder: Path, applied_position: Position, *, marks: Path, settings: dict[str, Any]
    ) -> Log:
        """Returns the log; see FileLog.open for all but `settings`. Raises store.*."""


class UnsharedLog:
    """The part of a log's interface that is trivial when one process alone writes to it."""

    shelf: Shelf | None = None
    head: Position

    @property
    def damage(self) -> str | None:
        return None

    @property
    def remedy(self) -> str:
        return (
            "Answers come from the views, which remember more; nothing is written before kbproc "
            "doctor --repair has mended the log, or a backup has taken its place."
        )

    def refused(self) -> KbprocError:
        return KbprocError("store.corrupt", f"{self.damage} So nothing is written.")

    def begin(self, write: Callable[[], object]) -> None:
        if self.head.seq == 0:
            write()

    def awaits_erasure(self, seq: int) -> bool:
        """Returns False: this process carries out each purge that it writes."""
        return False

    def gather(self) -> int:
        return 0


# ---------------------------------------------------------------------------- damage


class DamagedLine(Struct, frozen=True, order=True):
    """A line that differs from what was written; `seq` is None where it can't be read."""

    segment: str
    line: int
    seq: int | None
    wrong: str

    def __str__(self) -> str:
        seq_note = "" if self.seq is None else f" (seq {self.seq})"
        return f"{self.segment}, line {self.line}: {self.wrong}{seq_note}"


class SoundRecord(Protocol):
    """A sound record, which stands for the seqs from `first` to its own."""

    @property
    def first(self) -> int: ...

    @property
    def position(self) -> Position: ...

    def read(self) -> bytes:
        """Returns the record's line as it was written, without the newline."""


class Lost(Struct, frozen=True):
    """The records from `first` to `last` are gone; `prev` is the hash before them.

    `segment` and `line`: where the next sound record stands, or the log's end.
    """

    first: int
    last: Position
    prev: str
    segment: str
    line: int

    def __str__(self) -> str:
        if self.first == self.last.seq:
            records_lost = f"record {self.first} is lost"
        else:
            records_lost = f"records {self.first} to {self.last.seq} are lost"
        return f"{records_lost} ({self.segment}, line {self.line})"


class Survey(Struct, frozen=True):
    """The state of a damaged log.

    `chain`: the records of the log once it is repaired, in order. `places`: its damaged lines.
    """

    places: list[DamagedLine]
    chain: Sequence[SoundRecord | Lost]

    @property
    def lost(self) -> list[Lost]:
        return [part for part in self.chain if isinstance(part, Lost)]

    @property
    def damaged(self) -> bool:
        return bool(self.places or self.lost)

    def holds(self, position: Position) -> bool:
        """Returns True if the chain runs through this position, or may within a lost stretch."""
        return position == START or any(
            part.first <= position.seq < part.last.seq or part.last == position
            if isinstance(part, Lost)
            else part.position == position
            for part in self.chain
        )

    def records(self) -> Iterator[Record]:
        """Yields the repaired log's records: one in the place of every lost stretch."""
        return (record for record, _ in self._parts())

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yields the repaired log's lines, each with the first seq that it stands for.

        Sound lines stay byte for byte.
        """
        return ((record.first, line) for record, line in self._parts())

    def _parts(self) -> Iterator[tuple[Record, bytes]]:
        ts = ""
        for part in self.chain:
            if isinstance(part, Lost):
                record = records.placeholder(
                    first=part.first, last=part.last, prev=part.prev, ts=ts
                )
                line = records.encode(record)
            else:
                line = part.read()
                record = records.decode(line)
            yield record, line
            ts = record.ts
