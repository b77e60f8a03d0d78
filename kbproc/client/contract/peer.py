"""A process that is judged, behind pipes.

Owns: starting it in the judge's folder and a process group of its own, lines in and out that hold
nobody up, signals, and its end, which nothing outlives.
Refuses to know: what the lines say.
"""

from __future__ import annotations

import contextlib
import io
import os
import queue
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence

popen = subprocess.Popen
_TOLD = 2000  # bytes of stderr that are shown


class Late(Exception):
    """What was waited for did not come in time."""


class NotStarted(Exception):
    """The command could not be run."""


def command_of(text: str, places: dict[str, str], variable: str) -> list[str]:
    """Words as a shell splits them, each `{name}` replaced; without `{store}` or the like the
    first place is passed as an environment variable. Raises NotStarted for unclosed quotes.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise NotStarted(f"{text!r} can't be split into words: {error}") from None
    if not words:
        raise NotStarted("the command is empty")
    found = [_filled(word, places) for word in words]
    first = next(iter(places.items()))
    if any("{" + first[0] + "}" in word for word in words):
        return found
    return ["/usr/bin/env", f"{variable}={first[1]}", *found]


def _filled(word: str, places: dict[str, str]) -> str:
    for name, value in places.items():
        word = word.replace("{" + name + "}", value)
    return word


class Peer:
    """Its lines are read and written by threads: whoever asks waits only as long as they say."""

    def __init__(self, command: Sequence[str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self.process = popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                start_new_session=True,
            )
        except OSError as error:
            self._stderr.close()
            raise NotStarted(f"{command[0]} could not be started: {error.strerror}") from None
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._in: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=_write, args=(self.process, self._out), daemon=True),
            threading.Thread(target=_read, args=(self.process, self._in), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def send(self, data: bytes) -> None:
        self._out.put(data)

    def end(self) -> None:
        """Closes its stdin once everything is written."""
        self._out.put(None)

    def line(self, deadline: float) -> bytes | None:
        """The next one, None at the end of its stdout. Raises Late."""
        try:
            line = self._in.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise Late from None
        if line is None:
            self._in.put(None)
        return line

    def signal(self, number: int) -> None:
        """SIGKILL is for all that it has started, too."""
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.process.pid, number)
            elif self.process.poll() is None:
                os.kill(self.process.pid, number)

    def wait(self, deadline: float) -> int:
        """Its exit code. Raises Late."""
        try:
            return self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Late from None

    def kill(self) -> None:
        """Whatever is left of it."""
        self.signal(signal.SIGKILL)
        self.process.wait()
        self.end()
        for thread in self._threads:
            thread.join()
        self._stderr.close()

    def told(self) -> str:
        """The end of what it wrote to stderr."""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _TOLD))
        return self._stderr.read().decode("utf-8", "replace").strip()


def _write(process: subprocess.Popen[bytes], lines: queue.SimpleQueue[bytes | None]) -> None:
    with contextlib.suppress(OSError), process.stdin or io.BytesIO() as stream:
        while (data := lines.get()) is not None:
            stream.write(data)
            stream.flush()


def _read(process: subprocess.Popen[bytes], lines: queue.SimpleQueue[bytes | None]) -> None:
    with process.stdout or io.BytesIO() as stream:
        for line in stream:
            lines.put(line)
    lines.put(None)
