"""Replaces the embedding model of an open store.

A switch downloads the new model, embeds every chunk with it, then uses it. The vectors stay in the
new model's pack, so an interrupted switch continues where it stopped. The new model prepares them
on a store of its own; only the exchange itself holds the lane.

A missing model is used once it has been installed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.base.settings.trust import Trust
from kbproc.engine.embedding.background import PREPARE, Embedding, Progress
from kbproc.engine.embedding.parsers import Parsers
from kbproc.engine.store.folder import leads_to, write_settings
from kbproc.engine.store.snapshot import Readers
from kbproc.engine.store.store import Store
from kbproc.knowledge.app.past import Pasts
from kbproc.knowledge.cluster.alone import Node

if TYPE_CHECKING:
    from kbproc.engine.projections.vectors.view import Vectors


# Bytes of a chunk's vector: a key in the pack and a place in the graph, and two in both for each
# dimension.
_BYTES, _BYTES_A_DIMENSION = 400, 4


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


def use(library: SwappableLibrary, settings: dict[str, Any], progress: Progress) -> None:
    """Embeds every chunk with the model of `settings`, then searches with it.

    `progress` gets the stage, the chunks done and in all, and may raise: then nothing has changed.
    Raises model.unavailable, input.invalid_params, store.io.
    """
    store = library.store
    standby = StandbyStore(store)
    new = standby.embedding = Embedding(standby, settings, library.cache)
    try:
        if new.problem is not None:
            raise new.problem
        _look_at_disk(standby)
        if _same_vectors(new, library.embedding):
            standby.vectors = store.vectors
        else:
            _embed_all(standby, progress)
        with store.lane():
            _write(store, settings)
            if leads_to(settings) is not None:  # the request approves the model
                library.trust.add_model(store.origin, settings)
            old = swap(library, standby, settings)
    except OSError as error:
        raise KbprocError(
            "store.io", f"The model could not be changed: {error.strerror}."
        ) from error
    finally:
        if new is not library.embedding:
            new.close()
    library.node.follow_model()
    old.close()
    new.start()
    if store.vectors is not None:
        store.vectors.save()


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


def _write(store: Store, settings: dict[str, Any]) -> None:
    try:
        write_settings(store.folder / "store.toml", settings)
        reach("model.settings")
    except OSError as error:
        raise KbprocError(
            "store.io", f"store.toml could not be written: {error.strerror}."
        ) from error


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
    new = standby.embedding
    if new.state == "off":
        return
    new.drain(progress)
    if new.problem is not None:
        raise new.problem
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
