"""The store: one folder, one writer, many readers.

Owns: opening and locking, the writers' lane with its shared fsync, what
readers see and when, and that the views follow.
Refuses to know: methods, tokens, plans, JSON-RPC.

The order of every commit: fold into the catalog's open transaction and into
the full-text writer, fsync the log, then show both. Readers see only what is
durable; the next writer sees everything.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.host import Host
from kbproc.embedding.parsers import Parsers
from kbproc.health import salvage
from kbproc.history import purge
from kbproc.library.past import Pasts
from kbproc.library.upkeep import Tidy
from kbproc.log.file import FileLog
from kbproc.log.interface import Log
from kbproc.log.lease import Lease
from kbproc.notes.notebooks import Notebooks
from kbproc.sources.blobs import Blobs
from kbproc.store import follow, overlay, readonly, rebuild
from kbproc.store.folder import read_settings, size_of
from kbproc.store.lane import Lane, T, Ticket, Turns, birth, take_turn
from kbproc.store.snapshot import Published, Readers, Snapshot
from kbproc.store.state import Freshness
from kbproc.views import soundness
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import IndexRow

if TYPE_CHECKING:
    from kbproc.embedding.background import Embedding
    from kbproc.sources.parse.pool import ParserPool
    from kbproc.views.catalog.catalog import Catalog
    from kbproc.views.fulltext.index import FullText
    from kbproc.views.vectors.view import Vectors

_logger = logging.getLogger(__name__)


class Store:
    """An open store; `open` makes one, `close` leaves everything on disk.

    `folder` is where it works: `origin`, the folder that was named, or an overlay of
    it if that is read-only.
    """

    def __init__(self, folder: Path, host: Host, cache: Path, lease: Lease, origin: Path) -> None:
        self.folder = folder
        self.origin = origin
        self.read_only = folder != origin
        self.host = host
        self.cache = cache
        self.blobs = Blobs(folder / "blobs")
        self.log: Log
        self.catalog: Catalog
        self.readers: Readers
        self.fulltext: FullText
        self.vectors: Vectors | None = None
        self.embedding: Embedding
        self.published: Published
        self.version = 0
        self.settings: dict[str, Any] = {}
        self._lease = lease
        self.pasts = Pasts(self)
        self._turns = Turns(self._run)
        self._exclusive = threading.Lock()
        self._shown = threading.Condition()
        self._watchers: list[Callable[[], None]] = []
        self._parsers = Parsers(self._start_parsers)
        self._closed = threading.Event()
        self._tidy = Tidy(self)
        self.notebooks = Notebooks(self)
        self.broken: KbprocError | None = None

    # ------------------------------------------------------------------ opening

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        host: Host,
        cache: Path,
        model: dict[str, Any] | None = None,
        lease: Lease | None = None,
    ) -> Store:
        """Opens or creates the store at `folder`; `model` is written into a new one.

        `cache` is where exported models are kept for all stores.

        Raises store.locked, store.incompatible, store.corrupt, store.io.
        """
        place = folder
        if lease is None:
            place, lease = overlay.take(folder, host.pid())
        store = cls(place, host, cache, lease, folder)
        try:
            store._open(model)
        except BaseException:
            store.close()
            raise
        return store

    def _open(self, model: dict[str, Any] | None) -> None:
        try:
            if self.read_only:
                overlay.fill(self.folder, self.origin)
            else:
                salvage.finish(self.folder)
                soundness.drop_damaged(self.folder / "views")
                self.blobs.sweep()
        except OSError as error:
            raise KbprocError(
                "store.io", f"The store {self.origin} could not be opened: {error.strerror}."
            ) from error
        self.settings = read_settings(self.origin / "store.toml", model)
        self._open_views()
        purge.resume(self)
        if self.log.head.seq == 0:
            self.commit(birth)

    def _open_views(self) -> None:
        from kbproc.embedding.background import Embedding
        from kbproc.views.fulltext.index import FullText

        views = self.folder / "views"
        self.catalog = follow.open_catalog(views)
        self.readers = Readers(self.catalog)
        self.log = FileLog.open(self.folder / "log", self.catalog.position)
        follow.replay(self.log, self.catalog)
        self.fulltext = FullText.open(views / "fulltext")
        self._catch_up(self.fulltext)
        self.fulltext.commit()
        self.embedding = Embedding(self, self.settings.get("model", {}), self.cache)
        self.publish()
        self.attach_vectors()

    def attach_vectors(self) -> None:
        """Opens the vector view, once the model's pack is there."""
        from kbproc.views.vectors.view import Vectors

        if self.embedding.pack is None:
            return
        with self._turns.lane:
            self.vectors = Vectors.open(self.folder / "views", self.embedding.pack)
            self._catch_up(self.vectors)
        self.embedding.wake()

    def _catch_up(self, index: FullText | Vectors) -> None:
        """Brings an index to the catalog's position: the changed documents, or all."""
        if index.position == self.catalog.position:
            return
        if follow.may_go_on(self.log, index.position):
            self.reindex(index, index.position.seq)
            return
        rows = follow.all_rows(self.catalog)
        if index is self.vectors:
            self.vectors.rebuild(self.embedding.vector_rows(rows), self.catalog.position)
        else:
            self.fulltext.rebuild(follow.fulltext_rows(rows), self.catalog.position)

    def _writer_queries(self) -> Queries:

        return Queries(self.catalog.writer)

    def reindex(self, index: FullText | Vectors, since: int) -> bool:
        """Tells `index` which documents have changed since; True if any have."""
        touched, rows = follow.changed_rows(self._writer_queries(), since)
        position = self.catalog.position
        if index is self.fulltext:
            if touched:
                self.fulltext.apply(touched, follow.fulltext_rows(rows), position)
        else:
            index.apply(touched, self.embedding.vector_rows(rows), position)  # type: ignore[arg-type]
        return bool(touched)

    # --------------------------------------------------------------- upkeep

    @contextlib.contextmanager
    def exclusive(self, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        """For upkeep of the whole store: one at a time; `check` may raise while it waits."""
        while not self._exclusive.acquire(timeout=0.1):
            check()
        try:
            yield
        finally:
            self._exclusive.release()

    def lane(self) -> AbstractContextManager[object]:
        """Writers wait; whatever they have written is durable and shown."""
        return self._turns.lane

    def rebuild(self, tell: Callable[[str], None] = lambda stage: None) -> None:
        """Every view afresh, while reads and writes go on."""
        with self.exclusive():
            rebuild.rebuild(self, tell)

    def damaged_views(self) -> list[str]:
        with self.exclusive():
            return soundness.damaged_views(self)

    def compact(self) -> None:
        with self.exclusive():
            rebuild.compact(self)

    def swap_vectors(self, vectors: Vectors) -> None:
        """In the lane. A vector that is packed meanwhile is looked for once more."""
        self.reindex(vectors, vectors.position.seq)
        self.vectors = vectors
        vectors.settle()

    def start_upkeep(self) -> None:
        """In the background, for as long as this process owns the store."""
        self._tidy.start()
        self.notebooks.start()

    def tidy(self) -> None:
        """Once, now."""
        self._tidy.once()

    # ------------------------------------------------------------------ reading

    @contextlib.contextmanager
    def reading(self) -> Iterator[Snapshot]:
        snapshot = Snapshot(self)
        try:
            yield snapshot
        finally:
            snapshot.close()

    def wait_for(self, seq: int, timeout_s: float | None) -> bool:
        """Until readers see `seq`; False if the time passed first."""
        with self._shown:
            return self._shown.wait_for(lambda: self.published.seq >= seq, timeout_s)

    def changed(self) -> None:
        """Tells whoever waits that something can be seen that could not be seen before."""
        with self._shown:
            self._shown.notify_all()
        for tell in self._watchers:
            tell()

    def on_change(self, tell: Callable[[], None]) -> None:
        self._watchers.append(tell)

    def wait_for_change(self, timeout_s: float) -> None:
        with self._shown:
            self._shown.wait(timeout_s)

    def freshness(self, snapshot: Snapshot) -> Freshness:
        return Freshness(
            seq=snapshot.seq,
            fulltext_seq=snapshot.seq,
            vector_seq=min(self.embedding.vector_seq, snapshot.seq),
            pending_embeddings=self.embedding.pending_count,
        )

    def size_bytes(self) -> int:
        """What the store takes on disk."""
        return size_of(self.origin)

    @property
    def seq(self) -> int:
        """The position that readers see."""
        return self.published.seq

    @property
    def chunks(self) -> int:
        """How many chunks readers see."""
        return self.published.chunks

    def index_rows(self, chunk_ids: Sequence[int]) -> list[IndexRow]:
        with self.reading() as snapshot:
            return snapshot.queries.index_rows_of_chunks(chunk_ids)

    def chunks_by_document(self) -> dict[int, int]:
        with self.reading() as snapshot:
            return snapshot.queries.chunk_counts()

    @property
    def parsers(self) -> ParserPool:
        """The processes that read documents; started when first needed."""
        return self._parsers.get()

    def _start_parsers(self) -> ParserPool:
        from kbproc.sources.parse.pool import ParserPool

        tokenizer, tokens = self.embedding.tokenizer_path, self.embedding.max_tokens
        return ParserPool(tokenizer=tokenizer, max_tokens=tokens, overlap=round(tokens * 0.15))

    def retire_parsers(self) -> None:
        self._parsers.retire()

    @contextlib.contextmanager
    def showing(self) -> Iterator[None]:
        """Around every change to what readers see: see snapshot.Shown."""
        self.version += 1
        try:
            yield
        finally:
            self.version += 1

    def publish(self) -> None:
        queries = self._writer_queries()
        if self.catalog.stirred or not hasattr(self, "published"):
            self._roster, self.catalog.stirred = queries.roster(), False
        with self._shown:
            self.published = Published(queries.head(), self.fulltext.snapshot(), self._roster)
            self._shown.notify_all()

    # ------------------------------------------------------------------ writing

    def commit(self, work: Callable[[Lane], T]) -> T:
        """Runs `work` in the lane and returns once what it appended is durable and shown.

        Writers that arrive meanwhile share the next fsync. Raises whatever
        `work` raised, or store.io with nothing of it kept.
        """
        return self._turns.take(work)

    def _run(self, tickets: list[Ticket[Any]]) -> None:
        if self.broken is not None:
            raise self.broken
        before = self.published.seq if hasattr(self, "published") else 0
        try:
            with self.log.batch() as batch:
                for ticket in tickets:
                    take_turn(ticket, Lane(self.host, batch, self.catalog))
                if batch.head == self.log.head:
                    return
                if self.read_only:
                    raise readonly.refusal(self.origin)
                touched = self.reindex(self.fulltext, before)
                batch.commit()
        except BaseException:
            _quietly(self.catalog.rollback)
            _quietly(self.fulltext.rollback)
            raise
        self._show(touched, before)

    def _show(self, touched: bool, since: int) -> None:
        """After the fsync nothing may be refused: if a view fails, the log still has it."""
        try:
            if touched:
                self.fulltext.commit()
            with self.showing():
                self.catalog.commit()
                self.publish()
            if self.vectors is not None:
                self.reindex(self.vectors, since)
                reach("vectors.applied")
                self.embedding.wake()
            self.changed()
        except Exception as error:
            _logger.exception("the views could not follow the log")
            self.broken = KbprocError(
                "store.io",
                f"The write is in the log, but the views could not follow: {error}.",
                hint="Restart kbproc: the views are rebuilt from the log.",
                detail={"kept": True},
            )
            raise self.broken from error

    # ------------------------------------------------------------------ closing

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def close(self) -> None:
        """Leaves everything on disk; one part that fails does not keep the others open."""
        self._closed.set()
        _quietly(self.notebooks.close)
        self._tidy.close()
        if self.vectors is not None and self.broken is None and not self.read_only:
            _quietly(self.vectors.save)
        _quietly(self._parsers.close)
        _quietly(self.pasts.close)
        for part in ("embedding", "fulltext", "catalog", "log"):
            if hasattr(self, part):
                _quietly(getattr(self, part).close)
        if self.read_only:
            overlay.remove(self.folder)
        self._lease.release()


def _quietly(close: Callable[[], None]) -> None:
    try:
        close()
    except Exception:
        _logger.exception("a part of the store failed on its way out")
