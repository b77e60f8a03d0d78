"""Defines what only a log can do that several nodes share."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol, runtime_checkable

from kbproc.engine.log.interface import Log


@runtime_checkable
class ClusteredLog(Log, Protocol):
    """A node's copy of a log to which other nodes write, too."""

    erased_seq: int  # this copy lacks the texts that records up to this one purge

    @property
    def wrote(self) -> Collection[int]:
        """The seqs of the last records that this process has written."""

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written now, though nothing is damaged; else None."""

    @property
    def known_seq(self) -> int:
        """The seq of the last record that is known to exist, gathered or not."""

    def on_news(self, tell: Callable[[], None]) -> None:
        """Calls `tell`, from any thread, when others have written records for `gather`."""

    def forget(self, sources: Collection[str], to_seq: int) -> None:
        """Erases rewritten texts, and these sources, from where other nodes find them.

        `to_seq`: the texts that records up to there purge are rewritten in this copy. The call can
        be repeated, and several nodes may make it at the same time. Raises store.io,
        store.corrupt.
        """


def clustered(log: Log) -> ClusteredLog | None:
    """Returns the log if other nodes write to it, too; else None."""
    return log if isinstance(log, ClusteredLog) else None
