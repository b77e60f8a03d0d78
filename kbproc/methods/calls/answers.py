"""Streams an answer to a question, new or resumed.

It limits what the answer may use, introduces the stream, and handles its ends: complete, failed,
cancelled, late.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from kbproc.base.errors import KbprocError, Retry
from kbproc.base.layout import TextLines
from kbproc.engine.events.session import SessionCreated
from kbproc.engine.projections.catalog.rows import SessionRow
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.engine.store.pipeline import LongWrite
from kbproc.engine.store.state import SeenStore
from kbproc.engine.store.visible import narrowed_store
from kbproc.knowledge.agents.access import scopes_of, visible_to
from kbproc.knowledge.sessions import asking, citations, retrieval
from kbproc.knowledge.sessions import session as sessions
from kbproc.knowledge.sessions.asking import Asking
from kbproc.knowledge.sessions.live import Live
from kbproc.knowledge.sessions.making import StartedAnswer, Work
from kbproc.knowledge.sessions.reading import Reader
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.reply import Reply, Tail, Wait

_SHOWN = 10  # passages shown in a plan


class _Viewpoint(Struct, frozen=True, kw_only=True):
    """The part of the store that an answer may use, and the agent's instructions for it."""

    state: SeenStore
    instructions: str


def _viewpoint(call: Call, slug: str | None) -> _Viewpoint:
    """Returns what both the caller and the session's agent may see."""
    if slug is None or (call.agent is not None and call.agent.slug == slug):
        own = "" if call.agent is None else call.agent.instructions
        return _Viewpoint(state=call.store, instructions=own)
    row = call.library.store.published.roster.agents.get(slug)
    if row is None or row.deleted_at is not None:
        raise KbprocError(
            "resource.not_found",
            f"The agent {slug!r}, which answers this session, does not exist any more.",
            hint="Begin another session with session.create.",
        )
    scopes = scopes_of(row, call.scopes, named=False)
    store = narrowed_store(call.store, visible_to(row, scopes))
    return _Viewpoint(state=store, instructions=row.instructions)


def ask(call: Call, question: Asking, write: LongWrite, *, timeout_ms: int | None) -> Wait:
    """Starts the answer, and reads it from its beginning."""
    answers = call.library.answers
    new_rows: list[SessionRow] = []

    def work(start: StartedAnswer) -> Work:
        """Prepares the answer; a new session's facts are here, as the catalog may not have it
        yet.
        """
        if new_rows:
            request, agent = asking.new_retrieval_request(question), question.agent
        else:
            with call.store.reading() as snapshot:
                row = sessions.require(snapshot.queries, start.session)
            agent = row.agent
        viewpoint = _viewpoint(call, agent)
        earlier: set[int] = set()
        if not new_rows:
            # earlier answers, as far as the agent may see them
            with viewpoint.state.reading() as snapshot:
                request = asking.retrieval_request(
                    snapshot.queries, question, row, before=start.message
                )
                earlier = snapshot.queries.repeated(row.id, start.message)
        return Work(
            state=viewpoint.state,
            request=request,
            instructions=viewpoint.instructions,
            now=call.now,
            earlier=frozenset(earlier),
        )

    def new(here: DecisionState) -> Any:
        row = None if question.session is None else sessions.require(here.queries, question.session)
        _viewpoint(call, question.agent if row is None else row.agent)
        begins = asking.new(here, question, answers.answerer)
        first = begins[0][0]
        if isinstance(first, SessionCreated):
            new_rows[:] = [sessions.row_of(first, by=call.peer.actor, now=here.ts)]
        return begins

    start, live = answers.ask(write, new, work)
    reader = _reader(call, start.message, live)
    if new_rows:
        _introduce(call, new_rows[0], start.message, question.profile)
    else:
        with call.store.reading() as snapshot:
            row = sessions.require(snapshot.queries, start.session)
        introduce(call, row, start.message)
    return wait(call, reader, timeout_ms=timeout_ms, own=True, again=start.again)


def reader_of(call: Call, message: int) -> Reader:
    return _reader(call, message, call.library.answers.live(message))


def _reader(call: Call, message: int, live: Live | None) -> Reader:
    answers = call.library.answers
    return Reader(call.store, answers, message, live, emit=call.emit, crowded=call.crowded)


def introduce(call: Call, row: SessionRow, message: int) -> None:
    with call.store.reading() as snapshot:
        record = snapshot.queries.message(message)
    _introduce(call, row, message, None if record is None else record.profile)


def _introduce(call: Call, row: SessionRow, message: int, profile: str | None) -> None:
    members = {
        "session_id": row.id,
        "message_id": message,
        "kb": row.kbs,
        "agent": row.agent,
        "profile": profile,
    }
    call.emit("init", members)


def wait(
    call: Call, reader: Reader, *, timeout_ms: int | None, own: bool, again: bool = False
) -> Wait:
    """Waits for the answer's end.

    `own`: cancelling the request cancels the answer. `again`: the token was used before.
    """
    was_cancelled = False

    def cancel() -> None:
        nonlocal was_cancelled
        was_cancelled = True
        call.library.answers.end(reader.message)

    def resume() -> Reply:
        data, hint, seq = reader.outcome()
        if was_cancelled and data.status == "stopped":
            detail = {"session_id": data.session_id, "status": "stopped", **_detail(reader)}
            raise KbprocError(
                "operation.cancelled",
                "The request was cancelled, and so the answer was stopped.",
                hint="The text so far is kept: session.resume shows it; session.ask asks the next "
                "question.",
                seq=seq,
                retry=Retry(
                    method="session.resume",
                    params={"session_id": data.session_id, "message_id": data.message_id},
                ),
                detail=detail,
            )
        return Reply(data=data, hint=hint, seq=seq, duplicate=again or None)

    return Wait(
        ready=reader.turn,
        resume=resume,
        timeout_ms=timeout_ms,
        expired=lambda: _late(call, reader),
        tail=Tail(more=lambda: reader.more, detail=lambda: _detail(reader)),
        cancel=cancel if own else None,
        lasts=own,
    )


def _detail(reader: Reader) -> dict[str, Any]:
    cursor = reader.cursor
    return {"message_id": reader.message} | ({"cursor": cursor} if cursor else {})


def _late(call: Call, reader: Reader) -> KbprocError:
    """Returns the timeout's error; the answer goes on without this reader."""
    with call.store.reading() as snapshot:
        row = snapshot.queries.message(reader.message)
    params = {"message_id": reader.message}
    if row is not None:
        params = {"session_id": row.session_id, **params}
    after = {"after": reader.cursor} if reader.cursor else {}
    return KbprocError(
        "operation.timeout",
        "timeout_ms passed before the answer was complete; it is still being made.",
        field="$.params.timeout_ms",
        hint="session.resume continues from the cursor; session.stop ends the answer.",
        retry=Retry(method="session.resume", params={**params, **after}),
        detail={**params, **_detail(reader)},
    )


def plan(call: Call, question: Asking) -> Decide:
    """Returns a plan with the references and the prompt's size; no LLM is called, nothing is
    kept.
    """

    def decide(here: DecisionState) -> Decision:
        row = None if question.session is None else sessions.require(here.queries, question.session)
        viewpoint = _viewpoint(call, question.agent if row is None else row.agent)
        # earlier answers, as the real run would see them
        with viewpoint.state.reading() as snapshot:
            request = asking.retrieval_request(snapshot.queries, question, row)
        passages = retrieval.find(viewpoint.state, request, now=call.now)
        prompt = passages.prompt(request, viewpoint.instructions)
        answerer = call.library.answers.answerer
        size = answerer.prompt_tokens(prompt)
        cited = [f"[{reference.n}] {reference.cite}" for reference in passages.references[:_SHOWN]]
        by = answerer.name if answerer.model is None else f"{answerer.name} {answerer.model}"
        return Decision(
            events=[],
            data=None,
            changes=[f"ask {by} with a prompt of about {size} tokens", *cited],
            counts={"references": len(passages.references), "prompt_tokens": size},
            hint=passages.hint,
        )

    return decide


def prose(data: dict[str, Any], params: dict[str, Any]) -> TextLines:
    """Returns the answer with its sources, for people."""
    references = citations.lines(data["references"], data["see_also"])
    return TextLines(lines=[data["text"], *(["", *references] if references else [])])
