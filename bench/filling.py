"""Fills a store with a collection's documents and their vectors."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.bulk_legs import answered, call
from kbproc.base.host import Host
from kbproc.knowledge.app.library import Library

_AT_ONCE = 500


def filled(
    store: Path, documents: Sequence[dict[str, Any]], model: dict[str, Any] | None = None
) -> Library:
    """Opens a store and adds the documents, as doc.create takes them, unless it has some.

    `model`: the settings of a new store's model.
    """
    cache = Path.home() / ".cache" / "kbproc"
    library = Library.open(store, host=Host(), cache=cache, model=model)
    if not call(library, "doc.list", limit=1):
        for kb in dict.fromkeys(one["kb"] for one in documents if "kb" in one):
            call(library, "kb.create", slug=kb)
        for at in range(0, len(documents), _AT_ONCE):
            call(library, "doc.create", documents=documents[at : at + _AT_ONCE])
    library.embedding.start()
    library.embedding.drain(lambda stage, done, total: None)
    return library


@contextlib.contextmanager
def kept(stores: Path | None) -> Iterator[Path]:
    """Yields the folder for filled stores; None: one for the time."""
    if stores is not None:
        stores.mkdir(parents=True, exist_ok=True)
        yield stores
        return
    with tempfile.TemporaryDirectory() as scratch:
        yield Path(scratch)


def names(library: Library) -> dict[int, str]:
    """Returns document id → `source_id`."""
    names_by_id: dict[int, str] = {}
    cursor: dict[str, str] = {}
    while True:
        page = answered(library, "doc.list", limit=1000, **cursor)
        names_by_id |= {one.id: one.source.source_id for one in page.data}
        if not page.meta.next_cursor:
            return names_by_id
        cursor = {"cursor": page.meta.next_cursor}
