"""An answer to a question, as a stream: asked for, or resumed.

Owns: who may see what of it, its introduction, and its ends: answered, failed, cancelled, too late.
Refuses to know: how it is made and read.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from kbproc.agents.access import scopes_of, visible_to
from kbproc.base.errors import KbprocError, Retry
from kbproc.base.layout import Lines
from kbproc.calls.call import Call
from kbproc.calls.reply import Reply, Tail, Wait
from kbproc.events.session import SessionCreated
from kbproc.sessions import asking, citations, retrieval
from kbproc.sessions import session as sessions
from kbproc.sessions.asking import Asking
from kbproc.sessions.live import Live
from kbproc.sessions.making import Begun, Work
from kbproc.sessions.reading import Reader
from kbproc.store.decision import Decide, Decision, Here
from kbproc.store.pipeline import LongWrite
from kbproc.store.state import SeenStore
from kbproc.store.visible import narrowed_store
from kbproc.views.catalog.rows import SessionRow

_SHOWN = 10  # passages of a plan


class _Sees(Struct, frozen=True, kw_only=True):
    """As whom a session is answered: what is seen, and how it is to be said."""

    state: SeenStore
    instructions: str


def _seen_by(call: Call, slug: str | None) -> _Sees:
    """No more than whoever asks may see, and no more than the session's agent."""
    if slug is None or (call.agent is not None and call.agent.slug == slug):
        own = "" if call.agent is None else call.agent.instructions
        return _Sees(state=call.store, instructions=own)
    row = call.library.store.published.roster.agents.get(slug)
    if row is None or row.deleted_at is not None:
        raise KbprocError(
            "resource.not_found",
            f"There is no agent {slug!r} any more, by which the session is answered.",
            hint="Begin another session: session.create.",
        )
    scopes = scopes_of(row, call.scopes, named=False)
    store = narrowed_store(call.store, visible_to(row, scopes))
    return _Sees(state=store, instructions=row.instructions)


def ask(call: Call, wanted: Asking, write: LongWrite, *, timeout_ms: int | None) -> Wait:
    """Has the answer made, and reads it from its beginning."""
    answers = call.library.answers
    made: list[SessionRow] = []

    def work(begun: Begun) -> Work:
        """Of a session that was just begun there is nothing that the catalog would have to tell."""
        if made:
            what, agent = asking.wanted_anew(wanted), wanted.agent
        else:
            with call.store.reading() as snapshot:
                row = sessions.require(snapshot.queries, begun.session)
            agent = row.agent
        sees = _seen_by(call, agent)
        earlier: set[int] = set()
        if not made:
            with sees.state.reading() as snapshot:  # earlier answers, as far as they may be seen
                what = asking.wanted(snapshot.queries, wanted, row, before=begun.message)
                earlier = snapshot.queries.repeated(row.id, begun.message)
        return Work(
            state=sees.state,
            wanted=what,
            instructions=sees.instructions,
            now=call.now,
            earlier=frozenset(earlier),
        )

    def new(here: Here) -> Any:
        row = None if wanted.session is None else sessions.require(here.queries, wanted.session)
        _seen_by(call, wanted.agent if row is None else row.agent)
        begins = asking.new(here, wanted, answers.answerer)
        first = begins[0][0]
        if isinstance(first, SessionCreated):
            made[:] = [sessions.row_of(first, by=call.peer.actor, now=here.ts)]
        return begins

    begun, live = answers.ask(write, new, work)
    reader = _reader(call, begun.message, live)
    if made:
        _introduce(call, made[0], begun.message, wanted.profile)
    else:
        with call.store.reading() as snapshot:
            row = sessions.require(snapshot.queries, begun.session)
        introduce(call, row, begun.message)
    return wait(call, reader, timeout_ms=timeout_ms, own=True, again=begun.again)


def reader_of(call: Call, message: int) -> Reader:
    return _reader(call, message, call.library.answers.live(message))


def _reader(call: Call, message: int, live: Live | None) -> Reader:
    answers = call.library.answers
    return Reader(call.store, answers, message, live, emit=call.emit, crowded=call.crowded)


def introduce(call: Call, row: SessionRow, message: int) -> None:
    with call.store.reading() as snapshot:
        asked = snapshot.queries.message(message)
    _introduce(call, row, message, None if asked is None else asked.profile)


def _introduce(call: Call, row: SessionRow, message: int, profile: str | None) -> None:
    told = {
        "session_id": row.id,
        "message_id": message,
        "kb": row.kbs,
        "agent": row.agent,
        "profile": profile,
    }
    call.emit("init", told)


def wait(
    call: Call, reader: Reader, *, timeout_ms: int | None, own: bool, again: bool = False
) -> Wait:
    """`own`: whoever asked cancels the answer itself. `again`: under the same token."""
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
                hint="What was said by then stays: session.resume shows it; session.ask asks on.",
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
    """The answer goes on without this reader."""
    with call.store.reading() as snapshot:
        row = snapshot.queries.message(reader.message)
    params = {"message_id": reader.message}
    if row is not None:
        params = {"session_id": row.session_id, **params}
    after = {"after": reader.cursor} if reader.cursor else {}
    return KbprocError(
        "operation.timeout",
        "timeout_ms passed before the answer had ended; it is made all the same.",
        field="$.params.timeout_ms",
        hint="session.resume goes on from the cursor; session.stop ends the answer.",
        retry=Retry(method="session.resume", params={**params, **after}),
        detail={**params, **_detail(reader)},
    )


def plan(call: Call, wanted: Asking) -> Decide:
    """References and the prompt's size; nothing is called and nothing is kept."""

    def decide(here: Here) -> Decision:
        row = None if wanted.session is None else sessions.require(here.queries, wanted.session)
        sees = _seen_by(call, wanted.agent if row is None else row.agent)
        what = asking.wanted(here.queries, wanted, row)
        found = retrieval.find(sees.state, what, now=call.now)
        prompt = found.prompt(what, sees.instructions)
        answerer = call.library.answers.answerer
        size = answerer.prompt_tokens(prompt)
        cited = [f"[{one.n}] {one.cite}" for one in found.references[:_SHOWN]]
        by = answerer.name if answerer.model is None else f"{answerer.name} {answerer.model}"
        return Decision(
            events=[],
            data=None,
            changes=[f"ask {by} with a prompt of about {size} tokens", *cited],
            counts={"references": len(found.references), "prompt_tokens": size},
            hint=found.hint,
        )

    return decide


def prose(data: dict[str, Any], params: dict[str, Any]) -> Lines:
    """The answer with its sources, for people."""
    references = citations.lines(data["references"], data["see_also"])
    return Lines(lines=[data["text"], *(["", *references] if references else [])])
