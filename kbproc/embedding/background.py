"""Chunks get their vectors in the background.

Owns: the threads that embed what is pending (newest first, giving way to searches), what the
model has refused, and waiting for them.
Refuses to know: how a model computes (models/) and how vectors are searched.
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
from kbproc.embedding.claims import Claims
from kbproc.embedding.model import StoredModel
from kbproc.embedding.status import Statuses
from kbproc.store.group import Unfolded
from kbproc.store.snapshot import Readers, Snapshot
from kbproc.views.catalog.rows import IndexRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.views.vectors.view import Vectors

WORKERS = 2
_BATCH = 16
_RETRY_SECONDS = 30.0
_logger = logging.getLogger(__name__)


class Readable(Protocol):
    def reading(self) -> AbstractContextManager[Snapshot]: ...


class Home(Readable, Protocol):
    """What the store is to its embeddings."""

    @property
    def folder(self) -> Path: ...
    @property
    def vectors(self) -> Vectors | None: ...
    @property
    def standing(self) -> tuple[int, int] | None:
        """Up to where all is embedded, and how many chunks wait, while nobody has opened them."""

    @property
    def unfolded(self) -> Unfolded: ...
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
    """One store's model at work: `start` makes it embed what is pending, `close` ends it."""

    def __init__(
        self,
        store: Home,
        settings: dict[str, Any],
        cache: Path,
        problem: KbprocError | None = None,
    ) -> None:
        super().__init__(store.folder, settings, cache, problem)
        self._store = store
        self._preparing = threading.Lock()
        self._changed = threading.Condition()
        self._searched = threading.Condition()  # apart: most searches have nobody to wake
        self._failed: dict[int, tuple[int, str]] = {}
        self.claims = Claims(self._failed.keys)
        self._threads: list[threading.Thread] = []
        self._searching = 0
        self.gate = Gate()
        self._closing = False
        store.on_change(self.wake)

    def move_to(self, store: Home) -> None:
        """It was built beside a store and is in use from now on."""
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
        """Everything up to here is embedded."""
        if self.state == "off":
            return self._store.seq
        if (standing := self._store.standing) is not None:
            return standing[0]
        vectors = self._store.vectors
        return 0 if vectors is None else vectors.snapshot().vector_seq

    def waits(self, document_id: int) -> bool:
        if _is_whole(self._store):
            return False
        vectors = self._store.vectors
        return self.state != "off" if vectors is None else vectors.waits(document_id)

    @property
    def failed_documents(self) -> dict[int, str]:
        """document id → why; one that has been changed or deleted since is forgotten."""
        vectors = self._store.vectors if self._failed else None
        if vectors is None:
            return {}
        waiting = set(vectors.pending())
        for gone in set(self._failed) - waiting:
            self._failed.pop(gone, None)
        return dict(self._failed.values())

    def pending_documents(self) -> dict[int, int]:
        if _is_whole(self._store):
            return {}
        vectors = self._store.vectors
        if vectors is not None:
            return vectors.pending_by_document()
        return {} if self.state == "off" else chunks_by_document(self._store)

    @contextlib.contextmanager
    def searching(self) -> Iterator[None]:
        """While a search runs, the background waits."""
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
        with self._changed:  # `close` finds all of them begun, or none
            if self._threads or self._closing or self.state in {"off", "missing"}:
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
        try:
            with self._preparing:  # one thread prepares, the others wait for it
                self.prepare()
                if self._store.vectors is None:
                    self._store.attach_vectors()
        except KbprocError as error:
            _logger.warning("no embedding model: %s", error.message)
            self._store.changed()
            return
        while not self._closing:
            ids = self._claim()
            if ids:
                self._embed_batch(ids)

    def _claim(self) -> list[int]:
        """The newest pending chunks that nobody else has; waits if there are none."""
        vectors = self._store.vectors  # which may have to be opened, and then waits for writers
        with self._changed:
            ids = self.claims.take(vectors, _BATCH)
            if not ids and not self._closing:  # else nobody would wake it
                self._changed.wait(_RETRY_SECONDS)
            return ids

    def _embed_batch(self, ids: list[int]) -> None:
        try:
            with self.gate.inside():
                rows = rows_of(self._store, ids)
                keys = self.keep(rows, self._embed_rows(rows))
            if self._store.vectors is not None:
                self._store.vectors.embedded(keys)
            if self.claims.others is not None:
                self.claims.others.made(keys)
        except KbprocError as error:
            if len(ids) == 1 or error.type == "model.unavailable":
                self._give_up(ids, error)
            else:  # one of them is refused, and the others are not to share its fate
                for id in ids:
                    self._embed_batch([id])
        except Exception:
            if not self._closing:
                _logger.exception("embedding failed")
                self._pause()
        finally:
            self.claims.done(ids)
            self._store.changed()

    def _embed_rows(self, rows: Sequence[IndexRow]) -> list[NDArray[np.float32]]:
        embedder = self.load()
        if embedder.batches:
            return embedder.embed_many([self.string(row) for row in rows])
        vectors = []
        for row in rows:
            self._give_way()
            vectors.append(embedder.embed(self.string(row)))
        self.problem = None
        return vectors

    def embed_into(self, view: Vectors, rows: Sequence[IndexRow]) -> None:
        """Vectors for chunks of another view than the live one; raises model.unavailable."""
        with self.gate.inside():
            view.embedded(self.keep(rows, self._embed_rows(rows)))

    def _give_up(self, ids: list[int], error: KbprocError) -> None:
        """A model that is away may come back; what it refuses, it refuses for good."""
        if error.type == "model.unavailable":
            self.problem = error
            _logger.warning("embedding has to wait: %s", error.message)
            self._pause()
            return
        for row in rows_of(self._store, ids):
            self._failed[row.chunk_id] = (row.document_id, error.message)

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing, _RETRY_SECONDS)

    def _give_way(self) -> None:
        """Searches go first, but they can't keep a chunk from being embedded for ever."""
        with self._searched:
            self._searched.wait_for(lambda: not self._searching or self._closing, 0.05)

    def drain(
        self,
        progress: Callable[[int, int], None],
        ids: Collection[int] | None = None,
        deadline: float | None = None,
    ) -> int:
        """Embeds what is pending, for a process that ends afterwards; returns what still is.

        `ids`: only that of these documents. `deadline`: by the monotonic clock.
        """
        total = left = _left(self, ids)
        self.start()
        while left and self.problem is None and any(one.is_alive() for one in self._threads):
            progress(total - min(left, total), total)
            if deadline is not None and time.monotonic() > deadline:
                break
            self._store.wait_for_change(0.2)
            left = _left(self, ids)
        if not left:
            progress(total, total)
        return left

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(5)
        self.release()


def _is_whole(store: Home) -> bool:
    """Whether nothing waits, which is known before anybody has opened the vectors."""
    standing = store.standing
    return standing is not None and not standing[1]


def _left(embedding: Embedding, ids: Collection[int] | None) -> int:
    """Chunks, of these documents or of all, that still lack a vector and may get one."""
    failed = embedding.failed_documents
    if ids is None and not failed:
        return embedding.pending_count
    pending = embedding.pending_documents().items()
    return sum(n for id, n in pending if id not in failed and (ids is None or id in ids))


def rows_of(store: Home, ids: Sequence[int]) -> list[IndexRow]:
    """Those that are still there, at whatever position: what has just come is not read back."""
    fresh = store.unfolded.rows(ids)
    here = {row.chunk_id for row in fresh}
    rest = [id for id in ids if id not in here]
    if not rest:
        return fresh
    readers = store.readers
    queries = readers.borrow()
    try:
        return fresh + queries.index_rows_of_chunks(rest)
    finally:
        readers.give_back(queries)


def chunks_by_document(store: Readable) -> dict[int, int]:
    """document id → how many chunks it has."""
    with store.reading() as snapshot:
        return snapshot.queries.chunk_counts()
