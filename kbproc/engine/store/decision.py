"""What a write decides from, and what it decides.

Owns: the request as the pipeline sees it, the state that a decision reads, and its outcome.
Refuses to know: how it is carried out (pipeline.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from kbproc.base.params import COMMON_WRITE_FIELDS, WriteParams
from kbproc.base.values import canonical
from kbproc.events.document import DocDeleted
from kbproc.events.event import Event
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.reader import EVERYTHING, Sight
from kbproc.views.catalog.rows import AgentRow, DocumentRow, Head, Roster, TokenRow


class Target(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What a write touches, named for people; `revision` is what a plan is bound to."""

    kind: str
    id: int | str
    name: str
    revision: int | None = None


FindToken = Callable[[str, str, str], TokenRow | None]


class Told(Protocol):
    """What can be told though the catalog has not taken in all that was written."""

    def token(self, actor: str, method: str, token: str) -> TokenRow | None: ...

    def documents_at(
        self, sight: Sight, kb: str, paths: Sequence[str]
    ) -> dict[str, DocumentRow]: ...


class Here:
    """The state that a decision is made from.

    `now` is the host's clock, by which expiry is judged. `ts` is the date that a record
    written here gets: later than `now` where an earlier one was dated by a wrong clock.
    """

    def __init__(
        self,
        look: Callable[[], Queries],
        now: str,
        head: Head,
        roster: Roster,
        sight: Sight | None = None,
        told: Told | None = None,
    ) -> None:
        """`look` gives the catalog, which costs something; `sight`: what may be seen of it.

        `told` tells some of it at less cost.
        """
        self._look = look
        self._queries: Queries | None = None
        self._roster = roster
        self._sight = sight or EVERYTHING
        self._told = told
        self.now = now
        self.ts = max(now, head.ts)
        self.head = head

    @property
    def queries(self) -> Queries:
        if self._queries is None:
            self._queries = self._look()
            self._queries.see(self._sight)
        return self._queries

    def token(self, actor: str, method: str, token: str) -> TokenRow | None:
        """What was answered under this token last."""
        return (self._told or self.queries).token(actor, method, token)

    def documents_at(self, kb: str, paths: Sequence[str]) -> dict[str, DocumentRow]:
        """The live documents that come from these files."""
        if self._told is not None:
            return self._told.documents_at(self._sight, kb, paths)
        return self.queries.documents_at(kb, paths)

    def agent(self, slug: str) -> AgentRow | None:
        """A deleted one too."""
        return self._roster.agents.get(slug)

    @property
    def kbs(self) -> list[str]:
        """The slugs of the knowledge bases, sorted."""
        return self._roster.kbs_for(self._sight)


class Decision(Struct, frozen=True, kw_only=True):
    """What should happen. `data` is the answer; `effect` runs between decide and append.

    `bound`: what a plan is bound to besides its targets' revisions. `destructive`: this
    needs a person's approval, even if its method as a rule does not. `counts`: the plan in
    numbers. `hint` goes with a dry run. `partial`: some items failed, in words. `kept`: of `data`,
    what the log keeps and tells to whoever asks again under the same token; None: all of it. What
    others may want erased has no place there.
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
    partial: str | None = None
    kept: Any = None

    @property
    def deleted(self) -> frozenset[int]:
        """The documents that it hides, by id."""
        return frozenset(event.id for event in self.events if isinstance(event, DocDeleted))


Decide = Callable[[Here], Decision]


class Request(Struct, frozen=True, kw_only=True):
    """A write as the pipeline sees it.

    `begin` is called when it has its turn, and raises if nobody waits any more.
    """

    method: str
    actor: str
    params: WriteParams
    destructive: bool
    now: str
    sight: Sight | None = None
    begin: Callable[[], None] = lambda: None

    @property
    def params_hash(self) -> str:
        """Over the decoded params with their defaults, without the common ones."""
        fields = msgspec.to_builtins(self.params)
        kept = {name: value for name, value in fields.items() if name not in COMMON_WRITE_FIELDS}
        return blake2b(canonical(kept), digest_size=16).hexdigest()
