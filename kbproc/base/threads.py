"""Threads that work in the background or ahead.

Owns: going on where none can be started, their low priority, results in order from several
threads, what they leave of memory, and what several of them hold until none does.
Refuses to know: what the work is.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kbproc.base.errors import KbprocError

if TYPE_CHECKING:
    from concurrent.futures import Future

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")

_NICE = 10
_LOOKS_S = 0.25
_HEAPS = 2
_ARENA_MAX = -8  # glibc's M_ARENA_MAX
_logger = logging.getLogger(__name__)


def apart(act: Callable[[], object], name: str) -> threading.Thread:
    """A thread that runs `act`; where the system refuses to start one, it is run here first."""
    thread = threading.Thread(target=act, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        act()
    return thread


def lower_priority() -> None:
    """On Linux a thread has its own priority: searches get the processor first."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def share_heaps() -> None:
    """Threads that come from now on share two of glibc's heaps.

    glibc gives each thread one of its own, up to eight for each processor, and what one of them
    has freed no other can use.
    """
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_ARENA_MAX, _HEAPS)


def return_memory() -> None:
    """Gives back to the system what glibc holds of freed memory."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


def return_pages(folder: Path) -> None:
    """Lets go of the pages of files in `folder` that are mapped to be read only.

    The system keeps them as long as it has room, and gives them back when they are read again.
    """
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        advise = ctypes.CDLL(None).madvise
        inside = f"{os.path.realpath(folder)}{os.sep}"
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            stretch, allowed, *_, path = line.split(maxsplit=5)
            if allowed.startswith("r--") and path.startswith(inside):
                start, end = (int(at, 16) for at in stretch.split("-"))
                advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def map_ahead(
    work: Callable[[_Given], _Made],
    items: Iterable[_Given],
    *,
    threads: int,
    name: str,
    most: int | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> Generator[_Made]:
    """`work(item)` of each item, in order, `most` of them being worked on ahead of the next.

    `most`: a few, as many as there are `threads`, unless whoever takes them pauses at times.
    The thread that takes them calls `meanwhile` every quarter of a second while it waits.
    Closing the generator cancels those that have not begun.
    """
    from concurrent.futures import ThreadPoolExecutor, wait

    def result(future: Future[_Made]) -> _Made:
        while meanwhile is not None and not wait([future], _LOOKS_S).done:
            meanwhile()
        return future.result()

    with ThreadPoolExecutor(threads, thread_name_prefix=name) as executor:
        ahead: deque[Future[_Made]] = deque()
        try:
            for item in items:
                ahead.append(executor.submit(work, item))
                if len(ahead) >= (most or threads):
                    yield result(ahead.popleft())
            while ahead:
                yield result(ahead.popleft())
        finally:
            for future in ahead:
                future.cancel()


def at_once(
    work: Callable[[_Given], _Made], items: Collection[_Given], threads: int
) -> list[_Made]:
    """`work(item)` of each item, in any order, on at most so many threads."""
    if len(items) < 2:
        return [work(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    listed, many = list(items), min(threads, len(items))

    def some(first: int) -> list[_Made]:
        return [work(item) for item in listed[first::many]]

    with ThreadPoolExecutor(many, thread_name_prefix="at-once") as executor:
        return [done for each in executor.map(some, range(many)) for done in each]


class Held:
    """What stands under a name, for as long as somebody refers to this."""

    __slots__ = ("__weakref__", "data", "name")

    def __init__(self, name: str, data: bytes | None) -> None:
        self.name = name
        self.data = data


class Holding:
    """Names that are held, those of them that wait, and those that were left somewhere for good
    only once they are kept: `drop` takes away what nobody holds any more and nobody has kept, at
    the end of a turn.
    """

    def __init__(self, drop: Callable[[str], object]) -> None:
        self._drop = drop
        self._held: weakref.WeakValueDictionary[str, Held] = weakref.WeakValueDictionary()
        self._waiting: set[str] = set()
        self._lying: set[str] = set()  # what was left and is not kept
        self._gone: deque[str] = deque()  # such as nobody holds any more
        self._changing = threading.RLock()  # what is held may end in any line of a thread
        self._turn = threading.Lock()

    def hold(self, name: str, data: bytes | None) -> Held:
        """Whoever asks for the same name meanwhile holds the same."""
        with self._changing:
            held = self._held.get(name)
            if held is None:
                held = self._held[name] = Held(name, data)
                weakref.finalize(held, self._let_go, name).atexit = False
            return held

    def get(self, name: str) -> Held | None:
        return self._held.get(name)

    def wait(self, name: str) -> None:
        with self._changing:
            self._waiting.add(name)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[set[str]]:
        """All that wait; they go on waiting if this fails."""
        with self._changing:
            waiting, self._waiting = self._waiting, set()
        try:
            yield waiting
        except BaseException:
            with self._changing:
                self._waiting |= waiting
            raise

    def leave(self, names: Iterable[str]) -> None:
        with self._changing:
            self._lying.update(names)

    def keep(self, names: Iterable[str]) -> None:
        with self._changing:
            self._lying.difference_update(names)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """One thread at a time changes what lies there; what is to go goes."""
        try:
            with self._turn:
                yield
        finally:
            self._clear()

    def _let_go(self, name: str) -> None:
        """In any thread, in any line of it: so it takes no lock and waits for nothing.

        Python collects garbage wherever it likes, inside of an executor's `submit`, too.
        """
        self._waiting.discard(name)
        if name in self._lying:
            self._gone.append(name)

    def _clear(self) -> None:
        while self._gone and self._turn.acquire(blocking=False):
            try:
                self._drop_unheld(self._gone.popleft())
            except IndexError:  # another was faster
                return
            except (KbprocError, OSError) as error:
                _logger.warning("what nobody holds stays: %s", error)
            finally:
                self._turn.release()

    def _drop_unheld(self, name: str) -> None:
        with self._changing:  # whoever holds it again finds it there, or not
            if name in self._lying and self._held.get(name) is None:
                self._lying.discard(name)
                self._drop(name)
