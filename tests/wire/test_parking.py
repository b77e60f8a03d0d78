"""Waiting requests: when each is polled, and that none delays others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from kbproc.base.host import Host
from kbproc.surfaces.wire.in_flight import Parking
from tests.kit.patience import PATIENCE


class Clock(Host):
    passed_ms = 0.0

    def monotonic_ms(self) -> float:
        return self.passed_ms


class Waits:
    """A request that waits until it is released, or has sent its backlog."""

    def __init__(self, backlog: int = 0) -> None:
        self.polls: list[bool] = []
        self.backlog = backlog
        self.free = False
        self._polled = threading.Condition()

    def has_more(self) -> bool:
        return self.backlog > 0

    def poll(self, *, expired: bool) -> bool:
        with self._polled:
            self.polls.append(expired)
            self.backlog = max(0, self.backlog - 1)
            self._polled.notify_all()
        return self.free or expired

    def polled(self, times: int) -> None:
        with self._polled:
            assert self._polled.wait_for(lambda: len(self.polls) >= times, PATIENCE)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def changes() -> list[Callable[[], None]]:
    return []


@pytest.fixture
def parking(clock: Clock, changes: list[Callable[[], None]]) -> Iterator[Parking]:
    parking = Parking(clock, changes.append)
    yield parking
    parking.close()


def test_a_change_polls_everybody_once(parking: Parking, changes: list[Callable[[], None]]) -> None:
    requests = [Waits() for _ in range(3)]
    for request in requests:
        parking.add(request, None)
        request.polled(1)
    assert len(changes) == 1  # one subscription for all
    before = [len(request.polls) for request in requests]
    changes[0]()
    for request, count in zip(requests, before, strict=True):
        request.polled(count + 1)


def test_who_is_done_is_polled_no_more(parking: Parking) -> None:
    done, waits = Waits(), Waits()
    done.free = True
    parking.add(done, None)
    done.polled(1)
    parking.add(waits, None)
    waits.polled(1)
    parking.wake()
    waits.polled(2)
    assert done.polls == [False]


def test_a_deadline_is_noticed_without_a_change(parking: Parking, clock: Clock) -> None:
    request = Waits()
    clock.passed_ms = 100.0
    parking.add(request, 20)
    request.polled(1)
    clock.passed_ms = 120.0
    request.polled(2)
    assert request.polls == [False, True]


def test_a_backlog_disturbs_nobody(parking: Parking) -> None:
    quiet, stream = Waits(), Waits(backlog=50)
    parking.add(quiet, None)
    quiet.polled(1)
    parking.add(stream, None)
    stream.polled(50)
    assert len(quiet.polls) <= 3
