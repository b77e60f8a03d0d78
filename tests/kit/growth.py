"""Measures how the time grows with the text, which says the same on a slow machine and a quick one.

It reads the thread's clock of the processor, so that other programs disturb it little.
"""

from __future__ import annotations

import gc
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

MOST_GROWTH = 2.5  # times as long for twice the text
_LIMIT_S = 0.5  # seconds of the processor, hundreds of times as many as a first text takes
_MEASURED_S = 0.002
# Characters. An expression that looks 2,000 characters ahead takes squares until there, and smaller
# texts would be judged by the speed of the machine.
LEAST_SIZE = 16_000
# Characters. Their squares would take minutes; with longer texts, memory's speed is measured.
_MOST_SIZE = 1_000_000
_TRIES = 3
_SQUARES = 20  # times as long as a text: more than four times the text takes by squares


class TooLong(Exception):
    pass


@contextmanager
def limited() -> Iterator[Callable[..., None]]:
    """Raises TooLong in a program that runs for too long; `re` looks for signals, too.

    The yielded function begins the time anew, with so many seconds.
    """

    def begin(seconds: float = _LIMIT_S) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)

    def stop(*args: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    begin()
    try:
        yield begin
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def seconds(run: Callable[[Any], object], text: Any, times: int) -> float:
    """Returns the processor time of the quickest of several runs."""
    best = float("inf")
    for _ in range(times):
        began = time.thread_time()
        run(text)
        best = min(best, time.thread_time() - began)
    return best


@contextmanager
def _without_collections() -> Iterator[None]:
    """Keeps the interpreter from looking for garbage, which takes as long as all objects need."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def growth(
    run: Callable[[Any], object], text_of: Callable[[int], Any], size: int = LEAST_SIZE
) -> float:
    """Returns how many times as long twice the text takes, at a size that can be measured.

    It compares with four times the text, so that a disturbed measurement weighs less, and looks
    again only where one look does not show a small growth. `size`: the least characters. Where the
    longest text takes hardly any time, the growth is 1.
    """
    try:
        with limited() as begin, _without_collections():
            while (least := seconds(run, text_of(size), 1)) < _MEASURED_S:
                if size >= _MOST_SIZE:
                    return 1.0
                size *= 2
                begin()
            begin(max(_LIMIT_S, _TRIES * _SQUARES * least))
            text, longer = text_of(size), text_of(4 * size)
            base = min(least, seconds(run, text, 1))
            top = seconds(run, longer, 1)
            if top > MOST_GROWTH**2 * base:
                base = min(base, seconds(run, text, _TRIES))
                top = min(top, seconds(run, longer, _TRIES))
            return math.sqrt(top / base)
    except TooLong:
        return math.inf


def least_growth(
    run: Callable[[Any], object],
    text_of: Callable[[int], Any],
    measurements: int = 4,
    size: int = LEAST_SIZE,
) -> float:
    """Returns the least growth of several measurements, or the first that is small enough.

    Other work on the machine may disturb a measurement, and hardly disturbs each of several.
    """
    least = float("inf")
    for _ in range(measurements):
        least = min(least, growth(run, text_of, size))
        if least <= MOST_GROWTH:
            break
    return least
