"""A process that stops at failpoints, so that its files are what a kill -9 would leave there.

A stopped process runs no thread: a copy of its files is exact, as of one moment. Then the process
goes on to the next point, so that one course of writes shows what a kill leaves at every point.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.breaks import scenario
from tests.kit.patience import PATIENCE, until
from tests.kit.talk import Process

_PROGRAM = """
import os, pathlib, signal, threading
from kbproc.base import failpoints
from kbproc.base.pipes import leave
from tests.kit import fixed

armed, stops = pathlib.Path({armed!r}), os.open({stops!r}, os.O_WRONLY)
one = threading.Lock()

def stop(reached):
    with one:
        if reached in armed.read_text().split():
            os.write(stops, f"{{reached}}\\n".encode())
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # it goes no step further

failpoints.arm(stop)
leave(fixed.main())
"""


class State(NamedTuple):
    """A copy of the scenario's folder as a kill leaves it, and the writes acknowledged by then."""

    files: Path
    acknowledged: int


class Course:
    """The scenario's folder, its process, and the states in which the process was stopped."""

    def __init__(self, folder: Path, copies: Path) -> None:
        self.states: dict[str, State] = {}
        self._folder, self._copies, self._acknowledged = folder, copies, 0
        self._armed, stops = copies / "armed", copies / "stops"
        self._armed.touch()
        os.mkfifo(stops)
        program = _PROGRAM.format(armed=str(self._armed), stops=str(stops))
        self.process = Process(
            folder / "store",
            cwd=folder,
            program=program,
            segment_bytes=scenario.SMALL_SEGMENT,
        )
        self._thread = threading.Thread(target=self._keep_states, args=(stops,))
        self._thread.start()

    def _keep_states(self, stops: Path) -> None:
        with stops.open() as lines:
            for point in map(str.strip, lines):
                until(lambda: self._statuses() <= {"T"} or "Z" in self._statuses(), "the stop")
                if "Z" in self._statuses():  # killed at its end
                    return
                if point not in self.states:
                    files = self._copies / point
                    but = shutil.ignore_patterns("lock", "kbproc.sock")
                    shutil.copytree(self._folder, files, ignore=but, copy_function=_keep)
                    self.states[point] = State(files, self._acknowledged)
                self.process.process.send_signal(signal.SIGCONT)

    def _statuses(self) -> set[str]:
        """Returns the states of all threads: T for a stopped one, Z for a dead process."""
        statuses = set()
        for task in Path(f"/proc/{self.process.process.pid}/task").glob("*/stat"):
            try:
                status = task.read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            statuses.add(status.rpartition(")")[2].split()[0])
        return statuses or {"Z"}

    def arm(self, points: Sequence[str]) -> None:
        """Stops the process the next time that it reaches one of the points."""
        pending = " ".join(point for point in points if point not in self.states)
        beside = self._armed.with_suffix(".new")
        beside.write_text(pending)
        beside.rename(self._armed)

    def run(self, armed: dict[str, int], writes: int, *, searches: bool = False) -> None:
        """Makes the first writes; arms each point from the write on that `armed` names.

        `searches`: a search follows each write.
        """
        ids = iter(range(1, 1000))
        for number in range(writes):
            self.arm([point for point, first in armed.items() if first <= number])
            answer = scenario.write(lambda m, **p: self.process.ask(next(ids), m, **p), number)
            assert "result" in answer, answer
            self._acknowledged = number + 1
            if searches:
                self.process.ask(next(ids), "search", query="lighthouse", mode="fts")

    def end(self) -> None:
        self.process.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


def _keep(source: str, target: str) -> None:
    """Copies a file; a note stays the same file, because that tells who has changed it."""
    if "/notes/" in source:
        os.link(source, target)
    else:
        shutil.copy2(source, target)


@contextlib.contextmanager
def course(folder: Path, copies: Path) -> Iterator[Course]:
    """Yields a course on a new store in the folder."""
    scenario.prepare(folder)
    running = Course(folder, copies)
    try:
        running.process.ready()
        yield running
    finally:
        running.end()
