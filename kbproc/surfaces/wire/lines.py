"""Reads lines of limited length from a descriptor, until the client goes or a signal comes.

Signals interrupt only between two lines.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator

from kbproc.base.lines import LineCutter

_SKIPPED = b"\x00too large "
_MOST_DIGITS = 20
LOOK_MS = 1000  # between two checks that the parent still runs


class Stop(BaseException):
    """SIGTERM, SIGINT or SIGHUP, raised in the main thread, only between two requests."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum

    @property
    def exit_code(self) -> int:
        return 130 if self.signum == signal.SIGINT else 0


class Signals:
    """Handlers of SIGTERM, SIGINT and SIGHUP; the first signal counts, and is raised by `check`.

    It waits for `check` so that no request is interrupted between taking its place and its start.
    `woken` becomes readable once a signal has come, because a signal just before a blocking call
    would be noticed only after the call. `hurried`: a second signal has come.
    """

    def __init__(self) -> None:
        self.pending: int | None = None
        self.hurried = False
        self.woken = -1

    def install(self) -> None:
        self.woken, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signum != signal.SIGHUP or signal.getsignal(signum) is not signal.SIG_IGN:  # nohup
                signal.signal(signum, self._handle)

    def _handle(self, signum: int, frame: object) -> None:
        if self.pending is None:
            self.pending = signum
        else:
            self.hurried = True

    def is_hurried(self) -> bool:
        """Returns true if requests in flight must be given up at the end."""
        return self.hurried

    def check(self) -> None:
        """Raises Stop if a signal has come."""
        if self.pending is not None:
            raise Stop(self.pending)


class InputLines:
    """The lines of a descriptor; a line over the limit is dropped, to save memory."""

    def __init__(
        self,
        fd: int,
        limit: int,
        signals: Signals,
        first: bytes = b"",
        *,
        answers: int | None = None,
        parent: int | None = None,
    ) -> None:
        """`first`: bytes that were read already.

        The lines also end once the descriptor `answers` has no reader any more, and once the
        process `parent`, which had started this one, has gone.
        """
        self._first = first
        self._fd = fd
        self._limit = limit
        self._parent = parent
        self.signals = signals
        self._hangup = select.poll()
        self._hangup.register(fd, 0)
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self._unread = select.poll()
        if answers is not None:
            for poll in (self._hangup, self._poll, self._unread):
                poll.register(answers, 0)
        if signals.woken >= 0:
            self._poll.register(signals.woken, select.POLLIN)

    def ended(self) -> bool:
        """Returns true if the client has closed an end, or a signal has come."""
        return self.signals.pending is not None or bool(self._hangup.poll(0))

    def _read(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        while not self._poll.poll(LOOK_MS):
            if self._parent is not None and os.getppid() != self._parent:
                return b""
        self.signals.check()
        if self._unread.poll(0):
            return b""
        try:
            return os.read(self._fd, 1 << 16)
        except ConnectionResetError:  # the client closed its socket with unread lines
            return b""

    def __iter__(self) -> Iterator[bytes | int]:
        """Yields lines without newline; for a line that is too long, its size so far as an int.

        Raises Stop.
        """
        cutter = LineCutter()
        dropped_bytes = 0  # a line over the limit is not kept
        while block := self._read():
            for line in cutter.take(block):
                size = dropped_bytes + len(line)
                yield size if size > self._limit else line
                dropped_bytes = 0
            if dropped_bytes + cutter.unfinished_bytes > self._limit:
                dropped_bytes += len(cutter.unfinished())
        line = cutter.unfinished()
        if size := dropped_bytes + len(line):
            yield size if size > self._limit else line


def skipped(size: int) -> bytes:
    """Returns the line that an attached process sends the owner in place of a dropped long line."""
    return _SKIPPED + b"%d" % size


def size_skipped(line: bytes) -> int | None:
    """Returns the size that `skipped` wrote, which clients may send, too; None for other lines."""
    digits = line.removeprefix(_SKIPPED)
    if digits == line or len(digits) > _MOST_DIGITS or not digits.isdigit():
        return None
    return int(digits)
