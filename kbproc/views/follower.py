"""A view that follows the catalog: full text and vectors are two.

Owns: what the store asks of such a view, and nothing more.
Refuses to know: what a view keeps, and how it is searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Protocol

from kbproc.log.record import Position
from kbproc.views.catalog.rows import IndexRow


class Follower(Protocol):
    """A change is staged once the log is durable, and shown by `commit`.

    Whatever a follower loses it can be given again. So one whose files are damaged
    starts empty at START and is rebuilt.
    """

    name: ClassVar[str]

    @property
    def position(self) -> Position:
        """Everything up to here has been applied; it may lag where nothing was to be applied."""

    def apply(self, removed: Sequence[int], rows: Iterable[IndexRow], position: Position) -> None:
        """Stages a change: these documents leave, then these rows come, all of their documents.

        `removed` names whatever may be there already. Raises store.io with nothing staged.
        """

    def rebuild(self, rows: Iterable[IndexRow], position: Position) -> None:
        """Holds exactly these rows from now on; what was staged is dropped."""

    def commit(self) -> None:
        """Shows what is staged to whoever looks from now on. Raises store.io."""

    def rollback(self) -> None:
        """Forgets what is staged."""

    def damaged(self) -> list[str]:
        """Files of it that are not what was written. Reads every byte."""
