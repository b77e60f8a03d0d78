"""Defines the events of an agent."""

from __future__ import annotations

from kbproc.engine.events.event import Event, Subject


class AgentWritten(Event, frozen=True, tag="agent.written"):
    """An agent's whole description. None sets no limit: all kbs, all scopes."""

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

    def concerns(self) -> Subject:
        return Subject(agent=self.slug, revision=self.revision)


class AgentDeleted(Event, frozen=True, tag="agent.deleted"):
    """An agent is deleted; its notes too, each by an event of its own in the same record."""

    slug: str

    def summary(self) -> str:
        return f"delete agent {self.slug}"

    def concerns(self) -> Subject:
        return Subject(agent=self.slug)
