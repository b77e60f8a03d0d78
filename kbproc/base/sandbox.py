"""Processes of kbproc's own, for work that could harm this one: parsers, SQL, torch.

Owns: starting one without anything of the user's (folder, environment, terminal, home), what
keeps libraries from calling anybody, both ends of its two pipes, the limits that it puts on
itself, what its end tells, and that nothing of it is left.
Refuses to know: what the process does, and what travels over its pipes.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import kbproc

_PIECE = 1 << 18
popen = subprocess.Popen  # tests put another in its place
_PR_SET_PDEATHSIG = 1
_MILLISECONDS = 1000

# Libraries read these when they are imported: they report to nobody, and download nothing.
ALONE = {
    "ORT_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}


def stay_alone() -> None:
    """For the libraries that this process is going to import."""
    os.environ.update(ALONE)


# ------------------------------------------------------------------ seen from the parent


class Child:
    """One process that runs a module of kbproc's, and the parent's ends of its pipes.

    `given` are the module's arguments; `environment` is all that it gets beside what every child
    needs. `send` and `receive` ask `patience` for how many seconds they may wait before they ask
    again; it raises when the time is up.
    """

    def __init__(
        self,
        module: str,
        *given: str,
        environment: Mapping[str, str],
        stderr: int | IO[bytes] = subprocess.DEVNULL,
    ) -> None:
        root = str(Path(kbproc.__file__).resolve().parents[1])
        # -P and a fixed folder: no module where the user works shadows a library.
        self.process = popen(
            [sys.executable, "-P", "-m", module, *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd="/",
            env={
                "PYTHONPATH": root,
                "PYTHONWARNINGS": "ignore",
                "LC_ALL": "C.UTF-8",
                "HOME": os.devnull,  # nothing can be left there
                **ALONE,
                **environment,
            },
            start_new_session=True,
        )
        assert self.process.stdin and self.process.stdout  # noqa: S101 both are PIPE
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        for pipe in (self.stdin, self.stdout):
            os.set_blocking(pipe.fileno(), False)
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
        """Kills, reaps, closes: afterwards nothing of the process is left."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.stdin, self.stdout):
            with contextlib.suppress(OSError):
                pipe.close()

    def send(self, data: bytes | bytearray, patience: Callable[[], float]) -> None:
        """Raises BrokenPipeError if the process has ended."""
        rest = memoryview(data)
        while rest:
            if self._writable.poll(patience() * _MILLISECONDS):
                rest = rest[os.write(self.stdin.fileno(), rest[:_PIECE]) :]

    def receive(self, most: int, patience: Callable[[], float]) -> bytes:
        """Between 1 and `most` bytes; raises EOFError if the process has ended."""
        while not self._readable.poll(patience() * _MILLISECONDS):
            pass
        data = os.read(self.stdout.fileno(), min(most, _PIECE))
        if not data:
            raise EOFError
        return data


def signal_name(status: int) -> str:
    """What ended a process, from its wait status: SIGKILL, or exit 3."""
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"exit {status}"


def may_lack_memory(status: int) -> bool:
    """An allocation that fails in native code aborts; the kernel's out-of-memory killer kills."""
    return status in {-signal.SIGABRT, -signal.SIGKILL}


# ------------------------------------------------------------------ called in the child


def end_with(parent: int) -> None:
    """Ends with the parent even while busy; while idle, stdin's end does it everywhere.

    Linux sends the signal when the thread that started the child ends, be it before its process.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def limit(memory_bytes: int, *, may_open: bool = True) -> None:
    """From here on: no more address space than this, no byte written to a file, no core dump.

    `may_open` False: no file or socket is opened any more.
    """
    import resource

    # A module compiled here could not be written, and would leave an empty file.
    sys.dont_write_bytecode = True
    limits = [
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ]
    if not may_open:
        limits.append((resource.RLIMIT_NOFILE, 0))
    for kind, most in limits:
        # macOS does not know RLIMIT_AS; a harder limit that is set already stays.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (most, most))


def limit_processor(seconds: float) -> None:
    """Processor time from now on, though the kernel counts it from the process's start."""
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    most = math.ceil(used.ru_utime + used.ru_stime + seconds) + 2
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (most, hard))
