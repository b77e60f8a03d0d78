"""Reads the store at an earlier position, and resolves `as_of` to that position.

Its projections are folded from the log up to that position; some stay on disk for later reads.

Ranker and model are the current ones: a past chunk without a vector in the pack is embedded when
its past is opened; if there are many such chunks, in the background.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from sqlite3 import Error as DatabaseError
from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError
from kbproc.base.gate import Gate
from kbproc.base.workers import Worker
from kbproc.engine.embedding.background import Embedding
from kbproc.engine.embedding.past import PastModel
from kbproc.engine.log.record import START, Position
from kbproc.engine.projections import soundness
from kbproc.engine.store import follow
from kbproc.engine.store.snapshot import Indexed, Published, PublishedStore, Readers, Snapshot
from kbproc.engine.store.state import Freshness, SeenStore
from kbproc.engine.store.store import Store

if TYPE_CHECKING:
    from kbproc.engine.projections.catalog.catalog import Catalog
    from kbproc.engine.projections.vectors.search import VectorSnapshot
    from kbproc.engine.projections.vectors.view import Vectors

# Limits of pasts that are open, and on disk: each takes about as much as the live projections.
OPEN = 2
KEPT = 4
_AT_ONCE = 64
_logger = logging.getLogger(__name__)


class Past(PublishedStore):
    """The store at one position, with the interface that reads use."""

    def __init__(
        self, store: Store, embedding: Embedding, folder: Path, position: Position
    ) -> None:
        from kbproc.engine.projections.fulltext.index import FullText

        super().__init__()
        self.folder = folder
        soundness.drop_damaged(folder)
        self.catalog = _catalog_at(store, folder, position)
        self.readers = Readers(self.catalog)
        self.fulltext: FullText = FullText.open(folder / "fulltext")
        if self.fulltext.position != position:
            self.fulltext.rebuild(follow.all_rows(self.catalog), position)
        self.vectors = _vectors_at(embedding, folder, self.catalog, position)
        self.model = PastModel(embedding, self.vectors, position.seq)
        self.reranker = store.reranker
        self.indexed = Indexed(self.fulltext.snapshot(), position.seq)
        self.show(self._published())
        self._embedding = embedding
        self._refused: set[int] = set()  # ids of chunks that the model refuses
        self._worker = Worker("past", self._step)
        self._embed_missing()

    def _published(self) -> Published:
        queries = self.readers.borrow()
        try:
            return Published(queries.head(), queries.roster())
        finally:
            self.readers.give_back(queries)

    @property
    def vectors_view(self) -> VectorSnapshot | None:
        return None if self.vectors is None else self.vectors.snapshot()

    def open_vectors(self) -> None:
        """Does nothing: they are open."""

    def wait_for(self, seq: int, timeout_s: float | None) -> bool:
        return True

    def freshness(self, snapshot: Snapshot) -> Freshness:
        return Freshness(
            seq=snapshot.seq,
            fulltext_seq=snapshot.seq,
            vector_seq=min(self.model.vector_seq, snapshot.seq),
            pending_embeddings=self.model.pending_count,
        )

    # ------------------------------------------------------ vectors not yet there

    def _embed_missing(self) -> None:
        if self.vectors is None or not self.vectors.pending_count:
            return
        if self.vectors.pending_count > _AT_ONCE:
            self._worker.start()
        else:
            while self._step(False) is not None:
                pass

    def _step(self, is_woken: bool) -> float | None:
        """Embeds some missing chunks; a chunk that the model refuses stays without a vector."""
        assert self.vectors is not None  # noqa: S101  see _embed_missing
        ids = [id for id in self.vectors.pending() if id not in self._refused][:16]
        if not ids:
            return None
        queries = self.readers.borrow()
        try:
            rows = queries.index_rows_of_chunks(ids)
        finally:
            self.readers.give_back(queries)
        try:
            self._embedding.embed_into(self.vectors, rows)
        except KbprocError as error:
            _logger.warning("a chunk of the past has no vector: %s", error.message)
            self._refused.update(ids)
        return 0.0

    def close(self) -> None:
        self._worker.close(5)
        self.readers.retire()
        self.fulltext.close()


class _Moment:
    """A requested position; the lock `making` is held while its past is opened or closed."""

    def __init__(self) -> None:
        self.making = threading.Lock()
        self.past: Past | None = None
        self.users = 0


class Pasts:
    """The pasts that are open, in order of their last use, and those on disk.

    A reader of an open past never waits; other readers wait until theirs is made.
    """

    def __init__(self, store: Store, embedding: Callable[[], Embedding]) -> None:
        """`embedding`: returns the store's embedding, which may change between calls."""
        self._store = store
        self._embedding = embedding
        self._moments: OrderedDict[int, _Moment] = OrderedDict()
        self._lock = threading.Lock()  # guards the moments and their users; never held during work
        self._gate = Gate()

    def __len__(self) -> int:
        """Returns the number of open pasts."""
        with self._lock:
            return sum(moment.past is not None for moment in self._moments.values())

    @property
    def folder(self) -> Path:
        return self._store.folder / "views" / "past"

    @contextlib.contextmanager
    def at(self, seq: int) -> Iterator[Past]:
        """Yields the past at `seq`, and makes it if there is none. Raises store.*."""
        with self._gate.inside():
            with self._lock:
                moment = self._moments.setdefault(seq, _Moment())
                self._moments.move_to_end(seq)
                moment.users += 1
            try:
                yield self._open(moment, seq)
            finally:
                with self._lock:
                    moment.users -= 1
                self._forget_oldest()

    def _open(self, moment: _Moment, seq: int) -> Past:
        if (past := moment.past) is not None:
            return past
        with moment.making:
            if moment.past is None:
                try:
                    moment.past = self._make(seq)
                except (OSError, DatabaseError) as error:
                    raise _no_room(error) from error
            return moment.past

    def _make(self, seq: int) -> Past:
        store, folder = self._store, self.folder / f"{seq:012d}"
        record = next(store.log.read(seq - 1, seq), None) if seq else None
        position = START if record is None else record.position
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Past(store, self._embedding(), folder, position)

    def _forget_oldest(self) -> None:
        """Closes open pasts beyond OPEN, and removes those on disk beyond KEPT."""
        for seq, moment, past in self._take_unused():
            if past is not None:
                past.close()
            with self._lock:
                if not moment.users:  # a new user waits for it to be opened again
                    del self._moments[seq]
            moment.making.release()
        with self._lock:
            self._remove_spare()

    def _take_unused(self) -> list[tuple[int, _Moment, Past | None]]:
        """Returns the oldest pasts without readers; their locks are held, so new readers wait."""
        with self._lock:
            unused = [(seq, m) for seq, m in self._moments.items() if not m.users]
            spare = unused[: max(0, len(self._moments) - OPEN)]
            locked = [(seq, m, m.past) for seq, m in spare if m.making.acquire(blocking=False)]
            for _, moment, _ in locked:
                moment.past = None
            return locked

    def _remove_spare(self) -> None:
        if not self.folder.exists():
            return
        open_names = {f"{seq:012d}" for seq in self._moments}
        folders = sorted(self.folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        spare = [path for path in folders if path.name not in open_names]
        for path in spare[: max(0, len(folders) - KEPT)]:
            shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Removes all pasts from disk, and blocks new ones inside the context.

        Waits for readers of a past.
        """
        with self._gate.closed():
            self.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            yield

    def close(self) -> None:
        with self._lock:
            moments = list(self._moments.values())
            self._moments.clear()
        for moment in moments:
            with moment.making:
                if moment.past is not None:
                    moment.past.close()
                    moment.past = None


def _no_room(error: Exception) -> KbprocError:
    why = error.strerror if isinstance(error, OSError) else str(error).partition("\n")[0]
    return KbprocError(
        "store.io",
        f"The store's state at that time could not be built: {why}.",
        hint="It is folded from the log into files beside the store's views. Make room, then "
        "repeat the request.",
    )


def _catalog_at(store: Store, folder: Path, position: Position) -> Catalog:
    """Returns the catalog at `position`: from an earlier read, or folded from the log's start."""
    catalog = follow.open_catalog(folder)
    if catalog.position.seq > position.seq:
        catalog.reset()
    if catalog.position != position:
        follow.replay(store.log, catalog, position.seq)
    return catalog


def _vectors_at(
    embedding: Embedding, folder: Path, catalog: Catalog, position: Position
) -> Vectors | None:
    """Returns vectors for exact search, built anew; they are never saved."""
    from kbproc.engine.projections.vectors.view import Vectors

    if embedding.pack is None:
        return None
    vectors = Vectors(folder=folder, pack=embedding.pack, string=embedding.string)
    vectors.rebuild(follow.all_rows(catalog), position)
    return vectors


def resolve(store: SeenStore, as_of: int | str, now: str) -> tuple[int, str]:
    """Returns the position that `as_of` selects, and the moment at which it was the present.

    That moment is never later than `now`, the host's clock, even for a record with a later date.
    Raises input.invalid_params for a position or moment in the future.
    """
    from kbproc.base.times import instant

    with store.reading() as snapshot:
        if isinstance(as_of, int):
            if as_of > snapshot.seq:
                raise _future(f"The log ends at {snapshot.seq}, before {as_of}.")
            return as_of, min(snapshot.queries.ts_of(as_of), now)
        moment = instant(as_of, field="$.params.as_of")
        if moment > max(now, snapshot.published.head.ts):
            raise _future(f"{moment} has not come yet; it is {now}.")
        return snapshot.queries.seq_at(moment), min(moment, now)


def _future(message: str) -> KbprocError:
    return KbprocError(
        "input.invalid_params",
        message,
        field="$.params.as_of",
        hint="Leave as_of out for the present.",
    )
