"""The node of a log that no other process has, and the kind of such a log.

The classes have all that a kind of log and its node do, in its plainest form. node.py has the
kind of log that several nodes share.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kbproc.engine.log.file import FileLog

if TYPE_CHECKING:
    from kbproc.base.errors import Finding
    from kbproc.base.settings.trust import Trust
    from kbproc.engine.embedding.background import Embedding
    from kbproc.engine.embedding.parsers import Parsers
    from kbproc.engine.log.interface import Log
    from kbproc.engine.log.record import Position
    from kbproc.engine.store.store import Store
    from kbproc.knowledge.agents.notes.rules import FolderRules
    from kbproc.knowledge.history.purge import PurgeParts, PurgeRules
    from kbproc.knowledge.sessions.rules import AnswerRules


class NodeLibrary(Protocol):
    """The parts of an open store that a node uses; see knowledge/app/library.py."""

    store: Store
    embedding: Embedding
    trust: Trust

    @property
    def parsers(self) -> Parsers: ...
    def reach(self) -> PurgeParts: ...

    def recover_answers(self) -> None:
        """Marks answers of an earlier process as interrupted. Raises store.io."""

    def follow_log(self) -> None:
        """Makes this process a node of the store's present log."""


class Node:
    """A process with a copy of a log: rules, and what it does for other nodes, which is nothing."""

    def __init__(self, library: NodeLibrary) -> None:
        self.library = library

    # The rules are imported and made at their first use, because few commands need them.

    @cached_property
    def folders(self) -> FolderRules:
        from kbproc.knowledge.agents.notes.rules import FolderRules

        return FolderRules()

    @cached_property
    def purges(self) -> PurgeRules:
        from kbproc.knowledge.history.purge import PurgeRules

        return PurgeRules()

    @cached_property
    def answers(self) -> AnswerRules:
        from kbproc.knowledge.sessions.rules import AnswerRules

        return AnswerRules()

    def opened(self) -> None:
        """Ends the answers that an earlier process has not ended, if it may do so by now."""
        store = self.library.store
        if store.log.damage is None and _is_answering(store):
            self.library.recover_answers()

    def start(self) -> None:
        """Begins the work in the background."""

    def follow_model(self) -> None:
        """Uses the store's present model from now on."""

    def retire(self) -> None:
        """Ends the background work, without waiting, once the store has another log."""

    def close(self) -> None:
        """Ends the background work."""

    def status(self) -> dict[str, Any]:
        """Returns the fields of methods/cluster/status.py."""
        log = self.library.store.log
        return {
            "shared": False,
            "stream": None,
            "servers": [],
            "seq": log.head.seq,
            "hash": log.head.hash,
            "stream_seq": log.head.seq,
            "connected": False,
            "problem": log.damage,
            "workers": 0,
            "dead_jobs": 0,
            "dead_why": None,
        }

    def findings(self) -> Iterable[Finding]:
        """Returns what kbproc doctor says of the node."""
        return ()


class LogKind:
    """A kind of log that a store's table [log] names: one in the store's own folder."""

    def open_log(
        self, folder: Path, applied_position: Position, *, marks: Path, settings: dict[str, Any]
    ) -> Log:
        """Opens the log; see log.interface.OpenLog."""
        return FileLog.open(folder, applied_position, marks=marks)

    def node(self, library: NodeLibrary) -> Node:
        """Returns the node of an open store."""
        return Node(library)

    def drop_copy(self, folder: Path) -> tuple[str, str] | None:
        """Prepares a damaged log's removal if its records will come from elsewhere.

        Returns what comes, and a hint; None where the folder has the only copy. Raises OSError.
        """
        return None


def _is_answering(store: Store) -> bool:
    """Returns True if an answer was in progress when the store was last used."""
    with store.reading() as snapshot:
        return bool(snapshot.queries.being_answered())
