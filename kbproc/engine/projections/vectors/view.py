"""Keeps the vector view: the live chunks with a vector, which are searchable, and pending ones.

A fold in the background moves the flat tail into an HNSW graph. `save` writes the view's files
under views/.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.durable import Look, SoundFiles, last_look, look_at
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.structs import batches
from kbproc.engine.log.record import START, Position
from kbproc.engine.models.graph import Graph, build_graph, read_graph, write_graph
from kbproc.engine.models.pack import VectorPack
from kbproc.engine.projections.catalog.rows import IndexRow
from kbproc.engine.projections.vectors import manifest
from kbproc.engine.projections.vectors.search import VectorSnapshot
from kbproc.engine.projections.vectors.slots import Slots
from kbproc.engine.projections.vectors.waiting import PendingRows, VectorRow, keyed

if TYPE_CHECKING:
    from numpy.typing import NDArray

FLAT_LIMIT = 20_000
_ROWS_AT_ONCE = 10_000

StringOf = Callable[[IndexRow], str]


class _ViewChange(Struct, frozen=True):
    removed: Sequence[int]
    rows: list[VectorRow]
    position: Position


class Vectors:
    """The vector view.

    One thread at a time may change it (apply, commit, rebuild, embedded, save). `fold` may run in
    another thread at the same time. Any thread may take a snapshot.
    """

    name: ClassVar[str] = "vectors"

    def __init__(
        self, *, folder: Path, pack: VectorPack, string: StringOf, flat_limit: int = FLAT_LIMIT
    ) -> None:
        """`string`: returns the text of a chunk to embed; the pack's key is a hash of it."""
        self.folder = folder
        self.pack = pack
        self.flat_limit = flat_limit
        self.key: Callable[[IndexRow], bytes] = lambda row: pack.key(string(row))
        self._lock = threading.RLock()
        self._generation = 0
        self._graph_file: manifest.GraphFile | None = None
        self._staged: list[_ViewChange] = []
        self._position, self._slots, self._waiting = START, Slots(pack), PendingRows()
        self._saved: VectorSnapshot | None = None
        self._saved_with: Look | None = None  # state of the pack's file at the last save
        self._publish()

    @classmethod
    def open(
        cls, folder: Path, pack: VectorPack, string: StringOf, *, flat_limit: int = FLAT_LIMIT
    ) -> Vectors:
        """Returns the saved view.

        It is empty and at START if the file is missing, damaged, or does not fit this pack.
        """
        view = cls(folder=folder, pack=pack, string=string, flat_limit=flat_limit)
        saved = manifest.read(folder)
        if saved is None or saved.pack_id != pack.id:
            return view
        graph = _load_graph(folder, saved.graph) if saved.graph else None
        is_complete = bool(graph) == bool(saved.graph)
        if is_complete and view._slots.restore(saved, graph):
            view._position, view._graph_file = saved.position, saved.graph
            for row in saved.pending:
                view._waiting.add(row)
            view._publish()
            view._saved, view._saved_with = view._snapshot, saved.pack
        return view

    def snapshot(self) -> VectorSnapshot:
        return self._snapshot

    def contents(self) -> tuple[VectorSnapshot, list[VectorRow]]:
        """Returns the searchable and the pending chunks of the same moment."""
        with self._lock:
            return self._snapshot, list(self._waiting)

    # ---------------------------------------------------------------- as a follower

    @property
    def position(self) -> Position:
        return self._snapshot.position

    def apply(self, removed: Sequence[int], rows: Iterable[IndexRow], position: Position) -> None:
        """Stages a change; see Follower. A row whose key is not in the pack becomes pending."""
        self._staged.append(_ViewChange(removed, keyed(rows, self.key), position))

    def commit(self) -> None:
        if not self._staged:
            return
        with self._lock:
            for change in self._staged:
                self._apply_change(change)
            self._staged = []
            self._publish()
        reach("vectors.applied")

    def rollback(self) -> None:
        self._staged = []

    def rebuild(
        self, rows: Iterable[IndexRow], position: Position, *, threads: int | None = None
    ) -> None:
        """Replaces all rows. Searches see the old state until then; drops a running fold.

        `threads`: so many make a graph of rows above the flat limit. None: all go into the tail.
        """
        slots, waiting = Slots(self.pack), PendingRows()
        for part in batches(rows, lambda row: 1, most=_ROWS_AT_ONCE):
            self._put(keyed(part, self.key), position.seq, waiting, slots.append)
        graph = None
        if threads and slots.count > self.flat_limit:
            pack_rows = slots.slots["row"]
            graph = build_graph(self.pack, pack_rows, threads=threads, cancelled=lambda: False)
        slots.keep(np.arange(slots.count), graph)
        with self._lock:
            self._generation += 1
            self._staged = []
            self._graph_file = None
            self._slots, self._waiting, self._position = slots, waiting, position
            self._publish()

    def damaged(self) -> list[str]:
        return manifest.damaged(self.folder, SoundFiles())

    # ------------------------------------------------------------------ pending chunks

    @property
    def pending_count(self) -> int:
        return len(self._waiting)

    def pending(self, *, newest_first: bool = True, limit: int | None = None) -> list[int]:
        """Returns the ids of pending chunks, in order of arrival or its reverse."""
        with self._lock:
            return self._waiting.ids(newest_first=newest_first, limit=limit)

    def pending_by_document(self) -> dict[int, int]:
        """Returns the number of pending chunks of each document that has any."""
        with self._lock:
            return self._waiting.by_document()

    def pending_among(self, documents: Iterable[int]) -> int:
        """Returns the number of pending chunks of these documents."""
        with self._lock:
            return sum(map(self._waiting.count_of, documents))

    def waits(self, document_id: int) -> bool:
        """Returns whether any chunk of this document is pending."""
        return self._waiting.has(document_id)

    def embedded(self, keys: Sequence[bytes] | None = None) -> int:
        """Makes pending chunks searchable whose vectors the pack has; returns how many.

        `keys`: the keys to look for; None for those of all pending chunks.
        """
        with self._lock:
            keys = self._waiting.keys if keys is None else keys
            packed = self.pack.rows(keys)
            ready: list[VectorRow] = []
            pack_rows: list[int] = []
            for key, row in zip(keys, packed.tolist(), strict=True):
                chunks = self._waiting.take(key) if row >= 0 else []
                ready += chunks
                pack_rows += [row] * len(chunks)
            self._slots.add(ready, np.array(pack_rows, np.int64))
            self._publish()
        return len(ready)

    # ------------------------------------------------------------- fold, save, check

    @property
    def needs_fold(self) -> bool:
        """True if the flat tail is too long, or more than a fifth of the slots are dead."""
        state = self._snapshot
        dead = len(state.slots) - state.live
        return len(state.tail) > self.flat_limit or dead > max(1000, len(state.slots) // 5)

    def fold(self, *, threads: int = 2, cancelled: Callable[[], bool] = lambda: False) -> bool:
        """Builds slots, tail and graph anew beside the live ones, and swaps them.

        Above the flat limit all live chunks go into a new graph (about 5,000 a second on two
        threads); below it, into the tail. Searches continue during the build. Returns False if it
        was cancelled or overtaken by a rebuild.
        """
        before, generation = self._snapshot, self._generation
        live_slots = np.flatnonzero(before.alive)
        graph = None
        if len(live_slots) > self.flat_limit:
            rows = before.slots["row"][live_slots]
            graph = build_graph(self.pack, rows, threads=threads, cancelled=cancelled)
            if graph is None:
                return False
        with self._lock:
            if self._generation != generation:
                return False
            newer_slots = np.arange(len(before.slots), self._slots.count)
            self._slots.keep(np.concatenate([live_slots, newer_slots]), graph)
            self._graph_file = None
            self._publish()
        return True

    def save(self) -> None:
        """Writes the view into its folder atomically, unless the saved one is the same.

        Raises store.io.
        """
        with self._lock:
            (state, pending), file = self.contents(), self._graph_file
        is_same = state is self._saved and look_at(self.pack.path) == self._saved_with
        if is_same and manifest.is_there(self.folder):
            return
        try:
            reach("vectors.save")
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if state.graph and not file:
                file = _write_new_graph(self.folder, state.graph)
                with self._lock:
                    if self._slots.graph is state.graph:
                        self._graph_file = file
            # The pack is synced first, because the manifest names rows of it.
            self.pack.sync()
            saved = manifest.SavedView(
                pack_id=self.pack.id,
                pack=last_look(self.pack.path),
                model=self.pack.fingerprint,
                position=state.position,
                kbs=list(state.kb_codes),
                slots=state.slots.tobytes(),
                alive=np.packbits(state.alive).tobytes(),
                keys=self.pack.keys_digest(state.slots["row"][state.alive]),
                pending=pending,
                graph=file if state.graph else None,
            )
            manifest.write(self.folder, saved)
            self._saved, self._saved_with = state, saved.pack
        except OSError as error:
            raise KbprocError("store.io", f"cannot save {self.folder}: {error.strerror}") from error

    # --- state that changes only under the lock ---

    def _publish(self) -> None:
        slots = self._slots
        self._snapshot = VectorSnapshot(
            pack=self.pack,
            position=self._position,
            slots=slots.slots,
            alive=slots.alive,
            live=int(np.count_nonzero(slots.alive)),
            tail=slots.tail,
            codes=slots.codes,
            graph=slots.graph,
            kb_codes=slots.kb_codes,
            pending_count=len(self._waiting),
            vector_seq=self._waiting.settled_to(self._position.seq),
        )

    def _apply_change(self, change: _ViewChange) -> None:
        if change.removed:
            documents = sorted(set(change.removed))
            self._slots.remove(np.array(documents, np.int64))
            self._waiting.forget(documents)
        self._put(change.rows, change.position.seq, self._waiting, self._slots.add)
        self._position = change.position

    def _put(
        self,
        rows: list[VectorRow],
        seq: int,
        waiting: PendingRows,
        add: Callable[[list[VectorRow], NDArray[np.int64]], None],
    ) -> None:
        """Adds rows whose vectors the pack has to slots; the others become pending."""
        packed = self.pack.rows([row.key for row in rows])
        present = packed >= 0
        add(list(itertools.compress(rows, present)), packed[present])
        for row in itertools.compress(rows, ~present):
            waiting.add(replace(row, seq=seq))


def _load_graph(folder: Path, file: manifest.GraphFile) -> Graph | None:
    path = folder / file.name
    if not SoundFiles(folder).is_sound(path, file.is_whole):
        return None
    return read_graph(path, size=file.size, spread=file.spread)


def _write_new_graph(folder: Path, graph: Graph) -> manifest.GraphFile:
    """Writes a graph under a name that is not in use. Raises OSError."""
    name = f"vectors-{os.urandom(4).hex()}.faiss"
    crc = write_graph(folder / name, graph)
    return manifest.GraphFile(name=name, crc=crc, size=graph.size, spread=graph.spread)
