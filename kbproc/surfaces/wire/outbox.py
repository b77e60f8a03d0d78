"""Writes outgoing lines in order, and delays streams and requests while the client reads slowly."""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable

from kbproc.base.durable import write_all
from kbproc.base.workers import Worker

_ATOMIC = select.PIPE_BUF
_CONGESTED = 256
_CONGESTED_BYTES = 4 << 20
_FULL_BYTES = 32 << 20


class Outbox:
    """A queue of outgoing lines.

    A short line is written at once if the pipe has room, and on Linux a longer one if the pipe is
    empty, because waking another thread takes longer.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._writing = False
        self._closed = False
        self._worker = Worker("outbox", self._step, first_s=None)
        # Called when the outbox is congested no more; it must not block.
        self.on_room: Callable[[], None] = lambda: None
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._is_pipe = sys.platform == "linux" and stat.S_ISFIFO(os.fstat(fd).st_mode)

    def send(self, line: bytes) -> None:
        data = line + b"\n"
        with self._changed:
            if self._closed:
                return
            if not self._lines and not self._writing and self._has_room(len(data)):
                self._write(data)
                return
            self._lines.append(data)
            self._bytes += len(data)
            try:
                self._worker.start()
                self._worker.wake()
            except RuntimeError:  # the system starts no more threads
                self._write(self._take())

    def _take(self) -> bytes:
        data = b"".join(self._lines)
        self._lines.clear()
        self._bytes = 0
        return data

    @property
    def congested(self) -> bool:
        return len(self._lines) > _CONGESTED or self._bytes > _CONGESTED_BYTES

    @property
    def full(self) -> bool:
        return self._bytes > _FULL_BYTES

    @property
    def held(self) -> tuple[int, int]:
        """Returns the number of unsent lines, and their bytes."""
        return len(self._lines), self._bytes

    def wait_for_room(self, given_up: Callable[[], bool]) -> None:
        """Delays a stream until the client has read on."""
        self._wait_while(lambda: self.congested, given_up)

    def wait_until_not_full(self, given_up: Callable[[], bool]) -> None:
        """Delays a client that sends requests and does not read responses."""
        self._wait_while(lambda: self.full, given_up)

    def _wait_while(self, blocked: Callable[[], bool], given_up: Callable[[], bool]) -> None:
        with self._changed:
            while blocked() and not self._closed and not given_up():
                self._changed.wait(0.1)

    def flush(self, timeout_s: float) -> bool:
        """Waits until all lines are written; returns false if time is up or the reader has gone."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or (not self._lines and not self._writing), timeout_s
            )
            return not (self._closed or self._lines or self._writing)

    def close(self) -> None:
        """Ends the thread; unwritten lines are lost."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._worker.close(1.0)

    def _has_room(self, size: int) -> bool:
        """Returns true if a write of so many bytes does not block.

        A pipe that polls writable takes PIPE_BUF bytes, and an empty one its whole size, if Linux
        tells it. Half of the size is left to other writers, such as stderr on the same pipe.
        """
        if size > _ATOMIC:
            return self._is_pipe and 2 * size <= _empty_pipe_size(self._fd)
        return any(event & select.POLLOUT for _, event in self._poll.poll(0))

    def _write(self, data: bytes) -> None:
        try:
            write_all(self._fd, data)
        except OSError:  # the reader is gone
            self._closed = True
            self._worker.stop()

    def _step(self, is_woken: bool) -> None:
        with self._changed:
            if self._closed:
                return
            had_room = not self.congested
            data = self._take()
            self._writing = True
            self._changed.notify_all()
        if not had_room:
            self.on_room()
        self._write(data)
        with self._changed:
            self._writing = False
            self._changed.notify_all()


def _empty_pipe_size(pipe: int) -> int:
    """Returns the size of the pipe in bytes if it is empty; else 0."""
    import fcntl
    import termios

    try:
        unread = fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))
        return 0 if any(unread) else fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
    except OSError:  # because another thread has closed it
        return 0
