"""Rebuilds the projections beside the live ones, then swaps them in.

They are built from the log while reads and writes go on; only the swap takes the writers' lane
for a short moment. Readers keep the projections that they began with; the old files are removed
with the swap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.engine.projections.catalog.files import next_catalog, remove_catalog
from kbproc.engine.store import follow
from kbproc.engine.store.store import Store

if TYPE_CHECKING:
    from kbproc.engine.projections.catalog.catalog import Catalog
    from kbproc.engine.projections.vectors.view import Vectors

# The number of records that a new catalog may lack when it takes the lane to catch up.
_NEAR = 100
_GRAPH_THREADS = 2
Tell = Callable[[str], None]


def rebuild(store: Store, tell: Tell = lambda stage: None) -> None:
    """Rebuilds every projection from the log; nothing is embedded again. Raises store.*.

    One thread at a time may call it: see Store.exclusive.
    """
    from sqlite3 import Error as DatabaseError  # not above: attached processes rebuild nothing

    try:
        _rebuild(store, tell)
    except (OSError, DatabaseError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise KbprocError(
            "store.io",
            f"The views could not be made afresh: {why}.",
            hint="The old ones stay in use. Make room and try again.",
        ) from error
    if store.vectors is not None:
        store.vectors.save()


def _rebuild(store: Store, tell: Tell) -> None:
    tell("catalog")
    catalog = _fresh_catalog(store)
    try:
        tell("fulltext")
        fulltext = store.fulltext.build(follow.all_rows(catalog), catalog.position)
        tell("vectors")
        vectors = _fresh_vectors(store, catalog)
        with store.lane():
            due, retired = follow.fold(store.log, catalog), store.readers
            catalog.commit()
            catalog.sources_seq = store.catalog.sources_seq
            store.replace_views(catalog, fulltext, vectors)
            store.due = due
    except BaseException:
        if store.catalog is not catalog:
            catalog.close()
            remove_catalog(catalog.path)
        raise
    store.changed()
    reach("views.swapped")
    remove_catalog(retired.catalog.path)
    retired.retire()


def compact(store: Store) -> None:
    """Rebuilds the full-text index from the catalog, so that it forgets deleted chunks."""
    position = store.published.head.position
    store.adopt(store.fulltext.build(follow.all_rows(store.catalog), position))


def _fresh_catalog(store: Store) -> Catalog:
    from kbproc.engine.projections.catalog.catalog import Catalog

    catalog = Catalog(next_catalog(store.folder / "views"))
    try:
        while store.seq - catalog.position.seq > _NEAR or not catalog.position.seq:
            seq = store.seq
            follow.replay(store.log, catalog, seq)
        reach("catalog.built")
    except BaseException:
        catalog.close()
        remove_catalog(catalog.path)
        raise
    return catalog


def _fresh_vectors(store: Store, catalog: Catalog) -> Vectors | None:
    """Returns a new vector index from the pack, its graph included; None without vectors."""
    from kbproc.engine.projections.vectors.view import Vectors

    pack = store.model.pack
    if pack is None or store.vectors is None:
        return None
    vectors = Vectors(folder=store.folder / "views", pack=pack, string=store.model.string)
    vectors.rebuild(follow.all_rows(catalog), catalog.position, threads=_GRAPH_THREADS)
    return vectors
