"""One `kbproc serve`: a process whose pipes are read and written without blocking."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from subprocess import PIPE
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = 1 << 18
_LINGERS = 1.0  # seconds for a process whose pipes are closed

popen = subprocess.Popen


class Process:
    """A process in its own process group, so that a terminal's Ctrl-C reaches only the client."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str | Path | None,
        env: Mapping[str, str] | None,
        logs: bool,
    ) -> None:
        """`logs`: stderr is read here, too; else it goes to the client's stderr.

        Raises OSError.
        """
        self._popen = popen(
            command,
            cwd=cwd,
            env=env,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE if logs else None,
            process_group=0,
        )
        self.pid = self._popen.pid
        self._stdin, stdout = (
            cast(IO[bytes], self._popen.stdin),
            cast(IO[bytes], self._popen.stdout),
        )
        self.input = self._stdin.fileno()
        self.output = ProcessLines(stdout.fileno())
        self.log = ProcessLines(self._popen.stderr.fileno()) if self._popen.stderr else None
        self._to_write: deque[memoryview] = deque()
        self._is_open = True
        os.set_blocking(self.input, False)

    @property
    def has_to_write(self) -> bool:
        return self._is_open and bool(self._to_write)

    def give(self, data: bytes) -> None:
        """Writes as much as the pipe takes now; `write` writes the rest."""
        self._to_write.append(memoryview(data))
        self.write()

    def write(self) -> None:
        """Writes waiting data. Drops it if the process reads no more, which its output's end
        shows.
        """
        while self.has_to_write:
            try:
                written = os.write(self.input, self._to_write[0])
            except BlockingIOError:
                return
            except BrokenPipeError:
                self._to_write.clear()
                return
            self._to_write[0] = self._to_write[0][written:]
            if not self._to_write[0]:
                self._to_write.popleft()

    def leave(self) -> None:
        """Closes the process's input, after which it answers its requests and ends."""
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(BrokenPipeError):
                self._stdin.close()

    def end(self) -> int:
        """Makes sure that the process has ended; returns its exit code, negative for a signal."""
        self.leave()
        try:
            code = self._popen.wait(_LINGERS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            code = self._popen.wait()
        for pipe in (self._popen.stdout, self._popen.stderr):
            if pipe:
                pipe.close()
        return code

    def kill(self) -> None:
        self._popen.kill()


class ProcessLines:
    """Whole lines from a pipe; a torn last line is dropped."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._parts: list[bytes] = []

    def read(self) -> list[bytes] | None:
        """Returns the lines that have come; None at the end."""
        try:
            block = os.read(self.fd, _BLOCK)
        except BlockingIOError:
            return []
        if not block:
            return None
        if b"\n" not in block:  # part of a long line, which is joined once
            self._parts.append(block)
            return []
        *lines, rest = b"".join([*self._parts, block]).split(b"\n")
        self._parts = [rest] if rest else []
        return lines
