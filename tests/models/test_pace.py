"""The pace of an endpoint, in a time of its own."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import pytest

from kbproc.engine.models.pace import MOST_AT_ONCE, MOST_BYTES, MOST_TEXTS, Pace, PaceClosed


class Time:
    """A clock that only `advance` moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def pace(clock: Time) -> Pace:
    return Pace(clock=clock, sleep=clock.advance)


def answered(pace: Pace, clock: Time, seconds: float, size: int = 100) -> int:
    """Has a request of the largest number of texts answered; returns the number."""
    texts = pace.texts
    began = pace.begin(texts)
    clock.advance(seconds)
    pace.answered(texts, texts * size, began)
    pace.end()
    return texts


def run(pace: Pace, clock: Time, seconds_of: Callable[[int], float], requests: int) -> list[int]:
    """Keeps as many requests in flight as the pace wants; returns these numbers.

    `seconds_of`: how long a request takes while so many are in flight.
    """
    ends: list[tuple[float, int, int, float]] = []
    limits = []
    for number in range(requests):
        while len(ends) >= pace.at_once:
            clock.now, _, texts, began = heapq.heappop(ends)
            pace.answered(texts, texts * 100, began)
            pace.end()
        texts = pace.texts
        began = pace.begin(texts)
        heapq.heappush(ends, (clock.now + seconds_of(len(ends) + 1), number, texts, began))
        limits.append(pace.at_once)
    for _ in ends:
        pace.end()
    return limits


def test_requests_grow_while_they_are_answered_soon(pace: Pace, clock: Time) -> None:
    """The first are small, because a session may be short."""
    sizes = [answered(pace, clock, 0.2) for _ in range(8)]
    assert sizes == [4, 8, 16, 32, 64, 128, 256, MOST_TEXTS]
    assert answered(pace, clock, 6.0) == MOST_TEXTS
    assert answered(pace, clock, 2.0) == MOST_TEXTS // 2 == pace.texts


@pytest.mark.parametrize(("most_texts", "most_bytes"), [(32, MOST_BYTES), (MOST_TEXTS, 9000)])
def test_what_an_endpoint_takes_is_learnt_from_refusals(
    pace: Pace, clock: Time, most_texts: int, most_bytes: int
) -> None:
    """Texts of 100 bytes: by their number, or by their bytes; few requests are refused."""
    refused = 0
    for _ in range(40):
        texts = pace.number([100] * 1000)
        began = pace.begin(texts)
        if texts > most_texts or texts * 100 > most_bytes:
            pace.refused(texts, texts * 100)
            refused += 1
        else:
            pace.answered(texts, texts * 100, began)
        pace.end()
        clock.advance(0.1)
    assert refused <= 2
    assert min(most_texts, most_bytes // 100) // 2 <= pace.number([100] * 1000) <= most_texts
    pace.blame_text()
    pace.answered(pace.texts, 100, clock())
    assert pace.number([1] * 1000) > pace.texts // 2


def test_more_requests_are_in_flight_while_that_brings_more(pace: Pace, clock: Time) -> None:
    limits = run(pace, clock, lambda in_flight: 0.15, 600)
    assert limits[0] == 2 and limits[-1] == MOST_AT_ONCE


def test_they_are_no_more_than_the_endpoint_answers_at_once(pace: Pace, clock: Time) -> None:
    """The endpoint answers four in the time of one; more only wait for one another."""
    limits = run(pace, clock, lambda in_flight: 0.15 * max(1, in_flight / 4), 3000)
    late = limits[1000:]
    assert 3 <= sum(late) / len(late) <= 7


def test_they_are_fewer_once_the_endpoint_is_slow_or_fails(pace: Pace, clock: Time) -> None:
    run(pace, clock, lambda in_flight: 0.15, 600)
    assert pace.at_once == MOST_AT_ONCE
    pace.failed(0.0)
    assert pace.at_once == MOST_AT_ONCE // 2
    pace.begin(1)  # after the rest
    pace.limited(1.0)
    assert pace.at_once == MOST_AT_ONCE // 4


def test_a_rest_is_as_long_as_the_endpoint_says(pace: Pace, clock: Time) -> None:
    assert pace.limited(7.0)
    began = clock()
    pace.begin(1)
    assert began + 7.0 == clock()
    pace.end()
    waits = [pace.failed(0.0) for _ in range(12)]
    assert waits[:3] == [2.0, 4.0, 8.0] and waits[-1] == 60.0
    assert pace.failed(99.0) == 99.0


@pytest.mark.parametrize("way", ["bucket", "window"])
@pytest.mark.parametrize("tells", [True, False])
def test_a_limit_of_texts_a_minute_is_kept(
    pace: Pace, clock: Time, way: str, *, tells: bool
) -> None:
    """An endpoint lets 500 texts a minute through, and says when to come again, or does not."""
    room, since, sent, refusals, requests = 500.0, clock(), 0, 0, 0
    began = clock()
    while clock() - began < 1800:
        texts = pace.texts
        at = pace.begin(texts)
        requests += 1
        if way == "bucket":
            room, since = min(500.0, room + (clock() - since) * 500 / 60), clock()
        elif clock() - since >= 60:
            room, since = 500.0, since + 60 * ((clock() - since) // 60)
        if texts <= room:
            room, sent = room - texts, sent + texts
            clock.advance(0.05)
            pace.answered(texts, texts * 100, at)
        else:
            wait = (texts - room) * 60 / 500 if way == "bucket" else since + 60 - clock()
            assert pace.limited(wait if tells else 0.0), "no error"
            refusals += 1
        pace.end()
    assert 0.85 * 15_000 <= sent <= 15_000 + 500 + MOST_TEXTS
    assert refusals <= requests / 4


def test_a_request_larger_than_what_is_ever_allowed_becomes_smaller(
    pace: Pace, clock: Time
) -> None:
    for _ in range(7):
        answered(pace, clock, 0.1)
    assert pace.texts == MOST_TEXTS
    tries = 0
    while pace.texts > 100:
        pace.begin(pace.texts)
        assert pace.limited(1.0)
        pace.end()
        tries += 1
    assert tries <= 3


def test_resting_in_vain_is_an_error_at_last(pace: Pace) -> None:
    outcomes = []
    for _ in range(12):
        pace.begin(1)
        outcomes.append(pace.limited(0.0))
        pace.end()
    assert outcomes[0] and not outcomes[-1]


def test_a_closed_pace_lets_no_request_begin(clock: Time) -> None:
    pace = Pace(clock=clock)
    pace.limited(100_000.0)
    pace.close()
    with pytest.raises(PaceClosed):
        pace.begin(1)
