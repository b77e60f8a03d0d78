"""Defines the events of a knowledge base."""

from __future__ import annotations

from typing import Literal

from kbproc.engine.events.event import Event, Subject

# Which new entries wait until somebody approves them: those from the web or an import, those that
# are not a person's own words, or all.
Review = Literal["none", "web", "agents", "all"]


class KbCreated(Event, frozen=True, tag="kb.created"):
    slug: str
    name: str
    description: str = ""
    review: Review = "none"

    def summary(self) -> str:
        return f"create knowledge base {self.slug}"

    def concerns(self) -> Subject:
        return Subject(kb=self.slug)


class KbUpdated(Event, frozen=True, tag="kb.updated"):
    slug: str
    name: str
    description: str
    review: Review = "none"

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
