"""The workers that a node hears, and the jobs that it has offered to them.

Owns: who is listening, how much is offered at a time, and giving up on what does not come back.
Refuses to know: how a job is sent, and what is embedded here meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

KEPT = 64  # chunks: fewer are embedded here faster than there
TEXTS_IN_A_JOB = 16
_AHEAD = 2  # jobs for each that is worked on
_SILENT_S = 3.0
_PATIENCE_S = 60.0


class Listeners:
    """Workers that say now and then that they are there. Used in one thread."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[float, int]] = {}

    def hear(self, worker: str, parallel: int) -> None:
        self._heard[worker] = (time.monotonic(), parallel)

    def __len__(self) -> int:
        oldest = time.monotonic() - _SILENT_S
        self._heard = {name: told for name, told in self._heard.items() if told[0] > oldest}
        return len(self._heard)

    @property
    def places(self) -> int:
        """Jobs that they do at the same time."""
        return sum(parallel for _, parallel in self._heard.values()) if len(self) else 0

    def forget(self) -> None:
        self._heard = {}


class Offer:
    """`left`: key → the chunks that wait for it. `seq`: of its message."""

    def __init__(self, seq: int, left: dict[bytes, list[int]]) -> None:
        self.seq = seq
        self.left = left
        self.since = time.monotonic()

    @property
    def ids(self) -> list[int]:
        return [id for ids in self.left.values() for id in ids]


class Offers:
    """Used in one thread."""

    def __init__(self) -> None:
        self.listeners = Listeners()
        self._open: list[Offer] = []

    @property
    def room(self) -> int:
        """Jobs that may be offered now."""
        return max(0, _AHEAD * self.listeners.places - len(self._open))

    def add(self, offer: Offer) -> None:
        self._open.append(offer)

    def came(self, keys: Iterable[bytes]) -> list[int]:
        """Chunks that were waited for and have their vectors."""
        if not self._open:
            return []
        ids = [id for key in keys for offer in self._open for id in offer.left.pop(key, ())]
        self._open = [offer for offer in self._open if offer.left]
        return ids

    def abandon(self) -> Collection[Offer]:
        """All of them."""
        all, self._open = self._open, []
        self.listeners.forget()
        return all

    def give_up(self) -> Collection[Offer]:
        """What is not waited for any longer: nobody listens, or it takes too long."""
        oldest = time.monotonic() - _PATIENCE_S
        lost = [o for o in self._open if not self.listeners or o.since < oldest]
        self._open = [offer for offer in self._open if offer not in lost]
        return lost
