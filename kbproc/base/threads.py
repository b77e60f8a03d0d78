"""Threads for work in the background or ahead of its use.

The helpers run work inline where no thread can be started, lower a thread's priority, return
results in order, and give memory back to the system.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

_Item = TypeVar("_Item")
_Outcome = TypeVar("_Outcome")

_NICE = 10
_LOOKS_S = 0.25
# glibc's parameters (mallopt(3)): M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD.
_HEAPS = {-8: 2, -3: 8 << 20, -1: 16 << 20}


def start_thread(run: Callable[[], object], name: str) -> threading.Thread:
    """Runs `run` in a new daemon thread. Raises RuntimeError if the system can't start one.

    It is for work that happens once, or that waits for one descriptor until its end. Work in steps
    has a Worker, and jobs that come one after the other have a Pool.
    """
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def apart(act: Callable[[], object], name: str) -> threading.Thread:
    """Runs `act` in a new thread; first in this one if the system can't start a thread."""
    thread = threading.Thread(target=act, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        act()
    return thread


def lower_priority() -> None:
    """Lowers this thread's priority on Linux, so that searches get the processor first.

    It is relative to the process's own priority, because somebody may have started it under `nice`.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            process = os.getpriority(os.PRIO_PROCESS, os.getpid())
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), process + _NICE)


def processors() -> int:
    """Returns how many processors this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_heaps() -> None:
    """Makes threads started from now on share two of glibc's heaps, which keep 16 MB when freed.

    glibc gives each thread its own heap, up to eight for each processor, and memory freed in one
    can't be used by another. It would also map the 4 MB table of each commit of the full-text
    index anew, and a thousand page faults take longer than the rest of a small commit.
    """
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):  # another C library
            set_parameter = ctypes.CDLL(None).mallopt
            for parameter, value in _HEAPS.items():
                set_parameter(parameter, value)


def return_memory() -> None:
    """Returns freed memory from glibc to the system."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


def return_pages(folder: Path) -> None:
    """Releases the mapped read-only pages of the files in `folder`.

    The system keeps such pages while it has room, and reads them again on use.
    """
    if sys.platform != "linux":
        return
    import ctypes
    import mmap

    with contextlib.suppress(OSError, AttributeError):
        advise = ctypes.CDLL(None).madvise
        inside = f"{os.path.realpath(folder)}{os.sep}"
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            stretch, allowed, *_, path = line.split(maxsplit=5)
            if allowed.startswith("r--") and path.startswith(inside):
                start, end = (int(at, 16) for at in stretch.split("-"))
                advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def map_ahead(
    work: Callable[[_Item], _Outcome],
    items: Iterable[_Item],
    *,
    threads: int,
    name: str,
    while_waiting: Callable[[], None] | None = None,
) -> Generator[_Outcome]:
    """Yields `work(item)` of each item in order, working on up to `threads` items ahead.

    The consuming thread calls `while_waiting` every quarter of a second. Closing the generator
    cancels items that have not begun.
    """
    from concurrent.futures import ThreadPoolExecutor, wait

    def result(future: Future[_Outcome]) -> _Outcome:
        while while_waiting is not None and not wait([future], _LOOKS_S).done:
            while_waiting()
        return future.result()

    with ThreadPoolExecutor(threads, thread_name_prefix=name) as executor:
        ahead: deque[Future[_Outcome]] = deque()
        try:
            for item in items:
                ahead.append(executor.submit(work, item))
                if len(ahead) >= threads:
                    yield result(ahead.popleft())
            while ahead:
                yield result(ahead.popleft())
        finally:
            for future in ahead:
                future.cancel()
