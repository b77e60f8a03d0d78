"""The log that several nodes share.

Owns: publishing a batch right after the last record that this node has, taking in what others
have published, and telling a stream that is not the one that it was.
Refuses to know: connections and servers (link.py), subjects and headers (stream.py).

The stream holds a message a record, under the record's own number. The node's folder holds what
the stream has acknowledged and nothing else: so a folder that is ahead of its stream tells of a
stream that has lost records.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

import msgspec
from nats.errors import Error as NatsError

from kbproc.base.errors import KbprocError
from kbproc.base.wording import plural
from kbproc.log import record as records
from kbproc.log.file import FileBatch, FileLog
from kbproc.log.interface import Batch, Behind, Change
from kbproc.log.jetstream.connection import ANSWERS_S
from kbproc.log.jetstream.erasing import erase
from kbproc.log.jetstream.link import Link, Unreachable
from kbproc.log.jetstream.making import ask
from kbproc.log.jetstream.settings import StreamSettings
from kbproc.log.jetstream.stream import MOST_IN_A_BATCH, Line, Refused, State, Stream
from kbproc.log.record import Draft, Record

# A cluster whose leader has died has another one by then.
PATIENCE_S = 10.0
_CONNECTS_S = 3.0
_PAUSE_S = 0.05
_MOST_WAITING = 20_000  # messages
_AT_ONCE = 2_000
_MOST_REMEMBERED = 10_000
_LONGEST = 64 << 20
_SLOWEST = 1 << 20  # bytes a second

T = TypeVar("T")


class JetStreamLog(FileLog):
    """This node's copy of the log, and the stream that it follows; `join` opens one."""

    is_shared = True

    def __init__(self, folder: Path, marks: Path | None = None) -> None:
        super().__init__(folder, marks)
        self.arrived_seq = 0
        self._pending: list[Record] = []
        self._news: Callable[[], None] = lambda: None
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._arrival = threading.Condition()
        self.needed = 0
        self._wrong: str | None = None
        self._purged: dict[int, bytes] = {}
        self._purged_to = 0
        self._settings: StreamSettings
        self._link: Link
        self.shelf = _Shelf(self)
        self.wrote: deque[int] = deque(maxlen=_MOST_REMEMBERED)

    def join(self, settings: StreamSettings) -> None:
        """Follows the stream, and has taken in what it holds by now if a server is reached.

        Raises store.incompatible, store.corrupt, store.io.
        """
        self.arrived_seq = self.head.seq
        self._settings, self._link = settings, Link(settings, self)
        self._link.start()
        self._link.wait(_CONNECTS_S)
        if self._link.refusal is not None and self._link.damage is None:
            self._link.close()
            raise self._link.refusal
        self.needed = self._link.last_seq
        self.gather()

    # ------------------------------------------------------------------ what others write

    def on_news(self, tell: Callable[[], None]) -> None:
        self._news = tell

    def gather(self) -> int:
        """See interface.Log. Waits for what is known to be there."""
        before, until = self.head.seq, time.monotonic() + PATIENCE_S
        while True:
            while self._waiting:
                if found := self._next():
                    with self.own_batch() as own:
                        own.put(found)
                        own.commit()
                    until = time.monotonic() + PATIENCE_S
            if self.head.seq >= self.needed or self.damage or time.monotonic() > until:
                return self.head.seq - before
            with self._arrival:
                self._arrival.wait_for(lambda: bool(self._waiting), _PAUSE_S)

    def _next(self) -> list[Record]:
        """Some that have come since, checked."""
        with self._arrival:
            some = [self._waiting.popleft() for _ in range(min(len(self._waiting), _AT_ONCE))]
            self._arrival.notify_all()
        found: list[Record] = []
        last = self.head
        for seq, line in some:
            if seq <= last.seq:
                continue
            if self._wrong is not None:
                break
            record = _decoded(line)
            wrong = "is no record" if record is None else records.fault(record, *last)
            if record is None or wrong is not None:
                self._wrong = f"The stream {wrong} (message {seq})."
                break
            found.append(record)
            last = record.position
        return found

    async def take(self, seq: int, line: bytes) -> None:
        """See link.Node: it waits until there is room."""
        while len(self._waiting) >= _MOST_WAITING:
            await asyncio.sleep(0.01)
        with self._arrival:
            self.arrived_seq = seq
            is_own = seq <= max(self.head.seq, self._pending[-1].seq if self._pending else 0)
            self._waiting.append((seq, line))
            self._arrival.notify_all()
        if not is_own:
            self._news()

    async def fork(self, stream: Stream, state: State) -> str | None:
        """See link.Node."""
        head, last = self.head.seq, min(self.head.seq, state.last_seq)
        if state.has_gaps:
            with contextlib.suppress(NatsError, TimeoutError):  # it is asked for again
                await asyncio.wait_for(stream.purged.refresh(), _CONNECTS_S)
            self._purged, self._purged_to = stream.purged.lines, stream.purged.to_seq
        if not await self._holds(stream, last):
            common = await self._common(stream, last)
            return (
                f"The stream does not hold record {common + 1} as this node does, which holds "
                f"{plural(head - common, 'record')} after {common}"
            )
        if last < head:
            return f"The stream ends at record {last}, and this node holds {head}"
        if state.last_seq > head and await stream.message(head + 1) is None:
            return f"The stream has lost record {head + 1}"
        with self._arrival:  # what is not taken in comes again: it may be another stream's
            self._waiting.clear()
            self.arrived_seq, self._wrong = head, None
            self.needed = min(self.needed, state.last_seq)
        return None

    async def _holds(self, stream: Stream, seq: int) -> bool:
        """As this node does."""
        own = next(super().read(seq - 1, seq), None)
        line = await stream.message(seq) if seq else None
        record = None if line is None else _decoded(line)
        return own is None or (record is not None and record.position == own.position)

    async def _common(self, stream: Stream, last: int) -> int:
        """The last record that both hold; `last` is none. What is chained parts once."""
        first, after = 0, last
        while after - first > 1:
            middle = (first + after) // 2
            if await self._holds(stream, middle):
                first = middle
            else:
                after = middle
        return first

    @property
    def damage(self) -> str | None:
        return self._wrong or self._link.damage or super().damage

    @property
    def remedy(self) -> str:
        if super().damage is not None:
            return super().remedy
        return (
            "Reads go on; nothing is written before kbproc cluster reseed, on the node that holds "
            "most, has refilled the stream."
        )

    def refused(self) -> KbprocError:
        node = f"{platform.node()}:{self._folder.parent}"
        return KbprocError(
            "store.corrupt",
            f"{self.damage} So nothing is written.",
            hint=self.remedy,
            detail={"node": node, "seq": self.head.seq},
        )

    @property
    def trouble(self) -> str | None:  # type: ignore[override]
        return None if self._link.stream is not None else self._link.problem

    @property
    def known_seq(self) -> int:
        return max(self.head.seq, self.arrived_seq, self.needed)

    # ------------------------------------------------------------------ writing

    def read(self, after_seq: int = 0, to_seq: int | None = None) -> Iterator[Record]:
        last = after_seq
        for record in super().read(after_seq, to_seq):
            last = record.seq
            yield record
        for record in self._pending:
            if last < record.seq and (to_seq is None or record.seq <= to_seq):
                yield record

    @contextlib.contextmanager
    def batch(self) -> Iterator[Batch]:
        with self.own_batch() as own:
            try:
                yield _SharedBatch(self, own)
            finally:
                self._pending = []
                if self.arrived_seq > self.head.seq:
                    self._news()

    def reach(self) -> None:
        """For a batch. Raises store.io if there is no server that could be written to."""
        if self.damage is not None:
            raise self.refused()
        if not self._link.wait(_CONNECTS_S - self._link.down_s):
            raise _offline(self._link.problem)

    def hold(self, sealed: Sequence[Record]) -> None:
        """For a batch: they can be read."""
        self._pending = [*self._pending, *sealed]

    def commit(self, own: FileBatch) -> None:
        """For a batch: first the stream has it, then this node. Raises Behind, store.io."""
        self._publish(self._pending)
        try:
            own.put(self._pending)
            own.commit()
        except KbprocError as error:
            raise _kept(error) from error
        self.wrote.extend(record.seq for record in self._pending)
        self._pending = []

    def _publish(self, sealed: Sequence[Record]) -> None:
        """Once, however often that takes. Raises Behind, store.io, store.corrupt."""
        lines = [Line(record.hash, records.encode(record)) for record in sealed]
        after, began, lost = self.head.seq, time.monotonic(), False
        for attempt in count():
            batch = f"{sealed[0].hash}-{attempt}"
            try:
                publish = partial(Stream.publish, lines=lines, after_seq=after, batch=batch)
                self.run(publish, sum(len(line.data) for line in lines))
                return
            except Refused as error:
                if error.is_taken and _is_there(self, sealed[0]):
                    return
                if not error.is_passing:
                    raise _unknown(error) if lost else _refused(error) from error
                why: Exception = error
            except Unreachable as error:
                lost, why = True, error
            left_s = PATIENCE_S - (time.monotonic() - began)
            if left_s <= 0 or not self._link.wait(left_s):
                raise _unknown(why) if lost else _refused(why)
            with self._arrival:
                self._arrival.wait(_PAUSE_S)

    def run(self, work: Callable[[Stream], Awaitable[T]], size: int = 0) -> T:
        """Raises Unreachable, Refused."""
        return self._link.run(work, _time_for(size))

    # ------------------------------------------------------------------ forgetting

    def rewrite(self, change: Change, *, to_seq: int) -> int:
        """What another node has made of a record comes first: it may have known more."""
        known = self._purged if self._purged_to > self.erased_seq else {}

        def changed(record: Record) -> Record:
            line = known.get(record.seq)
            other = None if line in {None, records.encode(record)} else _decoded(line or b"")
            fits = other is not None and other.position == record.position
            return change(other if other is not None and fits else record)

        return super().rewrite(changed, to_seq=to_seq)

    def forget(self, sources: Collection[str], to_seq: int) -> None:
        ask(self._settings, partial(erase, log=self, sources=sources, to_seq=to_seq))

    def close(self) -> None:
        self._link.close()
        super().close()


class _Shelf:
    """See interface.Shelf."""

    def __init__(self, log: JetStreamLog) -> None:
        self._log = log

    def put(self, name: str, data: bytes) -> None:
        self._ask(lambda stream: stream.shelf.put(name, data), len(data))

    def get(self, name: str) -> bytes | None:
        return self._ask(lambda stream: stream.shelf.get(name), _LONGEST)

    def _ask(self, work: Callable[[Stream], Awaitable[T]], size: int) -> T:
        """What may be done twice, however often that takes. Raises store.io."""
        log, began = self._log, time.monotonic()
        while True:
            log.reach()
            try:
                return log.run(work, size)
            except (Unreachable, Refused) as error:
                if time.monotonic() - began > PATIENCE_S:
                    raise _offline(str(error)) from error
            time.sleep(_PAUSE_S)


def _is_there(log: JetStreamLog, record: Record) -> bool:
    """Whether the stream holds it; raises Behind if it holds another one there."""
    try:
        line = log.run(partial(Stream.message, seq=record.seq))
    except (Unreachable, Refused) as error:
        raise _unknown(error) from error
    if line is None:
        return False
    found = _decoded(line)
    if found is not None and found.position == record.position:
        return True
    log.needed = record.seq
    raise Behind


def _time_for(size: int) -> float:
    """Seconds that so many bytes may take."""
    return 2 * ANSWERS_S + size / _SLOWEST


class _SharedBatch:
    """What is to be published as one; see interface.Batch."""

    def __init__(self, log: JetStreamLog, own: FileBatch) -> None:
        self.head = log.head
        self.last_ts = log.last_ts
        self._log = log
        self._own = own
        self._count = 0

    def append(self, drafts: Sequence[Draft]) -> list[Record]:
        sealed = records.seal_all(drafts, self.head)
        if sealed:
            self._log.reach()
            if self._count + len(sealed) > MOST_IN_A_BATCH:
                raise KbprocError(
                    "store.io",
                    f"More than {MOST_IN_A_BATCH} records can't be written as one.",
                    hint="Send the request again.",
                )
            self._count += len(sealed)
            self._log.hold(sealed)
            self.head, self.last_ts = sealed[-1].position, sealed[-1].ts
        return sealed

    def commit(self) -> None:
        if self.head != self._log.head:
            self._log.commit(self._own)
            self._count = 0


def _decoded(line: bytes) -> Record | None:
    try:
        return records.decode(line)
    except msgspec.DecodeError:
        return None


def _offline(why: str) -> KbprocError:
    return KbprocError(
        "store.io",
        f"Nothing was written: no server of the cluster can be used ({why}).",
        hint="Reads go on. Send the request again once a majority of the servers can be reached.",
        retry_after_ms=1000,
        detail={"kept": False},
    )


def _unknown(why: Exception) -> KbprocError:
    return KbprocError(
        "store.io",
        f"The cluster did not say whether it has kept the write ({why}).",
        hint="Send it again under the same client_token: what was kept is not written twice.",
        retry_after_ms=1000,
        detail={"kept": None},
    )


def _refused(error: Exception) -> KbprocError:
    return KbprocError(
        "store.io",
        f"Nothing was written: the cluster's log refused it ({error}).",
        hint="kbproc doctor tells more.",
        detail={"kept": False},
    )


def _kept(error: KbprocError) -> KbprocError:
    return KbprocError(
        "store.io",
        f"The write is in the cluster's log, but this node could not keep it: {error.message}",
        hint="It is done: do not send it again, unless under the same client_token.",
        detail={"kept": True},
        lasting=True,
    )
