"""Implements the log that several nodes share.

It publishes a batch right after the last record that this node has, takes in the records that
other nodes have published, and detects a stream that is not the one it was.

The stream holds one message per record, under the record's own seq. The node's folder holds
acknowledged records only, so a folder that is ahead of its stream proves that the stream has lost
records.
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
from kbproc.engine.cluster.jetstream.connection import ANSWERS_S
from kbproc.engine.cluster.jetstream.erasing import erase
from kbproc.engine.cluster.jetstream.link import StreamLink, Unreachable
from kbproc.engine.cluster.jetstream.making import ask
from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.cluster.jetstream.stream import (
    MOST_IN_A_BATCH,
    LogStream,
    StreamMessage,
    StreamRefused,
    StreamState,
)
from kbproc.engine.log import record as records
from kbproc.engine.log.file import FileBatch, FileLog
from kbproc.engine.log.interface import Accept, Behind, Change, LogBatch
from kbproc.engine.log.record import Record, RecordDraft

# A cluster elects a new leader within this time.
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
    """This node's copy of the log, and the stream that it follows; `join` opens one.

    See interface.ClusteredLog for what its methods promise.
    """

    def __init__(self, folder: Path, marks: Path | None = None) -> None:
        super().__init__(folder, marks)
        self.erased_seq = 0
        self.arrived_seq = 0
        self._news: Callable[[], None] = lambda: None
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._arrival = threading.Condition()
        self.needed = 0
        self._stream_fault: str | None = None
        self._erased_lines: dict[int, bytes] = {}
        self._erased_to = 0
        self._settings: StreamSettings
        self._link: StreamLink
        self.shelf = _NodeShelf(self)
        self.wrote: deque[int] = deque(maxlen=_MOST_REMEMBERED)

    def join(self, settings: StreamSettings) -> None:
        """Follows the stream; takes in its records first if a server can be reached.

        Raises store.incompatible, store.corrupt, store.io.
        """
        self.arrived_seq = self.head.seq
        self._settings, self._link = settings, StreamLink(settings, self)
        self._link.start()
        self._link.wait(_CONNECTS_S)
        if self._link.refusal is not None and self._link.damage is None:
            self._link.close()
            raise self._link.refusal
        self.needed = self._link.last_seq
        self.gather()

    # ------------------------------------------------------------------ what others write

    def begin(self, write: Callable[[], object]) -> None:
        """Lets `write` fail: a node without a server opens empty, and its first write begins."""
        with contextlib.suppress(KbprocError):
            super().begin(write)

    def awaits_erasure(self, seq: int) -> bool:
        return seq > self.erased_seq

    def on_news(self, tell: Callable[[], None]) -> None:
        self._news = tell

    def gather(self) -> int:
        """Takes in others' records; see interface.Log. Waits for all that are known to exist."""
        before, deadline = self.head.seq, time.monotonic() + PATIENCE_S
        while True:
            while self._waiting:
                if batch := self._next():
                    with self.own_batch() as node_batch:
                        node_batch.put(batch)
                        node_batch.commit()
                    deadline = time.monotonic() + PATIENCE_S
            if self.head.seq >= self.needed or self.damage or time.monotonic() > deadline:
                return self.head.seq - before
            with self._arrival:
                self._arrival.wait_for(lambda: bool(self._waiting), _PAUSE_S)

    def _next(self) -> list[Record]:
        """Returns checked records from the queue, up to the first one that does not fit."""
        with self._arrival:
            lines = [self._waiting.popleft() for _ in range(min(len(self._waiting), _AT_ONCE))]
            self._arrival.notify_all()
        fitting: list[Record] = []
        last = self.head
        for seq, line in lines:
            if seq <= last.seq:
                continue
            if self._stream_fault is not None:
                break
            record = _decoded(line)
            fault = records.fault(record, last.seq, last.hash) if record else "is no record"
            if record is None or fault is not None:
                self._stream_fault = f"The stream {fault} (message {seq})."
                break
            fitting.append(record)
            last = record.position
        return fitting

    async def take(self, seq: int, line: bytes) -> None:
        """Queues a message; see link.Node. Waits while the queue is full."""
        while len(self._waiting) >= _MOST_WAITING:
            await asyncio.sleep(0.01)
        with self._arrival:
            self.arrived_seq = seq
            is_own = seq <= max(self.head.seq, self._pending[-1].seq if self._pending else 0)
            self._waiting.append((seq, line))
            self._arrival.notify_all()
        if not is_own:
            self._news()

    async def fork(self, stream: LogStream, state: StreamState) -> str | None:
        """Compares the stream with this node's records; see link.Node."""
        head, last = self.head.seq, min(self.head.seq, state.last_seq)
        if state.has_gaps:
            with contextlib.suppress(NatsError, TimeoutError):  # the next call asks again
                await asyncio.wait_for(stream.purged.refresh(), _CONNECTS_S)
            self._erased_lines, self._erased_to = stream.purged.lines, stream.purged.to_seq
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
        # The queue may hold another stream's messages; this stream's own will come again.
        with self._arrival:
            self._waiting.clear()
            self.arrived_seq, self._stream_fault = head, None
            self.needed = min(self.needed, state.last_seq)
        return None

    async def _holds(self, stream: LogStream, seq: int) -> bool:
        """Returns True if the stream holds record `seq` as this node does."""
        own = next(super().read(seq - 1, seq), None)
        line = await stream.message(seq) if seq else None
        record = None if line is None else _decoded(line)
        return own is None or (record is not None and record.position == own.position)

    async def _common(self, stream: LogStream, last: int) -> int:
        """Returns the last record that both hold, found by halving; both differ at `last`.

        Two chains that differ at one record differ at all later ones.
        """
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
        return self._stream_fault or self._link.damage or super().damage

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
    def trouble(self) -> str | None:
        return None if self._link.stream is not None else self._link.problem

    @property
    def known_seq(self) -> int:
        return max(self.head.seq, self.arrived_seq, self.needed)

    # ------------------------------------------------------------------ writing

    @contextlib.contextmanager
    def batch(self) -> Iterator[LogBatch]:
        with self.own_batch() as node_batch:
            try:
                yield _SharedBatch(self, node_batch)
            finally:
                self.let_go()
                if self.arrived_seq > self.head.seq:
                    self._news()

    def reach(self) -> None:
        """Raises store.io if no server can be written to. For a batch."""
        if self.damage is not None:
            raise self.refused()
        if not self._link.wait(_CONNECTS_S - self._link.down_s):
            raise _offline(self._link.problem)

    def commit(self, node_batch: FileBatch) -> None:
        """Writes a batch's pending records, first to the stream, then to this node.

        Raises Behind, store.io.
        """
        pending = self._pending
        self._publish(pending)
        try:
            node_batch.commit()
        except KbprocError as error:
            raise _not_on_this_node(error) from error
        self.wrote.extend(record.seq for record in pending)

    def _publish(self, sealed: Sequence[Record]) -> None:
        """Publishes the records exactly once, with retries.

        Raises Behind, store.io, store.corrupt.
        """
        lines = [StreamMessage(record.hash, records.encode(record)) for record in sealed]
        after, began, is_in_doubt = self.head.seq, time.monotonic(), False
        for attempt in count():
            batch = f"{sealed[0].hash}-{attempt}"
            try:
                publish = partial(LogStream.publish, lines=lines, after_seq=after, batch=batch)
                self.run(publish, sum(len(line.data) for line in lines))
                return
            except StreamRefused as error:
                if error.is_taken and _is_stored(self, sealed[0]):
                    return
                if not error.is_passing:
                    raise _undecided(error) if is_in_doubt else _not_written(error) from error
                why: Exception = error
            except Unreachable as error:
                is_in_doubt, why = True, error
            left_s = PATIENCE_S - (time.monotonic() - began)
            if left_s <= 0 or not self._link.wait(left_s):
                raise _undecided(why) if is_in_doubt else _not_written(why)
            with self._arrival:
                self._arrival.wait(_PAUSE_S)

    def run(self, work: Callable[[LogStream], Awaitable[T]], size: int = 0) -> T:
        """Runs `work` on the stream; `size`: bytes to move. Raises Unreachable, StreamRefused."""
        return self._link.run(work, _time_for(size))

    # ------------------------------------------------------------------ forgetting

    def rewrite(self, change: Change, *, to_seq: int) -> int:
        """Rewrites records; see interface.Log.

        `change` gets another node's replacement of a record if there is one, because that node may
        have known more.
        """
        erased_lines = self._erased_lines if self._erased_to > self.erased_seq else {}

        def change_or_adopt(record: Record) -> Record:
            line = erased_lines.get(record.seq)
            replacement = None if line in {None, records.encode(record)} else _decoded(line or b"")
            fits = replacement is not None and replacement.position == record.position
            return change(replacement if replacement is not None and fits else record)

        return super().rewrite(change_or_adopt, to_seq=to_seq)

    def forget(self, sources: Collection[str], to_seq: int) -> None:
        ask(self._settings, partial(erase, log=self, sources=sources, to_seq=to_seq))

    def close(self) -> None:
        self._link.close()
        super().close()


class _NodeShelf:
    """The stream's shelf as this node uses it; see interface.Shelf."""

    def __init__(self, log: JetStreamLog) -> None:
        self._log = log

    def put(self, name: str, data: bytes) -> None:
        self._ask(lambda stream: stream.shelf.put(name, data), len(data))

    def get(self, name: str) -> bytes | None:
        return self._ask(lambda stream: stream.shelf.get(name), _LONGEST)

    def _ask(self, work: Callable[[LogStream], Awaitable[T]], size: int) -> T:
        """Runs idempotent `work`, with retries. Raises store.io."""
        log, began = self._log, time.monotonic()
        while True:
            log.reach()
            try:
                return log.run(work, size)
            except (Unreachable, StreamRefused) as error:
                if time.monotonic() - began > PATIENCE_S:
                    raise _offline(str(error)) from error
            time.sleep(_PAUSE_S)


def _is_stored(log: JetStreamLog, record: Record) -> bool:
    """Returns True if the stream holds the record; raises Behind if it holds another one."""
    try:
        line = log.run(partial(LogStream.message, seq=record.seq))
    except (Unreachable, StreamRefused) as error:
        raise _undecided(error) from error
    if line is None:
        return False
    stored = _decoded(line)
    if stored is not None and stored.position == record.position:
        return True
    log.needed = record.seq
    raise Behind


def _time_for(size: int) -> float:
    """Returns the seconds that so many bytes may take."""
    return 2 * ANSWERS_S + size / _SLOWEST


class _SharedBatch:
    """Records that are published as one; see interface.Batch."""

    def __init__(self, log: JetStreamLog, node_batch: FileBatch) -> None:
        self.head = log.head
        self.last_ts = log.last_ts
        self._log = log
        self._node_batch = node_batch
        self._count = 0

    def append(
        self, drafts: Sequence[RecordDraft], accept: Accept = lambda records: None
    ) -> list[Record]:
        sealed = records.seal_all(drafts, self.head)
        if sealed:
            self._log.reach()
            if self._count + len(sealed) > MOST_IN_A_BATCH:
                raise KbprocError(
                    "store.io",
                    f"More than {MOST_IN_A_BATCH} records can't be written as one.",
                    hint="Send the request again.",
                )
            accept(sealed)
            self._count += len(sealed)
            self._log.hold(sealed)
            self.head, self.last_ts = sealed[-1].position, sealed[-1].ts
        return sealed

    def write(self) -> None:
        """Does nothing: `commit` publishes the records before it writes them here."""

    def commit(self) -> None:
        if self.head != self._log.head:
            self._log.commit(self._node_batch)
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


def _undecided(why: Exception) -> KbprocError:
    return KbprocError(
        "store.io",
        f"The cluster did not say whether it has stored the write ({why}).",
        hint="Send it again under the same client_token: a stored write is not written twice.",
        retry_after_ms=1000,
        detail={"kept": None},
    )


def _not_written(error: Exception) -> KbprocError:
    return KbprocError(
        "store.io",
        f"Nothing was written: the cluster's log refused it ({error}).",
        hint="Run kbproc doctor for details.",
        detail={"kept": False},
    )


def _not_on_this_node(error: KbprocError) -> KbprocError:
    return KbprocError(
        "store.io",
        f"The write is in the cluster's log, but this node could not store it: {error.message}",
        hint="The write is done: do not send it again, unless under the same client_token.",
        detail={"kept": True},
        lasting=True,
    )
