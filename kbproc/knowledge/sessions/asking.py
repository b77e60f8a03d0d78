"""Asks a new question, in an existing session or in a new one.

It makes the question's first events, and the retrieval request with the session's earlier turns.
"""

from __future__ import annotations

from msgspec import Struct

from kbproc.engine.events.event import Event
from kbproc.engine.events.session import Detail, QuestionAsked, SessionCreated
from kbproc.engine.models.answering.interface import Answerer
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import SessionRow
from kbproc.engine.store.decision import DecisionState
from kbproc.knowledge.documents.lookup import require_kbs
from kbproc.knowledge.sessions import session as sessions
from kbproc.knowledge.sessions.retrieval import RetrievalRequest, turns


class Asking(Struct, frozen=True, kw_only=True):
    """A question. `session`: the one to ask in; None begins one, with `kbs`, `agent` and `key`."""

    question: str
    detail: Detail
    budget_tokens: int
    key: str
    session: int | None = None
    kbs: list[str] | None = None
    agent: str | None = None
    profile: str | None = None


def new(here: DecisionState, asking: Asking, answerer: Answerer) -> tuple[list[Event], int, int]:
    """Returns the question's events, its session and its message.

    Raises resource.not_found for an unknown session.
    """
    events: list[Event] = []
    if asking.session is None:
        created = new_session(here, asking)
        events.append(created)
        session = created.session
    else:
        session = sessions.require(here.queries, asking.session).id
    question = QuestionAsked(
        session=session,
        message=here.head.next_message,
        question=asking.question,
        answerer=answerer.name,
        model=answerer.model,
        profile=asking.profile,
        references=asking.detail,
    )
    return [*events, question], session, question.message


def new_session(here: DecisionState, asking: Asking) -> SessionCreated:
    """Returns the event that makes the question's new session.

    Raises resource.not_found for an unknown knowledge base.
    """
    require_kbs(here.kbs, asking.kbs)
    title = sessions.title_of(asking.question)
    return sessions.created(here, asking.key, title=title, kbs=asking.kbs, agent=asking.agent)


def new_retrieval_request(asking: Asking) -> RetrievalRequest:
    """Returns the retrieval request for a question without earlier turns."""
    return _request(asking, asking.kbs)


def retrieval_request(
    queries: Queries, asking: Asking, session: SessionRow | None, *, before: int | None = None
) -> RetrievalRequest:
    """Returns the retrieval request, with the session's knowledge bases and earlier turns.

    `before`: the question's own message.
    """
    if session is None:
        return new_retrieval_request(asking)
    messages = queries.messages(session.id, before=before or 2**62, limit=10)
    earlier = [(one.question, one.text) for one in messages if one.status == "finished"]
    return _request(asking, session.kbs, earlier)


def _request(
    asking: Asking, kbs: list[str] | None, earlier: list[tuple[str, str]] | None = None
) -> RetrievalRequest:
    return RetrievalRequest(
        question=asking.question,
        kbs=kbs,
        earlier=turns(earlier or []),
        detail=asking.detail,
        budget_tokens=asking.budget_tokens,
    )
