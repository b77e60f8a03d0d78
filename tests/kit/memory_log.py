"""A log that stores of this process share in memory, where a NATS server is not the subject."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kbproc.engine.cluster.jetstream.settings import StreamSettings
from kbproc.engine.log import record as records
from kbproc.engine.log.file import FileBatch, FileLog
from kbproc.engine.log.interface import Accept, Behind, LogBatch
from kbproc.engine.log.record import START, Position, Record, RecordDraft

# No test connects to it.
_NOWHERE = ["nats://127.0.0.1:1"]


class Streams:
    """The streams of one test, by name: `Streams().install(monkeypatch)`."""

    def __init__(self) -> None:
        self._streams: defaultdict[str, MemoryStream] = defaultdict(MemoryStream)

    def __getitem__(self, name: str) -> MemoryStream:
        return self._streams[name]

    def settings(self, name: str = "team") -> StreamSettings:
        """Returns the settings of a stream, for tests.kit.nats.put_settings."""
        return StreamSettings(kind="jetstream", servers=_NOWHERE, stream=name, unsafe_sync=True)

    def open(
        self,
        folder: Path,
        applied_position: Position = START,
        *,
        marks: Path | None = None,
        settings: dict[str, Any],
    ) -> SharedMemoryLog:
        """Opens a node's copy of the stream that `settings` name; see opening.open_shared."""
        log = SharedMemoryLog.open(folder, applied_position, marks=marks)
        assert isinstance(log, SharedMemoryLog)
        log.join(self[settings["stream"]])
        return log

    def install(self, patch: pytest.MonkeyPatch) -> Streams:
        """Makes stores with a shared log open these streams, and share no work."""
        patch.setattr("kbproc.knowledge.cluster.node.open_shared", self.open)
        patch.setattr("kbproc.knowledge.cluster.together.Together.follow", lambda self: None)
        patch.setattr("kbproc.knowledge.cluster.purging.forget_vectors", lambda store, keys: None)
        return self


class MemoryStream:
    """The records of a stream and the bytes on its shelf; it keeps the chain without forks."""

    def __init__(self) -> None:
        self.is_reachable = True
        self.shelf: dict[str, bytes] = {}
        self._records: list[Record] = []
        self._nodes: list[SharedMemoryLog] = []
        self._changing = threading.Lock()

    @property
    def last_seq(self) -> int:
        return len(self._records)

    def add(self, node: SharedMemoryLog) -> None:
        with self._changing:
            self._nodes.append(node)

    def remove(self, node: SharedMemoryLog) -> None:
        with self._changing:
            self._nodes.remove(node)

    def since(self, seq: int) -> list[Record]:
        with self._changing:
            return self._records[seq:]

    def publish(self, sealed: Sequence[Record], publisher: SharedMemoryLog) -> None:
        """Appends the records. Raises Behind if others come before them."""
        with self._changing:
            if sealed[0].first != len(self._records) + 1:
                raise Behind
            self._records += sealed
            others = [node for node in self._nodes if node is not publisher]
        for node in others:
            node.tell()

    def replace(self, rewritten: Sequence[Record]) -> None:
        """Puts the records in the place of the first ones."""
        with self._changing:
            self._records[: len(rewritten)] = rewritten


class SharedMemoryLog(FileLog):
    """A node's copy of a stream; interface.ClusteredLog describes its methods."""

    stream: MemoryStream

    def __init__(self, folder: Path, marks: Path | None = None) -> None:
        super().__init__(folder, marks)
        self.erased_seq = 0
        self.wrote: list[int] = []
        self.tell: Callable[[], None] = lambda: None

    def join(self, stream: MemoryStream) -> None:
        self.stream = stream
        self.shelf = _MemoryShelf(stream)
        stream.add(self)
        self.gather()

    @property
    def trouble(self) -> str | None:
        return None if self.stream.is_reachable else "the stream is not reachable"

    @property
    def known_seq(self) -> int:
        return max(self.head.seq, self.stream.last_seq)

    def awaits_erasure(self, seq: int) -> bool:
        return seq > self.erased_seq

    def on_news(self, tell: Callable[[], None]) -> None:
        self.tell = tell

    def gather(self) -> int:
        before = self.head.seq
        if self.stream.is_reachable and (news := self.stream.since(before)):
            with self.own_batch() as node_batch:
                node_batch.put(news)
                node_batch.commit()
        return self.head.seq - before

    @contextlib.contextmanager
    def batch(self) -> Iterator[LogBatch]:
        with self.own_batch() as node_batch:
            try:
                yield _SharedBatch(self, node_batch)
            finally:
                self.let_go()

    def commit(self, node_batch: FileBatch) -> None:
        """Writes the open batch's records to the stream, then to this copy."""
        pending = self._pending
        self.stream.publish(pending, self)
        node_batch.commit()
        self.wrote += [record.seq for record in pending]

    def forget(self, sources: Collection[str], to_seq: int) -> None:
        self.stream.replace(list(self.read(to_seq=to_seq)))
        for name in sources:
            self.stream.shelf.pop(name, None)

    def close(self) -> None:
        self.stream.remove(self)
        super().close()


class _SharedBatch:
    def __init__(self, log: SharedMemoryLog, node_batch: FileBatch) -> None:
        self.head = log.head
        self.last_ts = log.last_ts
        self._log = log
        self._node_batch = node_batch

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
        """Does nothing: `commit` publishes the records before it writes them here."""

    def commit(self) -> None:
        if self.head != self._log.head:
            self._log.commit(self._node_batch)


class _MemoryShelf:
    def __init__(self, stream: MemoryStream) -> None:
        self._stream = stream

    def put(self, name: str, data: bytes) -> None:
        self._stream.shelf.setdefault(name, data)

    def get(self, name: str) -> bytes | None:
        return self._stream.shelf.get(name)
