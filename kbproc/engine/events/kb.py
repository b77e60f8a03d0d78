"""Defines the events of a knowledge base."""

from __future__ import annotations

from kbproc.engine.events.event import Event, Subject


class KbCreated(Event, frozen=True, tag="kb.created"):
    slug: str
    name: str
    description: str = ""

    def summary(self) -> str:
        return f"create knowledge base {self.slug}"

    def concerns(self) -> Subject:
        return Subject(kb=self.slug)


class KbUpdated(Event, frozen=True, tag="kb.updated"):
    slug: str
    name: str
    description: str

    def summary(self) -> str:
        return f"update knowledge base {self.slug}"

    def concerns(self) -> Subject:
        return Subject(kb=self.slug)


class KbDeleted(Event, frozen=True, tag="kb.deleted"):
    """A knowledge base is deleted; its documents too, each by its own event in the same record."""

    slug: str

    def summary(self) -> str:
        return f"delete knowledge base {self.slug}"

    def concerns(self) -> Subject:
        return Subject(kb=self.slug)
