"""What happens in a conversation: sessions, questions, and answers piece by piece.

Owns: their events; what an answer refers to, how it ended and what it has cost.
Refuses to know: how an answer is made, and how its pieces are sent.

An answer is the pieces between its question and its end, in the order of the log. Begun anew, it
is those since then.

What an endpoint or an import tells is kept within the bounds of an answer, as whoever reads it has
to be able to tell it: a count out of them is unknown.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Struct

from kbproc.base.errors import ERRORS
from kbproc.base.wording import plural
from kbproc.events.event import Concerned, Event, Given

Detail = Literal["indexes", "snippets", "full"]
Status = Literal["finished", "refused", "stopped", "failed", "interrupted"]
WarningKind = Literal["replaced", "degraded", "restarted"]


_MOST = 2**53


def _bounded(told: Struct, *names: str, unknown: int | None = None) -> None:
    """Replaces numbers that no answer can tell."""
    for name in names:
        value = getattr(told, name)
        if value is not None and not 0 <= value <= _MOST:
            msgspec.structs.force_setattr(told, name, unknown)


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
    """Something of one session. The catalog needs not know at once."""

    stays: ClassVar[str] = "an answer goes with its question"

    session: int

    def concerns(self) -> Concerned:
        return Concerned(session=self.session)

    @property
    def can_wait(self) -> bool:
        return True

    @property
    def piece(self) -> tuple[str, str | None] | None:
        """Its kind and what it says, if it is a piece of an answer."""
        return None


class SessionCreated(_OfSession, frozen=True, tag="session.created"):
    """`key` tells it from every other in any store. `kbs` None: all that `agent` sees.

    `created_at` and `created_by`: of one that was made before it came here.
    """

    key: str
    title: str
    kbs: list[str] | None = None
    agent: str | None = None
    created_at: str | None = None
    created_by: str | None = None

    def summary(self) -> str:
        return f"create session {self.session}"

    def gives(self) -> Given:
        return Given(next_session=self.session + 1)


class SessionDeleted(_OfSession, frozen=True, tag="session.deleted"):
    """Hidden, not erased."""

    def summary(self) -> str:
        return f"hide session {self.session}"


class SessionRestored(_OfSession, frozen=True, tag="session.restored"):
    def summary(self) -> str:
        return f"bring session {self.session} back"


class SessionPurged(_OfSession, frozen=True, tag="session.purged"):
    """Erased for good: from here on nothing but its id is left of it."""

    stays: ClassVar[str] = "what a purge has erased can't come back"

    def summary(self) -> str:
        return f"erase session {self.session} for good"

    @property
    def can_wait(self) -> bool:
        return False


class OfMessage(_OfSession, frozen=True):
    message: int

    def concerns(self) -> Concerned:
        return Concerned(session=self.session, message=self.message)

    @property
    def repeats(self) -> list[int] | None:
        """Documents whose words it may repeat; None: any that its answer refers to."""
        return []


class QuestionAsked(OfMessage, frozen=True, tag="question.asked"):
    """`references`: how much of each is told. `asked_at`, `asked_by`: as in SessionCreated.

    `node`: which one makes the answer, where several share the store.
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

    def gives(self) -> Given:
        return Given(next_message=self.message + 1)


class QuestionWithdrawn(OfMessage, frozen=True, tag="question.withdrawn"):
    """Question and answer are hidden, and no later question is understood by them."""

    def summary(self) -> str:
        return f"hide question {self.message}"


class QuestionRestored(OfMessage, frozen=True, tag="question.restored"):
    def summary(self) -> str:
        return f"bring question {self.message} back"


class AnswerRestarted(OfMessage, frozen=True, tag="answer.restarted"):
    """What was said before is void: the answer begins anew. `node`: as in QuestionAsked."""

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
    """`delta` goes on where the last one stopped.

    `documents`: those whose words it may repeat; None: any that the answer refers to.
    """

    delta: str
    documents: list[int] | None = None

    def summary(self) -> str:
        return f"say {len(self.delta)} characters to question {self.message}"

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
    """`hint`: what helps where there is no answer; `failure`: why it failed.

    `ended_at`: as in SessionCreated.
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
