"""What happens to an agent.

Owns: its events. Refuses to know: what an agent may do, and its notes.
"""

from __future__ import annotations

from kbproc.events.event import Concerned, Event


class AgentWritten(Event, frozen=True, tag="agent.written"):
    """An agent's whole description. None leaves a side open: all kbs, all scopes."""

    slug: str
    revision: int
    description: str
    kbs: list[str] | None
    folder: str | None
    scopes: list[str] | None
    quotas: dict[str, int]
    instructions: str

    def summary(self) -> str:
        verb = "create" if self.revision == 1 else "update"
        return f"{verb} agent {self.slug}"

    def concerns(self) -> Concerned:
        return Concerned(agent=self.slug, revision=self.revision)


class AgentDeleted(Event, frozen=True, tag="agent.deleted"):
    """Its notes go with it, each by an event of its own in the same record."""

    slug: str

    def summary(self) -> str:
        return f"delete agent {self.slug}"

    def concerns(self) -> Concerned:
        return Concerned(agent=self.slug)
