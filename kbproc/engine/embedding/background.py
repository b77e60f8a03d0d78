"""Embeds pending chunks in the background.

A few workers embed the newest chunks first and give way to searches; an endpoint gets more of them
while it takes more requests at once. Chunks that the model refuses
are remembered with the reason.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kbproc.base.errors import KbprocError
from kbproc.base.gate import Gate
from kbproc.base.workers import Worker
from kbproc.engine.embedding.claims import Claims
from kbproc.engine.embedding.model import StoredModel
from kbproc.engine.embedding.status import Statuses

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.engine.models.interface import Filler
    from kbproc.engine.projections.catalog.rows import IndexRow
    from kbproc.engine.projections.vectors.view import Vectors
    from kbproc.engine.store.snapshot import Readers, Snapshot

# The vectors of some rows, or why the model refuses one.
Outcome: TypeAlias = "Sequence[NDArray[np.float32]] | NDArray[np.float32] | KbprocError"
# Called with the stage, the number of embedded chunks and their total; None while it is unknown.
Progress = Callable[[str, int, int | None], None]
# The stages.
PREPARE, EMBED = "prepare the model", "embed"
WORKERS = 2
_BATCH = 16
_KEEP_SECONDS = 0.25  # longest time until a vector is stored and can be searched
_RETRY_SECONDS = 30.0
_END_SECONDS = 5.0
# The same texts are tried again after these errors.
_PASSING = frozenset({"model.unavailable", "store.io"})
_logger = logging.getLogger(__name__)


class _EmbeddingClosed(Exception):
    """The store was closed while a worker computed."""


class Readable(Protocol):
    def reading(self) -> AbstractContextManager[Snapshot]: ...


class EmbeddingStore(Readable, Protocol):
    """A store, as its embeddings use it."""

    @property
    def folder(self) -> Path: ...
    @property
    def vectors(self) -> Vectors | None: ...
    @property
    def standing(self) -> tuple[int, int] | None:
        """The seq up to which all is embedded and the number of pending chunks.

        None once the vectors are open, because they know both.
        """

    @property
    def readers(self) -> Readers: ...
    @property
    def chunks(self) -> int: ...
    @property
    def seq(self) -> int: ...
    def attach_vectors(self) -> None: ...
    def changed(self) -> None: ...
    def on_change(self, tell: Callable[[], None]) -> None: ...
    def wait_for_change(self, timeout_s: float) -> None: ...


class Embedding(StoredModel, Statuses):
    """A store's model, whose workers embed pending chunks from `start` to `close`."""

    def __init__(
        self,
        store: EmbeddingStore,
        settings: dict[str, Any],
        cache: Path,
        problem: KbprocError | None = None,
    ) -> None:
        super().__init__(store.folder, settings, cache, problem)
        self._store = store
        self._preparing = threading.Lock()
        self._changing = threading.Lock()  # guards _workers
        # Another condition than a worker's, because most searches end while no worker waits.
        self._searched = threading.Condition()
        self._failed: dict[int, tuple[int, str]] = {}
        self.claims = Claims(self._failed.keys)
        self._workers: list[Worker] = []
        self._searching = 0
        self.gate = Gate()
        self._stopping = False  # no worker begins another text
        self._closed = False  # no worker touches the store any more
        # How many workers are at the store, and do not compute: `end` waits for these alone.
        self._at_store = 0
        self._left = threading.Condition()
        store.on_change(self.wake)

    def move_to(self, store: EmbeddingStore) -> None:
        """Serves this store from now on, after it was built beside another."""
        self._store = store
        store.on_change(self.wake)

    @property
    def pending_count(self) -> int:
        if self.state == "off":
            return 0
        if (standing := self._store.standing) is not None:
            return standing[1]
        vectors = self._store.vectors
        return self._store.chunks if vectors is None else vectors.pending_count

    @property
    def vector_seq(self) -> int:
        """The seq up to which everything is embedded."""
        if self.state == "off":
            return self._store.seq
        if (standing := self._store.standing) is not None:
            return standing[0]
        vectors = self._store.vectors
        return 0 if vectors is None else vectors.snapshot().vector_seq

    def waits(self, document_id: int) -> bool:
        if _is_embedded(self._store):
            return False
        vectors = self._store.vectors
        return self.state != "off" if vectors is None else vectors.waits(document_id)

    @property
    def failed_documents(self) -> dict[int, str]:
        """Document id → the reason. Documents changed or deleted since then are forgotten."""
        vectors = self._store.vectors if self._failed else None
        if vectors is None:
            return {}
        waiting = set(vectors.pending())
        for stale_id in set(self._failed) - waiting:
            self._failed.pop(stale_id, None)
        return dict(self._failed.values())

    def pending_documents(self) -> dict[int, int]:
        if _is_embedded(self._store):
            return {}
        vectors = self._store.vectors
        if vectors is not None:
            return vectors.pending_by_document()
        return {} if self.state == "off" else chunks_by_document(self._store)

    def pending_among(self, chunk_counts: Mapping[int, int]) -> int:
        if _is_embedded(self._store) or self.state == "off":
            return 0
        if (vectors := self._store.vectors) is None:
            return sum(chunk_counts.values())
        return vectors.pending_among(chunk_counts)

    @contextlib.contextmanager
    def searching(self) -> Iterator[None]:
        """Holds the workers back while a search runs."""
        with self._searched:
            self._searching += 1
        try:
            yield
        finally:
            with self._searched:
                self._searching -= 1
                if not self._searching:
                    self._searched.notify_all()

    def start(self) -> None:
        """Starts the workers that embed; without them everything stays pending."""
        with self._changing:  # so that `close` finds either all workers started or none
            if self._workers or self._stopping or self.state in {"off", "missing"}:
                return
            while len(self._workers) < WORKERS:
                self._add_worker()

    def _add_worker(self) -> None:
        worker = Worker(f"embed-{len(self._workers)}", lambda _: self._step(worker), gives_way=True)
        worker.start()
        self._workers.append(worker)

    def wake(self) -> None:
        for worker in tuple(self._workers):
            worker.wake()

    def _step(self, worker: Worker) -> float | None:
        """Embeds some chunks; returns the seconds until the next step."""
        try:
            with self._touching():
                if not self._prepared():
                    worker.stop()
                    return None
                ids = self._claim()
                if not ids:
                    self._dismiss(worker)
                    return _RETRY_SECONDS
                self._engage()
                return 0.0 if self._embed_batch(ids) or worker.pause(_RETRY_SECONDS) else None
        except _EmbeddingClosed:
            return None

    def _prepared(self) -> bool:
        """Returns whether the model is ready, after preparing it and opening the vectors."""
        if self.is_prepared and self._store.vectors is not None:
            return True
        try:
            with self._computing(), self._preparing:  # the other workers wait
                self.prepare()
            with self._preparing:
                if self._store.vectors is None:
                    self._store.attach_vectors()
            return True
        except KbprocError as error:
            _logger.warning("no embedding model: %s", error.message)
            self._store.changed()
            return False

    def _engage(self) -> None:
        """Starts another worker while the model takes more texts at once than there are workers."""
        filler = None if self._embedder is None else self._embedder.filler
        if filler is not None and filler.at_once > len(self._workers):
            with self._changing:
                if not self._stopping and filler.at_once > len(self._workers):
                    self._add_worker()

    def _dismiss(self, worker: Worker) -> None:
        """Ends a worker that has nothing to do, unless it is one of the first."""
        with self._changing:
            if worker in self._workers[WORKERS:]:
                self._workers.remove(worker)
                worker.stop()

    @contextlib.contextmanager
    def _touching(self) -> Iterator[None]:
        """Counts the calling worker as one at the store. Raises _EmbeddingClosed after `end`."""
        with self._left:
            if self._closed:
                raise _EmbeddingClosed
            self._at_store += 1
        try:
            yield
        finally:
            self._leave()

    @contextlib.contextmanager
    def _computing(self) -> Iterator[None]:
        """Leaves the calling worker out of the count, so that `end` need not wait for it.

        The worker must not touch the store inside. Raises _EmbeddingClosed after `end`.
        """
        self._leave()
        try:
            yield
        finally:
            with self._left:
                self._at_store += 1
                if self._closed:
                    raise _EmbeddingClosed

    def _leave(self) -> None:
        with self._left:
            self._at_store -= 1
            self._left.notify_all()

    def _claim(self) -> list[int]:
        """Returns the newest pending chunks that no other worker has.

        Fewer towards the end, so that all workers end at about the same time.
        """
        filler = None if self._embedder is None else self._embedder.filler
        if filler is not None:
            return self.claims.take(self._store.vectors, filler.texts)
        vectors = self._store.vectors
        most = self.claims.free_count(vectors) // (2 * WORKERS)
        return self.claims.take(vectors, min(_BATCH, max(1, most)))

    def _embed_batch(self, ids: list[int]) -> bool:
        """Embeds claimed chunks; returns False where the next step had better wait."""
        done_ids: set[int] = set()
        try:
            closings = self.gate.closings
            rows = rows_of(self._store, ids)
            for batch, outcome in self._embed_rows(rows, self._computing):
                with self.gate.inside():
                    # Erased chunks may be among the rows.
                    if self.gate.closings != closings:
                        return True
                    self._store_outcome(batch, outcome)
                done_ids.update(row.chunk_id for row in batch)
        except KbprocError as error:
            if error.type in _PASSING:
                self.problem = error
                _logger.warning("embedding has to wait: %s", error.message)
                return False
            if len(ids) == 1:
                self._note_refusal(rows_of(self._store, ids), error)
                return True
            # each by itself, because the model may refuse only one of them
            return all(self._embed_batch([id]) for id in ids if id not in done_ids)
        except _EmbeddingClosed:
            raise
        except Exception:
            if not self._stopping:
                _logger.exception("embedding failed")
            return False
        finally:
            self.claims.done(ids)
            if not self._closed:
                self._store.changed()
        return True

    def _store_outcome(self, rows: Sequence[IndexRow], outcome: Outcome) -> None:
        if isinstance(outcome, KbprocError):
            self._note_refusal(rows, outcome)
            return
        keys = self.keep(rows, outcome)
        if self._store.vectors is not None:
            self._store.vectors.embedded(keys)
        if self.claims.other_nodes is not None:
            self.claims.other_nodes.announce(keys)
        self._store.changed()

    def _note_refusal(self, rows: Sequence[IndexRow], error: KbprocError) -> None:
        """Notes that the model refuses these chunks for good."""
        for row in rows:
            self._failed[row.chunk_id] = (row.document_id, error.message)

    def _embed_rows(
        self, rows: Sequence[IndexRow], computing: Callable[[], AbstractContextManager[None]]
    ) -> Iterator[tuple[Sequence[IndexRow], Outcome]]:
        """Yields batches of rows with their vectors; ends early once `stop` was called.

        `computing` is entered while the model works.
        """
        with computing():
            embedder = self.load()
        if embedder.filler is not None:
            yield from self._fill_rows(embedder.filler, rows, computing)
            return
        first, vectors, since = 0, list["NDArray[np.float32]"](), time.monotonic()
        for n, row in enumerate(rows):
            if self._stopping:
                break
            self._give_way()
            string = self.string(row)
            with computing():
                vectors.append(embedder.embed(string))
            if time.monotonic() - since > _KEEP_SECONDS:
                yield rows[first : n + 1], vectors
                first, vectors, since = n + 1, [], time.monotonic()
        if vectors:
            yield rows[first : first + len(vectors)], vectors

    def _fill_rows(
        self,
        filler: Filler,
        rows: Sequence[IndexRow],
        computing: Callable[[], AbstractContextManager[None]],
    ) -> Iterator[tuple[Sequence[IndexRow], Outcome]]:
        parts = filler.embed([self.string(row) for row in rows])
        while not self._stopping:
            with computing():
                part = next(parts, None)
            if part is None:
                return
            yield rows[part.first : part.last], part.outcome

    def embed_into(self, view: Vectors, rows: Sequence[IndexRow]) -> None:
        """Embeds chunks for another view than the live one; raises model.unavailable."""
        with self.gate.inside():
            for batch, outcome in self._embed_rows(rows, contextlib.nullcontext):
                if isinstance(outcome, KbprocError):
                    raise outcome
                view.embedded(self.keep(batch, outcome))

    def _give_way(self) -> None:
        """Waits for searches, but not for long: many searches must not hold chunks up for ever."""
        with self._searched:
            self._searched.wait_for(lambda: not self._searching or self._stopping, 0.05)

    def drain(
        self,
        progress: Progress,
        ids: Collection[int] | None = None,
        deadline: float | None = None,
    ) -> int:
        """Embeds pending chunks and returns how many are still pending.

        It serves a process that ends afterwards. `ids`: only chunks of these documents.
        `deadline`: by the monotonic clock.
        """
        total = remaining = _embeddable_count(self, ids)
        self.start()
        while (
            remaining
            and self.problem is None
            and any(worker.is_running for worker in self._workers)
        ):
            if self.is_prepared:
                progress(EMBED, total - min(remaining, total), total)
            else:
                progress(PREPARE, 0, None)
            if deadline is not None and time.monotonic() > deadline:
                break
            self._store.wait_for_change(0.2)
            remaining = _embeddable_count(self, ids)
        if not remaining:
            progress(EMBED, total, total)
        return remaining

    def stop(self) -> None:
        """Lets the workers begin no other text; vectors in the making are stored until `end`."""
        with self._changing:
            self._stopping = True
            for worker in self._workers:
                worker.stop()
        with self._searched:
            self._searched.notify_all()

    def rest(self) -> None:
        """Ends the workers as `stop` does, and waits a while until what they compute is stored."""
        self.stop()
        deadline = time.monotonic() + _END_SECONDS
        for worker in tuple(self._workers):
            worker.join(max(0.0, deadline - time.monotonic()))

    def end(self) -> None:
        """Ends the workers. One that computes ends later by itself; its vectors are dropped."""
        self.stop()
        with self._left:
            self._closed = True
            self._left.wait_for(lambda: not self._at_store, _END_SECONDS)

    def close(self) -> None:
        self.end()
        self.release()


def _is_embedded(store: EmbeddingStore) -> bool:
    """Returns True if no chunk is pending and the vectors are still unopened."""
    standing = store.standing
    return standing is not None and not standing[1]


def _embeddable_count(embedding: Embedding, ids: Collection[int] | None) -> int:
    """Returns how many chunks of these documents, or of all, lack a vector and may get one."""
    failed = embedding.failed_documents
    if ids is None and not failed:
        return embedding.pending_count
    pending = embedding.pending_documents().items()
    return sum(n for id, n in pending if id not in failed and (ids is None or id in ids))


def rows_of(store: EmbeddingStore, ids: Sequence[int]) -> list[IndexRow]:
    """Returns the rows of the chunks that still exist, at any position."""
    readers = store.readers
    queries = readers.borrow()
    try:
        return queries.index_rows_of_chunks(ids)
    finally:
        readers.give_back(queries)


def chunks_by_document(store: Readable) -> dict[int, int]:
    """Returns document id → number of its chunks."""
    with store.reading() as snapshot:
        return snapshot.queries.chunk_counts()
