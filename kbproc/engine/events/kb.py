"""What happens to a knowledge base.

Owns: its events. Refuses to know: the documents in it.
"""

from __future__ import annotations

from kbproc.events.event import Concerned, Event


class KbCreated(Event, frozen=True, tag="kb.created"):
    slug: str
    name: str
    description: str = ""

    def summary(self) -> str:
        return f"create knowledge base {self.slug}"

    @property
    def can_wait(self) -> bool:
        return True

    def concerns(self) -> Concerned:
        return Concerned(kb=self.slug)


class KbUpdated(Event, frozen=True, tag="kb.updated"):
    slug: str
    name: str
    description: str

    def summary(self) -> str:
        return f"update knowledge base {self.slug}"

    def concerns(self) -> Concerned:
        return Concerned(kb=self.slug)


class KbDeleted(Event, frozen=True, tag="kb.deleted"):
    """Its documents go with it, each by an event of its own in the same record."""

    slug: str

    def summary(self) -> str:
        return f"delete knowledge base {self.slug}"

    def concerns(self) -> Concerned:
        return Concerned(kb=self.slug)
