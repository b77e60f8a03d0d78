"""Reads documents in separate processes with limits, so that no document can harm this process.

Workers start when they are first needed, read one document after the other, and are replaced when
a document kills them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor

from kbproc.base.errors import KbprocError
from kbproc.base.frames import frame
from kbproc.base.sandbox import Child, may_lack_memory, patience_for, signal_name
from kbproc.base.values import NOT_READABLE
from kbproc.engine.sources.parse.blocks import Parsed
from kbproc.engine.sources.parse.formats import cleaned
from kbproc.engine.sources.parse.progress import Progress
from kbproc.engine.sources.parse.text import paragraphs
from kbproc.engine.sources.parse.worker import (
    OUT_OF_MEMORY,
    REPORTS_A_SECOND,
    ParseAnswer,
    ParseAnswers,
    ParsedChunks,
    ParseFailure,
    ParserJob,
    Setup,
    chunked,
    decode_frame,
    lazy_counter,
    size,
)

_MOST_OF_A_REPORT = 128  # bytes
_SPLIT = "Split the file, or convert it to a simpler format."


class ParserPool:
    """A pool of `workers` processes that parse and chunk documents. Its methods are thread-safe.

    `timeout_s` and `memory_bytes` are limits for each document; the time grows with a document of
    more than BYTES_IN_TIME. `tokenizer` is the path of the tokenizer.json that counts `max_tokens`
    and `overlap`; without one, tokens are estimated.
    """

    def __init__(
        self,
        *,
        workers: int = 2,
        timeout_s: float = 60,
        memory_bytes: int = 2 << 30,
        tokenizer: str | None = None,
        max_tokens: int = 256,
        overlap: int = 36,
    ) -> None:
        self._setup = Setup(
            tokenizer=tokenizer,
            max_tokens=max_tokens,
            overlap=overlap,
            memory_bytes=memory_bytes,
            timeout_s=timeout_s,
            parent=os.getpid(),
        )
        # Each process belongs to a thread of this pool, because Linux kills a process when the
        # thread that started it ends, as a caller's thread may.
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="kbproc-parse")
        self._thread_local = threading.local()
        self._count = lazy_counter(tokenizer)
        self._lock = threading.Lock()
        self._running: set[_ParserProcess] = set()
        self._closed = False
        self._retired = False

    def parse(
        self, jobs: Sequence[ParserJob], on_progress: Callable[[Progress], None] | None = None
    ) -> list[ParsedChunks | KbprocError]:
        """Reads a document, or several short ones in one exchange; returns each result or error.

        `on_progress` gets the progress of jobs with `reports`, at most REPORTS_A_SECOND times, on
        another thread. The errors are those of `formats.parse`, and `operation.failed` if a
        document took too long or too much memory or crashed its worker.

        Raises `input.too_large` above a quarter of `memory_bytes`, `operation.cancelled` if the
        pool is closed, PoolRetired.
        """
        most = self._setup.memory_bytes // 4
        for job in jobs:
            if len(job.data) > most:
                limit = f"{size(most)}, the most that its parser may hold."
                raise KbprocError(
                    "input.too_large", f"{job.name} is larger than {limit}", hint=_SPLIT
                )
        try:
            answers = self._threads.submit(self._read, jobs, on_progress).result()
        except (CancelledError, RuntimeError) as error:
            if self._retired:
                raise PoolRetired from error
            if not self._closed:
                raise
            raise _closed(jobs[0].name) from error
        return [_outcome(answer) for answer in answers]

    def read_here(self, text: str, name: str, title: str | None) -> ParsedChunks:
        """Reads a short text without NUL and ESC in this process, with the result of a worker.

        Raises operation.cancelled if the pool is closed, PoolRetired.
        """
        if self._retired:
            raise PoolRetired
        if self._closed:
            raise _closed(name)
        parsed = cleaned(Parsed(blocks=paragraphs(text, name)))
        return chunked(parsed, name, title, self._setup, self._count)

    def retire(self) -> None:
        """Ends the workers once they have read what they began; `parse` raises PoolRetired then."""
        self._retired = True
        self._threads.shutdown(wait=True)
        self.close()

    def close(self) -> None:
        """Ends all workers now; a document in work fails with `operation.cancelled`."""
        with self._lock:
            self._closed = True
            running = list(self._running)
        for worker in running:
            worker.process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in running:
            worker.end()
        self._running.clear()

    @property
    def pids(self) -> list[int]:
        """Returns the ids of the running processes, for doctor and tests."""
        with self._lock:
            return sorted(worker.process.pid for worker in self._running)

    def _read(
        self, jobs: Sequence[ParserJob], on_progress: Callable[[Progress], None] | None
    ) -> list[ParseAnswer]:
        """Reads documents in one process; one by one if a document among them ends the worker."""
        name = jobs[0].name
        worker = self._worker(name)
        try:
            answers = worker.ask(jobs, on_progress)
        except _WorkerDied as death:
            self._drop(worker)
            if self._closed:
                raise _closed(name) from death
            if len(jobs) == 1:
                failure = ParseFailure(
                    type="operation.failed", message=f"{name} {death}.", hint=_SPLIT
                )
                return [ParseAnswer(failure=failure)]
            return [answer for job in jobs for answer in self._read([job], on_progress)]
        if answers[-1].is_last:
            self._drop(worker)
            answers = answers[:-1] or answers  # alone, the last job may have enough memory
        remaining = jobs[len(answers) :]
        return [*answers, *(self._read(remaining, on_progress) if remaining else [])]

    def _worker(self, name: str) -> _ParserProcess:
        """Returns this thread's process, or a new one if that was killed while idle."""
        worker: _ParserProcess | None = getattr(self._thread_local, "worker", None)
        if worker and worker.process.poll() is None:
            return worker
        if worker:
            self._drop(worker)
        with self._lock:
            if self._closed:
                raise _closed(name)
            worker = self._thread_local.worker = _ParserProcess(self._setup)
            self._running.add(worker)
        return worker

    def _drop(self, worker: _ParserProcess) -> None:
        worker.end()
        self._thread_local.worker = None
        with self._lock:
            self._running.discard(worker)


def _outcome(answer: ParseAnswer) -> ParsedChunks | KbprocError:
    if (failure := answer.failure) is not None:
        values = failure.valid_values
        return KbprocError(failure.type, failure.message, hint=failure.hint, valid_values=values)
    assert answer.parsed is not None  # noqa: S101 an ParseAnswer holds one of the two
    return answer.parsed


def _closed(name: str) -> KbprocError:
    return KbprocError("operation.cancelled", f"{name} was not read: the parser is closing.")


def _too_long(seconds: float) -> str:
    return f"took longer than {round(seconds, 1):g} s to read"


class PoolRetired(Exception):
    """Another pool has replaced this one, and has to be used instead."""


class _WorkerDied(Exception):
    """The worker is dead or no longer usable; the error's text completes "<name> …"."""


class _ParserProcess(Child):
    """A process that parses documents for one thread; `end` leaves nothing of it."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._unsent_setup = frame(setup)
        super().__init__(
            "kbproc.engine.sources.parse.worker",
            environment={
                "TOKENIZERS_PARALLELISM": "false",
                "RAYON_NUM_THREADS": "1",
                "OMP_NUM_THREADS": "1",
                # Few arenas, because each takes 64 MiB of the limited address space.
                "MALLOC_ARENA_MAX": "2",
            },
        )

    def ask(
        self, jobs: Sequence[ParserJob], on_progress: Callable[[Progress], None] | None
    ) -> list[ParseAnswer]:
        """Sends jobs and returns their answers: fewer than jobs if the last answer `is_last`.

        `on_progress` gets the progress until then. Raises _WorkerDied, with the reason.
        """
        seconds = self._setup.seconds_of(jobs)
        patience = patience_for(seconds)
        try:
            self.send(self._unsent_setup, patience)
            self._unsent_setup = bytearray()
            self.send(frame(list(jobs)), patience)
            answers = self._answers(on_progress, patience)
            if answers and (len(answers) == len(jobs) or answers[-1].is_last):
                return answers[: len(jobs)]
            raise EOFError
        except TimeoutError:
            raise _WorkerDied(_too_long(seconds)) from None
        except (EOFError, OSError, *NOT_READABLE) as error:
            raise _WorkerDied(self._reason(seconds)) from error

    def _answers(
        self, on_progress: Callable[[Progress], None] | None, patience: Callable[[], float]
    ) -> list[ParseAnswer]:
        """Passes on progress until the answers come. Raises _WorkerDied for too much progress."""
        started, reports = time.monotonic(), 0
        while True:
            data = self.receive_frame(patience)
            message = decode_frame(data)
            if isinstance(message, ParseAnswers):
                return message.answers
            reports += 1
            most = REPORTS_A_SECOND * (time.monotonic() - started) + REPORTS_A_SECOND
            if on_progress is None or reports > most or len(data) > _MOST_OF_A_REPORT:
                raise _WorkerDied("crashed its parser, which sent an invalid message")
            on_progress(message)

    def _reason(self, seconds: float) -> str:
        """Returns why the process ended, by its wait status."""
        try:
            status = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "crashed its parser, which no longer answered"
        limits = self._setup
        if status == -signal.SIGXCPU:
            return _too_long(seconds)
        memory = f"needed more than {size(limits.memory_bytes)} of memory to be read"
        if status == OUT_OF_MEMORY:
            return memory
        if may_lack_memory(status):
            return f"ended its parser ({signal_name(status)}): most likely it {memory}"
        return f"crashed its parser ({signal_name(status)})"
