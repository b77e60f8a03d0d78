"""The store: one folder, one writer, many readers.

It has the log and the projections that follow it, the writers' lane with its shared fsync, and
publishes each commit.

The order of every commit: decide, fold into the catalog's open transaction, write the sources,
write and sync the log, commit the catalog, publish, commit the vectors. Sources whose text is in
their records are synced later. Readers see only durable records; the next writer sees everything.
The full-text index follows the catalog: for a search, beside many writes, or once these pause.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from msgspec.structs import replace

from kbproc.base import libraries
from kbproc.base.errors import KbprocError
from kbproc.base.threads import processors
from kbproc.base.wording import few, plural
from kbproc.base.workers import Backoff, Worker
from kbproc.engine.log.interface import Behind, Log, OpenLog
from kbproc.engine.models.reranking.reranker import Reranker, not_configured
from kbproc.engine.projections.catalog.files import catalogs, remove_catalog
from kbproc.engine.sources.blobs import Blobs
from kbproc.engine.store import follow, restore
from kbproc.engine.store.folder import (
    is_exposed,
    read_settings,
    refusal,
)
from kbproc.engine.store.lane import (
    Group,
    Lane,
    NotWritten,
    PurgeDue,
    T,
    Ticket,
    Turns,
    ahead,
    birth,
    take_turn,
)
from kbproc.engine.store.snapshot import (
    Indexed,
    Published,
    PublishedStore,
    Readers,
    Snapshot,
)
from kbproc.engine.store.state import Freshness, NoModel, StoreModel

if TYPE_CHECKING:
    from kbproc.base.host import Host
    from kbproc.engine.log.record import Position
    from kbproc.engine.projections.catalog.catalog import Catalog
    from kbproc.engine.projections.catalog.rows import Roster
    from kbproc.engine.projections.fulltext.index import Built, FullText
    from kbproc.engine.projections.vectors.search import VectorSnapshot
    from kbproc.engine.projections.vectors.view import Vectors
    from kbproc.engine.store.place import StorePlace

_MARKS = "log.seen"
# The bytes of a log that are read before the first response if the files have changed.
_LOOK_BYTES = 64 << 20
# So many chunks are indexed beside the next writes, which wait once there are twice as many; the
# next search would have to wait for them otherwise.
MANY_CHUNKS = 4_000
# So are the chunks of a commit that has more than this, if a search has come since the last one.
_MANY_IN_COMMIT = 100
# More chunks than this, or than the second number in one commit, go to a process that indexes them,
# if there is a processor for it: a start of the process costs as much as 1,000 chunks. Once it
# runs, the second number is enough; it ends after a pause.
BESIDE_CHUNKS = 1_500
_BULK_CHUNKS = 500
_IDLE_S = 5.0
# The rows of so many chunks, some 20 MB, are read before their words are found: of the chunks that
# wait, and of the commit that exceeds their limit.
_MOST_READ = 3 * MANY_CHUNKS
_MOST_TRIES = 50
_LONGEST_BACKOFF_S = 0.1
_logger = logging.getLogger(__name__)


class Store(PublishedStore):
    """An open store; `open` makes one, `close` leaves everything on disk.

    `folder` is the folder that it works in: `origin`, the folder that the user named, or an
    overlay of it if that is read-only. Without a `model` it has no vectors.
    """

    def __init__(
        self,
        place: StorePlace,
        *,
        host: Host,
        settings: dict[str, Any],
        log: Log,
        roster: Roster,
    ) -> None:
        """`_opened` sets the projections."""
        super().__init__()
        self.folder = place.folder
        self.origin = place.origin
        self.read_only = place.read_only
        self.sight = None  # everything; VisibleStore shows less
        self.host = host
        self.settings = settings
        self.blobs = Blobs(
            self.origin,
            log.shelf,
            read_only=self.read_only,
            check=place.lease.check,
        )
        self.log = log
        self.catalog: Catalog
        self._fulltext: FullText | None = None
        self._vectors: Vectors | None = None
        self.are_vectors_opened = True
        self.standing: tuple[int, int] | None = None  # see embedding.background
        self.was_abandoned = place.was_abandoned  # until the upkeep has looked what that left
        self.model: StoreModel = NoModel()
        self.reranker: Reranker = not_configured()
        self._place = place
        self.turns = Turns(partial(_retry_collisions, self._run, host))
        self._exclusive = threading.RLock()
        self.is_exclusive_awaited = False  # a thread waits for another one's `exclusive`
        self.due: int | None = None  # seq of another node's purge that must be carried out first
        self._is_exposed = is_exposed(self.origin)
        self._roster = roster
        self._unindexed_chunks = 0  # about so many were written since the index was committed
        self._is_index_behind = False  # True once documents have changed
        self._indexer = Worker("indexing", self._index_step, first_s=None)
        self._checkpoints = Worker("checkpoint", self._checkpoint, first_s=None)
        self.index_problem: KbprocError | None = None  # why the full-text index lacks the latest
        self._may_index_go_on = False  # else it is built anew
        self._may_write_beside = processors() > 1  # False once such a process has failed
        self._is_bulk = False  # True if so much was written that such a process pays

    # ------------------------------------------------------------------ opening

    @classmethod
    def open(
        cls,
        place: StorePlace,
        *,
        host: Host,
        open_log: OpenLog,
        model: dict[str, Any] | None = None,
        check_log: Callable[[Path, dict[str, Any]], None] = lambda store, settings: None,
    ) -> Store:
        """Opens or creates the store at `place`, which is prepared; `model` is for a new one.

        `open_log` opens the log that the settings name; `check_log` raises for a log elsewhere that
        may not be used. `place` is left when the store is closed or can't be opened.
        Raises store.incompatible, store.corrupt, store.io.
        """
        with contextlib.ExitStack() as stack:
            stack.callback(place.leave)
            settings = read_settings(place.origin / "store.toml", model)
            if where := settings.get("log"):
                check_log(place.origin, where)
            store = cls._opened_whole(place, host, open_log, settings, stack)
            stack.pop_all()
        return store

    @classmethod
    def _opened_whole(
        cls,
        place: StorePlace,
        host: Host,
        open_log: OpenLog,
        settings: dict[str, Any],
        stack: contextlib.ExitStack,
    ) -> Self:
        """Opens log and projections; makes a catalog afresh that proves to be damaged."""
        from kbproc.engine.projections.catalog.checks import is_damage

        with contextlib.ExitStack() as parts:
            try:
                store = cls._opened(place, host, open_log, settings, parts)
            except Exception as error:
                if not is_damage(error):
                    raise
                _logger.warning("the catalog is damaged and made afresh: %s", error)
            else:
                stack.push(parts.pop_all())
                return store
        for path in catalogs(place.folder / "views"):
            remove_catalog(path)
        return cls._opened(place, host, open_log, settings, stack)

    @classmethod
    def _opened(
        cls,
        place: StorePlace,
        host: Host,
        open_log: OpenLog,
        settings: dict[str, Any],
        stack: contextlib.ExitStack,
    ) -> Self:
        """Opens log and projections, and leaves closing them to `stack`."""
        views = place.folder / "views"
        catalog = follow.open_catalog(views)
        stack.callback(catalog.close)
        log = read_log(place, open_log, settings, catalog.position)
        stack.callback(log.close)
        roster = catalog.queries.roster()  # `publish` reads it anew if the log changes it
        store = cls(place, host=host, settings=settings, log=log, roster=roster)
        # After the log is read, because that names the sources.
        is_synced = not place.was_abandoned and catalog.sources_seq >= log.head.seq
        store.blobs.load(is_synced=is_synced)
        if store.is_local and not store.read_only:
            restore.sources(log, catalog.sources_seq, store.blobs)
        follow.replay(log, catalog)
        store.catalog, store.readers = catalog, Readers(catalog)
        store.publish()
        log.begin(lambda: store.commit(lambda lane: None))
        return store

    # ------------------------------------------------------- the full-text index

    @property
    def fulltext(self) -> FullText:
        """The full-text index, opened if it was not. Raises store.io."""
        with self.indexing:
            if self._fulltext is None:
                from kbproc.engine.projections.fulltext.index import FullText

                fulltext = FullText.open(self.folder / "views" / "fulltext")
                self._may_index_go_on = follow.may_go_on(self.log, fulltext.position)
                self._fulltext = fulltext
            return self._fulltext

    def catch_up(self) -> None:
        """Commits the full-text index up to the present position. Raises store.io."""
        with self.indexing, contextlib.ExitStack() as stack:
            self.index(stack.enter_context(self.reading()), when_read=stack.close)

    def index(self, snapshot: Snapshot, when_read: Callable[[], None] = lambda: None) -> None:
        """Commits the full-text index up to the snapshot's position. While it indexes.

        `when_read` is called once the snapshot is not needed any more, unless so much has changed
        that it is read while it is indexed.

        If the disk refuses, searches go on with what was indexed. Raises store.io if the index
        can't be opened.
        """
        fulltext, earlier = self.fulltext, self.indexed
        self._unindexed_chunks = 0
        try:
            self._place.lease.check()
            has_changed = self._follow_catalog(fulltext, snapshot, when_read)
            self.index_problem, self._is_index_behind = None, False
            seq = snapshot.seq
        except Exception as error:
            _logger.exception("the full-text index could not follow the catalog")
            _log_errors(fulltext.rollback)
            self.index_problem = _unindexed_error(error)
            has_changed, seq = False, fulltext.position.seq if earlier is None else earlier.seq
        if has_changed or earlier is None:
            self.indexed = Indexed(fulltext.snapshot(), seq)
        else:  # the same searcher, because it remembers the frequencies of words
            self.indexed = replace(earlier, seq=seq)
        snapshot.use(self.indexed)

    def _follow_catalog(
        self, fulltext: FullText, snapshot: Snapshot, when_read: Callable[[], None]
    ) -> bool:
        """Commits what the index lacks; returns whether that was anything.

        Words are found after the snapshot has ended, because the WAL can't be copied past it.
        """
        queries, position = snapshot.queries, snapshot.published.head.position
        since = fulltext.position
        if not self._may_index_go_on:
            most = _MOST_READ if fulltext.is_written_beside else MANY_CHUNKS
            lacks_few = sum(queries.touched_since(0).values()) <= most
            if since.seq or not lacks_few:
                fulltext.rebuild(queries.all_index_rows(), position)
        changes = follow.changes(queries, fulltext.position.seq, position)
        if changes.chunk_count <= _MOST_READ:
            changes = changes.read()
            when_read()
        else:
            fulltext.write_here()
        self._write(changes, fulltext)
        self._may_index_go_on = True
        return fulltext.position != since

    def _write(self, changes: follow.Changes, fulltext: FullText) -> None:
        """Commits changes to the index; in this process where the one beside it has ended."""
        from kbproc.engine.projections.fulltext.index import ProcessEnded

        try:
            changes.stage(fulltext)
            fulltext.commit()
        except ProcessEnded as end:
            _logger.warning("the process that indexes has ended: %r", end.__cause__)
            self._may_write_beside = False
            fulltext.rollback()
            changes.stage(fulltext)
            fulltext.commit()

    def adopt(self, built: Built) -> None:
        """Replaces the full-text index."""
        with self.indexing:
            self.fulltext.adopt(built)
            self.indexed = Indexed(self.fulltext.snapshot(), built.position.seq)
            self._may_index_go_on = True

    def replace_views(self, catalog: Catalog, built: Built, vectors: Vectors | None) -> None:
        """Replaces the projections at once for all later snapshots. In the lane."""
        with self.indexing, self._publishing:
            self.catalog, self.readers = catalog, Readers(catalog)
            self.adopt(built)
            if vectors is not None:
                self.swap_vectors(vectors)
            self.broken = None
            self.publish()

    def _index_beside(self, chunks: int) -> None:
        """Has many chunks indexed beside the next writes. In the lane."""
        self._unindexed_chunks += chunks
        self._is_bulk |= chunks > _BULK_CHUNKS or self._unindexed_chunks > BESIDE_CHUNKS
        is_due = self.is_searched and chunks > _MANY_IN_COMMIT
        if is_due or self._are_many_unindexed:
            self.is_searched = False
            _wake(self._indexer)
        if self._unindexed_chunks > 2 * MANY_CHUNKS:
            _log_errors(self.catch_up)

    @property
    def _are_many_unindexed(self) -> bool:
        """Returns whether the pending chunks are worth being indexed beside the next writes."""
        if self._may_write_beside and (self._is_bulk or self._is_beside):
            return self._unindexed_chunks > _BULK_CHUNKS
        return self._unindexed_chunks > MANY_CHUNKS

    @property
    def _is_beside(self) -> bool:
        """Returns whether another process writes into the full-text index."""
        return self._fulltext is not None and self._fulltext.is_written_beside

    def _index_step(self, is_woken: bool) -> float | None:
        """Indexes; after many chunks and until a pause by a process, which this thread starts."""
        with self.indexing:
            if not is_woken:
                self._write_here()
                return None
            is_bulk, self._is_bulk = self._is_bulk, False
            if is_bulk and self._may_write_beside:
                try:
                    self.fulltext.write_beside()
                except (KbprocError, OSError):
                    _logger.exception("no process could be started to index beside the owner")
                    self._may_write_beside = False
            _log_errors(self.catch_up)
            return _IDLE_S if self._is_beside else None

    def _write_here(self) -> None:
        """Ends the process that writes into the full-text index, if there is one."""
        if self._fulltext is not None:
            self._fulltext.write_here()

    # --------------------------------------------------------------- the vectors

    def attach_vectors(self) -> None:
        """Opens the vector index if the model has a pack."""
        if self.model.pack is None:
            return
        from kbproc.engine.projections.vectors.view import Vectors  # late: brings numpy

        with self.lane():
            vectors = Vectors.open(self.folder / "views", self.model.pack, self.model.string)
            if vectors.position != self.catalog.position:
                if follow.may_go_on(self.log, vectors.position):
                    self._changes(vectors.position.seq).stage(vectors)
                    vectors.commit()
                else:
                    vectors.rebuild(follow.all_rows(self.catalog), self.catalog.position)
            self.vectors = vectors

    def put_off(self, standing: tuple[int, int] | None) -> None:
        """Leaves opening the vectors to their first use, or the first write.

        `standing`: what is known of them until then.
        """
        self.are_vectors_opened, self.standing = False, standing

    @property
    def vectors(self) -> Vectors | None:
        """The vectors, opened if they were not. Raises store.io.

        The caller holds no lock except the lane.
        """
        if not self.are_vectors_opened:
            with self.lane():
                if not self.are_vectors_opened:
                    self.attach_vectors()
                    self.are_vectors_opened, self.standing = True, None  # also without a model
        return self._vectors

    @vectors.setter
    def vectors(self, vectors: Vectors | None) -> None:
        self._vectors = vectors
        self.are_vectors_opened, self.standing = True, None

    def open_vectors(self) -> None:
        """Opens the vectors if they were not. Raises store.io."""
        self.vectors  # noqa: B018

    @property
    def vectors_view(self) -> VectorSnapshot | None:
        return None if self._vectors is None else self._vectors.snapshot()

    def exchange(self, model: StoreModel, vectors: Vectors | None) -> None:
        """Replaces the model and its vectors for all later snapshots. In the lane."""
        with self._publishing:
            self.model = model
            self.swap_vectors(vectors)

    def swap_vectors(self, vectors: Vectors | None) -> None:
        """Replaces the vector index. In the lane.

        Vectors that were packed during its rebuild are looked up once more.
        """
        with self._publishing:
            if vectors is not None:
                self._changes(vectors.position.seq).stage(vectors)
                vectors.commit()
                vectors.embedded()
            self.vectors = vectors

    def _changes(self, since: int) -> follow.Changes:
        return follow.changes(self.catalog.queries, since, self.catalog.position)

    @property
    def is_local(self) -> bool:
        """Returns True if the log is this store's own."""
        return not self.settings.get("log")

    # --------------------------------------------------------------- upkeep

    @contextlib.contextmanager
    def exclusive(self, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Admits one thread at a time to upkeep of the whole store.

        `check` is called while it waits, and may raise.
        """
        while not self._exclusive.acquire(timeout=0.1):
            self.is_exclusive_awaited = True
            check()
        self.is_exclusive_awaited = False
        try:
            yield
        finally:
            self._exclusive.release()

    @contextlib.contextmanager
    def lane(self) -> Iterator[None]:
        """Makes writers wait. All records are durable and published."""
        with self.turns.lane:
            yield

    # ------------------------------------------------------------------ reading

    def publish(self) -> None:
        """Publishes the catalog's state. While it publishes."""
        if self.catalog.roster_changed:
            self._roster, self.catalog.roster_changed = self.catalog.queries.roster(), False
        self.show(Published(self.catalog.head, self._roster))

    def _checkpoint(self, is_woken: bool) -> None:
        with self.turns.lane:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Notes that all sources are durable, and copies the WAL into the catalog. In the lane."""
        from sqlite3 import Error as DatabaseError  # not above: attached processes have no store

        with contextlib.suppress(DatabaseError, KbprocError, OSError):
            self.blobs.sync()
            head_seq = self.log.head.seq
            if not self.read_only and self.broken is None and self.catalog.sources_seq < head_seq:
                self.catalog.sources_seq = head_seq
            self.catalog.checkpoint()

    def freshness(self, snapshot: Snapshot) -> Freshness:
        """Returns the freshness of each index for a snapshot.

        The full-text index counts as up to date, since each search commits it, unless it can't be
        committed.
        """
        fulltext_seq = snapshot.seq
        if snapshot.indexed is not None and (snapshot.is_search or self.index_problem):
            fulltext_seq = snapshot.indexed.seq if snapshot.unindexed else snapshot.seq
        return Freshness(
            seq=snapshot.seq,
            fulltext_seq=fulltext_seq,
            vector_seq=min(self.model.vector_seq, snapshot.seq),
            pending_embeddings=self.model.pending_count,
        )

    # ------------------------------------------------------------------ writing

    def commit(self, work: Callable[[Lane], T]) -> T:
        """Runs `work` in the lane and returns once its records are durable and published.

        Writers that arrive at the same time share the next fsync. Raises the error of `work`, or
        store.io with none of its records written.
        """
        return self.turns.enter(work)()

    def check_writable(self, *, look: bool = True) -> None:
        """Raises store.io for a store that is read-only or was moved or replaced.

        Raises store.corrupt for a damaged log. Without `look` it uses the last look at the
        folder's permissions: the leader of a commit looks once for all writers.
        """
        self._place.lease.check()
        if look or self._is_exposed:  # the user may have mended it since
            self._is_exposed = is_exposed(self.origin)
        self._check_permitted()

    def _check_permitted(self) -> None:
        """Raises what `check_writable` raises, as of the last look."""
        if self.read_only or self._is_exposed:
            raise refusal(self.origin)
        if self.log.damage is not None:
            raise self.log.refused()

    def look(self) -> None:
        """Checks the folder, the log and the permissions for changes by other processes.

        Raises store.io if the folder was moved or replaced.
        """
        self._place.lease.check()
        self.log.look()
        self._is_exposed = is_exposed(self.origin)

    def warnings(self) -> list[str]:
        """Returns the warnings for every response, as of the last look at the store."""
        notices = [f"{self.log.damage} {self.log.remedy}"] if self.log.damage is not None else []
        if self._is_exposed:
            reason = refusal(self.origin)
            notices.append(f"{reason.message} {reason.hint}")
        if self.broken is not None and (count := self.log.head.seq - self.seq) > 0:
            notices.append(
                f"{plural(count, 'write')} can't be shown yet, and nothing is lost: the views "
                "can't follow the log. Make room or check the disk."
            )
        if (problem := self.index_problem) is not None:
            notices.append(f"Searches lack the latest writes. {problem.message} {problem.hint}")
        if strangers := self.log.strangers:
            notices.append(
                f"The store's log folder holds what is no part of the log and is left alone: "
                f"{few(strangers)}. Two computers can't share a store through synchronised files."
            )
        if date_warning := ahead(self.published.head.ts, self.host.now()):
            notices.append(date_warning)
        return notices

    def _run(self, tickets: list[Ticket[Any]]) -> None:
        self._place.lease.check()
        self._is_exposed = is_exposed(self.origin)
        if self._fulltext is None:
            libraries.require("tantivy")  # before anything is written that could not be indexed
        vectors = self.vectors  # opened before anything is written
        self.mend()
        if self.log.gather():
            self._apply_others_records()
        if self.due is not None:
            raise PurgeDue
        with (
            self.log.batch() as batch,
            Group(batch=batch, catalog=self.catalog, published=self.published) as group,
        ):
            if batch.head.seq == 0:
                birth(Lane(self.host, group, self._check_permitted))
            for ticket in tickets:
                take_turn(ticket, Lane(self.host, group, self._check_permitted))
                if ticket.error is not None:
                    ticket.error = self.refused(ticket.error) or ticket.error
            if batch.head == self.log.head:
                return
            self._check_permitted()  # the lease was checked above
            # A whole record stays in the log even if the process dies before the sync. So the
            # sources that the records name, and do not hold, are durable before any is written.
            try:
                with self.blobs.adding(group.sources, may_wait=self._may_wait(group)):
                    batch.write()
            except KbprocError as error:
                raise NotWritten from error
            batch.commit()
            try:
                self._show(vectors, self.seq)
            except Exception as error:
                _logger.exception("the views could not follow the log")
                self.broken = _lagging_error(error)
                raise _not_visible_error(error) from error
        self.changed()

    def _may_wait(self, group: Group) -> bool:
        """Returns True if an opening store would look into the group's records for lost sources."""
        unsynced = group.position.seq - self.catalog.sources_seq
        if unsynced > restore.MOST_RECORDS:
            self.catalog.sources_seq = group.position.seq  # `adding` syncs all
        return unsynced <= restore.MOST_RECORDS and self.is_local

    def _show(self, vectors: Vectors | None, since: int) -> None:
        """Commits the catalog and the vectors at once for readers. In the lane.

        `since`: the position after which the catalog has changes that readers do not see.
        """
        changes = self._changes(since)
        self._is_index_behind = self._is_index_behind or bool(changes.touched_ids)
        if vectors is not None:
            changes.stage(vectors)
        with self._publishing:
            self.catalog.commit()
            self.publish()
            if vectors is not None:
                vectors.commit()
        self._index_beside(changes.chunk_count)
        if self.catalog.needs_checkpoint:
            _wake(self._checkpoints)

    def _apply_others_records(self) -> None:
        """Publishes the records that other nodes have written. In the lane. Raises store.io."""
        try:
            since = self.catalog.position.seq
            self.due = follow.fold(self.log, self.catalog)
            self._show(self.vectors, since)
        except Exception as error:
            _logger.exception("the views could not follow what others have written")
            self.broken = _lagging_error(error)
            raise self.broken from error
        self.changed()

    def mend(self) -> None:
        """Gives projections that could not follow the log the records that they lack. In the lane.

        Raises store.io, and reads go on as before.
        """
        if self.broken is None:
            return
        self._place.lease.check()
        self._roll_back_views()
        vectors = self.vectors
        try:
            since = self.catalog.position if vectors is None else vectors.position
            since = min(since, self.catalog.position, self.published.head.position)
            self.due = follow.fold(self.log, self.catalog)
            self._show(vectors, since.seq)
            self.broken = None
        except Exception as error:
            self._roll_back_views()
            self.broken = _lagging_error(error)
            raise self.broken from error
        self.changed()

    def _roll_back_views(self) -> None:
        """Rolls back the changes that catalog and vectors have staged and not published."""
        _log_errors(self.catalog.rollback)
        if self._vectors is not None:
            _log_errors(self._vectors.rollback)

    # ------------------------------------------------------------------ closing

    def save_vectors(self) -> None:
        """Saves the vector index, so that the next start need not look its vectors up again."""
        if self._vectors is not None and self.broken is None and not self.read_only:
            with contextlib.suppress(KbprocError):  # the folder was replaced by another store
                self.look()
                _log_errors(self._vectors.save)

    def close(self) -> None:
        """Leaves everything on disk; a part that fails does not keep the others open."""
        self._indexer.close()
        self._checkpoints.close()
        self._write_here()
        if self._is_index_behind:
            _log_errors(self.catch_up)
        _log_errors(self.checkpoint)
        parts: list[ClosedPart | None] = [self.blobs, self._fulltext, self.readers, self.log]
        for part in parts:
            if part is not None:
                _log_errors(part.close)
        self._place.leave()


class ClosedPart(Protocol):
    """A part of the store that is closed with it."""

    def close(self) -> None: ...


def read_log(
    place: StorePlace, open_log: OpenLog, settings: dict[str, Any], applied: Position
) -> Log:
    """Returns the store's log, verified after the position that the catalog has applied.

    Raises store.corrupt, store.io.
    """
    log = open_log(
        place.folder / "log",
        applied,
        marks=place.folder / "views" / _MARKS,
        settings=settings.get("log") or {},
    )
    try:
        log.look(_LOOK_BYTES)
    except BaseException:
        log.close()
        raise
    return log


def _retry_collisions(
    run: Callable[[list[Ticket[Any]]], None], host: Host, tickets: list[Ticket[Any]]
) -> None:
    """Repeats the turns when another node has written to the log first.

    Each attempt takes in the other node's records. Raises store.io after too many attempts.
    """
    backoff = Backoff(0.001, _LONGEST_BACKOFF_S)
    for _ in range(_MOST_TRIES):
        try:
            return run(tickets)
        except Behind:  # wait for a random time, so that two nodes don't collide again
            chance = int(host.salt()[:2], 16) / 256
            threading.Event().wait(chance * backoff.failed())
    raise KbprocError(
        "store.io",
        "Nothing was written: every attempt collided with a write from another node.",
        hint="Send the request again.",
        retry_after_ms=1000,
    )


def _not_visible_error(error: Exception) -> KbprocError:
    """Returns the error for a write that is durable but not visible yet."""
    return KbprocError(
        "store.io",
        f"The write is in the log, but the views could not follow: {error}.",
        hint="The write is done: the next successful write or a restart makes it visible. Do not "
        "send it again, unless under the same client_token.",
        detail={"kept": True},
        lasting=True,
    )


def _lagging_error(error: Exception) -> KbprocError:
    """Returns the error for a write while the projections lag behind the log."""
    return KbprocError(
        "store.io",
        f"Nothing was written: the views could not follow the log: {error}.",
        hint="Make room or check the disk, then send the request again.",
        detail={"kept": False},
    )


def _unindexed_error(error: Exception) -> KbprocError:
    """Returns the error for a full-text index that lags behind the catalog."""
    return KbprocError(
        "store.io",
        f"The full-text index could not follow: {error}.",
        hint="Make room or check the disk: the next search tries again.",
    )


def _wake(worker: Worker) -> None:
    """Has a step taken, by a thread that starts with the first; none where the system has none."""
    worker.wake()
    with contextlib.suppress(RuntimeError):
        worker.start()


def _log_errors(act: Callable[[], object]) -> None:
    """Calls `act`, and logs its error instead of raising it."""
    try:
        act()
    except Exception:
        _logger.exception("a part of the store failed on its way out")
