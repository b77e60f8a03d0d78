"""What a log promises, whatever keeps its records.

Owns: the interfaces of a log and of a batch, and how a log's damage is described.
Refuses to know: files, and what events mean.

One contract test runs over every implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, NamedTuple, Protocol

from kbproc.base.errors import KbprocError
from kbproc.log import record as records
from kbproc.log.record import START, Draft, Position, Record

# Puts a record in the place of another; the same object where nothing changes.
Change = Callable[[Record], Record]


class Batch(Protocol):
    """Records on their way into a log. Those that are not committed when it ends are taken back."""

    @property
    def head(self) -> Position:
        """The last record's, committed or not."""

    @property
    def last_ts(self) -> str:
        """The last record's `ts`, committed or not."""

    def append(self, drafts: Sequence[Draft]) -> list[Record]:
        """Numbers and chains `drafts`; they are durable after `commit` only.

        Raises store.io with nothing of `drafts` kept.
        """

    def commit(self) -> None:
        """Makes everything appended durable, all of it or nothing.

        Raises store.io; the log then looks at what is on the disk before it takes another batch.
        Raises Behind where others write to the log, too.
        """


class Behind(Exception):
    """Others have written since, and nothing was kept: `gather`, and decide again."""


class LogFile(NamedTuple):
    """A file of a log's copy: the first `size` bytes of what `open` reads."""

    name: str
    size: int
    open: Callable[[], BinaryIO]


class Shelf(Protocol):
    """Bytes that go with a log that is shared, by name, for every node."""

    def put(self, name: str, data: bytes) -> None:
        """They are kept when it returns. Raises store.io."""

    def get(self, name: str) -> bytes | None:
        """None: nobody has put any. Raises store.io."""


class Log(Protocol):
    """The records of one store. One thread at a time has a batch; any number read meanwhile."""

    is_shared: bool  # whether others write to it, too
    erased_seq: int  # what records up to this one purge, this copy does not hold any more
    shelf: Shelf | None

    @property
    def wrote(self) -> Collection[int]:
        """Where others write to it, too: the last that this process has written."""

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written to it now, though nothing is damaged."""

    @property
    def known_seq(self) -> int:
        """The last record's that is known to be there, taken in or not."""

    @property
    def head(self) -> Position:
        """The last committed record's; START in an empty log."""

    @property
    def last_ts(self) -> str:
        """The last committed record's `ts`; empty in an empty log."""

    def read(self, after_seq: int = 0, to_seq: int | None = None) -> Iterator[Record]:
        """Records with `after_seq` < seq ≤ `to_seq`, in order. Raises store.corrupt.

        Appended records can be read before their batch is committed. A reader that is not
        the batch's own thread names a `to_seq` up to `head`, or may find half a record.
        """

    @property
    def damage(self) -> str | None:
        """What is known to be damaged, in words."""

    @property
    def remedy(self) -> str:
        """What to do about damage, in words."""

    def refused(self) -> KbprocError:
        """What a write is answered while there is damage."""

    @property
    def strangers(self) -> Sequence[str]:
        """Names of what lies among the log's files and is none of them, as `look` saw it."""

    def look(self, most_bytes: int | None = None) -> None:
        """Reads what may have changed since it was read last, and knows its damage then."""

    def verify(self) -> int:
        """Checks every record up to `head`; returns its seq. Raises store.corrupt."""

    def on_news(self, tell: Callable[[], None]) -> None:
        """`tell` is called, by any thread, when others have written what `gather` takes in."""

    def gather(self) -> int:
        """Takes in what others have written by now; `head` moves. Returns by how much.

        In no batch, and one thread at a time. Raises store.io.
        """

    def batch(self) -> AbstractContextManager[Batch]:
        """Waits until no other batch is open. Raises store.io."""

    def rewrite(self, change: Change, *, to_seq: int) -> int:
        """Puts `change(record)` in the place of every record up to `to_seq`.

        A changed record keeps its number and its place in the chain. Batches may be written
        meanwhile. Returns how many records have changed. Raises OSError, store.corrupt and
        store.io; what has been changed by then stays so.
        """

    def forget(self, sources: Collection[str], to_seq: int) -> None:
        """Where others find it, too, nobody finds what was rewritten here, or these sources.

        `to_seq`: what records up to there purge is rewritten. It may be done again, and by others
        at the same time. Raises store.io, store.corrupt.
        """

    def as_files(self, to_seq: int) -> list[LogFile]:
        """What a copy of the log up to the committed record `to_seq` consists of.

        A folder with these files is a file log. They may be read while batches are written,
        but not during a rewrite. Raises OSError, store.corrupt.
        """

    def survey(self) -> Survey:
        """Everything that is damaged or lost up to `head`. Raises OSError."""

    def close(self) -> None: ...


class Unshared:
    """What is true of a log that nobody else writes to."""

    is_shared = False
    erased_seq = 0
    shelf: Shelf | None = None
    wrote: Collection[int] = ()
    trouble: str | None = None
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

    @property
    def known_seq(self) -> int:
        return self.head.seq

    def on_news(self, tell: Callable[[], None]) -> None:
        """There is none."""

    def gather(self) -> int:
        return 0

    def forget(self, sources: Collection[str], to_seq: int) -> None:
        """Nobody else has it."""


# ---------------------------------------------------------------------------- damage


class Place(NamedTuple):
    """A line that is not as it was written; `seq` as far as it can be told."""

    segment: str
    line: int
    seq: int | None
    wrong: str

    def __str__(self) -> str:
        told = "" if self.seq is None else f" (seq {self.seq})"
        return f"{self.segment}, line {self.line}: {self.wrong}{told}"


class Kept(Protocol):
    """A sound record, which stands for the seqs from `first` to its own."""

    @property
    def first(self) -> int: ...

    @property
    def position(self) -> Position: ...

    def read(self) -> bytes:
        """Its line as it was written, without the newline."""


class Lost(NamedTuple):
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
            which = f"record {self.first} is lost"
        else:
            which = f"records {self.first} to {self.last.seq} are lost"
        return f"{which} ({self.segment}, line {self.line})"


class Survey(NamedTuple):
    """`chain`: what the log is once repaired, in order. `places`: what is wrong where."""

    places: list[Place]
    chain: Sequence[Kept | Lost]

    @property
    def lost(self) -> list[Lost]:
        return [part for part in self.chain if isinstance(part, Lost)]

    @property
    def damaged(self) -> bool:
        return bool(self.places or self.lost)

    def holds(self, known: Position) -> bool:
        """Whether the chain runs through this position, as far as that can be told."""
        return known == START or any(
            part.first <= known.seq < part.last.seq or part.last == known
            if isinstance(part, Lost)
            else part.position == known
            for part in self.chain
        )

    def records(self) -> Iterator[Record]:
        """The repaired log's records: one in the place of every lost stretch."""
        return (record for record, _ in self._parts())

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The repaired log's lines, each with the first seq that it stands for.

        What is sound stays byte for byte.
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
