"""The process's ends: its file descriptors, and its end.

Owns: taking fds 0 and 1 away from everybody else, before anything heavy is
imported, so that no library's print can tear a line of the wire.
Refuses to know: what travels over them.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def claim() -> tuple[int, int]:
    """Returns (read, write) descriptors of the wire.

    From then on fd 0 reads as empty and fd 1 is stderr: a stray print lands in
    the log, a stray read gets end of file. Children inherit neither.
    """
    reader, writer = os.dup(0), os.dup(1)
    os.set_inheritable(reader, False)
    os.set_inheritable(writer, False)
    for fd in (reader, writer):  # whoever made the pipes may have left them non-blocking
        os.set_blocking(fd, True)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return reader, writer


def leave(code: int) -> NoReturn:
    """Ends the process at once, everything being closed.

    Taking the interpreter apart takes time, and msgspec 0.22 can crash when the
    last collection frees its types: one in three, once all schemas were made.
    """
    import logging

    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
