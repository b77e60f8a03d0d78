"""Chooses the kind of a store's log, and the store's node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbproc.knowledge.cluster.alone import LogKind, Node, NodeLibrary

if TYPE_CHECKING:
    from kbproc.engine.log.interface import Log
    from kbproc.engine.log.record import Position


def kind_of(settings: Mapping[str, Any]) -> LogKind:
    """Returns the kind of log that `settings`, a store's table [log], name."""
    if not settings or settings.get("kind") == "file":
        return LogKind()
    from kbproc.knowledge.cluster.node import ClusterKind

    return ClusterKind()


def open_log(
    folder: Path, applied_position: Position, *, marks: Path, settings: dict[str, Any]
) -> Log:
    """Opens the log that `settings` name; see log.interface.OpenLog."""
    kind = kind_of(settings)
    return kind.open_log(folder, applied_position, marks=marks, settings=settings)


class Nodes:
    """The node of a store's present log, and those of earlier logs, which have retired."""

    def __init__(self, library: NodeLibrary) -> None:
        self._library = library
        self._is_started = False
        self._retired: list[Node] = []
        self.present = self._made()

    def _made(self) -> Node:
        return kind_of(self._library.store.settings.get("log") or {}).node(self._library)

    def start(self) -> None:
        self._is_started = True
        self.present.start()

    def follow_log(self) -> None:
        """Replaces the node, because the store has another log. In the lane."""
        self.present.retire()
        self._retired.append(self.present)
        self.present = self._made()
        self.present.follow_model()
        if self._is_started:
            self.present.start()

    def close(self) -> None:
        for node in (*self._retired, self.present):
            node.close()
