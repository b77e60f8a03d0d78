"""A thread of one's own that takes steps, and pauses that grow with each failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from kbproc.base.threads import lower_priority, start_thread

# Gets True after `wake`, False where the time that the last step named has passed. Returns the
# seconds until the next step; None: until `wake`. It must not raise.
Step = Callable[[bool], float | None]


_MOST_DOUBLINGS = 64  # more would overflow at last
_SLICE_S = 0.005  # processor seconds; Python lets a thread keep its lock for as long
_CONTENDED = 1.5  # times as long a slice takes where other threads work, too
_REST = 10  # slices that a pause takes


class Pace(Protocol):
    """Is called often by long work, and may pause. Raises WorkerStopped where the work is to end.

    `rests` False: it does not pause, because somebody waits for this part of the work.
    """

    def __call__(self, *, rests: bool = True) -> object: ...


def at_once(*, rests: bool = True) -> None:
    """Is the pace of work for which somebody waits: it has no pause."""


class WorkerStopped(Exception):
    """The worker was stopped within a step."""


class Worker:
    """A daemon thread that takes one step after the other, from `start` to `stop`.

    The first step comes `first_s` after the start; None: with the first `wake`. Any thread may call
    any method, and the step itself, too.
    """

    def __init__(
        self, name: str, step: Step, *, first_s: float | None = 0.0, gives_way: bool = False
    ) -> None:
        """`gives_way`: the thread has a low priority."""
        self._gives_way = gives_way
        self._name = name
        self._step = step
        self._first_s = first_s
        self._changed = threading.Condition()
        self._is_woken = False
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        self._slice_from = (0.0, 0.0)  # seconds: of the thread's time, of the clock

    def start(self) -> bool:
        """Starts the thread; returns False if it was started or stopped before.

        Raises RuntimeError if the system can't start a thread; then a later call tries again.
        """
        with self._changed:
            if self._thread is not None or self._is_stopped:
                return False
            self._thread = start_thread(self._run, self._name)
            return True

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    @property
    def is_running(self) -> bool:
        """True from `start` until the thread has ended."""
        return self._thread is not None and self._thread.is_alive()

    def wake(self) -> None:
        """Has the next step begin at once, after one that runs. Never blocks."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def pause(self, seconds: float) -> bool:
        """Waits within a step; returns False, and at once, where the worker is stopped."""
        with self._changed:
            return not self._changed.wait_for(lambda: self._is_stopped, seconds)

    def give_way(self, *, rests: bool = True) -> None:
        """Is the Pace of a step: pauses if other threads work. Raises WorkerStopped after `stop`.

        A request takes Python's lock several times, and waits for it each time that this thread
        has it. So long work in Python calls this often, and rests after a slice that others
        have made longer.
        """
        used, now = time.thread_time(), time.monotonic()
        work_s, slice_s = used - self._slice_from[0], now - self._slice_from[1]
        if rests and work_s >= _SLICE_S:
            if slice_s > _CONTENDED * work_s:
                self.pause(_REST * min(_SLICE_S, slice_s - work_s))
            self._slice_from = (time.thread_time(), time.monotonic())
        if self._is_stopped:
            raise WorkerStopped

    def stop(self) -> None:
        """Lets no further step begin. A step that runs goes on; `join` waits for it."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def join(self, timeout_s: float | None = None) -> None:
        """Waits for the end of the thread, unless it is the caller's."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        self.stop()
        self.join(timeout_s)

    def _run(self) -> None:
        if self._gives_way:
            lower_priority()
        wait_s = self._first_s
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_woken or self._is_stopped, wait_s)
                if self._is_stopped:
                    return
                is_woken, self._is_woken = self._is_woken, False
            wait_s = self._step(is_woken)


class Backoff:
    """Seconds to wait after failures in a row: `first_s`, twice as many each time, `longest_s`.

    The client, which imports no other package, has `pause_after` of client/request.py.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self.failures = 0

    def failed(self) -> float:
        """Counts a failure; returns the seconds to wait before the next try."""
        self.failures += 1
        doublings = min(self.failures - 1, _MOST_DOUBLINGS)
        return min(self._longest_s, self._first_s * 2.0**doublings)

    def reset(self) -> None:
        """Notes a success."""
        self.failures = 0
