"""Carries out purges where several nodes hold the log.

Each node erases its own folder and stores its position there. One or more nodes then erase what
lies on the servers, and record the end of the purge: the node that decided it does so at once,
the others only after a while.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator

from kbproc.base.errors import KbprocError
from kbproc.engine.cluster.interface import ClusteredLog
from kbproc.engine.cluster.jetstream.settings import read
from kbproc.engine.events import codec
from kbproc.engine.events.document import DocWritten
from kbproc.engine.log.record import Record
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.store.store import Store
from kbproc.knowledge.history import forgotten, note_files, purge
from kbproc.knowledge.history.forgotten import Forgotten
from kbproc.knowledge.history.purge import PurgeParts, PurgeRules, RewriteExtent, Trace

# How long another node may take to complete a purge that it has decided.
PATIENCE_S = 5.0
_LOOKS_S = 0.5


class NodePurgeRules(PurgeRules):
    """The rules of a purge on a node; `log` is its copy of the cluster's log."""

    hint = " Nodes that are away forget it when they open."

    def __init__(self, log: ClusteredLog, store: Store) -> None:
        position = forgotten.read(store.folder)
        log.erased_seq = 0 if position is None else position.seq
        self._log = log
        self._since = (0, 0.0)  # a due purge, and when this node first saw it

    def unfinished(self, queries: Queries, position: Forgotten | None) -> Collection[int]:
        """Returns all purges after the position, also those that other nodes have completed."""
        return queries.purges_after(0 if position is None else position.seq)

    def extent(self, purges: list[Record], head_seq: int) -> RewriteExtent:
        """Returns the same for every node, so that all rewrite each record to the same bytes."""
        return RewriteExtent(purges[-1].seq - 1, frozenset(record.seq for record in purges))

    def store_due(self, parts: PurgeParts, trace: Trace, due: int) -> None:
        """Stores the sources and vector keys that the cluster must erase, too.

        The rewritten log no longer names them.
        """
        folder = parts.store.folder
        before = forgotten.read(folder) or Forgotten()
        keys = {key.hex() for key in purge.keys_of(parts.embedding, trace)}
        position = Forgotten(
            seq=before.seq,
            due=due,
            sources=sorted({*before.sources, *trace.unused_sources}),
            keys=sorted({*before.keys, *keys}),
        )
        forgotten.keep(folder, position)

    @contextlib.contextmanager
    def replacing_views(self, store: Store, trace: Trace, purge: int) -> Iterator[None]:
        """Removes the files of notes that other nodes have purged.

        The files go inside the lane, because a sync outside of it could read one as a new note.
        """
        with store.lane() if trace.texts else contextlib.nullcontext():
            self._log.erased_seq = purge
            note_files.remove_purged(store, trace.texts, trace.purges)
            yield

    def erased_here(self, store: Store, seq: int) -> None:
        self._log.erased_seq = seq

    def end(self, parts: PurgeParts, purges: list[Record]) -> None:
        """Erases purged data from the stream and its object stores, and records the end.

        Several nodes may do so, each for the data that it knows. Raises store.io.
        """
        store = parts.store
        with store.exclusive():
            position = forgotten.read(store.folder)
            if (
                position is None
                or not position.due
                or position.seq < position.due
                or store.log is not self._log  # the store has left the cluster
            ):
                return
            keys = [bytes.fromhex(key) for key in position.keys]
            try:
                forget_vectors(store, keys)
                self._log.forget(_unreferenced(store, position.sources), position.seq)
                forget_vectors(store, keys)  # again, because embedding continued in between
                purge.record_end(store, position.due)
            except KbprocError as error:
                raise KbprocError(
                    error.type,
                    "This node has erased the data, but the cluster may still hold it: "
                    f"{error.message}",
                    hint="The erasure continues by itself once the servers can be reached.",
                ) from error
            _clear_due(store, position.due)

    def resume(self, parts: PurgeParts) -> None:
        """Erases this folder only, because no server may be reached while the store is opened."""
        purge.forget_here(parts)

    def end_due(self, parts: PurgeParts) -> float | None:
        """Ends a due purge; returns the seconds until the next call, None without a due one.

        Raises store.io.
        """
        position = forgotten.read(parts.store.folder)
        if position is None or not position.due:
            return None
        if self._since[0] != position.due:
            self._since = (position.due, time.monotonic())
        is_patient = time.monotonic() < self._since[1] + PATIENCE_S
        if is_patient and not purge.has_ended(parts.store, position.due):
            return _LOOKS_S
        self.end(parts, [])
        return None


def forget_vectors(store: Store, keys: Collection[bytes]) -> None:
    """Erases the vectors under these keys of the pack from the cluster. Raises store.io."""
    from kbproc.engine.cluster.work.erasing import erase

    if keys:
        erase(read(store.settings["log"]), keys)


def _clear_due(store: Store, due: int) -> None:
    position = forgotten.read(store.folder)
    if position is not None and position.due == due:
        forgotten.keep(store.folder, Forgotten(seq=position.seq))


def _unreferenced(store: Store, sources: list[str]) -> list[str]:
    """Returns the sources that no document in the log holds."""
    if not sources:
        return []
    referenced = {
        event.source_sha256
        for record in store.log.read(to_seq=store.log.head.seq)
        for event in codec.decode(record.events)
        if isinstance(event, DocWritten)
    }
    return [sha256 for sha256 in sources if sha256 not in referenced]
