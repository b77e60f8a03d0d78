"""Defines the events of a store's upkeep: purges, repairs, and changes of the model."""

from __future__ import annotations

from typing import ClassVar

from kbproc.base.wording import plural
from kbproc.engine.events.event import Event, NextIds, Subject

_ERASED = "what a purge has erased can't come back"


class DocPurged(Event, frozen=True, tag="doc.purged"):
    """Documents are erased for good: from here on nothing but their ids remains."""

    ids: list[int]

    def summary(self) -> str:
        return f"erase {plural(len(self.ids), 'document')} for good"

    def concerns(self) -> Subject:
        return Subject(listed=self.ids)


class ContentForgotten(Event, frozen=True, tag="content.forgotten"):
    """A document's content before its revision `kept` is erased; its earlier events stay."""

    stays: ClassVar[str] = "what was forgotten can't come back"

    id: int
    kept: int

    def summary(self) -> str:
        return f"forget what document {self.id} held before revision {self.kept}"

    def concerns(self) -> Subject:
        return Subject(document=self.id)


class PurgeEnded(Event, frozen=True, tag="purge.ended"):
    """Every file has been rewritten without the texts that records up to `purge` erase."""

    stays: ClassVar[str] = _ERASED

    purge: int

    def summary(self) -> str:
        return f"finish the purge of record {self.purge}"


class _Gives(Event, kw_only=True, frozen=True):
    """An event whose `next_*` keep ids from being used again."""

    next_document: int = 1
    next_chunk: int = 1
    next_session: int = 1
    next_message: int = 1

    def gives(self) -> NextIds:
        return NextIds(self.next_document, self.next_chunk, self.next_session, self.next_message)


class Erased(_Gives, frozen=True, tag="text.erased"):
    """The replacement of an event that a purge has erased.

    `message_id`: the event was a piece of this message's answer, which has other pieces.
    """

    stays: ClassVar[str] = _ERASED

    was: str
    purge: int
    document_id: int | None = None
    session_id: int | None = None
    message_id: int | None = None

    def summary(self) -> str:
        return f"{self.was}, erased by record {self.purge}"

    def concerns(self) -> Subject:
        return Subject(document=self.document_id, session=self.session_id, message=self.message_id)


class ModelUsed(Event, frozen=True, tag="model.used"):
    """store.toml named another embedding model."""

    stays: ClassVar[str] = "switch back with model.use"

    kind: str
    name: str

    def summary(self) -> str:
        return f"embed with {self.name}"


class LogRepaired(_Gives, frozen=True, tag="log.repaired"):
    """Records that were damaged beyond reading were given up."""

    stays: ClassVar[str] = "damaged records that were given up can't come back"

    lost: list[tuple[int, int]]
    aside: str

    def summary(self) -> str:
        return f"give up {plural(len(self.lost), 'damaged stretch', 'damaged stretches')}"
