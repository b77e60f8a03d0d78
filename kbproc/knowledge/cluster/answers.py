"""Says which answers of a cluster's sessions a node may end."""

from __future__ import annotations

import msgspec

from kbproc.engine.events import codec
from kbproc.engine.events.event import Event
from kbproc.engine.events.session import AnswerRestarted, QuestionAsked
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.store.store import Store
from kbproc.knowledge.sessions.rules import AnswerRules


class NodeAnswerRules(AnswerRules):
    """A node signs the answers that it begins, and ends no others; `node` is its name."""

    def __init__(self, node: str | None) -> None:
        self._node = node

    def signed(self, event: Event) -> Event:
        if self._node is None or not isinstance(event, QuestionAsked | AnswerRestarted):
            return event
        return msgspec.structs.replace(event, node=self._node)

    def began_here(self, store: Store, queries: Queries, message: int) -> bool:
        row = queries.message(message)
        return row is not None and any(
            isinstance(event, QuestionAsked | AnswerRestarted)
            and (event.message, event.node) == (message, self._node)
            for record in store.log.read(row.attempt_seq - 1, row.attempt_seq)
            for event in codec.decode(record.events)
        )
