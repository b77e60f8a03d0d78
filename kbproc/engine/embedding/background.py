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
# A session may be short: until then an endpoint gets smaller requests, as a request that is cut off
# brings no vector at all.
_SHORT_SECONDS = 10.0
_SHORT_BATCH = 4
_KEEP_SECONDS = 0.25  # vectors are kept, and can be searched, after so long at most
_RETRY_SECONDS = 30.0
_END_SECONDS = 5.0
_LOOK_SECONDS = 0.01
_logger = logging.getLogger(__name__)


class _Closed(Exception):
    """The store was closed while a thread computed."""


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
        self._began = time.monotonic()
        self._stopping = False  # no text is begun any more
        self._closed = False  # nothing touches the store any more
        self._away: set[threading.Thread] = set()  # they compute, and `end` does not wait for them
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
        with contextlib.suppress(_Closed):
            self._work()

    def _work(self) -> None:
        try:
            with self._computing(), self._preparing:  # one prepares, the others wait for it
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
        """The calling thread touches no store meanwhile, so that `end` need not wait for it.

        Raises _Closed if `end` was called meanwhile.
        """
        thread = threading.current_thread()
        with self._changed:
            if self._closed:
                raise _Closed
            self._away.add(thread)
        try:
            yield
        finally:
            with self._changed:
                if self._closed:
                    raise _Closed
                self._away.discard(thread)

    def _claim(self) -> list[int]:
        """The newest pending chunks that nobody else has; waits if there are none."""
        vectors = self._store.vectors  # which may have to be opened, and then waits for writers
        is_young = time.monotonic() - self._began < _SHORT_SECONDS
        with self._changed:
            ids = self.claims.take(vectors, _SHORT_BATCH if is_young else _BATCH)
            if not ids and not self._stopping:  # else nobody would wake it
                self._changed.wait(_RETRY_SECONDS)
            return ids

    def _embed_batch(self, ids: list[int]) -> None:
        kept_ids: set[int] = set()
        try:
            with self.gate.inside():
                rows = rows_of(self._store, ids)
                for some, vectors in self._made(rows, self._computing):
                    self._keep(some, vectors)
                    kept_ids.update(row.chunk_id for row in some)
        except KbprocError as error:
            if len(ids) == 1 or error.type == "model.unavailable":
                self._give_up(ids, error)
            else:  # one of them is refused, and the others are not to share its fate
                for id in ids:
                    if id not in kept_ids:
                        self._embed_batch([id])
        except _Closed:
            raise
        except Exception:
            if not self._stopping:
                _logger.exception("embedding failed")
                self._pause()
        finally:
            self.claims.done(ids)
            if not self._closed:
                self._store.changed()

    def _keep(self, rows: Sequence[IndexRow], vectors: list[NDArray[np.float32]]) -> None:
        keys = self.keep(rows, vectors)
        if self._store.vectors is not None:
            self._store.vectors.embedded(keys)
        if self.claims.others is not None:
            self.claims.others.made(keys)
        self._store.changed()

    def _made(
        self, rows: Sequence[IndexRow], computing: Callable[[], AbstractContextManager[None]]
    ) -> Iterator[tuple[Sequence[IndexRow], list[NDArray[np.float32]]]]:
        """Rows with their vectors, some at a time; `computing` is entered while the model works.

        It ends early once `stop` was called.
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
        self.problem = None
        if vectors:
            yield rows[first : first + len(vectors)], vectors

    def embed_into(self, view: Vectors, rows: Sequence[IndexRow]) -> None:
        """Vectors for chunks of another view than the live one; raises model.unavailable."""
        with self.gate.inside():
            for some, vectors in self._made(rows, contextlib.nullcontext):
                view.embedded(self.keep(some, vectors))

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
            self._changed.wait_for(lambda: self._stopping, _RETRY_SECONDS)

    def _give_way(self) -> None:
        """Searches go first, but they can't keep a chunk from being embedded for ever."""
        with self._searched:
            self._searched.wait_for(lambda: not self._searching or self._stopping, 0.05)

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

    def stop(self) -> None:
        """Begins no text any more; vectors that are being made are kept until `end`."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def end(self) -> None:
        """Ends the threads. One that computes ends by itself later, and its vector is dropped."""
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
