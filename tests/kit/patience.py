"""Waits for conditions in other threads and processes.

No test sleeps for a fixed time or measures one: it waits for a condition, and the bounds here
only end tests that hang. So a slow machine fails no test. Where time is the subject, the clock is
an argument (`Host`); where it can't be, `longer` tries with more and more of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

LONG = os.environ.get("KBPROC_TEST_PROFILE") == "long"
# Seconds after which a wait fails; fewer where many tests are meant to fail: see tools/mutants.py.
PATIENCE = float(os.environ.get("KBPROC_TEST_PATIENCE", "120"))
# Seconds that a process of a test may live.
LIVES = max(900.0 if LONG else 300.0, 2 * PATIENCE)
# Seconds in which what must not happen would happen; a slow machine hides it, and fails no test.
GLIMPSE = 0.1
PAUSE = 0.005  # seconds between two looks, or two bytes of a program that is slow on purpose


def all_or(some: Iterable[T], all: Iterable[T]) -> list[T]:
    """Returns a test's cases: `all` in the long profile, otherwise `some`."""
    return list(all if LONG else some)


def until(condition: Callable[[], Any], what: str, details: Callable[[], str] = lambda: "") -> None:
    """Polls a condition that has no notification, such as the state of another process."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}; {details()}"
        time.sleep(PAUSE)


def longer(attempt: Callable[[float], T], is_done: Callable[[T], Any], seconds: float) -> T:
    """Returns the first result that is done; each attempt has twice the seconds of the last one.

    For programs that get their time as a number, where the first seconds suffice a usual machine.
    """
    while not is_done(result := attempt(seconds)):
        assert seconds < PATIENCE, f"not even {seconds:g} seconds suffice: {result}"
        seconds *= 2
    return result
