"""The store: one folder, one writer, many readers.

It has the log and the projections that follow it, the writers' lane with its shared fsync, and
publishes each commit.

The order of every commit: decide, fold into the catalog's open transaction, write the sources,
write and sync the log, update the indexes, commit the catalog, publish. Sources whose text is in
their records are synced later. Readers see only durable records; the next writer sees everything.
The full-text index is committed for a search, or once the writes pause.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from kbproc.base.errors import KbprocError
from kbproc.base.threads import apart
from kbproc.base.wording import few, plural
from kbproc.base.workers import Backoff
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
from kbproc.engine.store.group import Group, NotWritten, PendingIndexRows
from kbproc.engine.store.lane import (
    Lane,
    PurgeDue,
    T,
    Ticket,
    Turns,
    ahead,
    birth,
    take_turn,
)
from kbproc.engine.store.snapshot import Published, PublishedStore, Readers, Snapshot
from kbproc.engine.store.state import Freshness, NoModel, StoreModel

if TYPE_CHECKING:
    from kbproc.base.host import Host
    from kbproc.engine.log.record import Position
    from kbproc.engine.projections.catalog.catalog import Catalog
    from kbproc.engine.projections.catalog.rows import Roster
    from kbproc.engine.projections.follower import Follower
    from kbproc.engine.projections.fulltext.index import FullText
    from kbproc.engine.projections.vectors.view import Vectors
    from kbproc.engine.store.place import StorePlace

_MARKS = "log.seen"
# The bytes of a log that are read before the first response if the files have changed.
_LOOK_BYTES = 64 << 20
# The most chunks that the full-text index may lack, because the next search waits for them. If
# searches are running, a commit of more than a few chunks is indexed before it is published.
MOST_GATHERED, _FEW = 5_000, 100
# So many chunks are indexed beside the next write, which would have to wait for them otherwise.
_MANY_GATHERED = 4_000
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
            check=place.check,
        )
        self.log = log
        self.catalog: Catalog
        self.fulltext: FullText
        self.vectors: Vectors | None = None
        self.standing: tuple[int, int] | None = None  # see embedding.background
        self.was_abandoned = place.was_abandoned  # until the upkeep has looked what that left
        self.model: StoreModel = NoModel()
        self.reranker: Reranker = not_configured()
        self._place = place
        self.turns = Turns(partial(_retry_collisions, self._run, host))
        self._exclusive = threading.RLock()
        self.due: int | None = None  # seq of another node's purge that must be carried out first
        self._is_exposed = is_exposed(self.origin)
        self._roster = roster
        self.unindexed = PendingIndexRows()
        self.is_searched = False  # since the last commit with many chunks
        self._following: threading.Thread | None = None  # see `_follow_beside`
        self._indexed: Published  # the last state that the full-text index has all of

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
        store.blobs.load()  # after the log is read, because that names the sources
        if store.is_local and not store.read_only:
            restore.sources(log, catalog.sources_seq, store.blobs)
        follow.replay(log, catalog)
        store.catalog, store.readers = catalog, Readers(catalog)
        store._open_fulltext(views / "fulltext", stack)
        store.publish()
        log.begin(lambda: store.commit(lambda lane: None))
        return store

    def _open_fulltext(self, folder: Path, stack: contextlib.ExitStack) -> None:
        from kbproc.engine.projections.fulltext.index import FullText

        fulltext = FullText.open(folder)
        stack.callback(fulltext.close)
        self._catch_up(fulltext)
        self.fulltext = fulltext

    def attach_vectors(self) -> None:
        """Opens the vector index if the model has a pack."""
        from kbproc.engine.projections.vectors.view import Vectors

        if self.model.pack is None:
            return
        with self.lane():
            vectors = Vectors.open(self.folder / "views", self.model.pack, self.model.string)
            self._catch_up(vectors)
            self.vectors = vectors

    def _catch_up(self, follower: Follower) -> None:
        """Brings a projection to the catalog's position."""
        follow.catch_up(follower, self.log, self.catalog)

    @property
    def followers(self) -> list[Follower]:
        """The projections that follow the catalog."""
        return [self.fulltext] if self.vectors is None else [self.fulltext, self.vectors]

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
            check()
        try:
            yield
        finally:
            self._exclusive.release()

    @contextlib.contextmanager
    def lane(self) -> Iterator[None]:
        """Makes writers wait. All records are durable and published."""
        with self.turns.lane:
            yield

    def swap_vectors(self, vectors: Vectors) -> None:
        """Replaces the vector index. In the lane.

        Vectors that were packed during its rebuild are looked up once more.
        """
        follow.stage_changes([vectors], self.catalog, vectors.position.seq)
        vectors.commit()
        self.vectors = vectors
        vectors.embedded()

    # ------------------------------------------------------------------ reading

    def publish(self) -> None:
        """Publishes the projections' state."""
        if self.catalog.roster_changed:
            self._roster, self.catalog.roster_changed = self.catalog.queries.roster(), False
        fulltext_seq = None if self.fulltext.staged is None else self.fulltext.position.seq
        if fulltext_seq is None:
            self.unindexed.clear()
        published = Published(
            self.catalog.queries.head(),
            self.fulltext.snapshot(),
            self._roster,
            fulltext_seq=fulltext_seq,
            recent=self.unindexed.recent,
        )
        self._indexed = published if fulltext_seq is None else self._indexed
        self.show(published)

    def indexed(self) -> Published:
        """Commits the full-text index if it lacks published records; returns the state it has.

        Threads that wait at the same time share its commit. If the disk refuses it, the published
        state stays as it was.
        """
        self.is_searched, requested = True, self.published
        if requested.is_indexed or self.broken is not None:
            return requested
        with self._publishing:
            if self._indexed.seq < requested.seq and self.broken is None:
                self._index()
            return self._indexed if self.broken is None else self.published

    def _index(self) -> None:
        """Commits the full-text index, and publishes the state it has. While it publishes."""
        try:
            self._place.check()
            self.fulltext.commit()
        except Exception as error:
            _logger.exception("the full-text index could not follow the log")
            self.broken = _lagging_error(error)
            return
        current = self.published
        self.unindexed.clear()
        caught_up = Published(current.head, self.fulltext.snapshot(), current.roster)
        self._indexed = caught_up
        self.show(caught_up)

    def _follow_beside(self) -> None:
        """Indexes many chunks, and copies a large WAL, in another thread beside the next write.

        The next writer waits for the thread only when it publishes. In the lane.
        """
        is_due = self.fulltext.gathered >= _MANY_GATHERED or self.catalog.needs_checkpoint
        if is_due and not (self._following and self._following.is_alive()):
            self._following = apart(self._follow, "following")

    def _follow(self) -> None:
        with self._publishing:
            if self.fulltext.gathered >= _MANY_GATHERED and self.broken is None:
                self._index()
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
        published = snapshot.published
        return Freshness(
            seq=snapshot.seq,
            fulltext_seq=published.seq if self.broken is None else published.indexed_seq,
            vector_seq=min(self.model.vector_seq, snapshot.seq),
            pending_embeddings=self.model.pending_count,
        )

    # ------------------------------------------------------------------ writing

    def commit(self, work: Callable[[Lane], T]) -> T:
        """Runs `work` in the lane and returns once its records are durable and published.

        Writers that arrive at the same time share the next fsync. Raises the error of `work`, or
        store.io with none of its records written.
        """
        return self.turns.take(work)

    def check_writable(self, *, look: bool = True) -> None:
        """Raises store.io for a store that is read-only or was moved or replaced.

        Raises store.corrupt for a damaged log. Without `look` it uses the last look at the
        folder's permissions: the leader of a commit looks once for all writers.
        """
        self._place.check()
        if look or self._is_exposed:  # the user may have mended it since
            self._is_exposed = is_exposed(self.origin)
        if self.read_only or self._is_exposed:
            raise refusal(self.origin)
        if self.log.damage is not None:
            raise self.log.refused()

    def look(self) -> None:
        """Checks the folder, the log and the permissions for changes by other processes.

        Raises store.io if the folder was moved or replaced.
        """
        self._place.check()
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
        if strangers := self.log.strangers:
            notices.append(
                f"The store's log folder holds what is no part of the log and is left alone: "
                f"{few(strangers)}. Two computers can't share a store through synchronised files."
            )
        if date_warning := ahead(self.published.head.ts, self.host.now()):
            notices.append(date_warning)
        return notices

    def _run(self, tickets: list[Ticket[Any]]) -> None:
        self._place.check()
        self._is_exposed = is_exposed(self.origin)
        check_writable = partial(self.check_writable, look=False)
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
                birth(Lane(self.host, group, check_writable))
            for ticket in tickets:
                take_turn(ticket, Lane(self.host, group, check_writable))
                if ticket.error is not None:
                    ticket.error = self.refused(ticket.error) or ticket.error
            if batch.head == self.log.head:
                return
            check_writable()
            # A whole record stays in the log even if the process dies before the sync. So the
            # sources that the records name, and do not hold, are durable before any is written.
            try:
                with self.blobs.adding(group.sources, may_wait=self._may_wait(group)):
                    batch.write()
            except KbprocError as error:
                raise NotWritten from error
            batch.commit()
            try:
                with self._publishing:
                    self._update_indexes(group)
                    self.catalog.commit()
                    self.publish()
                self._publish_vectors()
                self._follow_beside()
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

    def _update_indexes(self, group: Group) -> None:
        """Stages the group's changes in the indexes."""
        changes = group.rows()
        if changes is not None and self.fulltext.gathered + len(changes[1]) > MOST_GATHERED:
            self.fulltext.commit()  # before, because the words of earlier chunks are found by now
            self.unindexed.clear()
        if changes is None:
            changes = follow.stage_changes(self.followers, self.catalog, self.seq)
        else:
            for follower in self.followers:
                follower.apply(*changes, group.position)
        self.unindexed.add(*changes)
        must_commit = self.is_searched and len(changes[1]) > _FEW
        if must_commit or self.fulltext.gathered > MOST_GATHERED:
            self.fulltext.commit()
            self.is_searched = False

    def _apply_others_records(self) -> None:
        """Publishes the records that other nodes have written. In the lane. Raises store.io."""
        try:
            with self.still():
                since = self.catalog.position.seq
                self.due = follow.fold(self.log, self.catalog)
                self.unindexed.add(*follow.stage_changes(self.followers, self.catalog, since))
                if self.fulltext.gathered > MOST_GATHERED:
                    self.fulltext.commit()
                self.catalog.commit()
                self.publish()
            self._publish_vectors()
        except Exception as error:
            _logger.exception("the views could not follow what others have written")
            self.broken = _lagging_error(error)
            raise self.broken from error
        self.changed()

    def _publish_vectors(self) -> None:
        """Publishes staged vectors, a step after the catalog.

        Searches in between leave out the chunks that the catalog no longer has.
        """
        if self.vectors is not None:
            self.vectors.commit()

    def mend(self) -> None:
        """Gives projections that could not follow the log the records that they lack. In the lane.

        Raises store.io, and reads go on as before.
        """
        if self.broken is None:
            return
        self._place.check()
        with self._publishing:
            self._roll_back_views()
            try:
                since = min(self.catalog.position, *(view.position for view in self.followers)).seq
                self.due = follow.fold(self.log, self.catalog)
                follow.stage_changes(self.followers, self.catalog, since)
                self.fulltext.commit()
                self.catalog.commit()
                self.broken = None
                self.publish()
                self._publish_vectors()
            except Exception as error:
                self._roll_back_views()
                self.broken = _lagging_error(error)
                raise self.broken from error
        self.changed()

    def _roll_back_views(self) -> None:
        """Rolls back the changes that the projections have staged and not published."""
        _log_errors(self.catalog.rollback)
        for follower in self.followers:
            _log_errors(follower.rollback)

    # ------------------------------------------------------------------ closing

    def end_idle_processes(self) -> None:
        """Ends processes that only writes need; the next writes start them again."""
        with self._publishing:
            self.fulltext.end_idle_process()

    def save_vectors(self) -> None:
        """Saves the vector index, so that the next start need not look its vectors up again."""
        if self.vectors is not None and self.broken is None and not self.read_only:
            with contextlib.suppress(KbprocError):  # the folder was replaced by another store
                self.look()
                _log_errors(self.vectors.save)

    def close(self) -> None:
        """Leaves everything on disk; a part that fails does not keep the others open."""
        if self._following is not None:
            self._following.join()
        _log_errors(self.indexed)
        _log_errors(self.checkpoint)
        for part in self._parts():
            _log_errors(part.close)
        self._place.leave()

    def _parts(self) -> list[ClosedPart]:
        """Returns the parts to close, in order."""
        return [self.blobs, self.fulltext, self.catalog, self.log]


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


def _log_errors(act: Callable[[], object]) -> None:
    """Calls `act`, and logs its error instead of raising it."""
    try:
        act()
    except Exception:
        _logger.exception("a part of the store failed on its way out")
