"""What happens to knowledge entries beyond their text.

Owns: what an entry says of itself, and which entry takes the place of which.
Refuses to know: an entry's text (document.py), and chains of more than one link.
"""

from __future__ import annotations

from msgspec import Struct

from kbproc.base.wording import plural
from kbproc.events.event import Concerned, Event


class EntryFacts(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What a knowledge entry says of itself besides its text; times as in every view."""

    confidence: int
    source: str
    expires_at: str | None = None
    task_id: str | None = None
    task_kind: str | None = None


class EntrySuperseded(Event, frozen=True, tag="entry.superseded"):
    """`by` takes the place of `id`, where `was` had taken it before."""

    id: int
    by: int
    was: int | None = None

    def summary(self) -> str:
        return f"supersede entry {self.id} by entry {self.by}"

    def concerns(self) -> Concerned:
        return Concerned(document=self.id)


class EntryRevived(Event, frozen=True, tag="entry.revived"):
    """Nothing supersedes these any more; `was` did, directly."""

    ids: list[int]
    was: int

    def summary(self) -> str:
        return f"revive {plural(len(self.ids), 'entry', 'entries')}"

    def concerns(self) -> Concerned:
        return Concerned(listed=self.ids)


LINK_TAGS = frozenset({EntrySuperseded.tag(), EntryRevived.tag()})
