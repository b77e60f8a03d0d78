"""Child processes of kbproc, for work that could harm or delay it: parsers, SQL, words, torch.

A child gets nothing of the user's: no folder, environment, terminal or home. The module runs both
ends of its two pipes, sets the child's limits, keeps libraries from calling home, explains how the
child ended, and makes sure that nothing of it is left.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import kbproc
from kbproc.base.frames import LENGTH
from kbproc.base.host import ALONE
from kbproc.base.lines import LineCutter

_PIECE = 1 << 18
popen = subprocess.Popen  # tests replace this
_PR_SET_PDEATHSIG = 1
_MILLISECONDS = 1000

# ------------------------------------------------------------------ seen from the parent


class Child:
    """A process that runs a module of kbproc, and the parent's ends of its pipes.

    `arguments` go to the module; `environment` is added to the variables that every child gets.
    `send` and `receive` call `patience` for the seconds until the next call; it raises when the
    time is up.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        environment: Mapping[str, str],
        stderr: int | IO[bytes] = subprocess.DEVNULL,
    ) -> None:
        root = str(Path(kbproc.__file__).resolve().parents[1])
        # -P and a fixed folder, so that no module in the user's folder shadows a library.
        self.process = popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd="/",
            env={
                "PYTHONPATH": root,
                "PYTHONWARNINGS": "ignore",
                "LC_ALL": "C.UTF-8",
                "HOME": os.devnull,  # a library can write nothing there
                **ALONE,
                **environment,
            },
            start_new_session=True,
        )
        assert self.process.stdin and self.process.stdout  # noqa: S101 both are PIPE
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        for pipe in (self.stdin, self.stdout):
            os.set_blocking(pipe.fileno(), False)
        self._cutter = LineCutter()
        self._lines: deque[bytes] = deque()
        self._writable, self._readable = select.poll(), select.poll()
        self._writable.register(self.stdin, select.POLLOUT)
        self._readable.register(self.stdout, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        """Kills and reaps the process and closes its pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.stdin, self.stdout):
            with contextlib.suppress(OSError):
                pipe.close()

    def send(self, data: bytes | bytearray, patience: Callable[[], float]) -> None:
        """Writes all of `data`; raises BrokenPipeError if the process has ended."""
        rest = memoryview(data)
        while rest:
            if self._writable.poll(patience() * _MILLISECONDS):
                rest = rest[os.write(self.stdin.fileno(), rest[:_PIECE]) :]

    def receive(self, most: int, patience: Callable[[], float]) -> bytes:
        """Returns between 1 and `most` bytes; raises EOFError if the process has ended."""
        while not self._readable.poll(patience() * _MILLISECONDS):
            pass
        data = os.read(self.stdout.fileno(), min(most, _PIECE))
        if not data:
            raise EOFError
        return data

    def receive_line(self, patience: Callable[[], float]) -> bytes:
        """Returns the next line without its newline; raises EOFError if the process has ended."""
        while not self._lines:
            self._lines.extend(self._cutter.take(self.receive(_PIECE, patience)))
        return self._lines.popleft()

    def receive_frame(self, patience: Callable[[], float]) -> bytes:
        """Returns the next message, not decoded; raises EOFError if the process has ended."""
        (size,) = LENGTH.unpack(self._receive_all(LENGTH.size, patience))
        return self._receive_all(size, patience)

    def _receive_all(self, size: int, patience: Callable[[], float]) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += self.receive(size - len(data), patience)
        return bytes(data)


def patience_for(seconds: float) -> Callable[[], float]:
    """Returns a function of the seconds that remain from now on, which raises TimeoutError after
    the last; see `Child`.
    """
    deadline = time.monotonic() + seconds

    def patience() -> float:
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        return remaining_s

    return patience


def signal_name(status: int) -> str:
    """Returns what ended a process, from its wait status: SIGKILL, or exit 3."""
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"exit {status}"


def may_lack_memory(status: int) -> bool:
    """Returns whether a lack of memory may have ended the process.

    An allocation that fails in native code aborts; the kernel's out-of-memory killer kills.
    """
    return status in {-signal.SIGABRT, -signal.SIGKILL}


# ------------------------------------------------------------------ called in the child


def end_with(parent: int) -> None:
    """Makes this process end with its parent, even while busy; an idle one ends with its stdin.

    Linux sends the signal when the thread that started the child ends, even if its process goes on.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def limit(memory_bytes: int, *, may_open: bool = True) -> None:
    """Limits this process: its address space, no writing to files, no core dump.

    `may_open` False: it can open no more files and sockets.
    """
    import resource

    # A compiled module could not be written, and would leave an empty file.
    sys.dont_write_bytecode = True
    limits = [
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ]
    if not may_open:
        limits.append((resource.RLIMIT_NOFILE, 0))
    for kind, most in limits:
        # macOS has no RLIMIT_AS; a harder limit that is already set stays.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (most, most))


def limit_processor(seconds: float) -> None:
    """Limits the processor time from now on; the kernel counts it from the process's start."""
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    most = math.ceil(used.ru_utime + used.ru_stime + seconds) + 2
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (most, hard))
