"""Makes answers in threads of their own, independent of the requests that asked for them.

It starts an answer under its token, stops one, and marks those that were interrupted.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.pool import Pool
from kbproc.engine.events.event import Event
from kbproc.engine.events.session import AnswerRestarted, Failure, Usage
from kbproc.engine.models.answering.interface import Answerer, AnswerOutcome
from kbproc.engine.projections.catalog.rows import PieceRow
from kbproc.engine.store.decision import Decision, DecisionState, WriteRequest
from kbproc.engine.store.lane import Lane
from kbproc.engine.store.pipeline import LongWrite
from kbproc.engine.store.state import SeenStore
from kbproc.engine.store.store import Store
from kbproc.knowledge.sessions import retrieval
from kbproc.knowledge.sessions.live import AnswerRequest, Live, Scribe
from kbproc.knowledge.sessions.pieces import BEFORE_ALL
from kbproc.knowledge.sessions.retrieval import Retrieval, RetrievalRequest
from kbproc.knowledge.sessions.rules import AnswerRules
from kbproc.knowledge.sessions.session import cut_off

MOST_AT_ONCE = 64  # further answers are queued
# A low limit, because a hundred beginning answers would compete with writers for the interpreter.
_BEGINNING = 2
_SEARCHING = 2
_logger = logging.getLogger(__name__)


class Work(Struct, frozen=True, kw_only=True):
    """An answer to make.

    `state`: the part of the store that the answer may see. `earlier`: documents that the session's
    earlier answers quote.
    """

    state: SeenStore
    request: RetrievalRequest
    instructions: str
    now: str
    earlier: frozenset[int] = frozenset()


class StartedAnswer(Struct, frozen=True, kw_only=True):
    """The ids of a started answer; `again`: nothing was started, as the token is known already."""

    session: int
    message: int
    again: bool = False


# The events of a new question, its session and its own id.
Ask = Callable[[DecisionState], tuple[list[Event], int, int]]


class Answers:
    """The answers of one store. Any thread may use it."""

    def __init__(
        self, store: Store, answerer: Answerer, rules: Callable[[], AnswerRules] = AnswerRules
    ) -> None:
        """`rules` gives the store's present rules."""
        self.answerer = answerer
        self._rules = rules
        self._store = store
        self._scribe = Scribe(store, self._done)
        self._live: dict[int, Live] = {}
        self._known: weakref.WeakValueDictionary[int, Live] = weakref.WeakValueDictionary()
        self._pool = Pool(MOST_AT_ONCE)
        self._beginning = threading.Semaphore(_BEGINNING)
        self._searching = threading.Semaphore(_SEARCHING)

    def live(self, message: int) -> Live | None:
        """Returns an answer of this process while it is being made or a reader refers to it.

        So a reader of an ended answer does not have to update the catalog, which would delay
        writers.
        """
        return self._known.get(message)

    def forget(self) -> None:
        """Drops ended answers from memory; their readers continue from the log."""
        self._known = weakref.WeakValueDictionary(self._live)

    # ----------------------------------------------------------------------------- beginning

    def ask(
        self, write: LongWrite, new: Ask, work: Callable[[StartedAnswer], Work]
    ) -> tuple[StartedAnswer, Live | None]:
        """Asks, once per token, and starts the answer; an interrupted answer is restarted.

        The answer is None where it was made before. Raises what `new` raises, resource.conflict,
        store.io.
        """
        started: list[Live] = []

        def decide(here: DecisionState) -> Decision:
            self._drop(started)  # because this is decided again after another node's write
            decision = self._repeated(here, write.request, started)
            if decision is None:
                events, session, message = new(here)
                events = [self._rules().signed(event) for event in events]
                self._begin(
                    write.request, StartedAnswer(session=session, message=message), [], started
                )
                decision = Decision(
                    events=events, data=StartedAnswer(session=session, message=message)
                )
            return decision

        try:
            with self._beginning:
                begun: StartedAnswer = write.item(decide)
                for live in started:
                    self._start(live, work(begun))
        except BaseException:
            self._drop(started)
            raise
        return begun, self.live(begun.message)

    def _drop(self, started: list[Live]) -> None:
        """Drops answers that have no reader yet."""
        for live in started:
            self._live.pop(live.request.message, None)
            self._known.pop(live.request.message, None)
        started.clear()

    def _repeated(
        self, here: DecisionState, request: WriteRequest, started: list[Live]
    ) -> Decision | None:
        """Returns the decision for a repeated token; None for a new one."""
        token = request.params.client_token
        if token is None:
            return None
        row = here.queries.token(request.actor, request.method, token)
        if row is None:
            return None
        if row.result is not None:
            outcome = msgspec.json.decode(row.result)["data"]
            started_before = StartedAnswer(
                session=outcome["session_id"], message=outcome["message_id"], again=True
            )
            return Decision(events=[], data=started_before)
        message_id = here.queries.message_asked(row.seq)
        if message_id is None:  # because its session was purged
            return None
        message = here.queries.message(message_id)
        begun = StartedAnswer(session=message.session_id if message else 0, message=message_id)
        if message_id in self._live:
            return Decision(events=[], data=msgspec.structs.replace(begun, again=True))
        restarted = AnswerRestarted(session=begun.session, message=begun.message)
        events: list[Event] = [self._rules().signed(restarted)]
        # Readers from the beginning get the text before the restart, and that it is void.
        restart = PieceRow(here.head.seq + 1, 0, "restarted", None)
        earlier = [*here.queries.pieces(message_id), restart]
        self._begin(request, begun, earlier, started)
        return Decision(events=events, data=begun)

    def _begin(
        self,
        request: WriteRequest,
        begun: StartedAnswer,
        earlier: list[PieceRow],
        started: list[Live],
    ) -> None:
        """Registers the answer inside the lane, so that a concurrent repeat of it is recognized."""
        token = request.params.client_token
        answer_request = AnswerRequest(
            session=begun.session,
            message=begun.message,
            actor=request.actor,
            method=request.method,
            token=token,
            params_hash=None if token is None else request.params_hash,
        )
        live = Live(answer_request, self._scribe, earlier)
        self._live[begun.message] = self._known[begun.message] = live
        started.append(live)

    # -------------------------------------------------------------------------------- making

    def _start(self, live: Live, work: Work) -> None:
        if live.last == BEFORE_ALL:
            live.sight = work.state.sight
        self._pool.submit(partial(self._make, live, work))

    def _make(self, live: Live, work: Work) -> None:
        if live.is_over:
            return
        try:
            with self._searching:
                retrieved = retrieval.find(work.state, work.request, now=work.now)
            live.refer(retrieved.references if retrieved.is_known else [], earlier=work.earlier)
            for notice in retrieved.notice:
                live.warn(notice)
            result = self.answerer.answer(retrieved.prompt(work.request, work.instructions), live)
        except KbprocError as error:
            live.end("failed", failure=_failure(error))
        except Exception as error:
            _logger.exception("an answer could not be made")
            name = type(error).__name__
            internal = KbprocError(
                "internal.error", f"Something went wrong inside kbproc ({name})."
            )
            live.end("failed", failure=_failure(internal))
        else:
            is_sure = result.status == "finished" and self.answerer.model is not None
            hint = result.hint if is_sure else retrieved.hint or result.hint
            live.end(result.status, usage=self._usage(retrieved, result), hint=hint)

    def _usage(self, retrieved: Retrieval, result: AnswerOutcome) -> Usage:
        return Usage(
            answerer=self.answerer.name,
            model=self.answerer.model,
            passages=len(retrieved.passages),
            input_tokens=result.input_tokens,
            output_tokens=result.output_tokens,
        )

    def _done(self, live: Live) -> None:
        self._live.pop(live.request.message, None)

    # -------------------------------------------------------------------------------- ending

    def end(self, message: int) -> None:
        """Stops an answer without waiting until that is durable."""
        if (live := self._live.get(message)) is not None:
            live.end("stopped")

    def stop(self, message: int) -> bool:
        """Stops an answer for all readers, and waits until that is durable.

        Returns False if it had ended.
        """
        live = self._live.get(message)
        if live is None or not live.end("stopped"):
            return False
        live.wait()
        return live.failed is None

    def recover(self) -> None:
        """Marks answers as interrupted after the store was not closed. Raises store.io.

        Leaves out the answers that other processes may be making; see AnswerRules.
        """
        with self._store.reading() as snapshot:
            unended = snapshot.queries.being_answered()
        if unended and not self._store.read_only:
            self._store.commit(self._mark)

    def _mark(self, lane: Lane) -> None:
        began_here = self._rules().began_here
        events = [
            cut_off(session, message)
            for session, message in lane.queries.being_answered()
            if message not in self._live and began_here(self._store, lane.queries, message)
        ]
        if events:
            lane.append(events, actor="kbproc", method="store.open")

    def close(self) -> None:
        """Interrupts the answers that are being made, and marks them so."""
        for live in list(self._live.values()):
            live.end("interrupted")
        self._scribe.close()
        self._pool.close(0.0)
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
