"""Runs `kbproc hook EVENT`: one event of a client on stdin, its answer on stdout, exit code 0.

An agent waits for its hooks, and reads what they print. So a child process does the work, and this
one prints the child's whole answer, or what the client takes for silence: whatever the child does,
and however it ends, this process ends in time with exit code 0. What went wrong is noted in the
store's hook log.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from kbproc.base.processes import own_age
from kbproc.surfaces.hooks.deadline import deadline_of

if TYPE_CHECKING:
    from kbproc.surfaces.hooks.report import HookReport

# For the note of a deadline that has passed, and for the end of the process.
_MARGIN_MS = 150
_OF_PEOPLE = frozenset({"install", "remove", "report", "forget"})
_HELP = frozenset({"-h", "--help"})
_BLOCK = 1 << 16
_MOST_BYTES = 1 << 20


def is_event(argv: list[str]) -> bool:
    """Returns whether a client has sent this command line: one that a person types may fail."""
    is_hook = len(argv) > 1 and argv[0] == "hook" and argv[1] not in _OF_PEOPLE
    asks = (len(argv) == 2 and argv[1].startswith("-")) or bool(_HELP & set(argv))
    return is_hook and not asks and not sys.stdin.isatty()


def run(argv: list[str]) -> NoReturn:
    """Answers the event, prints the answer, and ends the process with exit code 0."""
    try:
        _run(argv)
    finally:
        os._exit(0)


def _run(argv: list[str]) -> None:
    deadline_ms = deadline_of(argv)
    end = time.monotonic() - own_age() + deadline_ms / 1000
    _end_at(end)
    _import()
    from kbproc.surfaces.hooks.report import read_report  # not above: every command imports this

    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _work(argv, writer, end)
    os.close(writer)
    data = _received(reader, end - _MARGIN_MS / 1000)
    report = read_report(data)
    if report.answer is not None:
        _print(report.answer)
        os.waitpid(pid, 0)
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    if not _says_delay(report):
        _print(report.silence.encode())
    _note(argv, report, deadline_ms)


def _end_at(end: float) -> None:
    """Ends this process at the moment by the monotonic clock, whatever it does then."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, max(0.001, end - time.monotonic()))


def _import() -> None:
    """Imports what the child needs and the parent may need, before there are two.

    So the parent, which has little time left when it notes a failure, imports nothing then.
    """
    from kbproc.base.spared import import_lean

    import_lean()
    import kbproc.surfaces.hooks.work  # noqa: F401


def _work(argv: list[str], writer: int, end: float) -> NoReturn:
    """Does the work in the child, which ends by itself if its parent was killed."""
    try:
        # A timer is of one process; the default ends this one even within a library's code.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, max(0.001, end - time.monotonic()))
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)  # so that nothing but the answer reaches the agent
        os.dup2(null, 2)
        from kbproc.surfaces.hooks.work import work

        work(argv[1:], writer)
    finally:
        os._exit(0)


def _received(reader: int, until: float) -> bytes:
    """Returns the bytes that came before the child closed the pipe, or the time was over."""
    data = b""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    while len(data) <= _MOST_BYTES:
        remaining = until - time.monotonic()
        if remaining <= 0 or not poll.poll(remaining * 1000):
            break
        block = os.read(reader, _BLOCK)
        if not block:
            break
        data += block
    return data


def _print(answer: bytes) -> None:
    """Writes the answer to stdout, as far as the client reads it."""
    rest = memoryview(answer)
    with contextlib.suppress(OSError):
        while rest:
            rest = rest[os.write(1, rest) :]


def _says_delay(report: HookReport) -> bool:
    """Says once in a session that the deadline has passed, if the child asked to; returns that."""
    if report.store is None or report.delay is None:
        return False
    from pathlib import Path  # imported late, as in `_run`

    from kbproc.surfaces.hooks.memory import is_first_delay

    with contextlib.suppress(OSError):
        if is_first_delay(Path(report.store), report.session):
            _print(f"{report.delay}\n".encode())
            return True
    return False


def _note(argv: list[str], report: HookReport, deadline_ms: int) -> None:
    """Notes that the deadline has passed."""
    if report.store is None or argv[1] == "tool":  # silence is what a late hint is worth
        return
    from pathlib import Path  # imported late, as in `_run`

    from kbproc.base.host import Host
    from kbproc.engine.store.hook_log import HookFailure, note

    problem = f"It did not end within {deadline_ms} ms, while it was {report.stage}."
    failure = HookFailure(ts=Host().now(), event=argv[1][:40], problem=problem)
    with contextlib.suppress(OSError):
        note(Path(report.store), failure)
