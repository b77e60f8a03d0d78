"""The process's file descriptors and its end.

It takes fds 0 and 1 away before anything heavy is imported, so that no library's print can tear a
line of the wire.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn

from kbproc.base.spared import loaded


def complete() -> None:
    """Opens the standard descriptors that are closed, before a file can take their numbers.

    stdin reads as empty and output to stderr is lost. Writing to stdout fails, because a lost
    answer must be noticed.
    """
    for fd, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, mode)  # the lowest number that is free, which is `fd`
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, "r", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def claim() -> tuple[int, int]:
    """Returns (read, write) descriptors of the wire.

    From then on fd 0 reads as empty and fd 1 is stderr: a stray print lands in the log, a stray
    read gets end of file. Children inherit neither.
    """
    reader, writer = os.dup(0), os.dup(1)
    os.set_inheritable(reader, False)
    os.set_inheritable(writer, False)
    for fd in (reader, writer):  # the parent may have left its pipes non-blocking
        os.set_blocking(fd, True)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    # The old stream may take fd 1 for a file in which it can seek.
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    return reader, writer


def claim_from_parent() -> int:
    """Returns the descriptor to write to; the process ends as soon as its parent closes stdin."""
    from kbproc.base.threads import start_thread  # not above: it takes long

    reader, writer = claim()

    def end_with_parent() -> None:
        os.read(reader, 1)
        os._exit(1)

    start_thread(end_with_parent, "parent")
    return writer


def leave(code: int) -> NoReturn:
    """Ends the process at once; everything must be closed before.

    Taking the interpreter apart takes time, and msgspec 0.22 can crash when the last collection
    frees its types: in one of three runs, once all schemas were made.
    """
    if (logging := loaded("logging")) is not None:  # a process without a log imports none to end it
        logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        # no reader, or a full disk; the error was reported before
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)
