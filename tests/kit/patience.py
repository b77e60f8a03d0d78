"""Waiting for what happens elsewhere.

No test waits on the clock, or asks it how long something took: it waits for a condition,
and the bounds here only end what hangs. How slow the machine is makes no difference.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

LONG = os.environ.get("KBPROC_TEST_PROFILE") == "long"
PATIENCE = 120.0  # seconds: after this, what is waited for never comes
LIVES = 900.0 if LONG else 300.0  # seconds that a process of a test may live


def all_or(some: Iterable[T], all: Iterable[T]) -> list[T]:
    """What a test goes through: `all` of it in the long profile, `some` otherwise."""
    return list(all if LONG else some)


def until(condition: Callable[[], Any], what: str, told: Callable[[], str] = lambda: "") -> None:
    """Asks again and again: for what nobody notifies of, as the state of other processes."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}; {told()}"
        time.sleep(0.005)
