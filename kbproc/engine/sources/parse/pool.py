"""Documents are read by separate, limited processes, so that none can harm this one.

Owns: workers' lives: started when first needed, used again, replaced when a
document kills them. Refuses to know: formats, what is in a frame's chunks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.sandbox import Child, may_lack_memory, signal_name
from kbproc.sources.parse.blocks import Parsed
from kbproc.sources.parse.formats import cleaned
from kbproc.sources.parse.progress import Progress
from kbproc.sources.parse.text import paragraphs
from kbproc.sources.parse.worker import (
    LENGTH,
    OUT_OF_MEMORY,
    REPORTS_A_SECOND,
    Answer,
    Answers,
    Failure,
    Job,
    ParsedChunks,
    Setup,
    chunked,
    decode_frame,
    frame,
    lazy_counter,
    size,
)

_MOST_OF_A_REPORT = 128  # bytes
_SPLIT = "Split the file, or convert it to a simpler format."


class ParserPool:
    """Parses and chunks documents in `workers` processes; its methods are thread-safe.

    `timeout_s` and `memory_bytes` hold for each document; the time grows with one of over
    BYTES_IN_TIME. `tokenizer` is the
    path of a tokenizer.json, `max_tokens` and `overlap` are counted by it;
    without one tokens are estimated.
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
        # A process belongs to a thread of this pool for good: Linux kills it
        # when the thread that started it ends, which a caller's thread may do.
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="kbproc-parse")
        self._own = threading.local()
        self._count = lazy_counter(tokenizer)
        self._lock = threading.Lock()
        self._running: set[_Worker] = set()
        self._closed = False
        self._retired = False

    def parse(
        self,
        data: bytes,
        type: str,
        name: str,
        title: str | None = None,
        tell: Callable[[Progress], None] | None = None,
    ) -> ParsedChunks:
        """Read one document; blocks until it is read. `title` overrides its own.

        `tell` gets how far it is, at most REPORTS_A_SECOND times, on another thread.

        Raises what `kbproc.sources.parse.formats.parse` raises, `input.too_large` above a quarter
        of `memory_bytes`, `operation.failed` when the document took too long or
        too much memory or crashed its worker, `operation.cancelled` when the
        pool is closed.
        """
        most = self._setup.memory_bytes // 4
        if len(data) > most:
            message = f"{name} is larger than {size(most)}, the most that its parser may hold."
            raise KbprocError("input.too_large", message, hint=_SPLIT)
        job = Job(data=data, type=type, name=name, title=title, reports=tell is not None)
        (parsed,) = self.parse_some([job], tell)
        if isinstance(parsed, KbprocError):
            raise parsed
        return parsed

    def parse_some(
        self, jobs: Sequence[Job], tell: Callable[[Progress], None] | None = None
    ) -> list[ParsedChunks | KbprocError]:
        """Read short documents, one after the other in one process: what `parse` says of each.

        They take one way there and back. Raises operation.cancelled when the pool is closed.
        """
        try:
            answers = self._threads.submit(self._read, jobs, tell).result()
        except (CancelledError, RuntimeError) as error:
            if self._retired:
                raise Retired from error
            if not self._closed:
                raise
            raise _closed(jobs[0].name) from error
        return [_outcome(answer) for answer in answers]

    def read_here(self, text: str, name: str, title: str | None) -> ParsedChunks:
        """A text as it would be read as bytes, without a worker: short, and without NUL and ESC.

        Raises what `parse` raises of a pool that is closed.
        """
        if self._retired:
            raise Retired
        if self._closed:
            raise _closed(name)
        parsed = cleaned(Parsed(blocks=paragraphs(text, name)))
        return chunked(parsed, name, title, self._setup, self._count)

    def retire(self) -> None:
        """End the workers once what has been begun is read; `parse` raises Retired then."""
        self._retired = True
        self._threads.shutdown(wait=True)
        self.close()

    def close(self) -> None:
        """End all workers now; a document that is being read ends in `operation.cancelled`."""
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
        """The processes of now, for doctor and tests."""
        with self._lock:
            return sorted(worker.process.pid for worker in self._running)

    def _read(self, jobs: Sequence[Job], tell: Callable[[Progress], None] | None) -> list[Answer]:
        """Those that come to no end together are read one by one: it is the fault of one."""
        name = jobs[0].name
        worker = self._worker(name)
        try:
            answers = worker.ask(jobs, tell)
        except _Died as death:
            self._drop(worker)
            if self._closed:
                raise _closed(name) from death
            if len(jobs) == 1:
                failure = Failure(type="operation.failed", message=f"{name} {death}.", hint=_SPLIT)
                return [Answer(failure=failure)]
            return [answer for job in jobs for answer in self._read([job], tell)]
        if answers[-1].is_last:
            self._drop(worker)
            answers = answers[:-1] or answers  # alone it may have memory enough
        left = jobs[len(answers) :]
        return [*answers, *(self._read(left, tell) if left else [])]

    def _worker(self, name: str) -> _Worker:
        """This thread's process, alive: one killed while idle is replaced unseen."""
        worker: _Worker | None = getattr(self._own, "worker", None)
        if worker and worker.process.poll() is None:
            return worker
        if worker:
            self._drop(worker)
        with self._lock:
            if self._closed:
                raise _closed(name)
            worker = self._own.worker = _Worker(self._setup)
            self._running.add(worker)
        return worker

    def _drop(self, worker: _Worker) -> None:
        worker.end()
        self._own.worker = None
        with self._lock:
            self._running.discard(worker)


def _outcome(answer: Answer) -> ParsedChunks | KbprocError:
    if (failure := answer.failure) is not None:
        values = failure.valid_values
        return KbprocError(failure.type, failure.message, hint=failure.hint, valid_values=values)
    assert answer.parsed is not None  # noqa: S101 an Answer holds one of the two
    return answer.parsed


def _closed(name: str) -> KbprocError:
    return KbprocError("operation.cancelled", f"{name} was not read: the parser is closing.")


def _too_long(seconds: float) -> str:
    return f"took longer than {round(seconds, 1):g} s to read"


class Retired(Exception):
    """Another pool has taken this one's place: ask that one."""


class _Died(Exception):
    """The worker is gone or has been given up; the text completes "<name> …"."""


class _Worker(Child):
    """One process, used by one thread. `end` leaves nothing of it."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._first = frame(setup)
        super().__init__(
            "kbproc.sources.parse.worker",
            environment={
                "TOKENIZERS_PARALLELISM": "false",
                "RAYON_NUM_THREADS": "1",
                "OMP_NUM_THREADS": "1",
                # Each arena of glibc takes 64 MiB of the address space that is limited.
                "MALLOC_ARENA_MAX": "2",
            },
        )

    def ask(self, jobs: Sequence[Job], tell: Callable[[Progress], None] | None) -> list[Answer]:
        """Send jobs, wait for their answers: fewer than jobs if the last one `is_last`.

        `tell` gets the progress until then. Raises _Died, with the reason.
        """
        seconds = self._setup.seconds_for(sum(len(job.data) for job in jobs))
        deadline = time.monotonic() + seconds

        def patience() -> float:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            return left

        try:
            self.send(self._first, patience)
            self._first = bytearray()
            self.send(frame(list(jobs)), patience)
            answers = self._answers(tell, patience)
            if answers and (len(answers) == len(jobs) or answers[-1].is_last):
                return answers[: len(jobs)]
            raise EOFError
        except TimeoutError:
            raise _Died(_too_long(seconds)) from None
        except (EOFError, OSError, msgspec.DecodeError) as error:
            raise _Died(self._reason(seconds)) from error

    def _answers(
        self, tell: Callable[[Progress], None] | None, patience: Callable[[], float]
    ) -> list[Answer]:
        """Passes on progress until the answers come. Raises _Died for more of it than agreed."""
        started, reports = time.monotonic(), 0
        while True:
            (length,) = LENGTH.unpack(self._receive(LENGTH.size, patience))
            message = decode_frame(self._receive(length, patience))
            if isinstance(message, Answers):
                return message.answers
            reports += 1
            most = REPORTS_A_SECOND * (time.monotonic() - started) + REPORTS_A_SECOND
            if tell is None or reports > most or length > _MOST_OF_A_REPORT:
                raise _Died("crashed its parser, which sent what it must not")
            tell(message)

    def _receive(self, length: int, patience: Callable[[], float]) -> bytes:
        data = bytearray()
        while len(data) < length:
            data += self.receive(length - len(data), patience)
        return bytes(data)

    def _reason(self, seconds: float) -> str:
        """Why the process went: its wait status tells."""
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
