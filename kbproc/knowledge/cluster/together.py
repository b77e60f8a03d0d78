"""This store's part in embedding and parsing for its cluster, while its log is shared.

Owns: beginning it, ending it, and beginning anew with another log or model.
Refuses to know: what that part is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from kbproc.embedding.background import Embedding
from kbproc.embedding.parsers import Parsers
from kbproc.store.store import Store

if TYPE_CHECKING:
    from kbproc.embedding.cluster.node import Sharing
    from kbproc.log.interface import Log


class Together:
    """From `follow` to `close`; nothing for a log that is not shared."""

    def __init__(self, store: Store, embedding: Callable[[], Embedding], parsers: Parsers) -> None:
        self._store = store
        self._parsers = parsers
        self._embedding = embedding
        self._changing = threading.Lock()
        self._sharing: Sharing | None = None
        self._log: Log | None = None

    def follow(self) -> None:
        """The store has another log or model now, or has been opened."""
        store, embedding = self._store, self._embedding()
        with self._changing:
            old = self._sharing
            if old is not None and (self._log, old.embedding) == (store.log, embedding):
                return
            self._end()
            if store.log.is_shared and not store.read_only and embedding.state != "off":
                from kbproc.embedding.cluster.node import Sharing
                from kbproc.log.jetstream.settings import read

                self._log = store.log
                self._sharing = Sharing(store, embedding, read(store.settings["log"]))
                self._sharing.start()
                self._parsers.others = self._sharing.lending

    def facts(self) -> dict[str, Any]:
        """See methods/cluster/status.py."""
        sharing = self._sharing
        if sharing is None:
            return {"workers": 0, "dead_jobs": 0, "dead_why": None}
        dead = sharing.dead
        return {"workers": sharing.workers, "dead_jobs": dead.jobs, "dead_why": dead.why}

    def forget(self, keys: Collection[bytes]) -> None:
        """Vectors under these keys of the pack leave the cluster. Raises store.io."""
        from kbproc.embedding.cluster.erasing import erase
        from kbproc.log.jetstream.settings import read

        if keys and self._store.log.is_shared:
            erase(read(self._store.settings["log"]), keys)

    def close(self) -> None:
        with self._changing:
            self._end()

    def _end(self) -> None:
        self._parsers.others = None
        if self._sharing is not None:
            self._sharing.close()
        self._sharing = self._log = None
