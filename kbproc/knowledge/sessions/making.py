"""The answers that are being made, each apart from whoever asked for it.

Owns: which answers are being made, the threads that make them, beginning one under its token,
stopping one, and marking those that were cut off.
Refuses to know: connections and requests, and who reads an answer.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.events import codec
from kbproc.events.event import Event
from kbproc.events.session import AnswerRestarted, Failure, QuestionAsked, Usage
from kbproc.models.answering.interface import Answerer, Told
from kbproc.sessions import retrieval
from kbproc.sessions.cursor import BEFORE_ALL
from kbproc.sessions.live import Asked, Live
from kbproc.sessions.retrieval import Found, Wanted
from kbproc.sessions.scribe import Scribe
from kbproc.sessions.session import cut_off
from kbproc.store.decision import Decision, Here, Request
from kbproc.store.lane import Lane
from kbproc.store.pipeline import LongWrite
from kbproc.store.state import SeenStore
from kbproc.store.store import Store
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import PieceRow

MOST_AT_ONCE = 64  # the others wait for their turn
# A hundred that begin at once would take turns with every other writer for the interpreter.
_BEGINNING = 2
_SEARCHING = 2
_logger = logging.getLogger(__name__)


class Work(Struct, frozen=True, kw_only=True):
    """One answer to be made. `state`: as far as it may see. `earlier`: documents whose words the
    answers before it repeat, which it is made after.
    """

    state: SeenStore
    wanted: Wanted
    instructions: str
    now: str
    earlier: frozenset[int] = frozenset()


class Begun(Struct, frozen=True, kw_only=True):
    """`again`: nothing was begun, as the same token has asked before."""

    session: int
    message: int
    again: bool = False


# The events of a new question, its session and its own id.
Ask = Callable[[Here], tuple[list[Event], int, int]]


class Answers:
    """One store's. Any thread may use it."""

    def __init__(self, store: Store, answerer: Answerer) -> None:
        self.answerer = answerer
        self._store = store
        self._scribe = Scribe(store, self._done)
        self._live: dict[int, Live] = {}
        self._known: weakref.WeakValueDictionary[int, Live] = weakref.WeakValueDictionary()
        self._queue: deque[tuple[Live, Work]] = deque()
        self._threads = 0
        self._beginning = threading.Semaphore(_BEGINNING)
        self._searching = threading.Semaphore(_SEARCHING)
        self._changing = threading.Lock()

    def live(self, message: int) -> Live | None:
        """The answer as it was made here, as long as it is being made or somebody refers to it.

        So nobody who reads one that has ended has the catalog brought up to date, which would
        hold up whoever writes.
        """
        return self._known.get(message)

    def forget(self) -> None:
        """Of what has ended nothing is kept: who still reads it reads what the log holds."""
        self._known = weakref.WeakValueDictionary(self._live)

    # ----------------------------------------------------------------------------- beginning

    def ask(
        self, write: LongWrite, new: Ask, work: Callable[[Begun], Work]
    ) -> tuple[Begun, Live | None]:
        """Asks, once under one token, and has the answer made. What was cut off begins anew.

        The answer is None where it was made before. Raises what `new` raises, resource.conflict,
        store.io.
        """
        started: list[Live] = []

        def decide(here: Here) -> Decision:
            self._drop(started)  # another node's write came first, and this is decided again
            decision = self._asked_before(here, write.request, started)
            if decision is None:
                events, session, message = new(here)
                events = [self._signed(event) for event in events]
                self._begin(write.request, Begun(session=session, message=message), [], started)
                decision = Decision(events=events, data=Begun(session=session, message=message))
            return decision

        try:
            with self._beginning:
                begun: Begun = write.item(decide)
                for live in started:
                    self._start(live, work(begun))
        except BaseException:
            self._drop(started)
            raise
        return begun, self.live(begun.message)

    def _drop(self, started: list[Live]) -> None:
        """Nobody has heard of these."""
        for live in started:
            self._live.pop(live.asked.message, None)
            self._known.pop(live.asked.message, None)
        started.clear()

    def _asked_before(self, here: Here, request: Request, started: list[Live]) -> Decision | None:
        """What the same token means; None if it is new."""
        token = request.params.client_token
        if token is None:
            return None
        row = here.token(request.actor, request.method, token)
        if row is None:
            return None
        if row.result is not None:
            told = msgspec.json.decode(row.result)["data"]
            known = Begun(session=told["session_id"], message=told["message_id"], again=True)
            return Decision(events=[], data=known)
        found = here.queries.message_asked(row.seq)
        if found is None:  # its session was purged
            return None
        message = here.queries.message(found)
        begun = Begun(session=message.session_id if message else 0, message=found)
        if found in self._live:
            return Decision(events=[], data=msgspec.structs.replace(begun, again=True))
        restarted = AnswerRestarted(session=begun.session, message=begun.message)
        events: list[Event] = [self._signed(restarted)]
        # Whoever reads it from its beginning sees what was said before, and that it is void.
        restart = PieceRow(here.head.seq + 1, 0, "restarted", None)
        earlier = [*here.queries.pieces(found), restart]
        self._begin(request, begun, earlier, started)
        return Decision(events=events, data=begun)

    def _signed(self, event: Event) -> Event:
        """With the node that makes the answer."""
        if self._node is None or not isinstance(event, QuestionAsked | AnswerRestarted):
            return event
        return msgspec.structs.replace(event, node=self._node)

    def _begin(
        self, request: Request, begun: Begun, earlier: list[PieceRow], started: list[Live]
    ) -> None:
        """In the lane: whoever asks the same meanwhile finds it."""
        token = request.params.client_token
        asked = Asked(
            session=begun.session,
            message=begun.message,
            actor=request.actor,
            method=request.method,
            token=token,
            params_hash=None if token is None else request.params_hash,
        )
        live = Live(asked, self._scribe, earlier)
        self._live[begun.message] = self._known[begun.message] = live
        started.append(live)

    # -------------------------------------------------------------------------------- making

    def _start(self, live: Live, work: Work) -> None:
        if live.last == BEFORE_ALL:
            live.sight = work.state.sight
        with self._changing:
            self._queue.append((live, work))
            if self._threads >= MOST_AT_ONCE:
                return
            self._threads += 1
        try:
            threading.Thread(target=self._run, name="answer", daemon=True).start()
        except RuntimeError:
            with self._changing:
                self._threads -= 1
                if self._threads:
                    return  # one of the others goes on with it
                self._queue.remove((live, work))
            raise

    def _run(self) -> None:
        while True:
            with self._changing:
                if not self._queue:
                    self._threads -= 1
                    return
                live, work = self._queue.popleft()
            if not live.is_over:
                self._make(live, work)

    def _make(self, live: Live, work: Work) -> None:
        try:
            with self._searching:
                found = retrieval.find(work.state, work.wanted, now=work.now)
            live.refer(found.references if found.is_known else [], earlier=work.earlier)
            for notice in found.notice:
                live.warn(notice)
            told = self.answerer.answer(found.prompt(work.wanted, work.instructions), live)
        except KbprocError as error:
            live.end("failed", failure=_failure(error))
        except Exception as error:
            _logger.exception("an answer could not be made")
            name = type(error).__name__
            wrong = KbprocError("internal.error", f"Something went wrong inside kbproc ({name}).")
            live.end("failed", failure=_failure(wrong))
        else:
            is_sure = told.status == "finished" and self.answerer.model is not None
            hint = told.hint if is_sure else found.hint or told.hint
            live.end(told.status, usage=self._usage(found, told), hint=hint)

    def _usage(self, found: Found, told: Told) -> Usage:
        return Usage(
            answerer=self.answerer.name,
            model=self.answerer.model,
            passages=len(found.passages),
            input_tokens=told.input_tokens,
            output_tokens=told.output_tokens,
        )

    def _done(self, live: Live) -> None:
        self._live.pop(live.asked.message, None)

    # -------------------------------------------------------------------------------- ending

    def end(self, message: int) -> None:
        """Like `stop`, and waits for nothing."""
        if (live := self._live.get(message)) is not None:
            live.end("stopped")

    def stop(self, message: int) -> bool:
        """For everybody who reads it; returns once that is durable, False if it had ended."""
        live = self._live.get(message)
        if live is None or not live.end("stopped"):
            return False
        live.wait()
        return live.failed is None

    def recover(self) -> None:
        """Marks what was cut off when the store was not closed. Raises store.io.

        Where several nodes share it: of what this one was making; the rest others may be making.
        """
        with self._store.reading() as snapshot:
            open_ones = snapshot.queries.being_answered()
        if open_ones and not self._store.read_only:
            self._store.commit(self._mark)

    def _mark(self, lane: Lane) -> None:
        events = [
            cut_off(session, message)
            for session, message in lane.queries.being_answered()
            if message not in self._live and self._began_here(lane.queries, message)
        ]
        if events:
            lane.append(events, actor="kbproc", method="store.open")

    def _began_here(self, queries: Queries, message: int) -> bool:
        log, row = self._store.log, queries.message(message)
        if not log.is_shared or row is None:
            return not log.is_shared
        return any(
            isinstance(event, QuestionAsked | AnswerRestarted)
            and (event.message, event.node) == (message, self._node)
            for record in log.read(row.attempt_seq - 1, row.attempt_seq)
            for event in codec.decode(record.events)
        )

    @property
    def _node(self) -> str | None:
        return (self._store.settings.get("log") or {}).get("node")

    def close(self) -> None:
        """What is being made is cut off, and marked so."""
        with self._changing:
            self._queue.clear()
        for live in list(self._live.values()):
            live.end("interrupted")
        self._scribe.close()
        self.answerer.close()


def _failure(error: KbprocError) -> Failure:
    return Failure(
        type=error.type,
        message=error.message,
        hint=error.hint,
        lasting=error.retryable is False,
        retry_after_ms=error.retry_after_ms,
        detail=error.detail,
    )
