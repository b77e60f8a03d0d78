"""A new question, in a session that is there or in a new one.

Owns: the events that it begins with, and what of the session bears on its answer.
Refuses to know: how the answer is made.
"""

from __future__ import annotations

from msgspec import Struct

from kbproc.documents.lookup import require_kbs
from kbproc.events.event import Event
from kbproc.events.session import Detail, QuestionAsked, SessionCreated
from kbproc.models.answering.interface import Answerer
from kbproc.sessions import session as sessions
from kbproc.sessions.retrieval import Wanted, turns
from kbproc.store.decision import Here
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import SessionRow


class Asking(Struct, frozen=True, kw_only=True):
    """`session`: the one to ask in; None begins one, with `kbs`, `agent` and `key`."""

    question: str
    detail: Detail
    budget_tokens: int
    key: str
    session: int | None = None
    kbs: list[str] | None = None
    agent: str | None = None
    profile: str | None = None


def new(here: Here, asking: Asking, answerer: Answerer) -> tuple[list[Event], int, int]:
    """Raises resource.not_found for a session that is not there."""
    events: list[Event] = []
    if asking.session is None:
        made = begun(here, asking)
        events.append(made)
        session = made.session
    else:
        session = sessions.require(here.queries, asking.session).id
    asked = QuestionAsked(
        session=session,
        message=here.head.next_message,
        question=asking.question,
        answerer=answerer.name,
        model=answerer.model,
        profile=asking.profile,
        references=asking.detail,
    )
    return [*events, asked], session, asked.message


def begun(here: Here, asking: Asking) -> SessionCreated:
    """Raises resource.not_found for a knowledge base that is not there."""
    require_kbs(here.kbs, asking.kbs)
    title = sessions.title_of(asking.question)
    return sessions.created(here, asking.key, title=title, kbs=asking.kbs, agent=asking.agent)


def wanted_anew(asking: Asking) -> Wanted:
    """What is looked for where nothing was said before."""
    return _wanted(asking, asking.kbs)


def wanted(
    queries: Queries, asking: Asking, session: SessionRow | None, *, before: int | None = None
) -> Wanted:
    """What is looked for: in the session's knowledge bases, after what was said in it.

    `before`: the question's own message.
    """
    if session is None:
        return wanted_anew(asking)
    said = queries.messages(session.id, before=before or 2**62, limit=10)
    earlier = [(one.question, one.text) for one in said if one.status == "finished"]
    return _wanted(asking, session.kbs, earlier)


def _wanted(
    asking: Asking, kbs: list[str] | None, earlier: list[tuple[str, str]] | None = None
) -> Wanted:
    return Wanted(
        question=asking.question,
        kbs=kbs,
        earlier=turns(earlier or []),
        detail=asking.detail,
        budget_tokens=asking.budget_tokens,
    )
