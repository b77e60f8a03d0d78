"""What an answerer is to everybody else: a prompt goes in, text comes out as it is made.

Owns: the prompt's parts, the Answerer protocol, and what an answer is told as.
Refuses to know: where passages come from, and where the text goes. Light.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from kbproc.text.verbatim import CodeBlock, Form

I_DO_NOT_KNOW = "I don't know."


class Passage(NamedTuple):
    """`n`: the number that it is cited by. `source`: passages of one source have the same.

    `form`, `language`, `blocks`: of the source, see text.verbatim.
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
    """What was asked and answered before."""

    question: str
    answer: str


class Prompt(Struct, frozen=True, kw_only=True):
    """`query`: the question as it was searched for, with the words of earlier ones that it points
    back to; "" is the question itself.

    `instructions`: how to answer, in the words of whoever looks after the agent.

    `is_known` False: by their scores the passages hardly touch the question. `is_answered` False:
    they do, and none seems to answer it.
    """

    question: str
    passages: list[Passage]
    query: str = ""
    earlier: list[Turn] = []
    instructions: str = ""
    is_known: bool = True
    is_answered: bool = True


class Part(NamedTuple):
    """A piece of the answer. `passages`: those whose words it may repeat; None: any."""

    text: str
    passages: tuple[int, ...] | None = None


class Told(Struct, frozen=True, kw_only=True):
    """How an answer came out. Tokens are None where nobody has counted them."""

    status: Literal["finished", "refused"]
    hint: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class Talk(Protocol):
    """Where an answer goes. Any method may be called from the answering thread only."""

    @property
    def is_over(self) -> bool:
        """Nobody wants the rest of it."""
        ...

    def say(self, parts: Sequence[Part]) -> None:
        """These go on where the last ones stopped."""
        ...

    def warn(self, text: str) -> None:
        """The answer is worse than it should be; `text` says why."""
        ...

    def when_over(self, act: Callable[[], object]) -> None:
        """`act` is called, by another thread, once nobody wants the rest of it."""
        ...


class Answerer(Protocol):
    """Any number of threads may ask at once. `model`: as its endpoint calls it."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str | None: ...
    def prompt_tokens(self, prompt: Prompt) -> int:
        """About how long the prompt is."""
        ...

    def answer(self, prompt: Prompt, talk: Talk) -> Told:
        """Returns once all is said. Raises llm.unavailable, operation.timeout."""
        ...

    def prepare(self) -> None:
        """Does in advance what the first answer would wait for. Raises nothing."""
        ...

    def close(self) -> None: ...


def about_tokens(text: str) -> int:
    """An estimate: some four characters of English a token, of other scripts fewer."""
    return -(-len(text.encode("utf-8", "replace")) // 4)
