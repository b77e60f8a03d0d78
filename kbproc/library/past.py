"""The store as it was: read like the live one, at an earlier position.

Owns: views folded from the log up to there, kept for the next who asks, and how
many are kept; what `as_of` means.
Refuses to know: what is read from them.

Ranker and model are today's: a chunk of then whose vector is not in the pack is
embedded when its past is opened, a few at once, the rest in the background.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError
from kbproc.embedding.background import Embedding
from kbproc.embedding.past import PastModel
from kbproc.log.record import START, Position
from kbproc.store import follow
from kbproc.store.snapshot import Published, Readers, Snapshot
from kbproc.store.state import Freshness, SeenStore
from kbproc.store.store import Store
from kbproc.views import soundness

if TYPE_CHECKING:
    from kbproc.views.catalog.catalog import Catalog
    from kbproc.views.vectors.view import Vectors

# Open at a time, and kept on disk: one takes about as much as the live views.
OPEN = 2
KEPT = 4
_AT_ONCE = 64
_logger = logging.getLogger(__name__)


class Past:
    """One position: what a read asks of the store, it can ask of this."""

    broken: KbprocError | None = None
    version = 0

    def __init__(
        self, store: Store, embedding: Embedding, folder: Path, position: Position
    ) -> None:
        from kbproc.views.fulltext.index import FullText

        self.folder = folder
        soundness.drop_damaged(folder)
        self.catalog = _catalog_at(store, folder, position)
        self.readers = Readers(self.catalog)
        self.fulltext: FullText = FullText.open(folder / "fulltext")
        if self.fulltext.position != position:
            self.fulltext.rebuild(follow.all_rows(self.catalog), position)
        self.vectors = _vectors_at(embedding, folder, self.catalog, position)
        self.model = PastModel(embedding, self.vectors, position.seq)
        with contextlib.closing(self.readers.borrow()) as queries:
            self.published = Published(queries.head(), self.fulltext.snapshot(), queries.roster())
        self.users = 0
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._embed_missing(embedding)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Snapshot]:
        snapshot = Snapshot(self)
        try:
            yield snapshot
        finally:
            snapshot.close()

    def wait_for(self, seq: int, timeout_s: float | None) -> bool:
        return True

    @property
    def chunks(self) -> int:
        return self.published.chunks

    def freshness(self, snapshot: Snapshot) -> Freshness:
        return Freshness(
            seq=snapshot.seq,
            fulltext_seq=snapshot.seq,
            vector_seq=min(self.model.vector_seq, snapshot.seq),
            pending_embeddings=self.model.pending_count,
        )

    # ------------------------------------------------------ vectors not yet there

    def _embed_missing(self, embedding: Embedding) -> None:
        if self.vectors is None or not self.vectors.pending_count:
            return
        if self.vectors.pending_count <= _AT_ONCE:
            self._embed(embedding)
        else:
            self._thread = threading.Thread(
                target=self._embed, args=(embedding,), name="past", daemon=True
            )
            self._thread.start()

    def _embed(self, embedding: Embedding) -> None:
        """Until nothing is missing; what the model refuses stays without a vector."""
        refused: set[int] = set()
        while self.vectors is not None and not self._closing.is_set():
            ids = [id for id in self.vectors.pending() if id not in refused][:16]
            if not ids:
                return
            queries = self.readers.borrow()
            try:
                rows = queries.index_rows_of_chunks(ids)
            finally:
                self.readers.give_back(queries)
            try:
                embedding.embed_into(self.vectors, rows)
            except KbprocError as error:
                _logger.warning("a chunk of the past has no vector: %s", error.message)
                refused.update(ids)

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join(5)
        self.readers.retire()
        self.fulltext.close()


class Pasts:
    """Those that are open, newest use last, and those that lie on disk."""

    def __init__(self, store: Store, embedding: Callable[[], Embedding]) -> None:
        """`embedding`: the store's, which may be another one by the next time."""
        self._store = store
        self._embedding = embedding
        self._open: OrderedDict[int, Past] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    @property
    def folder(self) -> Path:
        return self._store.folder / "views" / "past"

    @contextlib.contextmanager
    def at(self, seq: int) -> Iterator[Past]:
        """The past at `seq`, made if need be. Raises store.*."""
        with self._lock:
            past = self._open.get(seq) or self._make(seq)
            self._open.move_to_end(seq)
            past.users += 1
            self._forget_oldest()
        try:
            yield past
        finally:
            with self._lock:
                past.users -= 1
                self._forget_oldest()

    def _make(self, seq: int) -> Past:
        store, folder = self._store, self.folder / f"{seq:012d}"
        record = next(store.log.read(seq - 1, seq), None) if seq else None
        position = START if record is None else record.position
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        past = self._open[seq] = Past(store, self._embedding(), folder, position)
        return past

    def _forget_oldest(self) -> None:
        unused = [seq for seq, past in self._open.items() if not past.users]
        for seq in unused[: max(0, len(self._open) - OPEN)]:
            self._open.pop(seq).close()
        kept = {f"{seq:012d}" for seq in self._open}
        folders = sorted(self.folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        spare = [path for path in folders if path.name not in kept]
        for path in spare[: max(0, len(folders) - KEPT)]:
            shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Nothing of the past is left on disk, and nothing is made meanwhile."""
        with self._lock:
            self._close_all()
            shutil.rmtree(self.folder, ignore_errors=True)
            yield

    def close(self) -> None:
        with self._lock:
            self._close_all()

    def _close_all(self) -> None:
        """Whoever reads one may end in peace."""
        for past in self._open.values():
            past.close()
        self._open.clear()


def _catalog_at(store: Store, folder: Path, position: Position) -> Catalog:
    """Found as it was left, or folded from the log's start."""
    catalog = follow.open_catalog(folder)
    if catalog.position.seq > position.seq:
        catalog.reset()
    if catalog.position != position:
        follow.replay(store.log, catalog, position.seq)
    return catalog


def _vectors_at(
    embedding: Embedding, folder: Path, catalog: Catalog, position: Position
) -> Vectors | None:
    """Exact search over all: nothing of it is saved."""
    from kbproc.views.vectors.view import Vectors

    if embedding.pack is None:
        return None
    vectors = Vectors(folder=folder, pack=embedding.pack, string=embedding.string)
    vectors.rebuild(follow.all_rows(catalog), position)
    return vectors


def resolve(store: SeenStore, as_of: int | str, now: str) -> tuple[int, str]:
    """The position that is meant, and the moment at which it was the present.

    Raises input.invalid_params for what has not happened yet.
    """
    from kbproc.base.values import instant

    with store.reading() as snapshot:
        if isinstance(as_of, int):
            if as_of > snapshot.seq:
                raise _future(f"The log ends at {snapshot.seq}, before {as_of}.")
            return as_of, snapshot.queries.ts_of(as_of)
        moment = instant(as_of, field="$.params.as_of")
        if moment > max(now, snapshot.published.head.ts):
            raise _future(f"{moment} has not come yet; it is {now}.")
        return snapshot.queries.seq_at(moment), moment


def _future(message: str) -> KbprocError:
    return KbprocError(
        "input.invalid_params",
        message,
        field="$.params.as_of",
        hint="Leave as_of out for the present.",
    )
