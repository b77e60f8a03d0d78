"""Embeds pending chunks in the background.

A few threads embed the newest chunks first and give way to searches. Chunks that the model refuses
are remembered with the reason.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kbproc.base.errors import KbprocError
from kbproc.base.gate import Gate
from kbproc.base.threads import lower_priority
from kbproc.engine.embedding.claims import Claims
from kbproc.engine.embedding.model import StoredModel
from kbproc.engine.embedding.status import Statuses

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.engine.projections.catalog.rows import IndexRow
    from kbproc.engine.projections.vectors.view import Vectors
    from kbproc.engine.store.snapshot import Readers, Snapshot

# Called with the stage, the number of embedded chunks and their total; None while it is unknown.
Progress = Callable[[str, int, int | None], None]
# The stages.
PREPARE, EMBED = "prepare the model", "embed"
WORKERS = 2
_BATCH = 16
# An endpoint gets smaller requests in the first seconds, because a session may be short and a
# request that is cut off brings no vector at all.
_SHORT_SECONDS = 10.0
_SHORT_BATCH = 4
_KEEP_SECONDS = 0.25  # longest time until a vector is stored and can be searched
_RETRY_SECONDS = 30.0
_END_SECONDS = 5.0
_LOOK_SECONDS = 0.01
# The same texts are tried again after these errors.
_PASSING = frozenset({"model.unavailable", "store.io"})
_logger = logging.getLogger(__name__)


class _EmbeddingClosed(Exception):
    """The store was closed while a thread computed."""


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
    """A store's model, whose threads embed pending chunks from `start` to `close`."""

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
        self._changed = threading.Condition()
        # Another condition than _changed, because most searches end while no thread waits.
        self._searched = threading.Condition()
        self._failed: dict[int, tuple[int, str]] = {}
        self.claims = Claims(self._failed.keys)
        self._threads: list[threading.Thread] = []
        self._searching = 0
        self.gate = Gate()
        self._began = time.monotonic()
        self._stopping = False  # no thread begins another text
        self._closed = False  # no thread touches the store any more
        self._away: set[threading.Thread] = set()  # while they compute: `end` does not wait
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

    @contextlib.contextmanager
    def searching(self) -> Iterator[None]:
        """Holds the background threads back while a search runs."""
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
        """Starts the threads that embed; without them everything stays pending."""
        with self._changed:  # so that `close` finds either all threads started or none
            if self._threads or self._stopping or self.state in {"off", "missing"}:
                return
            for number in range(WORKERS):
                thread = threading.Thread(target=self._run, name=f"embed-{number}", daemon=True)
                thread.start()
                self._threads.append(thread)

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        lower_priority()
        with contextlib.suppress(_EmbeddingClosed):
            self._work()

    def _work(self) -> None:
        try:
            with self._computing(), self._preparing:  # the other threads wait
                self.prepare()
            with self._preparing:
                if self._store.vectors is None:
                    self._store.attach_vectors()
        except KbprocError as error:
            _logger.warning("no embedding model: %s", error.message)
            self._store.changed()
            return
        while not self._stopping:
            ids = self._claim()
            if ids:
                self._embed_batch(ids)

    @contextlib.contextmanager
    def _computing(self) -> Iterator[None]:
        """Marks the calling thread as away from the store, so that `end` need not wait for it.

        The thread must not touch the store inside. Raises _EmbeddingClosed after `end`.
        """
        thread = threading.current_thread()
        with self._changed:
            if self._closed:
                raise _EmbeddingClosed
            self._away.add(thread)
        try:
            yield
        finally:
            with self._changed:
                if self._closed:
                    raise _EmbeddingClosed
                self._away.discard(thread)

    def _claim(self) -> list[int]:
        """Returns the newest pending chunks that no other thread has; waits if there are none.

        `_changed` is held from the look to the wait, so that no wake is lost: a writer that adds
        chunks, or moves the vectors while `take` looks, wakes this thread afterwards.
        """
        vectors = self._store.vectors  # outside the lock: opening them waits for writers
        is_young = time.monotonic() - self._began < _SHORT_SECONDS and self.spec.kind == "openai"
        with self._changed:
            ids = self.claims.take(vectors, _SHORT_BATCH if is_young else _BATCH)
            if not ids and not self._stopping:  # because `stop` wakes a thread once only
                self._changed.wait(_RETRY_SECONDS)
            return ids

    def _embed_batch(self, ids: list[int]) -> None:
        stored_ids: set[int] = set()
        try:
            with self.gate.inside():
                rows = rows_of(self._store, ids)
                for batch, vectors in self._embed_rows(rows, self._computing):
                    self._store_vectors(batch, vectors)
                    stored_ids.update(row.chunk_id for row in batch)
        except KbprocError as error:
            if len(ids) == 1 or error.type in _PASSING:
                self._give_up(ids, error)
            else:  # each by itself, because the model may refuse only one of them
                for id in ids:
                    if id not in stored_ids:
                        self._embed_batch([id])
        except _EmbeddingClosed:
            raise
        except Exception:
            if not self._stopping:
                _logger.exception("embedding failed")
                self._pause()
        finally:
            self.claims.done(ids)
            if not self._closed:
                self._store.changed()

    def _store_vectors(self, rows: Sequence[IndexRow], vectors: list[NDArray[np.float32]]) -> None:
        keys = self.keep(rows, vectors)
        if self._store.vectors is not None:
            self._store.vectors.embedded(keys)
        if self.claims.other_nodes is not None:
            self.claims.other_nodes.announce(keys)
        self._store.changed()

    def _embed_rows(
        self, rows: Sequence[IndexRow], computing: Callable[[], AbstractContextManager[None]]
    ) -> Iterator[tuple[Sequence[IndexRow], list[NDArray[np.float32]]]]:
        """Yields batches of rows with their vectors; ends early once `stop` was called.

        `computing` is entered while the model works.
        """
        with computing():
            embedder = self.load()
        if embedder.batches:
            strings = [self.string(row) for row in rows]
            with computing():
                vectors = embedder.embed_many(strings)
            yield rows, vectors
            return
        first, vectors, since = 0, [], time.monotonic()
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

    def embed_into(self, view: Vectors, rows: Sequence[IndexRow]) -> None:
        """Embeds chunks for another view than the live one; raises model.unavailable."""
        with self.gate.inside():
            for batch, vectors in self._embed_rows(rows, contextlib.nullcontext):
                view.embedded(self.keep(batch, vectors))

    def _give_up(self, ids: list[int], error: KbprocError) -> None:
        """Notes the error: for good where the model refuses a chunk, else until the next try.

        An absent model may come back, and a full disk may get room again.
        """
        if error.type in _PASSING:
            self.problem = error
            _logger.warning("embedding has to wait: %s", error.message)
            self._pause()
            return
        for row in rows_of(self._store, ids):
            self._failed[row.chunk_id] = (row.document_id, error.message)

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, _RETRY_SECONDS)

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
        while remaining and self.problem is None and any(t.is_alive() for t in self._threads):
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
        """Lets the threads begin no other text; vectors in the making are stored until `end`."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def end(self) -> None:
        """Ends the threads. A thread that computes ends later by itself; its vector is dropped."""
        self.stop()
        with self._changed:
            self._closed = True
        deadline = time.monotonic() + _END_SECONDS
        for thread in self._threads:
            while thread not in self._away and thread.is_alive() and time.monotonic() < deadline:
                thread.join(_LOOK_SECONDS)

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
