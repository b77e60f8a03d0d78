"""Defines the events of a conversation: sessions, questions, and answers piece by piece.

An answer has references, an end and a cost. It is the pieces between its question and its end, in
the order of the log; after a restart, the pieces since then.

Numbers from an endpoint or an import are kept within the bounds of JSON's exact integers, so that
every client can read them: a number beyond them counts as unknown.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Struct

from kbproc.base.errors import ERRORS
from kbproc.base.wording import plural
from kbproc.engine.events.event import Event, NextIds, Subject

Detail = Literal["indexes", "snippets", "full"]
Status = Literal["finished", "refused", "stopped", "failed", "interrupted"]
WarningKind = Literal["replaced", "degraded", "restarted"]


_MOST = 2**53


def _bounded(struct: Struct, *names: str, unknown: int | None = None) -> None:
    """Replaces numbers that are negative or too large for a response."""
    for name in names:
        value = getattr(struct, name)
        if value is not None and not 0 <= value <= _MOST:
            msgspec.structs.force_setattr(struct, name, unknown)


class Reference(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A passage that the answer may cite as [n]. `snippet` and `text` where they were asked for.

    `chunk_id` and `document_id` are null where the passage is in another store.
    """

    n: int
    chunk_id: int | None
    document_id: int | None
    cite: str
    score: float
    snippet: str | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        _bounded(self, "chunk_id", "document_id")
        _bounded(self, "n", unknown=0)


class Usage(Struct, kw_only=True, frozen=True):
    """What an answer has cost. Tokens are null where the endpoint does not tell them."""

    answerer: str
    model: str | None
    passages: int
    input_tokens: int | None
    output_tokens: int | None

    def __post_init__(self) -> None:
        _bounded(self, "input_tokens", "output_tokens")
        _bounded(self, "passages", unknown=0)


class Failure(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Why an answer has failed: an error's type, and what it says."""

    type: str
    message: str
    hint: str
    lasting: bool = False
    retry_after_ms: int | None = None
    detail: dict[str, Any] = {}

    def __post_init__(self) -> None:
        _bounded(self, "retry_after_ms")
        if self.type not in ERRORS:
            msgspec.structs.force_setattr(self, "type", "operation.failed")


class _OfSession(Event, frozen=True):
    """An event of one session."""

    stays: ClassVar[str] = "an answer goes with its question"

    session: int

    def concerns(self) -> Subject:
        return Subject(session=self.session)

    @property
    def piece(self) -> tuple[str, str | None] | None:
        """The kind and the text of an answer's piece; None for other events."""
        return None


class SessionCreated(_OfSession, frozen=True, tag="session.created"):
    """A session begins. `key` is unique in all stores. `kbs` None: all that `agent` sees.

    `created_at` and `created_by`: set if the session was imported.
    """

    key: str
    title: str
    kbs: list[str] | None = None
    agent: str | None = None
    created_at: str | None = None
    created_by: str | None = None

    def summary(self) -> str:
        return f"create session {self.session}"

    def gives(self) -> NextIds:
        return NextIds(next_session=self.session + 1)


class SessionDeleted(_OfSession, frozen=True, tag="session.deleted"):
    """A session is hidden, not erased."""

    def summary(self) -> str:
        return f"hide session {self.session}"


class SessionRestored(_OfSession, frozen=True, tag="session.restored"):
    def summary(self) -> str:
        return f"bring session {self.session} back"


class SessionPurged(_OfSession, frozen=True, tag="session.purged"):
    """A session is erased for good: from here on nothing but its id remains."""

    stays: ClassVar[str] = "what a purge has erased can't come back"

    def summary(self) -> str:
        return f"erase session {self.session} for good"


class OfMessage(_OfSession, frozen=True):
    message: int

    def concerns(self) -> Subject:
        return Subject(session=self.session, message=self.message)

    @property
    def repeats(self) -> list[int] | None:
        """The documents whose words it may repeat; None: any that its answer refers to."""
        return []


class QuestionAsked(OfMessage, frozen=True, tag="question.asked"):
    """A question is asked. `references`: how much of each reference the response holds.

    `asked_at`, `asked_by`: set if the question was imported. `node`: the node that makes the
    answer if several share the store.
    """

    question: str
    answerer: str
    model: str | None = None
    profile: str | None = None
    references: Detail = "indexes"
    asked_at: str | None = None
    asked_by: str | None = None
    node: str | None = None

    def summary(self) -> str:
        return f"ask question {self.message} in session {self.session}"

    def gives(self) -> NextIds:
        return NextIds(next_message=self.message + 1)


class QuestionWithdrawn(OfMessage, frozen=True, tag="question.withdrawn"):
    """Question and answer are hidden, and give no context to later questions."""

    def summary(self) -> str:
        return f"hide question {self.message}"


class QuestionRestored(OfMessage, frozen=True, tag="question.restored"):
    def summary(self) -> str:
        return f"bring question {self.message} back"


class AnswerRestarted(OfMessage, frozen=True, tag="answer.restarted"):
    """The answer begins anew; earlier pieces are void. `node`: as in QuestionAsked."""

    node: str | None = None

    def summary(self) -> str:
        return f"answer question {self.message} anew"

    @property
    def piece(self) -> tuple[str, str | None]:
        return "restarted", None


class AnswerReferred(OfMessage, frozen=True, tag="answer.referred"):
    references: list[Reference]

    def summary(self) -> str:
        passages = plural(len(self.references), "passage")
        return f"refer to {passages} for question {self.message}"

    @property
    def piece(self) -> tuple[str, str]:
        return "references", msgspec.json.encode(self.references).decode()


class AnswerSaid(OfMessage, frozen=True, tag="answer.said"):
    """A piece of the answer's text: `delta` goes on where the last one stopped.

    `documents`: those whose words it may repeat; None: any that the answer refers to.
    """

    delta: str
    documents: list[int] | None = None

    def summary(self) -> str:
        return f"say {plural(len(self.delta), 'character')} to question {self.message}"

    @property
    def piece(self) -> tuple[str, str]:
        return "delta", self.delta

    @property
    def repeats(self) -> list[int] | None:
        return self.documents


class AnswerWarned(OfMessage, frozen=True, tag="answer.warned"):
    kind: WarningKind
    text: str

    def summary(self) -> str:
        return f"warn of question {self.message}'s answer: {self.kind}"

    @property
    def piece(self) -> tuple[str, str]:
        return self.kind, self.text


class AnswerEnded(OfMessage, frozen=True, tag="answer.ended"):
    """An answer ends. `hint`: advice if there is no answer; `failure`: why it failed.

    `ended_at`: set if the answer was imported.
    """

    status: Status
    usage: Usage | None = None
    hint: str | None = None
    failure: Failure | None = None
    ended_at: str | None = None

    def summary(self) -> str:
        return f"end the answer to question {self.message}: {self.status}"

    @property
    def piece(self) -> tuple[str, str]:
        return "ended", self.status


OfSession = (
    SessionCreated
    | SessionDeleted
    | SessionRestored
    | SessionPurged
    | QuestionAsked
    | QuestionWithdrawn
    | QuestionRestored
    | AnswerRestarted
    | AnswerReferred
    | AnswerSaid
    | AnswerWarned
    | AnswerEnded
)
