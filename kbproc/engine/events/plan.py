"""Defines the event of a plan that a person has approved for another."""

from __future__ import annotations

from typing import ClassVar

from kbproc.engine.events.event import Event


class PlanApproved(Event, frozen=True, tag="plan.approved"):
    """A person has approved of what the record's other events say; its actor asked for it."""

    stays: ClassVar[str] = "it only names who approved"

    by: str

    def summary(self) -> str:
        return f"approved by {self.by}"
