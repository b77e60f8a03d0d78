"""What every event can say of itself.

Owns: the base of all events, and Concerned: what an event is about.
Refuses to know: which events there are.

Whoever shows, filters or lists events asks them. So a new event is written in the
file of its noun, and needs a line in the union (codec.py) and one in the table of
folds (views/catalog/fold.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from msgspec import Struct


class Concerned(NamedTuple):
    """What an event is about.

    `document`: the one document; `listed`: documents, where the event names a list of
    them. `kb` and `agent`: the one that it makes, changes or ends; `within`: the
    knowledge base in which it happened. `revision`: what it makes of its subject.
    `session` and `message`: the conversation, and the question in it.
    """

    document: int | None = None
    listed: Sequence[int] = ()
    kb: str | None = None
    agent: str | None = None
    within: str | None = None
    revision: int | None = None
    session: int | None = None
    message: int | None = None

    @property
    def documents(self) -> Sequence[int]:
        """All documents that it concerns."""
        return self.listed if self.document is None else (self.document,)


class Given(NamedTuple):
    """Ids before these were given away, and are never given again."""

    next_document: int = 1
    next_chunk: int = 1
    next_session: int = 1
    next_message: int = 1

    def and_by(self, *others: Given) -> Given:
        """What these have given away together."""
        return Given(*map(max, zip(self, *others, strict=True)))


class Event(Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type"):
    """Something that happened. Its tag and its members are in logs: they never change."""

    # Why a revert leaves it as it is, if there is more to say than that it can't be undone.
    stays: ClassVar[str] = "such a record can not be undone"

    @classmethod
    def tag(cls) -> str:
        return str(cls.__struct_config__.tag)

    def summary(self) -> str:
        """One line for a plan: names, never contents."""
        raise NotImplementedError

    def concerns(self) -> Concerned:
        return Concerned()

    def gives(self) -> Given:
        """The ids that it gives away."""
        return Given()

    @property
    def can_wait(self) -> bool:
        """Whether the catalog may take it in later, together with others.

        Then it changes no agent, no entry, and no moment at which one expires; it makes a knowledge
        base at most, and `gives` tells all its ids. The first entry of a knowledge base can't wait
        all the same.
        """
        return False
