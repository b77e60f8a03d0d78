"""Defines the base of all events, and Subject, the subject of an event.

Code that shows, filters or lists events asks the events themselves. So a new event is written in
the file of its noun, and needs a line in the union (codec.py) and one in the table of folds
(engine/projections/catalog/folds.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import astuple


class Subject(Struct, frozen=True):
    """The subject of an event.

    `document`: the one document; `listed`: documents, if the event names a list of
    them. `kb` and `agent`: the one that it makes, changes or deletes; `within`: the
    knowledge base in which it happened. `revision`: the subject's new revision.
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


class NextIds(Struct, frozen=True):
    """The next free ids: smaller ones were used, and are never used again."""

    next_document: int = 1
    next_chunk: int = 1
    next_session: int = 1
    next_message: int = 1

    def and_by(self, *others: NextIds) -> NextIds:
        """Returns the greatest of each id, so that ids used by any of these stay used."""
        return NextIds(*map(max, astuple(self), *map(astuple, others)))


class Event(Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type"):
    """Something that happened. Its tag and its members are in logs: they never change."""

    # Why a revert leaves it as it is, if there is a better reason than that it can't be undone.
    stays: ClassVar[str] = "such a record can not be undone"

    @classmethod
    def tag(cls) -> str:
        return str(cls.__struct_config__.tag)

    def summary(self) -> str:
        """Returns one line for a plan: names, never contents."""
        raise NotImplementedError

    def concerns(self) -> Subject:
        return Subject()

    def gives(self) -> NextIds:
        """Returns the next free ids after this event."""
        return NextIds()
