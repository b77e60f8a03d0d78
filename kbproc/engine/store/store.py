"""The store: one folder, one writer, many readers.

Owns: the log and the views that follow it, the writers' lane with its shared fsync, and the
moment at which a commit is shown.
Refuses to know: methods, tokens, plans, JSON-RPC, and whoever lives off the store
(library/library.py opens those).

The order of every commit: sync the sources, append, fold into the catalog's open transaction, sync
the log, show the catalog, tell the indexes. Readers see only what is durable; the next writer sees
everything. The full-text index is committed when somebody searches, or once nobody writes.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.base.wording import few, plural
from kbproc.log.choice import open_log
from kbproc.log.interface import Behind, Log
from kbproc.models.reranking.interface import Reranker, not_configured
from kbproc.sources.blobs import Blobs
from kbproc.store import follow
from kbproc.store.folder import is_exposed, read_settings, refusal
from kbproc.store.group import Group, Unfolded, Unindexed
from kbproc.store.lane import Lane, PurgeDue, T, Ticket, Turns, ahead, birth, take_turn
from kbproc.store.place import Place
from kbproc.store.snapshot import Front, Published, Readers, Snapshot
from kbproc.store.state import Freshness, NoModel, StoreModel
from kbproc.views.catalog.rows import IndexRow
from kbproc.views.follower import Follower

if TYPE_CHECKING:
    from kbproc.views.catalog.catalog import Catalog
    from kbproc.views.fulltext.index import FullText
    from kbproc.views.vectors.view import Vectors

_MARKS = "log.seen"
# So much of a log is read before anything is answered, where somebody has touched it.
_LOOK_BYTES = 64 << 20
# Chunks that a full-text index is behind at most: whoever searches first waits for them. More than
# a few that come at once are indexed before they are shown, if anybody searches meanwhile.
_MOST_GATHERED, _FEW = 5_000, 100
_MOST_TRIES = 50
_MOST_STANDING_BACK_S = 0.1
_ROOM = 256 << 20  # bytes that are free: more than what waits to be folded in can take
_logger = logging.getLogger(__name__)


class Store(Front):
    """An open store; `open` makes one, `close` leaves everything on disk.

    `folder` is where it works: `origin`, the folder that was named, or an overlay of
    it if that is read-only. Without a `model` it has no vectors.
    """

    def __init__(
        self,
        place: Place,
        *,
        host: Host,
        settings: dict[str, Any],
        log: Log,
        catalog: Catalog,
        fulltext: FullText,
    ) -> None:
        super().__init__()
        self.folder = place.folder
        self.origin = place.origin
        self.read_only = place.read_only
        self.sight = None  # everything; VisibleStore shows less
        self.host = host
        self.settings = settings
        self.blobs = Blobs(self.folder / "blobs", log.shelf, origin=self.origin, check=place.check)
        self.log = log
        self.catalog = catalog
        self.readers = Readers(catalog)
        self.fulltext = fulltext
        self.vectors: Vectors | None = None
        self.standing: tuple[int, int] | None = None  # see Home, in embedding/background.py
        self.model: StoreModel = NoModel()
        self.reranker: Reranker = not_configured()
        self._place = place
        self.turns = Turns(partial(_until_first, self._run, host))
        self._exclusive = threading.RLock()
        self.due: int | None = None  # the record of a purge that is not shown before it is done
        self._is_exposed = is_exposed(self.origin)
        self._roster = catalog.queries.roster()
        self.unfolded = Unfolded()
        self.unindexed = Unindexed()
        self.is_searched = False  # since many chunks came last
        self._folding = threading.RLock()  # who uses the catalog's writer; the lane goes first
        self._folded: Published
        self._indexed: Published  # the last one of which the full-text index has all

    # ------------------------------------------------------------------ opening

    @classmethod
    def open(
        cls,
        place: Place,
        *,
        host: Host,
        model: dict[str, Any] | None = None,
        check_log: Callable[[Path, dict[str, Any]], None] = lambda store, settings: None,
    ) -> Store:
        """Opens or creates the store at `place`, which is prepared; `model` is for a new one.

        `check_log` raises for a log elsewhere that may not be used. Whatever happens, `place` is
        let go of at the end. Raises store.incompatible, store.corrupt, store.io.
        """
        from kbproc.views.fulltext.index import FullText

        with contextlib.ExitStack() as opened:
            opened.callback(place.leave)
            settings = read_settings(place.origin / "store.toml", model)
            if where := settings.get("log"):
                check_log(place.origin, where)
            views = place.folder / "views"
            catalog = follow.open_catalog(views)
            opened.callback(catalog.close)
            log = open_log(
                place.folder / "log",
                catalog.position,
                marks=views / _MARKS,
                settings=settings.get("log"),
            )
            opened.callback(log.close)
            log.look(_LOOK_BYTES)
            follow.replay(log, catalog)
            fulltext = FullText.open(views / "fulltext")
            opened.callback(fulltext.close)
            store = cls(
                place, host=host, settings=settings, log=log, catalog=catalog, fulltext=fulltext
            )
            store.blobs.recall()  # after the log: what that names is there
            follow.catch_up(fulltext, log, catalog)
            store.publish()
            if log.head.seq == 0:
                # A node that reaches no server opens empty, and its first write begins the store.
                with (
                    contextlib.suppress(KbprocError) if log.is_shared else contextlib.nullcontext()
                ):
                    store.commit(lambda lane: None)
            opened.pop_all()
        return store

    def attach_vectors(self) -> None:
        """Opens the vector view, once the model's pack is there."""
        from kbproc.views.vectors.view import Vectors

        if self.model.pack is None:
            return
        with self.lane():
            vectors = Vectors.open(self.folder / "views", self.model.pack, self.model.string)
            follow.catch_up(vectors, self.log, self.catalog)
            self.vectors = vectors

    @property
    def followers(self) -> list[Follower]:
        """The views that follow the catalog."""
        return [self.fulltext] if self.vectors is None else [self.fulltext, self.vectors]

    # --------------------------------------------------------------- upkeep

    @contextlib.contextmanager
    def exclusive(self, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        """For upkeep of the whole store: one thread at a time; `check` may raise while it waits."""
        while not self._exclusive.acquire(timeout=0.1):
            check()
        try:
            yield
        finally:
            self._exclusive.release()

    @contextlib.contextmanager
    def lane(self) -> Iterator[None]:
        """Writers wait; what they have written is durable and shown, and folded in if it can be."""
        with self.turns.lane:
            self.folded()
            yield

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Meanwhile nobody else changes what readers see, and the catalog holds all of it."""
        while self.broken is None:
            self.folded()
            with self._moving:
                if not self.unfolded.records:
                    yield
                    return
        # What can't be folded in now is tried again by whoever reads: so that lock comes first.
        with self._folding, self._moving:
            yield

    def swap_vectors(self, vectors: Vectors) -> None:
        """In the lane. A vector that is packed meanwhile is looked for once more."""
        follow.tell([vectors], self.catalog, vectors.position.seq)
        vectors.commit()
        self.vectors = vectors
        vectors.embedded()

    # ------------------------------------------------------------------ reading

    def publish(self, ahead: Group | None = None) -> None:
        """Shows readers what the views hold now; `ahead`: what the catalog has yet to take in."""
        if self.catalog.roster_changed:
            self._roster, self.catalog.roster_changed = self.catalog.queries.roster(), False
        behind = None if self.fulltext.staged is None else self.fulltext.position.seq
        if behind is None:
            self.unindexed.clear()
        shown = Published(
            ahead.head if ahead else self.catalog.queries.head(),
            self.fulltext.snapshot(),
            ahead.roster if ahead else self._roster,
            fulltext_seq=behind,
            recent=self.unindexed.shown,
            agrees=self.broken is None,
        )
        self._folded = shown if ahead is None else self._folded
        self._indexed = shown if behind is None else self._indexed
        self.show(shown)

    def folded(self) -> Published:
        """What readers see, and the catalog holds. Where it can take no more, they see no more.

        Nobody waits for the disk here: whoever syncs has left nothing to be folded in.
        """
        if self.unfolded.records:
            with contextlib.suppress(KbprocError):
                self._fold()
        return self._folded

    def _fold(self) -> None:
        """The catalog takes in what waits. Raises store.io."""
        with self._folding, self._moving:
            if not self.unfolded.records:
                return
            try:
                if not self.catalog.is_marked:  # DuckDB opens its second file by name at first
                    self._place.check()
                self.catalog.apply(self.unfolded.records)
                self.catalog.commit()
                self.unfolded.clear()
                self.publish()
            except Exception as error:
                _logger.exception("the catalog could not follow the log")
                _whatever_happens(self.catalog.rollback)
                self.broken = self.broken or _lagging(error)
                self.publish()
                raise self.broken from error

    def indexed(self) -> Published:
        """What readers see once the full-text index has taken in all that is shown by now.

        Whoever waits meanwhile shares its commit. Where the disk refuses it, all stays as it was.
        """
        self.is_searched, wanted = True, self.published
        if wanted.is_indexed or self.broken is not None:
            return wanted
        with self._moving:
            if self._indexed.seq < wanted.seq and self.broken is None:
                try:
                    self._place.check()
                    self.fulltext.commit()
                except Exception as error:
                    _logger.exception("the full-text index could not follow the log")
                    self.broken = _lagging(error)
                else:
                    shown = self.published
                    self.unindexed.clear()
                    now = Published(shown.head, self.fulltext.snapshot(), shown.roster)
                    if self._folded is shown:
                        self._folded = now
                    self._indexed = now
                    self.show(now)
            return self._indexed if self.broken is None else self.published

    def freshness(self, snapshot: Snapshot) -> Freshness:
        """Whoever searches finds all that can be seen, unless the index can't be committed."""
        shown = snapshot.published
        return Freshness(
            seq=snapshot.seq,
            fulltext_seq=shown.seq if self.broken is None else shown.indexed_seq,
            vector_seq=min(self.model.vector_seq, snapshot.seq),
            pending_embeddings=self.model.pending_count,
        )

    # ------------------------------------------------------------------ writing

    def commit(self, work: Callable[[Lane], T]) -> T:
        """Runs `work` in the lane and returns once what it appended is durable and shown.

        Writers that arrive meanwhile share the next fsync. Raises whatever `work` raised, or
        store.io with nothing of it kept.
        """
        return self.turns.take(work)

    def check_writable(self, *, look: bool = True) -> None:
        """Raises store.io for a store that is only read or not its own any more.

        Raises store.corrupt for a damaged log. Without `look` by what was found when somebody
        looked at the folder last, as whoever works for a group of writers does first.
        """
        self._place.check()
        if look or self._is_exposed:  # it may have been mended since
            self._is_exposed = is_exposed(self.origin)
        if self.read_only or self._is_exposed:
            raise refusal(self.origin)
        if self.log.damage is not None:
            raise self.log.refused()

    def look(self) -> None:
        """Sees what others have done to the folder since. Raises store.io if it is another now."""
        self._place.check()
        self.log.look()
        self._is_exposed = is_exposed(self.origin)

    def warnings(self) -> list[str]:
        """What whoever uses the store is to know with every answer, as it was last looked at."""
        told = [f"{self.log.damage} {self.log.remedy}"] if self.log.damage is not None else []
        if self._is_exposed:
            why = refusal(self.origin)
            told.append(f"{why.message} {why.hint}")
        if self.broken is not None and self.unfolded.records:
            told.append(
                f"{plural(len(self.unfolded.records), 'write')} can't be shown yet, and nothing is "
                "lost: the views can't follow the log. Make room or check the disk."
            )
        if strangers := self.log.strangers:
            told.append(
                f"The store's log folder holds what is no part of the log and is left alone: "
                f"{few(strangers)}. Two computers can't share a store through synchronised files."
            )
        if dated := ahead(self.published.head.ts, self.host.now()):
            told.append(dated)
        return told

    def _run(self, tickets: list[Ticket[Any]]) -> None:
        self._place.check()
        self._is_exposed = is_exposed(self.origin)
        looked = partial(self.check_writable, look=False)
        self.mend()
        if self.log.gather():
            _follow_others(self)
        if self.due is not None:
            raise PurgeDue
        with (
            self.log.batch() as batch,
            Group(
                batch=batch,
                catalog=self.catalog,
                blobs=self.blobs,
                shown=self.published,
                unfolded=self.unfolded,
                fold_earlier=self._fold,
                using=self._folding,
            ) as group,
        ):
            if batch.head.seq == 0:
                birth(Lane(self.host, group, looked))
            for ticket in tickets:
                take_turn(ticket, Lane(self.host, group, looked))
            if batch.head == self.log.head:
                return
            self.check_writable()
            group.end(fold=not _has_room(self.folder))
            batch.commit()
            try:
                with self._moving:
                    _show(self, group, _tell(self, group))
                _show_vectors(self)
                if self.unfolded.is_full:
                    self._fold()
            except Exception as error:
                _logger.exception("the views could not follow the log")
                self.broken = _lagging(error)
                raise _kept(error) from error
        self.changed()

    def mend(self) -> None:
        """In the lane: views that could not follow the log take in what they have missed.

        Raises store.io, and reads go on as before.
        """
        if self.broken is None:
            return
        self._place.check()
        with self._folding, self._moving:
            _forget(self)
            try:
                since = min(self.catalog.position, *(view.position for view in self.followers)).seq
                self.due = follow.fold(self.log, self.catalog)
                follow.tell(self.followers, self.catalog, since)
                self.fulltext.commit()
                self.catalog.commit()
                self.unfolded.clear()
                self.broken = None
                self.publish()
                _show_vectors(self)
            except Exception as error:
                _forget(self)
                self.broken = _lagging(error)
                raise self.broken from error
        self.changed()

    # ------------------------------------------------------------------ closing

    def close(self) -> None:
        """Leaves everything on disk; one part that fails does not keep the others open."""
        _whatever_happens(self.folded)
        _whatever_happens(self.indexed)
        for part in (self.blobs, self.fulltext, self.catalog, self.log):
            _whatever_happens(part.close)
        self._place.leave()


def _tell(store: Store, group: Group) -> list[IndexRow]:
    """The indexes what the group has changed; the rows that it has brought."""
    told = group.rows()
    if told is None:
        told = follow.tell(store.followers, store.catalog, store.seq)
    else:
        for follower in store.followers:
            follower.apply(*told, group.position)
    store.unindexed.add(*told)
    awaited = store.is_searched and len(told[1]) > _FEW
    if awaited or store.fulltext.gathered > _MOST_GATHERED:
        store.fulltext.commit()
        store.is_searched = False
    return told[1]


def _show(store: Store, group: Group, rows: list[IndexRow]) -> None:
    """After the fsync nothing may be refused: if a view fails, the log still has it."""
    if group.unfolded:
        store.unfolded.add(group.unfolded, rows, group.paths)
        store.publish(group)
    else:
        store.catalog.commit()
        store.publish()


def _follow_others(store: Store) -> None:
    """In the lane: what others have written to the log is shown. Raises store.io."""
    try:
        with store.still():
            since = store.catalog.position.seq
            store.due = follow.fold(store.log, store.catalog)
            store.unindexed.add(*follow.tell(store.followers, store.catalog, since))
            if store.fulltext.gathered > _MOST_GATHERED:
                store.fulltext.commit()
            store.catalog.commit()
            store.publish()
        _show_vectors(store)
    except Exception as error:
        _logger.exception("the views could not follow what others have written")
        store.broken = _lagging(error)
        raise store.broken from error
    store.changed()


def _until_first(
    run: Callable[[list[Ticket[Any]]], None], host: Host, tickets: list[Ticket[Any]]
) -> None:
    """Where others write to the log, too, turns are taken again once what they wrote is seen."""
    for attempt in range(_MOST_TRIES):
        try:
            return run(tickets)
        except Behind:  # the moment is one that two nodes would not choose alike
            chance = int(host.salt()[:2], 16) / 256
            threading.Event().wait(chance * min(0.001 * 2**attempt, _MOST_STANDING_BACK_S))
    raise KbprocError(
        "store.io",
        "Nothing was written: other nodes have always come first.",
        hint="Send the request again.",
        retry_after_ms=1000,
    )


def _has_room(folder: Path) -> bool:
    """Whether what is folded in later will find room: else it is done before anything is said."""
    try:
        return shutil.disk_usage(folder).free > _ROOM
    except OSError:
        return False


def _forget(store: Store) -> None:
    """What the views have taken in and not shown."""
    _whatever_happens(store.catalog.rollback)
    for follower in store.followers:
        _whatever_happens(follower.rollback)


def save_vectors(store: Store) -> None:
    """What is embedded by now need not be looked for again at the next start."""
    if store.vectors is not None and store.broken is None and not store.read_only:
        with contextlib.suppress(KbprocError):  # another store lies there now
            store.look()
            _whatever_happens(store.vectors.save)


def _show_vectors(store: Store) -> None:
    """They follow a step behind: whoever searches in between leaves out what has gone."""
    if store.vectors is not None:
        store.vectors.commit()


def _kept(error: Exception) -> KbprocError:
    """The answer to a write that is durable and can't be seen yet."""
    return KbprocError(
        "store.io",
        f"The write is in the log, but the views could not follow: {error}.",
        hint="It is done: the next write that goes through shows it, or a restart does. Do not "
        "send it again, unless under the same client_token.",
        detail={"kept": True},
        lasting=True,
    )


def _lagging(error: Exception) -> KbprocError:
    """The answer to a write while the views lag behind the log."""
    return KbprocError(
        "store.io",
        f"Nothing was written: the views could not follow the log: {error}.",
        hint="Make room or check the disk, then send the request again.",
        detail={"kept": False},
    )


def _whatever_happens(act: Callable[[], object]) -> None:
    try:
        act()
    except Exception:
        _logger.exception("a part of the store failed on its way out")
