"""Keeps the workers that a node hears and the jobs that it has offered to them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

KEPT_CHUNKS = 64  # so few are embedded here faster than by workers
TEXTS_IN_A_JOB = 16
_AHEAD = 2  # jobs offered for each job in progress
SILENT_S = 3.0
_PATIENCE_S = 60.0


class Listeners:
    """The workers whose signs of life still come. Used in one thread."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[float, int]] = {}

    def hear(self, worker: str, parallel: int) -> None:
        self._heard[worker] = (time.monotonic(), parallel)

    def __len__(self) -> int:
        oldest = time.monotonic() - SILENT_S
        self._heard = {name: sign for name, sign in self._heard.items() if sign[0] > oldest}
        return len(self._heard)

    @property
    def places(self) -> int:
        """The number of jobs that the workers do at the same time."""
        return sum(parallel for _, parallel in self._heard.values()) if len(self) else 0

    def forget(self) -> None:
        self._heard = {}


class Offer:
    """An offered job. `waiting`: key → the chunks that wait for it. `seq`: its message's."""

    def __init__(self, seq: int, waiting: dict[bytes, list[int]]) -> None:
        self.seq = seq
        self.waiting = waiting
        self.since = time.monotonic()

    @property
    def ids(self) -> list[int]:
        return [id for ids in self.waiting.values() for id in ids]


class Offers:
    """The offered jobs of a node. Used in one thread."""

    def __init__(self) -> None:
        self.listeners = Listeners()
        self._open: list[Offer] = []

    @property
    def room(self) -> int:
        """The number of jobs that may be offered now."""
        return max(0, _AHEAD * self.listeners.places - len(self._open))

    def add(self, offer: Offer) -> None:
        self._open.append(offer)

    def settle(self, keys: Iterable[bytes]) -> list[int]:
        """Removes keys whose vectors have come; returns the chunks that waited for them."""
        if not self._open:
            return []
        ids = [id for key in keys for offer in self._open for id in offer.waiting.pop(key, ())]
        self._open = [offer for offer in self._open if offer.waiting]
        return ids

    def abandon(self) -> Collection[Offer]:
        """Removes and returns all offers, and forgets all workers."""
        offers, self._open = self._open, []
        self.listeners.forget()
        return offers

    def give_up(self) -> Collection[Offer]:
        """Removes and returns the offers that take too long, or all if no worker listens."""
        oldest = time.monotonic() - _PATIENCE_S
        overdue = [o for o in self._open if not self.listeners or o.since < oldest]
        self._open = [offer for offer in self._open if offer not in overdue]
        return overdue
