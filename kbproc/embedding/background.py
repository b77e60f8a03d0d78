"""Chunks get their vectors in the background.

Owns: the model's state, the pack, the threads that embed what is pending
(newest first, giving way to searches), waiting for them, and query vectors.
Refuses to know: how a model computes (embed.py) and how vectors are searched.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from kbproc.base.errors import KbprocError
from kbproc.base.gate import Quiet
from kbproc.base.threads import be_nice
from kbproc.embedding.status import Pending
from kbproc.sources.chunk import embed_text
from kbproc.store.state import IndexStatus
from kbproc.views.catalog.rows import IndexRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kbproc.models.interface import Embedder, ModelInfo, ModelSpec
    from kbproc.views.vectors.pack import VectorPack
    from kbproc.views.vectors.view import VectorRow, Vectors

WORKERS = 2
_BATCH = 16
_RETRY_SECONDS = 30.0
_DEFAULT_TOKENS = 256
_logger = logging.getLogger(__name__)


class Home(Protocol):
    """What the store is to its embeddings."""

    folder: Path
    vectors: Vectors | None

    @property
    def chunks(self) -> int: ...
    @property
    def seq(self) -> int: ...
    def chunks_by_document(self) -> dict[int, int]: ...
    def index_rows(self, chunk_ids: Sequence[int]) -> list[IndexRow]: ...
    def attach_vectors(self) -> None: ...
    def changed(self) -> None: ...
    def wait_for_change(self, timeout_s: float) -> None: ...


State = Literal["off", "missing", "not ready", "preparing", "ready"]


class Embedding:
    """One store's model. Nothing heavy is loaded before it is needed."""

    def __init__(self, store: Home, settings: dict[str, Any], cache: Path) -> None:
        from kbproc.models import catalogue

        self._store = store
        self._cache = cache / "models"
        self.spec: ModelSpec = catalogue.spec_of(settings)
        self.info: ModelInfo | None = None
        self.problem: KbprocError | None = None
        self.state: State = "off"
        self.pack: VectorPack | None = None
        self._embedder: Embedder | None = None
        self._loading = threading.Lock()
        self._preparing = threading.Lock()
        self._changed = threading.Condition()
        self._claimed: set[int] = set()
        self._failed: dict[int, tuple[int, str]] = {}
        self._threads: list[threading.Thread] = []
        self._searching = 0
        self.quiet = Quiet()
        self._closing = False
        if self.spec.kind != "none":
            self._look()

    def _look(self) -> None:
        """What can be known of the model without loading it."""
        from kbproc.models import catalogue
        from kbproc.views.vectors.pack import VectorPack

        try:
            self.info = catalogue.inspect(self.spec, self._cache)
        except KbprocError as error:
            self.state, self.problem = "missing", error
            return
        if self.info.fingerprint is None:
            self.state = "not ready"
            return
        path = self._store.folder / "vectors" / f"{self.info.file_name}.pack"
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self.pack = VectorPack.open(path, dim=self.info.dim, fingerprint=self.info.fingerprint)
        self.state = "ready"

    def move_to(self, store: Home) -> None:
        """It was built beside a store and is in use from now on."""
        self._store = store

    # -------------------------------------------------------------- what is told

    @property
    def models_folder(self) -> Path:
        """Where exported models are kept for all stores."""
        return self._cache

    @property
    def model_name(self) -> str | None:
        return None if self.state == "off" else self.spec.name

    @property
    def dim(self) -> int | None:
        return self.info.dim if self.info and self.state == "ready" else None

    @property
    def max_tokens(self) -> int:
        """Of the model; of the default one while its own are not known yet."""
        return (self.info.max_tokens if self.info else 0) or _DEFAULT_TOKENS

    @property
    def tokenizer_path(self) -> str | None:
        return self.info.tokenizer_path if self.info else None

    @property
    def pending_count(self) -> int:
        if self.state == "off":
            return 0
        vectors = self._store.vectors
        return self._store.chunks if vectors is None else vectors.pending_count

    @property
    def vector_seq(self) -> int:
        """Everything up to here is embedded."""
        vectors = self._store.vectors
        if self.state == "off":
            return self._store.seq
        return 0 if vectors is None else vectors.snapshot().vector_seq

    @property
    def status_when_new(self) -> IndexStatus:
        return "ready" if self.state == "off" else "pending"

    def status_of(self, document_id: int) -> IndexStatus:
        if document_id in self.failed_documents:
            return "failed"
        vectors = self._store.vectors
        waits = self.state != "off" if vectors is None else vectors.waits(document_id)
        return "pending" if waits else "ready"

    @property
    def failed_documents(self) -> dict[int, str]:
        """document id → why; one that has been changed or deleted since is forgotten."""
        vectors = self._store.vectors
        if not self._failed or vectors is None:
            return {}
        waiting = set(vectors.pending())
        self._failed = {id: why for id, why in self._failed.items() if id in waiting}
        return dict(self._failed.values())

    def pending_documents(self) -> dict[int, int]:
        vectors = self._store.vectors
        if vectors is not None:
            return vectors.pending_by_document()
        return {} if self.state == "off" else self._store.chunks_by_document()

    def ids_with_status(self, status: IndexStatus | None) -> dict[str, Any]:
        """Members of a DocumentFilter that select this index status."""
        if status is None:
            return {}
        pending = set(self.pending_documents())
        failed = self.failed_documents.keys()
        if status == "failed":
            return {"ids": sorted(failed)}
        if status == "pending":
            return {"ids": sorted(pending - failed)}
        return {"not_ids": sorted(pending | failed)}

    # ------------------------------------------------------------------- queries

    def query_vector(self, text: str) -> tuple[NDArray[np.float32] | None, str | None]:
        """The query's vector, or None and why there is none."""
        if self.state == "off":
            return None, "No embedding model is configured."
        if self.state in {"not ready", "preparing"}:
            return None, "The embedding model is being prepared."
        try:
            return self._load().embed(text), None
        except KbprocError as error:
            return None, error.message

    @contextlib.contextmanager
    def searching(self) -> Any:
        """While a search runs, the background waits."""
        with self._changed:
            self._searching += 1
        try:
            yield
        finally:
            with self._changed:
                self._searching -= 1
                if not self._searching:
                    self._changed.notify_all()

    def _load(self) -> Embedder:
        """The embedder, loaded once; raises model.unavailable."""
        from kbproc.models import catalogue

        with self._loading:
            if self._embedder is None:
                if self.state == "missing" and self.problem is not None:
                    raise self.problem
                self._embedder = catalogue.load(self.spec, self._cache)
            return self._embedder

    def prepare(self) -> None:
        """Gets a model ready that is not: exports it, or asks its endpoint; may take a minute.

        Raises model.unavailable.
        """
        if self.state != "not ready":
            return
        self.state = "preparing"
        try:
            self._load()
        except KbprocError as error:
            self.state, self.problem = "missing", error
            raise
        self._look()

    def _prepare_and_attach(self) -> None:
        """One thread prepares, the others wait for it."""
        with self._preparing:
            self.prepare()
            if self._store.vectors is None:
                self._store.attach_vectors()

    # ---------------------------------------------------------------- background

    def vector_rows(self, rows: Iterable[IndexRow]) -> list[VectorRow]:
        from kbproc.views.vectors.view import VectorRow

        if self.pack is None:
            return []
        key = self.pack.key
        return [VectorRow(r.chunk_id, r.document_id, r.kb, key(self.string(r))) for r in rows]

    def string(self, row: IndexRow) -> str:
        """The exact string that is embedded, and that a vector is cached under."""
        return self.string_of(row.title, row.section, row.text)

    def string_of(self, title: str, section: str | None, text: str) -> str:
        return embed_text(title, section, text, max_tokens=self.max_tokens)

    def start(self) -> None:
        """Starts the threads that embed; without them everything stays pending."""
        if self._threads or self.state in {"off", "missing"}:
            return
        for number in range(WORKERS):
            thread = threading.Thread(target=self._run, name=f"embed-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        be_nice()
        try:
            self._prepare_and_attach()
        except KbprocError as error:
            _logger.warning("no embedding model: %s", error.message)
            self._store.changed()
            return
        while not self._closing:
            ids = self._claim()
            if ids:
                self._embed_batch(ids)

    def _claim(self) -> list[int]:
        """The newest pending chunks that no other thread has; waits if there are none."""
        with self._changed:
            vectors = self._store.vectors
            taken = self._claimed | self._failed.keys()
            most = _BATCH + len(taken)
            pending = vectors.pending(limit=most) if vectors is not None else []
            ids = [id for id in pending if id not in taken]
            if not ids:
                self._changed.wait(_RETRY_SECONDS)
                return []
            self._claimed.update(ids[:_BATCH])
            return ids[:_BATCH]

    def _embed_batch(self, ids: list[int]) -> None:
        try:
            with self.quiet.working():
                rows = self._store.index_rows(ids)
                keys = self._keep(rows, self._embed_rows(rows))
            if self._store.vectors is not None:
                self._store.vectors.embedded(keys)
        except KbprocError as error:
            self._give_up(ids, error)
        except Exception:
            if not self._closing:
                _logger.exception("embedding failed")
                self._pause()
        finally:
            with self._changed:
                self._claimed.difference_update(ids)
            self._store.changed()

    def _embed_rows(self, rows: Sequence[IndexRow]) -> list[NDArray[np.float32]]:
        embedder = self._load()
        if embedder.batches:
            return embedder.embed_many([self.string(row) for row in rows])
        vectors = []
        for row in rows:
            self._give_way()
            vectors.append(embedder.embed(self.string(row)))
        self.problem = None
        return vectors

    def _keep(self, rows: Sequence[IndexRow], vectors: list[NDArray[np.float32]]) -> list[bytes]:
        import numpy as np

        if not rows or self.pack is None:
            return []
        keys = [self.pack.key(self.string(row)) for row in rows]
        with self._changed:
            self.pack.append(keys, np.stack(vectors))
        return keys

    def embed_into(self, view: Vectors, rows: Sequence[IndexRow]) -> None:
        """Vectors for chunks of another view than the live one; raises model.unavailable."""
        with self.quiet.working():
            view.embedded(self._keep(rows, self._embed_rows(rows)))

    def _give_up(self, ids: list[int], error: KbprocError) -> None:
        """A model that is away may come back; what it refuses, it refuses for good."""
        if error.type == "model.unavailable":
            self.problem = error
            _logger.warning("embedding has to wait: %s", error.message)
            self._pause()
            return
        for row in self._store.index_rows(ids):
            self._failed[row.chunk_id] = (row.document_id, error.message)

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing, _RETRY_SECONDS)

    def _give_way(self) -> None:
        """Searches go first, but they can't keep a chunk from being embedded for ever."""
        with self._changed:
            self._changed.wait_for(lambda: not self._searching or self._closing, 0.05)

    def drain(self, progress: Callable[[int, int], None]) -> None:
        """Embeds everything that is pending, for a process that ends afterwards."""
        total = self.pending_count
        self.start()
        while (left := self._left()) > 0 and self._alive():
            progress(max(0, total - left), total)
            self._store.wait_for_change(0.2)
        progress(total, total)

    def _left(self) -> int:
        """Chunks that are pending and have not failed."""
        failed = self.failed_documents
        return self.pending_count - (len(self._failed) if failed else 0)

    def _alive(self) -> bool:
        return self.problem is None and any(thread.is_alive() for thread in self._threads)

    def waiting(self, ids: Sequence[int] | None) -> Pending:
        """For doc.wait: these documents, or all."""
        return Pending(self, self._store.chunks_by_document(), ids)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(5)
        if self._embedder is not None:
            self._embedder.close()
        if self.pack is not None:
            self.pack.close()
