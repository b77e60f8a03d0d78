"""The vector view: which live chunks have a vector, folded from what changed.

Owns: slots (one per searchable chunk), pending chunks, the flat tail, the
background fold into an HNSW graph, and the files under views/.
Refuses to know: the catalog and the log; callers say which documents changed,
and embed what is pending. Everything here can be built again from rows and
pack, so a damaged file only means: start empty.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kbproc.base.durable import replace
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.log.record import START, Position
from kbproc.views.vectors.graph import (
    Graph,
    GraphFile,
    build_graph,
    drop_stale,
    read_graph,
    write_graph,
)
from kbproc.views.vectors.pack import VectorPack
from kbproc.views.vectors.search import SLOT, VectorSnapshot, grown, member

FLAT_LIMIT = 20_000
_FORMAT = 1
MANIFEST = "vectors.manifest"


class VectorRow(NamedTuple):
    """A chunk as the catalog has it. `key`: VectorPack.key of the embedded string.

    `seq`: the log record that brought it; 0 stands for the position applied.
    """

    chunk_id: int
    document_id: int
    kb: str
    key: bytes
    seq: int = 0


class Saved(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    format: int = _FORMAT
    pack_id: bytes
    position: Position
    kbs: list[str]
    slots: bytes
    alive: bytes
    pending: list[VectorRow]
    graph: GraphFile | None


class Vectors:
    """One thread at a time changes it (apply, rebuild, embedded, save); `fold`
    may run beside that in another; `snapshot` is for everyone."""

    def __init__(self, *, folder: Path, pack: VectorPack, flat_limit: int = FLAT_LIMIT) -> None:
        self.folder = folder
        self.pack = pack
        self.flat_limit = flat_limit
        self._lock = threading.RLock()
        self._generation = 0
        self._graph_file: GraphFile | None = None
        self._clear()
        self._publish()

    @classmethod
    def open(cls, folder: Path, pack: VectorPack, *, flat_limit: int = FLAT_LIMIT) -> Vectors:
        """The saved view, or an empty one at START where the file
        is missing, damaged, or does not fit this pack."""
        view = cls(folder=folder, pack=pack, flat_limit=flat_limit)
        saved = read_manifest(folder / MANIFEST)
        if saved is not None and saved.pack_id == pack.id:
            view._restore(saved)
        return view

    @property
    def position(self) -> Position:
        return self._snapshot.position

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    def snapshot(self) -> VectorSnapshot:
        return self._snapshot

    def apply(
        self, removed_documents: Sequence[int], rows: Iterable[VectorRow], position: Position
    ) -> None:
        """Drop every chunk of removed_documents, then add rows, as one step.

        A row whose key is not in the pack becomes pending.
        """
        with self._lock:
            self._remove(removed_documents)
            self._take(list(rows), position)
            self._publish()

    def rebuild(self, rows: Iterable[VectorRow], position: Position) -> None:
        """Forget everything, then hold exactly these rows, as one step.

        Searches see the old state until then; a fold under way is thrown away.
        """
        with self._lock:
            self._clear()
            self._take(list(rows), position)
            self._publish()

    def reset(self) -> None:
        """Empty, at START."""
        self.rebuild([], START)

    def embedded(self, keys: Sequence[bytes]) -> int:
        """The pack now has these keys: their chunks become searchable. How many."""
        with self._lock:
            packed = self.pack.rows(keys)
            ready: list[VectorRow] = []
            at: list[int] = []
            for key, row in zip(keys, packed.tolist(), strict=True):
                chunks = self._waiting_by_key.pop(key, set()) if row >= 0 else set()
                ready += [self._pending[chunk] for chunk in sorted(chunks)]
                at += [row] * len(chunks)
            for item in ready:
                self._forget(item)
            self._add(ready, np.array(at, np.int64))
            self._publish()
        return len(ready)

    def settle(self) -> None:
        """Looks again for vectors that have come to the pack behind this view's back."""
        with self._lock:
            self.embedded(list(self._waiting_by_key))

    def pending(self, *, newest_first: bool = True, limit: int | None = None) -> list[int]:
        """Chunk ids that wait for a vector, in order of arrival or its reverse."""
        with self._lock:
            ids = reversed(self._pending) if newest_first else iter(self._pending)
            return list(itertools.islice(ids, limit))

    def pending_by_document(self) -> dict[int, int]:
        """How many chunks wait, for each document that has any."""
        with self._lock:
            return {document: len(ids) for document, ids in self._waiting_by_document.items()}

    def waits(self, document_id: int) -> bool:
        """Whether any chunk of this document is pending."""
        return document_id in self._waiting_by_document

    @property
    def needs_fold(self) -> bool:
        """Too many in the flat tail, or more than a fifth of the slots dead."""
        state = self._snapshot
        dead = len(state.slots) - state.live
        return len(state.tail) > self.flat_limit or dead > max(1000, len(state.slots) // 5)

    def fold(self, *, threads: int = 2, cancelled: Callable[[], bool] = lambda: False) -> bool:
        """Build slots, tail and graph afresh beside the live ones, and swap.

        Above the flat limit all live chunks go into a new graph (about 5,000 a
        second on two threads); below, into the tail. Searches go on meanwhile.
        False where it was cancelled or overtaken by a reset.
        """
        before, generation = self._snapshot, self._generation
        keep = np.flatnonzero(before.alive)
        rows = before.slots["row"][keep]
        graph = None
        if len(keep) > self.flat_limit:
            graph = build_graph(self.pack, rows, threads=threads, cancelled=cancelled)
            if graph is None:
                return False
        with self._lock:
            if self._generation != generation:
                return False
            since = np.arange(len(before.slots), self._count)
            self._swap(np.concatenate([keep, since]), graph)
            self._publish()
        return True

    def save(self) -> None:
        """Write the view under its folder, atomically; raises store.io."""
        with self._lock:
            state, pending = self._snapshot, list(self._pending.values())
            file = self._graph_file
        try:
            reach("vectors.save")
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if state.graph and not file:
                file = write_graph(self.folder, state.graph)
                with self._lock:
                    if self._graph is state.graph:
                        self._graph_file = file
            saved = Saved(
                pack_id=self.pack.id,
                position=state.position,
                kbs=list(state.kb_codes),
                slots=state.slots.tobytes(),
                alive=np.packbits(state.alive).tobytes(),
                pending=pending,
                graph=file if state.graph else None,
            )
            # Rows that the view names must outlast it.
            self.pack.sync()
            body = msgspec.msgpack.encode(saved)
            replace(
                self.folder / MANIFEST,
                _digest(body) + body,
                written="vectors.saved",
                name_is_durable=False,
            )
            drop_stale(self.folder, saved.graph)
        except OSError as error:
            raise KbprocError("store.io", f"cannot save {self.folder}: {error.strerror}") from error

    def check(self, rows: Iterable[VectorRow]) -> list[str]:
        """Compare with all live rows of the catalog; what differs, in words."""
        with self._lock:
            state, pending = self._snapshot, dict(self._pending)
        names = {code: kb for kb, code in state.kb_codes.items()}
        have = {
            chunk: VectorRow(chunk, document, names[kb], self.pack.key_at(row))
            for chunk, document, kb, row in state.slots[state.alive].tolist()
        }
        have |= {chunk: row._replace(seq=0) for chunk, row in pending.items()}
        want = {row.chunk_id: row._replace(seq=0) for row in rows}
        problems = [f"chunk {c} is missing" for c in sorted(want.keys() - have.keys())]
        problems += [f"chunk {c} should not be there" for c in sorted(have.keys() - want.keys())]
        both = sorted(want.keys() & have.keys())
        problems += [f"chunk {c} differs" for c in both if want[c] != have[c]]
        late = [c for c, row in pending.items() if self.pack.has(row.key)]
        return problems + [f"chunk {c} is pending though its vector is there" for c in sorted(late)]

    # --- state, changed under the lock only ---

    def _clear(self) -> None:
        self._generation += 1
        self._position = START
        self._slots = np.zeros(0, SLOT)
        self._count = 0
        self._alive = np.zeros(0, np.bool_)
        self._tail = np.zeros((0, self.pack.dim), np.float32)
        self._graph: Graph | None = None
        self._kb_codes: dict[str, int] = {}
        self._pending: dict[int, VectorRow] = {}
        self._waiting_by_key: dict[bytes, set[int]] = {}
        self._waiting_by_document: dict[int, set[int]] = {}
        self._oldest: list[tuple[int, int]] = []

    def _publish(self) -> None:
        alive = self._alive[: self._count]
        self._snapshot = VectorSnapshot(
            pack=self.pack,
            position=self._position,
            slots=self._slots[: self._count],
            alive=alive,
            live=int(np.count_nonzero(alive)),
            tail=self._tail[: self._count - self._graph_size],
            graph=self._graph,
            kb_codes=self._kb_codes,
            pending_count=len(self._pending),
            vector_seq=self._vector_seq(),
        )

    @property
    def _graph_size(self) -> int:
        return self._graph.size if self._graph else 0

    def _vector_seq(self) -> int:
        """One less than the oldest pending seq; the heap drops settled entries late."""
        while self._oldest:
            seq, chunk = self._oldest[0]
            row = self._pending.get(chunk)
            if row is not None and row.seq == seq:
                return min(seq - 1, self._position.seq)
            heapq.heappop(self._oldest)
        return self._position.seq

    def _take(self, rows: Sequence[VectorRow], position: Position) -> None:
        packed = self.pack.rows([row.key for row in rows])
        present = packed >= 0
        self._add(list(itertools.compress(rows, present)), packed[present])
        for row in itertools.compress(rows, ~present):
            self._wait_for(row._replace(seq=row.seq or position.seq))
        self._position = Position(*position)

    def _remove(self, documents: Sequence[int]) -> None:
        if not documents:
            return
        ids = np.unique(np.asarray(documents, np.int64))
        gone = member(self._slots["document"][: self._count], ids)
        if gone.any():
            # Snapshots in use keep the array they have.
            self._alive = self._alive.copy()
            self._alive[: self._count][gone] = False
        for document in ids.tolist():
            for chunk in list(self._waiting_by_document.get(document, ())):
                self._forget(self._pending[chunk])

    def _add(self, rows: Sequence[VectorRow], packed: NDArray[np.int64]) -> None:
        if not len(rows):
            return
        first, count = self._count, self._count + len(rows)
        self._slots = grown(self._slots, count)
        self._alive = grown(self._alive, count)
        self._tail = grown(self._tail, count - self._graph_size)
        new = self._slots[first:count]
        new["chunk"] = [row.chunk_id for row in rows]
        new["document"] = [row.document_id for row in rows]
        new["kb"] = [self._kb_code(row.kb) for row in rows]
        new["row"] = packed
        self._tail[first - self._graph_size : count - self._graph_size] = _units(self.pack, packed)
        self._alive[first:count] = True
        self._count = count

    def _kb_code(self, kb: str) -> int:
        if kb not in self._kb_codes:
            self._kb_codes = {**self._kb_codes, kb: len(self._kb_codes)}
        return self._kb_codes[kb]

    def _wait_for(self, row: VectorRow) -> None:
        self._pending[row.chunk_id] = row
        self._waiting_by_key.setdefault(row.key, set()).add(row.chunk_id)
        self._waiting_by_document.setdefault(row.document_id, set()).add(row.chunk_id)
        heapq.heappush(self._oldest, (row.seq, row.chunk_id))

    def _forget(self, row: VectorRow) -> None:
        del self._pending[row.chunk_id]
        _discard(self._waiting_by_key, row.key, row.chunk_id)
        _discard(self._waiting_by_document, row.document_id, row.chunk_id)

    def _swap(self, keep: NDArray[np.int64], graph: Graph | None) -> None:
        self._slots = self._slots[keep]
        self._alive = self._alive[keep]
        self._count = len(keep)
        self._graph = graph
        self._graph_file = None
        self._tail = _units(self.pack, self._slots["row"][self._graph_size :])

    def _restore(self, saved: Saved) -> None:
        slots = np.frombuffer(saved.slots, SLOT)
        alive = np.unpackbits(np.frombuffer(saved.alive, np.uint8), count=len(slots)).view(np.bool_)
        graph = read_graph(self.folder, saved.graph) if saved.graph else None
        if not self.pack.usable(slots["row"][alive]).all() or bool(saved.graph) != bool(graph):
            return
        self._position = saved.position
        self._slots, self._alive, self._count = slots, alive, len(slots)
        self._graph, self._graph_file = graph, saved.graph
        self._kb_codes = {kb: code for code, kb in enumerate(saved.kbs)}
        self._tail = _units(self.pack, slots["row"][self._graph_size :])
        for row in saved.pending:
            self._wait_for(row)
        self._publish()


def _discard(waiting: dict[Any, set[int]], key: bytes | int, chunk: int) -> None:
    chunks = waiting.get(key)
    if chunks is not None:
        chunks.discard(chunk)
        if not chunks:
            del waiting[key]


def _units(pack: VectorPack, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    vectors = pack.vectors(rows)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.divide(vectors, norms, out=vectors, where=norms > 0)
    return vectors


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


def read_manifest(path: Path) -> Saved | None:
    try:
        data = path.read_bytes()
        if _digest(data[16:]) != data[:16]:
            return None
        saved = msgspec.msgpack.decode(data[16:], type=Saved)
    except (OSError, msgspec.DecodeError):
        return None
    return saved if saved.format == _FORMAT else None
