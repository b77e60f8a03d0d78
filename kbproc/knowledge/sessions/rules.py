"""Says whose answers a process may end."""

from __future__ import annotations

from kbproc.engine.events.event import Event
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.store.store import Store


class AnswerRules:
    """The rules of a process that alone makes answers: it may end all of them.

    A node of a cluster has other rules; see knowledge/cluster/node.py.
    """

    def signed(self, event: Event) -> Event:
        """Returns the event, with the name of its writer if it begins an answer."""
        return event

    def began_here(self, store: Store, queries: Queries, message: int) -> bool:
        """Returns True if no other process than this one can be making the answer."""
        return True
