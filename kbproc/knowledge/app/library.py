"""All that a store's owner keeps open.

Owns: the order in which the store, its model, its parsers, its past, its notes and its answers are
opened and closed, and what is brought to its end before anybody reads.
Refuses to know: methods and requests.

Opening: the lock, a repair that was cut off, the store, its model and vectors, a purge that was
cut off, answers that were. Closing goes the other way round: whoever writes in the background ends
first.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.base.threads import apart, share_heaps
from kbproc.embedding.background import Embedding
from kbproc.history import purge
from kbproc.library import joining
from kbproc.library.health import salvage
from kbproc.library.late import LateStore
from kbproc.log.lease import Lease
from kbproc.models.answering.choice import Unusable, answerer_of
from kbproc.models.answering.interface import Answerer
from kbproc.models.reranking.choice import BOUNDS as RERANK_BOUNDS
from kbproc.models.reranking.choice import reranker_of
from kbproc.models.reranking.interface import Reranker
from kbproc.models.reranking.interface import Unusable as UnusableReranker
from kbproc.settings.config import Llm, Rerank
from kbproc.settings.trust import Trust
from kbproc.store import rebuild
from kbproc.store.folder import leads_to
from kbproc.store.place import Place
from kbproc.store.store import Store, save_vectors

if TYPE_CHECKING:
    from kbproc.agents.notes.background import Notebooks
    from kbproc.documents.content import Intake
    from kbproc.embedding.parsers import Parsers
    from kbproc.library.arrivals import Arrivals
    from kbproc.library.past import Pasts
    from kbproc.library.together import Together
    from kbproc.library.upkeep import Upkeep
    from kbproc.sessions.making import Answers

_logger = logging.getLogger(__name__)

T = TypeVar("T")

# In the order in which they are closed: who writes in the background ends first.
_WRITERS = ("answers", "notebooks", "_arrivals", "together", "_upkeep")
_READERS = ("parsers", "pasts")


class _part(cached_property[T]):
    """Made, and imported, when it is first asked for; once, whichever threads ask."""

    def __get__(self, library: Any, owner: Any = None) -> Any:
        with library.making:
            return super().__get__(library, owner)


class Library:
    """An open store with everything that lives off it; `open` makes one.

    Nothing runs in the background before `start`. Until then each part is made, and imported, when
    it is first asked for: one request needs few of them.
    """

    def __init__(
        self,
        store: Store,
        embedding: Embedding,
        cache: Path,
        trust: Trust,
        answerer: Answerer,
    ) -> None:
        self.store = store
        self.embedding = embedding
        self.cache = cache
        self.trust = trust
        self._answerer = answerer
        self.making = threading.RLock()
        store.turns.purge = lambda: purge.forget_here(self.reach())
        self.closed = False

    @_part
    def parsers(self) -> Parsers:
        from kbproc.embedding.parsers import Parsers, pool_for

        return Parsers(lambda: pool_for(self.embedding))

    @_part
    def intake(self) -> Intake:
        from kbproc.documents.content import Intake

        return Intake(self.parsers, self.store.blobs)

    @_part
    def pasts(self) -> Pasts:
        from kbproc.library.past import Pasts

        return Pasts(self.store, lambda: self.embedding)

    @_part
    def notebooks(self) -> Notebooks:
        from kbproc.agents.notes.background import Notebooks

        return Notebooks(self.store, self.intake)

    @_part
    def answers(self) -> Answers:
        from kbproc.sessions.making import Answers

        return Answers(self.store, self._answerer)

    @_part
    def together(self) -> Together:
        from kbproc.library.together import Together

        return Together(self.store, lambda: self.embedding, self.parsers)

    @_part
    def _upkeep(self) -> Upkeep:
        from kbproc.library.upkeep import Upkeep

        return Upkeep(self.store, self._prepare)

    def _prepare(self) -> None:
        """Loads in advance what the first answer and the first search would wait for."""
        self._answerer.prepare()
        self.store.reranker.prepare()

    @_part
    def _arrivals(self) -> Arrivals:
        from kbproc.library.arrivals import Arrivals
        from kbproc.library.unended import Unended

        return Arrivals(self.store, self.answers.recover, Unended(self.reach).turn)

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
        for_one: bool = False,
    ) -> Library:
        """Opens or creates the store at `folder`; `model` is written into a new one.

        `cache` is where exported models are kept for all stores; `lease` is the store's,
        None takes it. `trust`: what the user has approved. `llm`: the endpoint that answers, and
        `rerank`: the cross-encoder, where the user names one. `for_one`: for one request, which
        may need less than all that many need.

        Raises store.locked, store.incompatible, store.corrupt, store.io.
        """
        share_heaps()
        place = Place.take(folder, host.pid()) if lease is None else Place(folder, folder, lease)
        with contextlib.ExitStack() as opened:
            opened.callback(place.leave)
            place.prepare(mend=_finish)
            opened.pop_all()
        kind = LateStore if for_one else Store
        store = kind.open(place, host=host, model=model, check_log=partial(_check_log, trust))
        with contextlib.ExitStack() as opened:
            opened.callback(store.close)
            settings = store.settings.get("model", {})
            asked_for = settings == model
            problem = None if asked_for else _not_approved(store.origin, settings, trust)
            embedding = Embedding(store, settings, cache, problem)
            opened.callback(embedding.close)
            store.model = embedding
            if isinstance(store, LateStore):
                store.put_off(embedding.unopened)
            else:
                store.attach_vectors()
            store.reranker = _reranker(store, rerank, trust, cache / "models")
            library = cls(store, embedding, cache, trust, _answerer(store, llm, trust))
            purge.resume(library.reach())
            if store.log.damage is None and not store.log.is_shared and _is_answering(store):
                library.answers.recover()  # else as soon as a server can be reached
            opened.pop_all()
        _logger.info("opened %s at position %s", folder, store.seq)
        return library

    def start(self) -> None:
        """Embeds, tidies and watches notes in the background, until `close`."""
        for part in (*_WRITERS, *_READERS):
            getattr(self, part)
        self.together.follow()
        self.embedding.start()
        self._upkeep.start()
        self._arrivals.start()
        self.notebooks.start()

    def follow_others(self) -> None:
        """The store has another log now."""
        self._arrivals.follow()
        self.together.follow()

    def rebuild(self, tell: rebuild.Tell = lambda stage: None) -> None:
        """Every view afresh, while reads and writes go on. Raises store.*."""
        with self.store.exclusive():
            rebuild.rebuild(self.store, tell)

    def compact(self) -> None:
        """The full-text index afresh, so that it forgets deleted chunks."""
        with self.store.exclusive():
            rebuild.compact(self.store)

    def tidy(self) -> None:
        """Once, now."""
        self._upkeep.once()

    def reach(self) -> purge.Reach:
        """Whatever keeps something that a purge erases."""
        return purge.Reach(
            store=self.store,
            embedding=self.embedding,
            # Each is made when it is called, not now.
            past_closed=lambda: self.pasts.closed(),  # noqa: PLW0108
            forget_answers=lambda: self.answers.forget(),  # noqa: PLW0108
            forget_vectors=lambda keys: self.together.forget(keys),  # noqa: PLW0108
        )

    def close(self, patience_s: float | None = None) -> bool:
        """Leaves everything on disk; one part that fails does not keep the others open.

        `patience_s`: so long it waits for work in the background and for a write. False: that goes
        on, the store is still open, and the process must end now, as if it were killed: the log has
        all that was acknowledged, and the next owner does the rest.
        """
        self.closed = True
        self.embedding.stop()
        _whatever_happens(self.store.reranker.close)  # an export ends: who waits for it goes on
        if not self._is_quiet(patience_s):
            return False
        if not isinstance(self.store, LateStore) or self.store.are_vectors_opened:
            save_vectors(self.store)
        _whatever_happens(self.embedding.close)
        self.store.close()
        return True

    def _is_quiet(self, patience_s: float | None) -> bool:
        """Ends all that works in the background; whether it ended in time."""
        if patience_s is None:
            self._end_work()
            return True

        def end() -> None:
            self._end_work()
            with self.store.turns.lane:  # a write that runs
                pass

        ending = apart(end, "ending")
        if ending.ident is not None:
            ending.join(patience_s)
        return not ending.is_alive()

    def _end_work(self) -> None:
        self._end(_WRITERS)
        self._end(_READERS)
        _whatever_happens(self.embedding.end)

    def _end(self, parts: Sequence[str]) -> None:
        """Closes those of them that were made."""
        for part in parts:
            if part in vars(self):
                _whatever_happens(getattr(self, part).close)


def _is_answering(store: Store) -> bool:
    """Whether an answer was being made when the store was last used."""
    with store.reading() as snapshot:
        return bool(snapshot.queries.being_answered())


def _finish(folder: Path) -> None:
    """What was cut off while the store's files were exchanged."""
    salvage.finish(folder)
    joining.finish(folder)


def _answerer(store: Store, llm: Llm, trust: Trust) -> Answerer:
    """The endpoint that the user names; else that of the store, once the user has approved it."""
    given = {name: value for name in Llm.__struct_fields__ if (value := getattr(llm, name))}
    if "url" in given:
        return answerer_of(given)
    settings = store.settings.get("llm") or {}
    named = leads_to(settings) if settings else None
    if named is None or trust.has_llm(store.origin, settings):
        return answerer_of({**settings, **given})
    why = KbprocError(
        "llm.unavailable",
        f"The store's settings name the endpoint {named}; as they are you have not approved them: "
        "it is not called.",
        hint="If your questions and passages may be sent there: kbproc link --trust --store "
        f"{store.origin}, then open the store again.",
        lasting=True,
    )
    return Unusable(None, why)


def _reranker(store: Store, rerank: Rerank, trust: Trust, cache: Path) -> Reranker:
    """Returns the cross-encoder that the user names; else that of the store, if it is approved.

    The store's settings bound candidates and time in both cases.
    """
    own = {name: value for name in Rerank.__struct_fields__ if (value := getattr(rerank, name))}
    table = store.settings.get("rerank")
    settings: dict[str, Any] = table if isinstance(table, dict) else {}
    named = leads_to(settings)
    if "url" in own or "folder" in own:
        bounds = {name: settings[name] for name in RERANK_BOUNDS if name in settings}
        return reranker_of({**bounds, **own}, cache)
    if named is None or trust.has_reranker(store.origin, settings):
        return reranker_of({**settings, **own}, cache)
    why = KbprocError(
        "model.unavailable",
        f"The store's settings name the cross-encoder {named}; as they are you have not approved "
        "them: it is not used.",
        hint="If your queries and passages may be sent there, or you trust whoever made its files: "
        f"kbproc link --trust --store {shlex.quote(str(store.origin))}, then open the store again.",
        lasting=True,
    )
    return UnusableReranker(why, named)


def _check_log(trust: Trust, store: Path, settings: dict[str, Any]) -> None:
    """Raises store.incompatible: whoever made the store may want what is written to it."""
    if trust.has_log(store, settings):
        return
    servers = ", ".join(map(str, settings.get("servers") or [])) or "nobody"
    raise KbprocError(
        "store.incompatible",
        f"The store's settings have its log on {servers}; as they are you have not approved them.",
        hint="If all that is written to the store may be sent there: kbproc link --trust --store "
        f"{store}",
        lasting=True,
    )


def _not_approved(store: Path, settings: Any, trust: Trust) -> KbprocError | None:
    """Why the model that a store names is not used: whoever made the store may want the texts."""
    named = leads_to(settings)
    if named is None or trust.has_model(store, settings):
        return None
    what, used, so = "model", "loaded", "you trust whoever made its files"
    if "url" in settings:
        what, used, so = "endpoint", "called", "your texts may be sent there"
    return KbprocError(
        "model.unavailable",
        f"The store's settings name the {what} {named}; as they are you have not approved them: it "
        f"is not {used}.",
        hint=f"If {so}: kbproc link --trust --store {shlex.quote(str(store))}, then open the store "
        "again. Until then only words are searched.",
        lasting=True,
    )


def _whatever_happens(act: Callable[[], None]) -> None:
    try:
        act()
    except Exception:
        _logger.exception("a part of the library failed on its way out")
