"""Links of entries that come in with an import.

Owns: which entries are superseded from now on.
Refuses to know: documents, and files of notes.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from kbproc.documents.chains import Chains
from kbproc.events.entry import LINK_TAGS
from kbproc.moving.incoming.matching import Match
from kbproc.store.decision import Decision, Here
from kbproc.store.pipeline import LongWrite

_BATCH_LINKS = 1000


class Links:
    """Which entry is superseded by which, as their ids here become known."""

    def __init__(self, wanted: dict[int, int]) -> None:
        self._wanted = wanted
        self._concerned = {*wanted, *wanted.values()}
        self._ids: dict[int, int] = {}
        self._were_here: set[int] = set()

    def note(self, old: int, outcome: Match) -> None:
        if old in self._concerned and outcome.id is not None:
            self._ids[old] = outcome.id
            if outcome.action == "unchanged":
                self._were_here.add(outcome.id)

    def write(self, write: LongWrite, check: Callable[..., None]) -> int:
        """Some at a time; returns how many were made."""
        ids, made = self._ids, 0
        pairs = ((ids[old], ids[by]) for old, by in self._wanted.items() if {old, by} <= ids.keys())
        while batch := dict(islice(pairs, _BATCH_LINKS)):
            check()
            made += write.item(lambda here, batch=batch: self._decide(here, batch))  # type: ignore[misc]
        return made

    def _decide(self, here: Here, batch: dict[int, int]) -> Decision:
        chains = Chains(here.queries, {*batch, *batch.values()})
        chains.relink(
            {
                id: by
                for id, by in batch.items()
                if chains.is_live(id)
                and chains.is_live(by)
                and id != by
                and chains.by(id) is None
                and self._is_new(here, id)
            }
        )
        return Decision(events=chains.events(), data=len(chains.changed))

    def _is_new(self, here: Here, id: int) -> bool:
        """False for an entry that was here before and has been relinked since."""
        if id not in self._were_here:
            return True
        return not any(row.type in LINK_TAGS for row in here.queries.events_of_document(id))
