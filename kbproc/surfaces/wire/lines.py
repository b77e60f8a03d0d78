"""What comes in: lines, and the signals that end them.

Owns: splitting what a descriptor holds into lines of limited length, noticing that the
client has gone, and the moments at which a signal may interrupt.
Refuses to know: what the lines say.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator

_SKIPPED = b"\x00too large "
_MOST_DIGITS = 20
_LOOK_MS = 1000  # how often one looks whether the parent is still there


class Stop(BaseException):
    """SIGTERM, SIGINT or SIGHUP, raised in the main thread and only where nothing can be torn."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum

    @property
    def exit_code(self) -> int:
        return 130 if self.signum == signal.SIGINT else 0


class Signals:
    """SIGTERM, SIGINT and SIGHUP: the first one counts, and waits until it can tear nothing.

    A request must not be cut between taking its place and being run. `woken` can be
    read once a signal has come: one that arrives just before a blocking call would
    else be noticed only after it. `hurried`: another one has come since.
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
        """Whether what is in flight at the end is to be given up."""
        return self.hurried

    def check(self) -> None:
        """Raises Stop for a signal that has come."""
        if self.pending is not None:
            raise Stop(self.pending)


class Lines:
    """The lines of a descriptor; a line over the limit is dropped, not kept in memory."""

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

        The lines end, too, once nobody reads the descriptor `answers` any more, and once the
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
        """True if the client has closed an end, or a signal has come."""
        return self.signals.pending is not None or bool(self._hangup.poll(0))

    def _read(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        while not self._poll.poll(_LOOK_MS):
            if self._parent is not None and os.getppid() != self._parent:
                return b""
        self.signals.check()
        if self._unread.poll(0):
            return b""
        try:
            return os.read(self._fd, 1 << 16)
        except ConnectionResetError:  # it is a socket, and who had the other end left lines unread
            return b""

    def __iter__(self) -> Iterator[bytes | int]:
        """Lines without newline; for a line that was too long, its size so far as an int.

        Raises Stop.
        """
        parts: list[bytes] = []
        size = 0
        while block := self._read():
            *ends, rest = block.split(b"\n")
            for end in ends:
                size += len(end)
                yield size if size > self._limit else b"".join([*parts, end])
                parts, size = [], 0
            size += len(rest)
            if size > self._limit:
                parts = []
            elif rest:
                parts.append(rest)
        if size:
            yield size if size > self._limit else b"".join(parts)


def skipped(size: int) -> bytes:
    """What an attached process sends the owner for a line that was too long and dropped."""
    return _SKIPPED + b"%d" % size


def size_skipped(line: bytes) -> int | None:
    """The size that `skipped` wrote; None for any other line. A client may send this, too."""
    digits = line.removeprefix(_SKIPPED)
    if digits == line or len(digits) > _MOST_DIGITS or not digits.isdigit():
        return None
    return int(digits)
