"""Defines a write's request as the pipeline sees it, the state that it reads, and its decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from kbproc.base.hashes import blake2b
from kbproc.base.params import COMMON_WRITE_FIELDS, WriteParams
from kbproc.base.values import canonical
from kbproc.engine.events.document import DocDeleted
from kbproc.engine.events.origin import AGENT, PERSON, Origin
from kbproc.engine.events.plan import PlanApproved
from kbproc.engine.projections.catalog.reader import EVERYTHING, Sight
from kbproc.engine.projections.catalog.rows import AgentRow, Head, Roster, TokenRow
from kbproc.engine.sources.blobs import NewSource

if TYPE_CHECKING:
    from kbproc.engine.events.event import Event
    from kbproc.engine.projections.catalog.queries import Queries
    from kbproc.engine.store.target import Target


FindToken = Callable[[str, str, str], TokenRow | None]


class DecisionState:
    """The state that a decision is made from.

    `now` is the host's clock, by which expiry is judged. `ts` is the date of a record
    written here: later than `now` if an earlier record was dated by a wrong clock. `new_sources`:
    those that the decision's events name, which are stored with its record. `origin`: that of the
    caller's own words.
    """

    def __init__(
        self,
        catalog_queries: Queries,
        now: str,
        head: Head,
        roster: Roster,
        sight: Sight | None = None,
        origin: Origin = AGENT,
    ) -> None:
        """`sight`: how much of the catalog may be seen."""
        self.queries = catalog_queries
        self._roster = roster
        self._sight = sight or EVERYTHING
        self.queries.see(self._sight)
        self.origin = origin
        self.now = now
        self.ts = max(now, head.ts)
        self.head = head
        self.new_sources: list[NewSource] = []

    def agent(self, slug: str) -> AgentRow | None:
        """Returns the agent, even a deleted one."""
        return self._roster.agents.get(slug)

    @property
    def kbs(self) -> list[str]:
        """The slugs of the knowledge bases, sorted."""
        return self._roster.kbs_for(self._sight)


class PartialSuccess(Struct, frozen=True, kw_only=True):
    """How many items of a write failed, in words, and the first failure."""

    message: str
    first: str | None = None


class Decision(Struct, frozen=True, kw_only=True):
    """The events that should happen, with the response's `data`.

    `effect` runs between decide and append. `bound`: values that a plan is bound to besides its
    targets' revisions. `destructive`: this write needs a person's approval, even if its method
    does not as a rule. `counts`: the plan in numbers. `hint` goes with a dry run. `partial`: some
    items failed. `kept`: the part of `data` that the log keeps for requests under the same token;
    None: all of it. It must not hold texts that others may want erased.
    """

    events: list[Event]
    data: Any
    targets: list[Target] = []
    changes: list[str] = []
    counts: dict[str, int] = {}
    bound: list[str] = []
    bulk: bool = False
    destructive: bool = False
    effect: Callable[[], None] | None = None
    hint: str | None = None
    partial: PartialSuccess | None = None
    kept: Any = None

    @property
    def deleted(self) -> frozenset[int]:
        """The ids of the documents that it hides."""
        return frozenset(event.id for event in self.events if isinstance(event, DocDeleted))


Decide = Callable[[DecisionState], Decision]


class WriteRequest(Struct, frozen=True, kw_only=True):
    """A write as the pipeline sees it.

    `begin` is called when the write's turn comes, and raises if its caller has stopped waiting.
    `is_final`: no method takes it back. `origin`: that of the caller's own words.
    `approved_by`: the person who approved of the plan of another's request.
    """

    method: str
    actor: str
    params: WriteParams
    destructive: bool
    is_final: bool = False
    now: str
    sight: Sight | None = None
    origin: Origin = PERSON
    begin: Callable[[], None] = lambda: None
    approved_by: str | None = None

    def with_approval(self, events: Sequence[Event]) -> Sequence[Event]:
        """Returns the events of the request's record, with the name of who approved of them."""
        if self.approved_by is None or not events:
            return events
        return [*events, PlanApproved(by=self.approved_by)]

    @property
    def params_hash(self) -> str:
        """The hash of the decoded params with their defaults, without the common ones."""
        fields = msgspec.to_builtins(self.params)
        own_fields = {
            name: value for name, value in fields.items() if name not in COMMON_WRITE_FIELDS
        }
        return blake2b(canonical(own_fields), digest_size=16).hexdigest()
