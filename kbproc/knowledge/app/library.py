"""Opens and closes a store with its model, parsers, past, notes and answers, in order.

Opening: the lock, an interrupted repair, the store, its model and vectors, an interrupted purge,
interrupted answers. Closing is in reverse order, so that background writers end first.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import shlex
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import Llm, Rerank
from kbproc.base.settings.trust import Trust
from kbproc.base.threads import apart, share_heaps
from kbproc.engine.embedding.background import Embedding
from kbproc.engine.models.reranking.reranker import (
    AUTOMATIC_S,
    Reranker,
    UnusableReranker,
    reranker_of,
)
from kbproc.engine.models.reranking.reranker import BOUNDS as RERANK_BOUNDS
from kbproc.engine.projections.catalog.files import catalogs, note_damage
from kbproc.engine.store.folder import NEXT, approval_problem, leads_to
from kbproc.engine.store.place import StorePlace
from kbproc.engine.store.store import Store
from kbproc.knowledge.cluster import joining
from kbproc.knowledge.cluster.choice import Nodes, open_log
from kbproc.knowledge.history import forgotten

if TYPE_CHECKING:
    from kbproc.base.host import Host
    from kbproc.base.settings.purged_files import PurgedFiles
    from kbproc.engine.embedding.model import UnopenedPack
    from kbproc.engine.embedding.parsers import Parsers
    from kbproc.engine.log.lease import Lease
    from kbproc.engine.models.answering.interface import Answerer
    from kbproc.engine.store.rebuild import Tell
    from kbproc.knowledge.agents.notes.background import Notebooks
    from kbproc.knowledge.app.past import Pasts
    from kbproc.knowledge.app.switch import ChangeProgress, Switch
    from kbproc.knowledge.app.upkeep import Upkeep
    from kbproc.knowledge.cluster.alone import Node
    from kbproc.knowledge.documents.content import Intake
    from kbproc.knowledge.history.purge import PurgeParts
    from kbproc.knowledge.sessions.making import Answers
    from kbproc.knowledge.watching.background import Watches

_logger = logging.getLogger(__name__)

T = TypeVar("T")

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}
# The order of closing: background writers end first.
_WRITERS = ("switch", "answers", "notebooks", "watches", "nodes", "_upkeep")
_READERS = ("parsers", "pasts")


class _part(cached_property[T]):
    """A property that is imported and made at its first use, only once among all threads."""

    def __get__(self, library: Any, owner: Any = None) -> Any:
        with library.making:
            return super().__get__(library, owner)


class Library:
    """An open store with all parts that use it; `open` makes one.

    Nothing runs in the background before `start`. Until then each part is imported and made at its
    first use, because one request needs few of them.
    """

    def __init__(
        self,
        store: Store,
        embedding: Embedding,
        cache: Path,
        trust: Trust,
        llm: Llm,
        runtime: Path | None = None,
    ) -> None:
        self.store = store
        self.embedding = embedding
        self.cache = cache
        self.trust = trust
        self._llm = llm
        self._runtime = runtime
        self.making = threading.RLock()
        self.nodes = Nodes(self)
        store.turns.purge = self._forget_here
        self.closed = False

    def _forget_here(self) -> object:
        from kbproc.knowledge.history import purge

        return purge.forget_here(self.reach())

    @property
    def node(self) -> Node:
        """The node of the store's present log."""
        return self.nodes.present

    @_part
    def _answerer(self) -> Answerer:
        return _chosen_answerer(self.store, self._llm, self.trust)

    @_part
    def parsers(self) -> Parsers:
        from kbproc.engine.embedding.parsers import Parsers, pool_for

        return Parsers(lambda: pool_for(self.embedding))

    @_part
    def purged_files(self) -> PurgedFiles:
        from kbproc.base.settings.purged_files import FILE, PurgedFiles

        return PurgedFiles(self.trust.beside(FILE), self.store.origin)

    @_part
    def intake(self) -> Intake:
        from kbproc.knowledge.documents.content import Intake

        redact = self.store.settings.get("redact") is True
        return Intake(self.parsers, self.store.blobs, self.purged_files, redact=redact)

    @_part
    def pasts(self) -> Pasts:
        from kbproc.knowledge.app.past import Pasts

        return Pasts(self.store, lambda: self.embedding)

    @_part
    def notebooks(self) -> Notebooks:
        from kbproc.knowledge.agents.notes.background import Notebooks

        return Notebooks(self.store, self.intake, lambda: self.node.folders)

    @_part
    def watches(self) -> Watches:
        from kbproc.knowledge.watching.background import Watches

        return Watches(self.store, lambda: self.intake, self.trust, self._runtime)

    @_part
    def switch(self) -> Switch:
        from kbproc.knowledge.app.switch import Switch

        return Switch(self)

    @property
    def model_change(self) -> ChangeProgress | None:
        """How far a change of models is that has not ended; None without one."""
        return self.switch.progress() if self.store.settings.get(NEXT) else None

    @_part
    def answers(self) -> Answers:
        from kbproc.knowledge.sessions.making import Answers

        return Answers(self.store, self._answerer, lambda: self.node.answers)

    def recover_answers(self) -> None:
        self.answers.recover()

    @_part
    def _upkeep(self) -> Upkeep:
        from kbproc.knowledge.app.upkeep import Upkeep

        return Upkeep(self.store, self._prepare, self._look_for_model)

    def _look_for_model(self) -> None:
        """Uses a model that another process has installed since the store was opened."""
        if self.embedding.state == "missing":
            from kbproc.knowledge.app.switch import look_again

            look_again(self)

    def _prepare(self) -> None:
        """Loads the models in advance, so that the first answer and search don't wait for them."""
        self._answerer.prepare()
        self.store.reranker.prepare()

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        host: Host,
        cache: Path,
        model: dict[str, Any] | None = None,
        lease: Lease | None = None,
        trust: Trust = Trust(None),  # noqa: B008  it holds nothing
        llm: Llm = Llm(),  # noqa: B008  nor does this
        rerank: Rerank = Rerank(),  # noqa: B008  nor does this
        runtime: Path | None = None,
        for_one: bool = False,
    ) -> Library:
        """Opens or creates the store at `folder`; `model` is written into a new one.

        `cache` is the folder with exported models of all stores; `lease` is the store's, None
        takes it. `trust`: the user's approvals. `llm`: the endpoint that answers, and `rerank`: the
        cross-encoder, where the user names one. `runtime`: the folder of sockets, logs and secrets,
        which no watched folder includes. `for_one`: opens only the parts that a single
        request needs.

        Raises store.locked, store.incompatible, store.corrupt, store.io.
        """
        if not for_one:
            share_heaps()
        try:
            return cls._opened(
                folder,
                host=host,
                cache=cache,
                model=model,
                lease=lease,
                trust=trust,
                llm=llm,
                rerank=rerank,
                runtime=runtime,
                for_one=for_one,
            )
        except Exception as error:
            if (reason := _refusal_of_disk(error)) is None:
                raise
            _note_damage(folder, error)
            raise KbprocError(
                "store.io", f"The store {folder} could not be opened: {reason}"
            ) from error

    @classmethod
    def _opened(
        cls,
        folder: Path,
        *,
        host: Host,
        cache: Path,
        model: dict[str, Any] | None,
        lease: Lease | None,
        trust: Trust,
        llm: Llm,
        rerank: Rerank,
        runtime: Path | None,
        for_one: bool,
    ) -> Library:
        place = (
            StorePlace.take(folder, host.pid())
            if lease is None
            else StorePlace(folder, folder, lease)
        )
        with contextlib.ExitStack() as opened:
            opened.callback(place.leave)
            place.prepare(mend=_finish)
            opened.pop_all()
        store = Store.open(
            place,
            host=host,
            open_log=open_log,
            model=model,
            check_log=partial(_check_log, trust),
        )
        with contextlib.ExitStack() as opened:
            opened.callback(store.close)
            settings = store.settings.get("model", {})
            asked_for = settings == model
            problem = None if asked_for else approval_problem(store.origin, settings, trust)
            embedding = Embedding(store, settings, cache, problem)
            opened.callback(embedding.close)
            store.model = embedding
            if for_one:
                embedding.is_brief = True
                store.put_off(standing_of(store, embedding.unopened))
            else:
                store.catch_up()
                store.attach_vectors()
            store.reranker = _reranker(store, rerank, trust, cache / "models")
            library = cls(store, embedding, cache, trust, llm, runtime)
            is_quiet = for_one and not _is_interrupted(store)
            if not is_quiet or forgotten.read(store.folder) is not None:
                library._end_interrupted()
            opened.pop_all()
        _logger.info("opened %s at position %s", folder, store.seq)
        return library

    def _end_interrupted(self) -> None:
        """Completes interrupted purges and answers. Raises store.*."""
        from kbproc.knowledge.history import purge

        purge.resume(self.reach())
        self.node.opened()

    def start(self) -> None:
        """Embeds, tidies and watches notes and folders in the background, until `close`."""
        for part in (*_WRITERS, *_READERS):
            getattr(self, part)
        self.nodes.start()
        self.embedding.start()
        self.switch.start()
        self._upkeep.start()
        self.notebooks.start()
        self.watches.start()

    def follow_log(self) -> None:
        """Makes this process a node of the store's present log; call it after a change of logs."""
        self.nodes.follow_log()

    def rebuild(self, tell: Tell = lambda stage: None) -> None:
        """Rebuilds every projection while reads and writes continue. Raises store.*."""
        from kbproc.engine.store import rebuild

        with self.store.exclusive():
            rebuild.rebuild(self.store, tell)

    def compact(self) -> None:
        """Rebuilds the full-text index, so that it forgets deleted chunks."""
        from kbproc.engine.store import rebuild

        with self.store.exclusive():
            rebuild.compact(self.store)

    def tidy(self) -> None:
        """Runs the upkeep once, now."""
        self._upkeep.once()

    def reach(self) -> PurgeParts:
        """Returns the parts that may hold data a purge erases."""
        from kbproc.knowledge.history.purge import PurgeParts

        return PurgeParts(
            store=self.store,
            embedding=self.embedding,
            # Lambdas, so that each part is made when it is called, not now.
            past_closed=lambda: self.pasts.closed(),  # noqa: PLW0108
            forget_answers=lambda: self.answers.forget(),  # noqa: PLW0108
            other_models=lambda: self.switch.other_models(),  # noqa: PLW0108
            rules=self.node.purges,
        )

    def close(self, patience_s: float | None = None) -> bool:
        """Saves and closes all parts, even if one of them fails.

        `patience_s`: how long to wait for background work and for a write. Returns False if these
        have not ended: the store is still open, and the process must end now, as if it were killed.
        The log has every acknowledged write, and the next owner completes the rest.
        """
        self.closed = True
        self.embedding.stop()
        _log_errors(self.store.reranker.close)  # ends an export, so that its waiters continue
        if not self._is_quiet(patience_s):
            return False
        self.store.save_vectors()
        _log_errors(self.embedding.close)
        self.store.close()
        return True

    def _is_quiet(self, patience_s: float | None) -> bool:
        """Ends all background work; returns True if it ended in time."""
        if patience_s is None:
            self._end_work()
            return True

        def end() -> None:
            self._end_work()
            with self.store.turns.lane:  # waits for a running write
                pass

        ending = apart(end, "ending")
        if ending.ident is not None:
            ending.join(patience_s)
        return not ending.is_alive()

    def _end_work(self) -> None:
        self._end(_WRITERS)
        self._end(_READERS)
        _log_errors(self.embedding.end)

    def _end(self, parts: Sequence[str]) -> None:
        """Closes those of the parts that were made."""
        for part in parts:
            if part in vars(self):
                _log_errors(getattr(self, part).close)


def _is_interrupted(store: Store) -> bool:
    """Returns True if a purge or an answer was interrupted."""
    queries = store.catalog.queries
    return bool(queries.being_answered() or queries.unfinished_purges())


def standing_of(store: Store, pack: UnopenedPack | None) -> tuple[int, int] | None:
    """Returns the vector index's state without opening it: the seq up to which all chunks are
    embedded, and the number of pending chunks. None where the index has to be opened.

    The state is known for a saved index whose graph and pack passed their check and have not
    changed since.
    """
    if pack is None:
        return None
    from kbproc.base.durable import SoundFiles, look_at
    from kbproc.engine.projections.vectors import manifest
    from kbproc.engine.projections.vectors.waiting import PendingRows

    views = store.folder / "views"
    saved = manifest.read(views)
    if saved is None or saved.pack is None or look_at(pack.path) != saved.pack:
        return None
    position = store.published.head.position
    if saved.position != position or saved.model != pack.fingerprint:
        return None
    if not SoundFiles(pack.path.parent).knows(pack.path):
        return None
    if saved.graph is not None and not SoundFiles(views).knows(views / saved.graph.name):
        return None
    waiting = PendingRows()
    for row in saved.pending:
        waiting.add(row)
    return waiting.settled_to(position.seq), len(waiting)


def _refusal_of_disk(error: Exception) -> str | None:
    """Returns why the disk refused to open a part of the store; None for any other error.

    A new store writes its first record itself. Where the catalog can't follow that record, the
    error asks a sender not to send the write again, and this write has no sender.
    """
    from sqlite3 import Error as DatabaseError

    is_kept = isinstance(error, KbprocError) and error.detail.get("kept")
    cause = error.__cause__ if is_kept else error
    if isinstance(cause, OSError) and cause.errno in _DISK:
        return f"{cause.strerror}."
    return f"{str(cause).rstrip('.')}." if isinstance(cause, DatabaseError) else None


def _note_damage(folder: Path, error: Exception) -> None:
    """Marks a catalog that is damaged, so that the next opening makes it afresh."""
    from kbproc.engine.projections.catalog.checks import is_damage

    if is_damage(error):
        for path in catalogs(folder / "views"):
            note_damage(path)


def _finish(folder: Path) -> None:
    """Completes an interrupted repair, and discards an interrupted change to a stream."""
    if (folder / "damaged").exists():
        from kbproc.knowledge.app.health import salvage  # not above: hardly any store was repaired

        salvage.finish(folder)
    joining.finish(folder)


def _chosen_answerer(store: Store, llm: Llm, trust: Trust) -> Answerer:
    """Returns the endpoint that the user names; else that of the store, if it is approved."""
    from kbproc.engine.models.answering.choice import UnusableAnswerer, answerer_of

    own = {name: value for name in Llm.__struct_fields__ if (value := getattr(llm, name))}
    if "url" in own:
        return answerer_of(own)
    settings = store.settings.get("llm") or {}
    named = leads_to(settings) if settings else None
    if named is None or trust.has_llm(store.origin, settings):
        return answerer_of({**settings, **own})
    why = KbprocError(
        "llm.unavailable",
        f"The store's settings name the endpoint {named}; as they are you have not approved them: "
        "it is not called.",
        hint="If your questions and passages may be sent there: kbproc link --trust --store "
        f"{store.origin}, then open the store again.",
        lasting=True,
    )
    return UnusableAnswerer(None, why)


def _reranker(store: Store, rerank: Rerank, trust: Trust, cache: Path) -> Reranker:
    """Returns the cross-encoder that the user names; else that of the store, if it is approved.

    The store's settings bound candidates and time in both cases. A model alone is one of the hub,
    unless the store names an endpoint: then it is the endpoint's.
    """
    own: dict[str, Any] = {
        name: value for name in Rerank.__struct_fields__ if (value := getattr(rerank, name))
    }
    table = store.settings.get("rerank")
    settings: dict[str, Any] = table if isinstance(table, dict) else {}
    named = leads_to(settings)
    if _is_automatic(store.settings):
        own["budget_s"] = settings.get("budget_s", AUTOMATIC_S)
    is_of_hub = "model" in own and "url" not in settings
    if "url" in own or "folder" in own or is_of_hub:
        bounds = {name: settings[name] for name in RERANK_BOUNDS if name in settings}
        return reranker_of({**bounds, **own}, cache)
    if named is None or trust.has_reranker(store.origin, settings):
        return reranker_of({**settings, **own}, cache)
    why = KbprocError(
        "model.unavailable",
        f"The store's settings name the cross-encoder {named}; as they are you have not approved "
        "them: it is not used.",
        hint="If your queries and passages may be sent there, or you trust the author of its "
        f"files: kbproc link --trust --store {shlex.quote(str(store.origin))}, then open the store "
        "again.",
        lasting=True,
    )
    return UnusableReranker(why, named)


def _is_automatic(settings: dict[str, Any]) -> bool:
    """Returns whether the cross-encoder reads the hits of searches whose answer is in doubt."""
    table = settings.get("search")
    return isinstance(table, dict) and table.get("rerank") == "auto"


def _check_log(trust: Trust, store: Path, settings: dict[str, Any]) -> None:
    """Raises store.incompatible if the user has not approved the servers of the store's log.

    The author of the store may have chosen them to receive what is written to it.
    """
    if trust.has_log(store, settings):
        return
    servers = ", ".join(map(str, settings.get("servers") or [])) or "no server"
    raise KbprocError(
        "store.incompatible",
        f"The store's settings have its log on {servers}; as they are you have not approved them.",
        hint="If all that is written to the store may be sent there: kbproc link --trust --store "
        f"{store}",
        lasting=True,
    )


def _log_errors(act: Callable[[], None]) -> None:
    try:
        act()
    except Exception:
        _logger.exception("a part of the library failed on its way out")
