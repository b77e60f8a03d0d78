"""Defines the interface of answerers: a prompt goes in, and text comes out as it is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from kbproc.base.budget import byte_size
from kbproc.base.text.verbatim import CodeBlock, Form

I_DO_NOT_KNOW = "I don't know."


class PromptPassage(NamedTuple):
    """A passage of a prompt. `n`: the number by which it is cited.

    `source`: the same number for passages of one source. `form`, `language`, `blocks`: of the
    source, see text.verbatim.
    """

    n: int
    source: int
    cite: str
    text: str
    score: float
    form: Form = "prose"
    language: str = ""
    blocks: tuple[CodeBlock, ...] = ()


class Turn(NamedTuple):
    """An earlier question with its answer."""

    question: str
    answer: str


# Returns how close each text is to the question in meaning, as a cosine.
Closeness = Callable[[list[str]], list[float]]


class Prompt(Struct, frozen=True, kw_only=True):
    """A question with passages that may answer it, the best one first.

    `query`: the query of the search, which is the question with words of earlier questions that it
    refers to; "" if it is the question itself.

    `instructions`: how to answer, in the words of the person who looks after the agent.

    `is_known` False: the passages hardly touch the question. `is_answered` False: they touch it,
    and probably do not answer it. `is_sure` False: they touch it, and may answer it or not.

    `closeness`: None if the model lacks the question's language, or there is none.
    """

    question: str
    passages: list[PromptPassage]
    query: str = ""
    earlier: list[Turn] = []
    instructions: str = ""
    is_known: bool = True
    is_answered: bool = True
    is_sure: bool = True
    closeness: Closeness | None = None


class AnswerPart(NamedTuple):
    """A piece of the answer. `passages`: numbers of passages that it may quote; None: of any."""

    text: str
    passages: tuple[int, ...] | None = None


class AnswerOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of an answer. Tokens are None if they were not counted."""

    status: Literal["finished", "refused"]
    hint: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class Conversation(Protocol):
    """The receiver of an answer. Only the answering thread may call its methods."""

    @property
    def is_over(self) -> bool:
        """True once no reader waits for the rest of the answer."""
        ...

    def say(self, parts: Sequence[AnswerPart]) -> None:
        """Adds parts to the answer."""
        ...

    def warn(self, text: str) -> None:
        """Adds a warning: the reason why the answer is worse than it should be."""
        ...

    def when_over(self, act: Callable[[], object]) -> None:
        """Calls `act` in another thread once no reader waits for the rest of the answer."""
        ...


class Answerer(Protocol):
    """A maker of answers, for any number of threads at once. `model`: its name at the endpoint."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str | None: ...
    def prompt_tokens(self, prompt: Prompt) -> int:
        """Returns about how many tokens the prompt has."""
        ...

    def answer(self, prompt: Prompt, talk: Conversation) -> AnswerOutcome:
        """Says the whole answer and returns its outcome.

        Raises llm.unavailable, operation.timeout.
        """
        ...

    def prepare(self) -> None:
        """Does in advance what the first answer would wait for. Raises nothing."""
        ...

    def close(self) -> None: ...


def about_tokens(text: str) -> int:
    """Returns an estimate of a text's tokens: four bytes of UTF-8 each.

    That is some four characters of English, and fewer of other scripts.
    """
    return -(-byte_size(text) // 4)
