"""Replaces the embedding model of an open store.

A change embeds every chunk with the new model, then uses it. The vectors stay in the new model's
pack, and store.toml names the model, so that an interrupted change goes on where it stopped. The
new model prepares them on a store of its own; only the exchange itself holds the lane. The model
before stays in store.toml, with its pack, so that the change can be undone.

A missing model is used once it has been installed.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from kbproc.base import disk
from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.settings.trust import Trust
from kbproc.base.workers import Worker
from kbproc.engine.embedding.background import PREPARE, Embedding, Progress
from kbproc.engine.embedding.model import StoredModel
from kbproc.engine.embedding.parsers import Parsers
from kbproc.engine.events.upkeep import ModelUsed
from kbproc.engine.models.interface import ModelSpec, spec_of
from kbproc.engine.store import follow
from kbproc.engine.store.folder import FORMER, NEXT, approval_problem, leads_to, write_settings
from kbproc.engine.store.lane import Lane
from kbproc.engine.store.snapshot import Readers
from kbproc.engine.store.store import Store
from kbproc.knowledge.app.past import Pasts
from kbproc.knowledge.cluster.alone import Node

if TYPE_CHECKING:
    from kbproc.engine.projections.vectors.view import Vectors


# Bytes of a chunk's vector: a key in the pack and a place in the graph, and two in both for each
# dimension.
_BYTES, _BYTES_A_DIMENSION = 400, 4
# The number of new chunks that may lack a vector when the new model is taken.
_NEAR = 100
# Who makes a change; one of a higher rank stops it.
_BACKGROUND, _REQUEST, _UNDO = range(3)
RETRY_SECONDS = 30.0
Check = Callable[[], None]  # raises where the caller no longer wants the change
_logger = logging.getLogger(__name__)


class StandbyStore:
    """The store as a model that is not in use yet sees it, with a vector index of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.folder = store.folder
        self.vectors: Vectors | None = None
        self.standing = None
        self.embedding: Embedding
        self.reading = store.reading
        self.changed = store.changed
        self.on_change = store.on_change
        self.wait_for_change = store.wait_for_change

    @property
    def chunks(self) -> int:
        return self._store.chunks

    @property
    def seq(self) -> int:
        return self._store.seq

    @property
    def readers(self) -> Readers:
        return self._store.readers

    def attach_vectors(self) -> None:
        from kbproc.engine.projections.vectors.view import Vectors

        if self.embedding.pack is None:
            return
        pack, string = self.embedding.pack, self.embedding.string
        vectors = Vectors(folder=self.folder / "views", pack=pack, string=string)
        with self._store.reading() as snapshot:
            rows = snapshot.queries.all_index_rows()
            vectors.rebuild(rows, snapshot.published.head.position)
        self.vectors = vectors

    def catch_up(self) -> None:
        """Has the vectors follow what was written since they were attached."""
        if (vectors := self.vectors) is None:
            return
        with self._store.reading() as snapshot:
            position = snapshot.published.head.position
            follow.changes(snapshot.queries, vectors.position.seq, position).stage(vectors)
            vectors.commit()
        vectors.embedded()


class SwappableLibrary(Protocol):
    """The parts of an open store that a change of models touches."""

    store: Store
    embedding: Embedding
    cache: Path
    trust: Trust

    @property
    def node(self) -> Node: ...
    @property
    def pasts(self) -> Pasts: ...
    @property
    def parsers(self) -> Parsers: ...


class ChangeProgress(Struct, frozen=True):
    """A change of models that has not ended: of `chunks`, so many are `embedded`.

    `is_running`: this process makes it; else it goes on when the store is opened to serve, or with
    model.use. `problem`: why it could not go on.
    """

    spec: ModelSpec
    embedded: int
    chunks: int
    is_running: bool
    problem: str | None


class Switch:
    """Changes the model of an open store, one change at a time.

    store.toml names the next model until each chunk has its vector, and afterwards the former one.
    `start` goes on with a change that an earlier process has not ended. A request comes before the
    background, and `undo` before everything.
    """

    def __init__(self, library: SwappableLibrary) -> None:
        self._library = library
        self._one = threading.Lock()  # the thread that has it changes the model
        # Guards which packs beside the one in use are open: a pack has one handle.
        self._packs = threading.Lock()
        self._standby: StandbyStore | None = None
        self._waiting: list[int] = []  # ranks
        self._is_closed = False
        self._problem: KbprocError | None = None
        self._worker = Worker("switch", self._step)

    # ------------------------------------------------------------------ the background

    def start(self) -> None:
        """Goes on with a change that an earlier process has not ended, until `close`."""
        if self.next_settings is not None and not self._library.store.read_only:
            self._worker.start()

    def close(self) -> None:
        self._is_closed = True
        self._worker.close()

    def _step(self, is_woken: bool) -> float | None:
        """Ends the change; returns the seconds until the next try."""

        def check(*progress: object) -> None:
            if self._is_closed:
                raise _stopped()

        try:
            with self._alone(_BACKGROUND, check):
                if (settings := self.next_settings) is None:
                    return None
                library = self._library
                why_not = approval_problem(library.store.origin, settings, library.trust)
                if why_not is not None:
                    raise why_not
                self._change(settings, self._until_outranked(_BACKGROUND, check), check)
                self._library.store.commit(partial(_record, settings=settings))
        except KbprocError as error:
            if error.type == "operation.cancelled":
                return None
            self._problem = error
            _logger.warning("the change of models has to wait: %s", error.message)
            return None if error.retryable is False else RETRY_SECONDS
        return None

    # ------------------------------------------------------------------ requests

    @property
    def next_settings(self) -> dict[str, Any] | None:
        """The settings of the model of a change that has not ended."""
        return self._table(NEXT)

    @property
    def former_settings(self) -> dict[str, Any] | None:
        """The settings of the model that was in use before."""
        former = self._table(FORMER)
        return None if former == self._library.store.settings.get("model") else former

    def _table(self, name: str) -> dict[str, Any] | None:
        """Returns a table of store.toml; None for one that names no model."""
        settings: Any = self._library.store.settings.get(name)
        try:
            return settings if isinstance(settings, dict) and spec_of(settings) else None
        except KbprocError:
            return None

    def use(self, settings: dict[str, Any], progress: Progress, check: Check) -> bool:
        """Embeds every chunk with the model of `settings`, then searches with it.

        `progress` gets the stage, the chunks done and in all. It and `check` may raise: then the
        model in use goes on, and the vectors stay for the next call. Returns False if the model was
        in use. Raises model.unavailable, input.invalid_params, store.io.
        """
        with self._alone(_REQUEST, check):
            embedding = self._library.embedding
            if spec_of(settings) == embedding.spec and embedding.problem is None:
                return False
            if self.next_settings not in (None, settings):
                self._drop()
            self._change(settings, self._until_outranked(_REQUEST, progress), check)
            return True

    def settings_undone(self) -> dict[str, Any]:
        """Returns the settings of the model that `undo` leaves in use.

        Raises resource.not_found where there is nothing to undo, model.unavailable.
        """
        library, former = self._library, self.former_settings
        if self.next_settings is not None:
            settings: dict[str, Any] = library.store.settings.get("model", {})
            return settings
        if former is None:
            raise KbprocError(
                "resource.not_found",
                "There is no change of models to undo: this store has used one model only.",
                hint="kbproc model list names models, kbproc model use NAME takes one.",
            )
        problem = approval_problem(library.store.origin, former, library.trust)
        if problem is not None:
            raise problem
        return former

    def undo(self, progress: Progress, check: Check) -> bool:
        """Ends a change and removes its vectors; without one, takes the former model again.

        Returns whether another model is used now. Raises what `settings_undone` and `use` raise.
        """
        with self._alone(_UNDO, check):
            if self.next_settings is not None:
                self._drop()
                return False
            self._change(self.settings_undone(), self._until_outranked(_REQUEST, progress), check)
            return True

    def progress(self) -> ChangeProgress | None:
        """Returns how far an unfinished change is; None without one."""
        if (settings := self.next_settings) is None:
            return None
        standby, chunks = self._standby, self._library.store.chunks
        if standby is not None and standby.vectors is not None:
            embedded = chunks - standby.vectors.pending_count
        else:
            embedded = _packed_count(self._stored(settings))
        problem = None if self._problem is None else self._problem.message
        return ChangeProgress(
            spec=spec_of(settings),
            embedded=max(0, min(chunks, embedded)),
            chunks=chunks,
            is_running=standby is not None,
            problem=None if standby is not None else problem,
        )

    @contextlib.contextmanager
    def other_models(self) -> Iterator[list[StoredModel]]:
        """Yields the next and the former model, as far as they have packs of their own.

        Until the context ends, no thread adds a vector to these packs. The next model then reads
        the catalog again, for vectors that were erased. The caller holds `exclusive`.
        """
        with self._packs, contextlib.ExitStack() as opened:
            standby, used = self._standby, self._library.embedding
            models: dict[Path, StoredModel] = {}
            if standby is not None and standby.embedding.pack is not None:
                opened.enter_context(standby.embedding.gate.closed())
                models[standby.embedding.pack.path] = standby.embedding
            for settings in filter(None, (self.next_settings, self.former_settings)):
                model = self._stored(settings)
                path = None if model.unopened is None else model.unopened.path
                if path is None or path in models or not path.exists():
                    continue
                if used.pack is None or path != used.pack.path:
                    models[path] = model
                    opened.callback(model.release)
            yield list(models.values())
            if standby is not None and standby.vectors is not None:
                standby.attach_vectors()
                if standby.embedding.pack is not None:
                    standby.embedding.pack.release()

    # ------------------------------------------------------------------ one change

    def _change(self, settings: dict[str, Any], progress: Progress, check: Check) -> None:
        library, store, self._problem = self._library, self._library.store, None
        standby = StandbyStore(store)
        new = standby.embedding = Embedding(standby, settings, library.cache)
        try:
            if new.problem is not None:
                raise new.problem
            _look_at_disk(standby)
            if leads_to(settings) is not None:  # the request approves the model
                library.trust.add_model(store.origin, settings)
            with self._packs:
                is_same = _same_vectors(new, library.embedding)
                if not is_same and new.state != "off":
                    self._write({NEXT: settings})
                    self._standby = standby
            if not is_same:
                _embed_all(standby, progress)
            with store.exclusive(check):
                if is_same:
                    standby.vectors = store.vectors
                self._take(standby, settings)
        except OSError as error:
            raise KbprocError(
                "store.io", f"The model could not be changed: {error.strerror}."
            ) from error
        finally:
            self._put_away(new)

    def _take(self, standby: StandbyStore, settings: dict[str, Any]) -> None:
        """Uses the model from now on. The caller holds `exclusive`."""
        library, store = self._library, self._library.store
        before = store.settings.get("model") or {}
        former = {FORMER: before} if before and before != settings else {}
        with store.lane():
            # A process may be killed after each line: then [next_model] leads on.
            self._write(former)
            self._write({"model": settings})
            self._write({NEXT: {}})
            old = swap(library, standby, settings)
        self._standby = None
        library.node.follow_model()
        old.close()
        standby.embedding.start()
        if store.vectors is not None:
            store.vectors.save()

    def _put_away(self, new: Embedding) -> None:
        """Closes a model that has not been taken; vectors that it is computing are stored first."""
        if new is self._library.embedding:
            return
        new.rest()
        with self._packs:
            self._standby = None
            if new.unopened is None and new.pack is self._library.embedding.pack:
                new.pack = None
            new.close()

    def _drop(self) -> None:
        """Ends the change of an earlier request; its vectors go, unless another model has them."""
        retained = [self._library.store.settings.get("model"), self.former_settings]
        paths = {self._path(settings) for settings in retained}
        path = self._path(self.next_settings)
        with self._packs:
            self._write({NEXT: {}})
            if path is not None and path not in paths:
                with contextlib.suppress(FileNotFoundError):
                    disk.unlink(path)
        self._problem = None

    def _write(self, tables: dict[str, dict[str, Any]]) -> None:
        """Writes these tables of store.toml; an empty one is removed. Raises store.io."""
        store = self._library.store
        for name, table in tables.items():
            try:
                write_settings(store.folder / "store.toml", table, name)
                if name == "model":
                    reach("model.settings")
            except OSError as error:
                raise KbprocError(
                    "store.io", f"store.toml could not be written: {error.strerror}."
                ) from error
            store.settings.pop(name, None)
            if table:
                store.settings[name] = table

    def _path(self, settings: dict[str, Any] | None) -> Path | None:
        """Returns the path of a model's pack, if it is known."""
        unopened = self._stored(settings).unopened if settings else None
        return None if unopened is None else unopened.path

    def _stored(self, settings: dict[str, Any]) -> StoredModel:
        library = self._library
        problem = approval_problem(library.store.origin, settings, library.trust)
        return StoredModel(library.store.folder, settings, library.cache, problem)

    # ------------------------------------------------------------------ turns

    @contextlib.contextmanager
    def _alone(self, rank: int, check: Check) -> Iterator[None]:
        """Waits for the end of another change; one of a lower rank stops."""
        self._waiting.append(rank)
        try:
            while not self._one.acquire(timeout=0.1):
                check()
        finally:
            self._waiting.remove(rank)
        try:
            yield
        finally:
            self._one.release()

    def _until_outranked(self, rank: int, progress: Progress) -> Progress:
        def tell(stage: str, done: int, total: int | None) -> None:
            if any(other > rank for other in tuple(self._waiting)):
                raise _stopped()
            progress(stage, done, total)

        return tell


def _stopped() -> KbprocError:
    return KbprocError("operation.cancelled", "The change of models was stopped.")


def _record(lane: Lane, settings: dict[str, Any]) -> None:
    """Records a change that no request waits for."""
    spec = spec_of(settings)
    event = ModelUsed(kind=spec.kind, name=spec.name)
    lane.append([event], actor="kbproc", method="model.use")


def _packed_count(model: StoredModel) -> int:
    """Returns how many vectors the model's pack has, by the size of its file; 0 if unknown."""
    if model.unopened is None or not model.dim:
        return 0
    from kbproc.engine.models.pack import records_in

    return records_in(model.unopened.path, model.dim)


def prepare(
    library: SwappableLibrary,
    name: str,
    tell: Callable[[str, int, int | None, str], None],
    cancelled: Callable[[], bool],
) -> float | None:
    """Exports a model of the hub; of a cross-encoder it returns the milliseconds for a passage.

    Raises model.unavailable, operation.cancelled.
    """
    from kbproc.engine.models import catalogue, install
    from kbproc.engine.models.interface import ModelSpec
    from kbproc.engine.models.reranking.reranker import prepared

    if (pin := install.pin_of(name)) is None:
        return None
    tell(PREPARE, 0, None, "")
    cache, cost_ms = library.embedding.models_folder, None
    if pin.kind == "reranker":
        cost_ms = prepared(name, cache, cancelled)
    else:
        catalogue.load(ModelSpec(name=name), cache, cancelled=cancelled).close()
    tell(PREPARE, 1, 1, "")
    return cost_ms


def _same_vectors(new: Embedding, old: Embedding) -> bool:
    """Returns True if both are the same model, and lets the new one use the old one's pack.

    One pack must not be written through two handles.
    """
    if new.info is None or old.info is None or new.pack is None or old.pack is None:
        return False
    if new.info.fingerprint != old.info.fingerprint or new.pack.path != old.pack.path:
        return False
    new.pack.close()
    new.pack = old.pack
    return True


def _look_at_disk(standby: StandbyStore) -> None:
    """Raises store.io if the disk has no room for the new model's vectors, before one is written.

    The dimensions of an endpoint may be unknown as yet: then nothing is estimated.
    """
    new = standby.embedding
    if not new.dim or new.unopened is None:
        return
    path = new.unopened.path
    there = path.stat().st_size if path.exists() else 0
    needed = max(0, standby.chunks * (_BYTES + _BYTES_A_DIMENSION * new.dim) - there)
    free = shutil.disk_usage(standby.folder).free
    if needed > free:
        raise KbprocError(
            "store.io",
            f"The vectors of {new.spec.name} need some {needed:,} bytes, and {free:,} are free.",
            hint="Make room on the disk of the store; the model in use stays as it is.",
            detail={"needed_bytes": needed, "free_bytes": free},
        )


def _embed_all(standby: StandbyStore, progress: Progress) -> None:
    """Embeds every chunk; a few of the newest may still be pending.

    Raises model.unavailable; operation.cancelled after `stop`.
    """
    new = standby.embedding
    if new.state == "off":
        return
    while True:
        remaining = new.drain(progress)
        if new.problem is not None:
            raise new.problem
        if remaining:
            raise _stopped()
        standby.catch_up()
        if new.pending_count <= _NEAR + len(new.failed_documents):
            break
        new.wake()
    if standby.vectors is not None and standby.vectors.needs_fold:
        standby.vectors.fold()
    reach("model.embedded")


def look_again(library: SwappableLibrary) -> bool:
    """Begins to use a model that was missing when the store was opened, if it is installed now.

    Returns True if the store uses it.
    """
    from kbproc.engine.models import catalogue

    old = library.embedding
    if old.state != "missing" or old.is_barred:
        return False
    try:
        info = catalogue.inspect(old.spec, old.models_folder)
    except KbprocError:
        return False
    if old.info is not None and info.fingerprint is None:
        return False  # because its export has failed before, and would fail again
    store = library.store
    standby = StandbyStore(store)
    new = standby.embedding = Embedding(standby, store.settings["model"], library.cache)
    if new.problem is not None:
        new.close()
        return False
    with store.exclusive(), store.lane():
        if library.embedding is old:
            swap(library, standby, store.settings["model"])
    if library.embedding is not new:
        new.close()
        return False
    library.node.follow_model()
    old.close()
    new.start()
    return True


def swap(library: SwappableLibrary, standby: StandbyStore, settings: dict[str, Any]) -> Embedding:
    """Exchanges the models; returns the one that was in use. The caller holds the lane."""
    store, old = library.store, library.embedding
    library.embedding = standby.embedding
    store.settings["model"] = settings
    standby.embedding.move_to(store)
    store.exchange(standby.embedding, standby.vectors)
    if old.pack is standby.embedding.pack:
        old.pack = None
    library.pasts.close()
    library.parsers.retire()  # another model may take longer or shorter chunks
    return old
