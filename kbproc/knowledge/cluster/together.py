"""Runs this node's share of the cluster's embedding and parsing.

The share is restarted for another model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kbproc.engine.cluster.interface import ClusteredLog
from kbproc.engine.cluster.jetstream.settings import read
from kbproc.engine.embedding.background import Embedding
from kbproc.engine.embedding.parsers import Parsers
from kbproc.engine.store.store import Store

if TYPE_CHECKING:
    from kbproc.engine.cluster.work.node import Sharing


class Together:
    """The node's share, from `follow` to `close`."""

    def __init__(
        self,
        store: Store,
        log: ClusteredLog,
        embedding: Callable[[], Embedding],
        parsers: Callable[[], Parsers],
    ) -> None:
        self._store = store
        self._log = log
        self._embedding = embedding
        self._parsers = parsers
        self._changing = threading.Lock()
        self._sharing: Sharing | None = None
        self._is_closed = False

    def follow(self) -> None:
        """Starts the share for the store's present model, unless it runs."""
        store, embedding = self._store, self._embedding()
        with self._changing:
            old = self._sharing
            if self._is_closed or (old is not None and old.embedding is embedding):
                return
            self._end()
            if not store.read_only and embedding.state != "off":
                from kbproc.engine.cluster.work.node import Sharing

                self._sharing = Sharing(store, self._log, embedding, read(store.settings["log"]))
                self._sharing.start()
                self._parsers().others = self._sharing.lending

    def facts(self) -> dict[str, Any]:
        """Returns the counts of workers and dead jobs; see methods/cluster/status.py."""
        sharing = self._sharing
        if sharing is None:
            return {"workers": 0, "dead_jobs": 0, "dead_why": None}
        dead = sharing.dead
        return {"workers": sharing.workers, "dead_jobs": dead.jobs, "dead_why": dead.why}

    def close(self) -> None:
        with self._changing:
            self._is_closed = True
            self._end()

    def _end(self) -> None:
        if self._sharing is not None:
            self._parsers().others = None
            self._sharing.close()
        self._sharing = None
