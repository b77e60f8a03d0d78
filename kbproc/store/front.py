"""What readers see of a live store, and those who wait for it to change.

Owns: the published position, the version that tells readers of a commit being shown, and
waking whoever waits.
Refuses to know: how anything comes to be shown (store.py), and what is read.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from kbproc.base.errors import KbprocError
from kbproc.store.snapshot import Published, Readers, Snapshot
from kbproc.views.catalog.reader import Sight


class Front:
    """One per open store. Nothing is read before `show` was called once."""

    def __init__(self) -> None:
        self.published: Published
        self.readers: Readers
        self.version = 0
        self.broken: KbprocError | None = None
        self._changed = threading.Condition()
        self._watchers: list[Callable[[], None]] = []

    @contextlib.contextmanager
    def reading(self, sight: Sight | None = None) -> Iterator[Snapshot]:
        """`sight`: what may be seen; None is everything."""
        snapshot = Snapshot(self, sight)
        try:
            yield snapshot
        finally:
            snapshot.close()

    @property
    def seq(self) -> int:
        """The position that readers see."""
        return self.published.seq

    @property
    def chunks(self) -> int:
        """How many chunks readers see."""
        return self.published.chunks

    @contextlib.contextmanager
    def showing(self) -> Iterator[None]:
        """Around every change to what readers see: see snapshot.Shown."""
        self.version += 1
        try:
            yield
        finally:
            self.version += 1

    def show(self, published: Published) -> None:
        with self._changed:
            self.published = published
            self._changed.notify_all()

    def changed(self) -> None:
        """Wakes whoever waits for something that could not be seen before."""
        with self._changed:
            self._changed.notify_all()
        for tell in self._watchers:
            tell()

    def on_change(self, tell: Callable[[], None]) -> None:
        """`tell` is called after every change, by the thread that made it."""
        self._watchers.append(tell)

    def wait_for(self, seq: int, timeout_s: float | None) -> bool:
        """Until readers see `seq`; False if the time passed first."""
        with self._changed:
            return self._changed.wait_for(lambda: self.published.seq >= seq, timeout_s)

    def wait_for_change(self, timeout_s: float) -> None:
        with self._changed:
            self._changed.wait(timeout_s)
