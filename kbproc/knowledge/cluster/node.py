"""Does what a node of a cluster does beside answering requests.

It applies the records of other nodes while this node does not write, completes answers and purges
that were left unfinished once the log can be reached, and shares the work of embedding and parsing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from kbproc.base.errors import Finding
from kbproc.engine.cluster.interface import ClusteredLog
from kbproc.engine.cluster.opening import open_shared
from kbproc.engine.events import codec
from kbproc.engine.events.event import Event
from kbproc.engine.events.session import AnswerRestarted, QuestionAsked
from kbproc.engine.log.interface import Log
from kbproc.engine.log.record import Position
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.store.store import Store
from kbproc.knowledge.cluster.alone import LogKind, Node, NodeLibrary
from kbproc.knowledge.cluster.arrivals import Arrivals
from kbproc.knowledge.cluster.notes import NodeFolderRules
from kbproc.knowledge.cluster.purging import NodePurgeRules
from kbproc.knowledge.cluster.together import Together
from kbproc.knowledge.history import forgotten
from kbproc.knowledge.sessions.rules import AnswerRules


class NodeAnswerRules(AnswerRules):
    """A node signs the answers that it begins, and ends no others; `node` is its name."""

    def __init__(self, node: str | None) -> None:
        self._node = node

    def signed(self, event: Event) -> Event:
        if self._node is None or not isinstance(event, QuestionAsked | AnswerRestarted):
            return event
        return msgspec.structs.replace(event, node=self._node)

    def began_here(self, store: Store, queries: Queries, message: int) -> bool:
        row = queries.message(message)
        return row is not None and any(
            isinstance(event, QuestionAsked | AnswerRestarted)
            and (event.message, event.node) == (message, self._node)
            for record in store.log.read(row.attempt_seq - 1, row.attempt_seq)
            for event in codec.decode(record.events)
        )


class ClusterNode(Node):
    """A process whose log other nodes have, too."""

    def __init__(self, library: NodeLibrary, log: ClusteredLog) -> None:
        super().__init__(library)
        store = library.store
        self.folders = NodeFolderRules()
        self.purges = purges = NodePurgeRules(log, store)
        self.answers = NodeAnswerRules(store.settings["log"].get("node"))
        self.together = Together(store, log, lambda: library.embedding, lambda: library.parsers)
        self._log = log
        self._arrivals = Arrivals(
            store,
            log,
            begin=library.recover_answers,
            rest=lambda: purges.end_due(library.reach()),
        )

    def opened(self) -> None:
        """Does nothing: answers are ended once a server can be reached; see Arrivals."""

    def start(self) -> None:
        self.together.follow()
        self._arrivals.start()

    def follow_model(self) -> None:
        self.together.follow()

    def retire(self) -> None:
        self._arrivals.end()
        self.together.close()

    def close(self) -> None:
        self._arrivals.close()
        self.together.close()

    def status(self) -> dict[str, Any]:
        log, settings = self._log, self.library.store.settings["log"]
        return {
            "shared": True,
            "stream": settings.get("stream"),
            "servers": settings.get("servers") or [],
            "seq": log.head.seq,
            "hash": log.head.hash,
            "stream_seq": log.known_seq,
            "connected": log.trouble is None,
            "problem": log.damage or log.trouble,
            **self.together.facts(),
        }

    def findings(self) -> Iterator[Finding]:
        """Yields how far this node is, and whether workers have given a job up."""
        log, stream = self._log, self.library.store.settings["log"]["stream"]
        message = f"record {log.head.seq} of {log.known_seq} of the stream {stream}"
        if log.damage is not None:
            yield Finding("cluster", "fail", f"{message}; {log.damage}", log.remedy)
        elif log.trouble is not None:
            hint = "Reads go on. Check that a majority of the servers runs and can be reached."
            yield Finding("cluster", "warn", f"{message}; {log.trouble}", hint)
        else:
            yield Finding("cluster", "pass", message)
        facts = self.together.facts()
        if count := facts["dead_jobs"]:
            jobs = "1 job is" if count == 1 else f"{count} jobs are"
            yield Finding(
                "workers",
                "warn",
                f"{jobs} on the list of failed jobs; the last one: {facts['dead_why']}",
                "The nodes embed these texts themselves. The list forgets a job after a while.",
            )


class ClusterKind(LogKind):
    """A log that several nodes share."""

    def open_log(
        self, folder: Path, applied_position: Position, *, marks: Path, settings: dict[str, Any]
    ) -> Log:
        return open_shared(folder, applied_position, marks=marks, settings=settings)

    def node(self, library: NodeLibrary) -> ClusterNode:
        return ClusterNode(library, cast(ClusteredLog, library.store.log))

    def drop_copy(self, folder: Path) -> tuple[str, str]:
        """Forgets how far this folder is erased: the records to come may hold purged data.

        The cluster has all records, and a repaired record of this node's own would be a fork.
        """
        forgotten.drop(folder)
        return (
            "the cluster's log is read again once a server can be reached",
            "kbproc cluster status shows how far it is.",
        )
