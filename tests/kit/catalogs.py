"""Reads and changes a catalog beside the store that has it open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kbproc.engine.projections.catalog.catalog import Catalog
from kbproc.engine.projections.catalog.queries import Queries


def alter(catalog: Catalog, statement: str) -> None:
    """Runs a statement on a connection of its own."""
    with contextlib.closing(catalog.cursor()) as db:
        db.execute(statement)


@contextlib.contextmanager
def reading(catalog: Catalog) -> Iterator[Queries]:
    """Yields queries on a connection of their own."""
    with contextlib.closing(catalog.cursor()) as db:
        yield Queries(db)
