"""Another embedding model: built beside the one in use, then swapped in.

Owns: embedding every chunk with a model that nobody searches with yet, and the
short moment in the writers' lane in which it takes over.
Refuses to know: how a model computes, and how its name was given.

What was embedded stays in the new model's pack, so a switch that was cut off
goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.embedding.background import Embedding
from kbproc.library.library import Library
from kbproc.store.folder import leads_to, write_settings
from kbproc.store.snapshot import Readers
from kbproc.store.store import Store

if TYPE_CHECKING:
    from kbproc.views.vectors.view import Vectors


class Beside:
    """What the store is to a model that is not in use yet: a vector view of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.folder = store.folder
        self.unfolded = store.unfolded
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
        from kbproc.views.vectors.view import Vectors

        if self.embedding.pack is None:
            return
        pack, string = self.embedding.pack, self.embedding.string
        vectors = Vectors(folder=self.folder / "views", pack=pack, string=string)
        with self._store.reading() as snapshot:
            rows = snapshot.queries.all_index_rows()
            vectors.rebuild(rows, snapshot.published.head.position)
        self.vectors = vectors


def use(library: Library, settings: dict[str, Any], progress: Callable[[int, int], None]) -> None:
    """Embeds every chunk with the model of `settings`, then searches with it.

    `progress` gets chunks done and all, and may raise: then nothing has changed.
    Raises model.unavailable, input.invalid_params, store.io.
    """
    store = library.store
    beside = Beside(store)
    new = beside.embedding = Embedding(beside, settings, library.cache)
    try:
        if new.problem is not None:
            raise new.problem
        if _same_vectors(new, library.embedding):
            beside.vectors = store.vectors
        else:
            _embed_all(beside, progress)
        with store.lane():
            _write(store, settings)
            if leads_to(settings) is not None:  # whoever asks for it approves it
                library.trust.add_model(store.origin, settings)
            old = _swap(library, beside, settings)
    except OSError as error:
        raise KbprocError(
            "store.io", f"The model could not be changed: {error.strerror}."
        ) from error
    finally:
        if new is not library.embedding:
            new.close()
    library.together.follow()
    old.close()
    new.start()
    if store.vectors is not None:
        store.vectors.save()


def _write(store: Store, settings: dict[str, Any]) -> None:
    try:
        write_settings(store.folder / "store.toml", settings)
        reach("model.settings")
    except OSError as error:
        raise KbprocError(
            "store.io", f"store.toml could not be written: {error.strerror}."
        ) from error


def _same_vectors(new: Embedding, old: Embedding) -> bool:
    """Another way to the same model: one pack must not be written through two handles."""
    if new.info is None or old.info is None or new.pack is None or old.pack is None:
        return False
    if new.info.fingerprint != old.info.fingerprint or new.pack.path != old.pack.path:
        return False
    new.pack.close()
    new.pack = old.pack
    return True


def _embed_all(beside: Beside, progress: Callable[[int, int], None]) -> None:
    new = beside.embedding
    if new.state == "off":
        return
    new.drain(progress)
    if new.problem is not None:
        raise new.problem
    if beside.vectors is not None and beside.vectors.needs_fold:
        beside.vectors.fold()
    reach("model.embedded")


def _swap(library: Library, beside: Beside, settings: dict[str, Any]) -> Embedding:
    """In the lane: nobody writes meanwhile. Returns the model that was in use."""
    store, old = library.store, library.embedding
    with store.still():
        store.model = library.embedding = beside.embedding
        store.settings["model"] = settings
        beside.embedding.move_to(store)
        if beside.vectors is None:
            store.vectors = None
        else:
            store.swap_vectors(beside.vectors)
        store.publish()
    if old.pack is beside.embedding.pack:
        old.pack = None
    library.pasts.close()
    library.parsers.retire()  # another model may take longer or shorter chunks
    return old
