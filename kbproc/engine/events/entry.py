"""Defines the facts of a knowledge entry, and the events by which one supersedes another."""

from __future__ import annotations

from msgspec import Struct

from kbproc.base.wording import plural
from kbproc.engine.events.event import Event, Subject


class EntryFacts(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A knowledge entry's facts besides its text; times as in every projection."""

    confidence: int
    source: str
    expires_at: str | None = None
    task_id: str | None = None
    task_kind: str | None = None


class EntrySuperseded(Event, frozen=True, tag="entry.superseded"):
    """Entry `by` supersedes entry `id`, which `was` superseded before."""

    id: int
    by: int
    was: int | None = None

    def summary(self) -> str:
        return f"supersede entry {self.id} by entry {self.by}"

    def concerns(self) -> Subject:
        return Subject(document=self.id)


class EntryRevived(Event, frozen=True, tag="entry.revived"):
    """No entry supersedes these any more; `was` did, directly."""

    ids: list[int]
    was: int

    def summary(self) -> str:
        return f"revive {plural(len(self.ids), 'entry', 'entries')}"

    def concerns(self) -> Subject:
        return Subject(listed=self.ids)


LINK_TAGS = frozenset({EntrySuperseded.tag(), EntryRevived.tag()})
