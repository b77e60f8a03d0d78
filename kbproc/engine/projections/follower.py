"""Defines the interface of a view that follows the catalog: the full-text and the vector index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Protocol

from kbproc.engine.log.record import Position
from kbproc.engine.projections.catalog.rows import IndexRow


class Follower(Protocol):
    """A view of the catalog's chunks.

    It stages a change once the log is durable, and shows it with `commit`.

    A follower can be built again from the catalog. So one whose files are damaged starts empty at
    START and is rebuilt.
    """

    name: ClassVar[str]

    @property
    def position(self) -> Position:
        """The position up to which everything is applied; it may lag behind records that change
        nothing here.
        """

    def apply(self, removed: Sequence[int], rows: Iterable[IndexRow], position: Position) -> None:
        """Stages a change: drops the documents `removed`, then adds `rows`, which hold every chunk
        of their documents.

        `removed` also names each document of `rows` that the view may hold already. Raises
        store.io, with nothing staged.
        """

    def rebuild(self, rows: Iterable[IndexRow], position: Position) -> None:
        """Replaces everything with these rows; drops what is staged."""

    def commit(self) -> None:
        """Shows the staged changes to all later reads. Raises store.io."""

    def rollback(self) -> None:
        """Drops the staged changes."""

    def damaged(self) -> list[str]:
        """Returns the names of its files that differ from what was written. Reads every byte."""
