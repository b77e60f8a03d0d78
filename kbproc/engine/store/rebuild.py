"""Views made afresh beside the live ones, then swapped in.

Owns: building from the log without holding up anybody, and the short moment in
the writers' lane in which the new views take over.
Refuses to know: why a view is made afresh.

Readers keep the views that they began with; the old files go with the swap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError
from kbproc.base.failpoints import reach
from kbproc.store import follow
from kbproc.store.snapshot import Readers
from kbproc.store.store import Store

if TYPE_CHECKING:
    from kbproc.views.catalog.catalog import Catalog
    from kbproc.views.fulltext.index import Built
    from kbproc.views.vectors.view import Vectors

# Records that the lane may be held for while a new catalog catches up.
_NEAR = 100
Tell = Callable[[str], None]


def rebuild(store: Store, tell: Tell = lambda stage: None) -> None:
    """Every view afresh from the log; nothing is embedded again. Raises store.*.

    For one at a time: see Store.exclusive.
    """
    import duckdb

    try:
        _rebuild(store, tell)
    except (OSError, duckdb.Error) as error:
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
        built = store.fulltext.build(follow.all_rows(catalog), catalog.position)
        tell("vectors")
        vectors = _fresh_vectors(store, catalog)
        with store.lane():
            due, old = follow.fold(store.log, catalog), store.readers
            catalog.commit()
            _swap(store, catalog, built, vectors)
            store.due = due
    except BaseException:
        if store.catalog is not catalog:
            catalog.close()
            follow.remove_catalog(catalog.path)
        raise
    store.changed()
    reach("views.swapped")
    follow.remove_catalog(old.catalog.path)
    old.retire()


def compact(store: Store) -> None:
    """The full-text index afresh from the catalog, so that it forgets deleted chunks."""
    with store.reading() as snapshot:
        rows = snapshot.queries.all_index_rows()
        built = store.fulltext.build(rows, snapshot.published.head.position)
    with store.lane(), store.still():
        _adopt(store, built)
        store.publish()


def _fresh_catalog(store: Store) -> Catalog:
    from kbproc.views.catalog.catalog import Catalog

    catalog = Catalog(follow.next_catalog(store.folder / "views"))
    try:
        while store.seq - catalog.position.seq > _NEAR or not catalog.position.seq:
            follow.replay(store.log, catalog, store.seq)
    except BaseException:
        catalog.close()
        follow.remove_catalog(catalog.path)
        raise
    reach("catalog.built")
    return catalog


def _fresh_vectors(store: Store, catalog: Catalog) -> Vectors | None:
    """From the pack, the graph included."""
    from kbproc.views.vectors.view import Vectors

    pack = store.model.pack
    if pack is None or store.vectors is None:
        return None
    vectors = Vectors(folder=store.folder / "views", pack=pack, string=store.model.string)
    vectors.rebuild(follow.all_rows(catalog), catalog.position)
    if vectors.needs_fold:
        vectors.fold()
    return vectors


def _swap(store: Store, catalog: Catalog, built: Built, vectors: Vectors | None) -> None:
    """In the lane: nobody writes meanwhile."""
    with store.still():
        store.catalog, store.readers = catalog, Readers(catalog)
        store.unfolded.clear()
        _adopt(store, built)
        if vectors is not None:
            store.swap_vectors(vectors)
        store.broken = None
        store.publish()


def _adopt(store: Store, built: Built) -> None:
    store.fulltext.adopt(built)
    follow.tell([store.fulltext], store.catalog, built.position.seq)
    store.fulltext.commit()
