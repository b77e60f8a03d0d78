"""Threads that work in the background or ahead.

Owns: their low priority, results in order from several threads, and what they leave of memory.
Refuses to know: what the work is.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")

_NICE = 10


def lower_priority() -> None:
    """On Linux a thread has its own priority: searches get the processor first."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def return_memory() -> None:
    """Gives back to the system what glibc holds of freed memory, a heap for each thread."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


def map_ahead(
    work: Callable[[_Given], _Made],
    items: Iterable[_Given],
    *,
    threads: int,
    name: str,
    most: int | None = None,
) -> Generator[_Made]:
    """`work(item)` of each item, in order, `most` of them being worked on ahead of the next.

    `most`: a few, as many as there are `threads`, unless whoever takes them pauses at times.
    Closing the generator cancels those that have not begun.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix=name) as executor:
        ahead: deque[Future[_Made]] = deque()
        try:
            for item in items:
                ahead.append(executor.submit(work, item))
                if len(ahead) >= (most or threads):
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
