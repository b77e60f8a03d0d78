"""Documents are read by separate, limited processes, so that none can harm this one.

Owns: workers' lives: started when first needed, used again, replaced when a
document kills them. Refuses to know: formats, what is in a frame's chunks.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import IO

import msgspec

import kbproc
from kbproc.base.errors import KbprocError
from kbproc.sources.parse.worker import (
    LENGTH,
    OUT_OF_MEMORY,
    Answer,
    Job,
    ParsedChunks,
    Setup,
    frame,
    size,
)

_PIECE = 1 << 18
_SPLIT = "Split the file, or convert it to a simpler format."


class ParserPool:
    """Parses and chunks documents in `workers` processes; its methods are thread-safe.

    `timeout_s` and `memory_bytes` hold for each document. `tokenizer` is the
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
        self._lock = threading.Lock()
        self._running: set[_Worker] = set()
        self._closed = False
        self._retired = False

    def parse(self, data: bytes, type: str, name: str, title: str | None = None) -> ParsedChunks:
        """Read one document; blocks until it is read. `title` overrides its own.

        Raises what `kbproc.sources.parse.formats.parse` raises, `input.too_large` above a quarter
        of `memory_bytes`, `operation.failed` when the document took too long or
        too much memory or crashed its worker, `operation.cancelled` when the
        pool is closed.
        """
        most = self._setup.memory_bytes // 4
        if len(data) > most:
            message = f"{name} is larger than {size(most)}, the most that its parser may hold."
            raise KbprocError("input.too_large", message, hint=_SPLIT)
        job = Job(data=data, type=type, name=name, title=title)
        try:
            answer = self._threads.submit(self._read, job).result()
        except (CancelledError, RuntimeError) as error:
            if self._retired:
                raise Retired from error
            if not self._closed:
                raise
            raise _closed(name) from error
        if answer.failure:
            failure = answer.failure
            raise KbprocError(
                failure.type,
                failure.message,
                hint=failure.hint,
                valid_values=failure.valid_values,
            )
        assert answer.parsed is not None  # noqa: S101 an Answer holds one of the two
        return answer.parsed

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

    def _read(self, job: Job) -> Answer:
        worker = self._worker(job.name)
        try:
            answer = worker.ask(job)
        except _Died as death:
            self._drop(worker)
            if self._closed:
                raise _closed(job.name) from death
            message = f"{job.name} {death}."
            raise KbprocError("operation.failed", message, hint=_SPLIT) from death
        if answer.failure and answer.failure.last:
            self._drop(worker)
        return answer

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


def _closed(name: str) -> KbprocError:
    return KbprocError("operation.cancelled", f"{name} was not read: the parser is closing.")


class Retired(Exception):
    """Another pool has taken this one's place: ask that one."""


class _Died(Exception):
    """The worker is gone or has been given up; the text completes "<name> …"."""


class _Worker:
    """One process and its two pipes, used by one thread."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._first = frame(setup)
        root = str(Path(kbproc.__file__).resolve().parents[1])
        # -P and a fixed folder: a docx.py where the user works is not imported.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kbproc.sources.parse.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={
                "PYTHONPATH": root,
                "PYTHONWARNINGS": "ignore",
                "LC_ALL": "C.UTF-8",
                "TOKENIZERS_PARALLELISM": "false",
                "RAYON_NUM_THREADS": "1",
                "OMP_NUM_THREADS": "1",
                # Each arena of glibc takes 64 MiB of the address space that is limited.
                "MALLOC_ARENA_MAX": "2",
            },
            start_new_session=True,
        )
        for pipe in self._pipes():
            os.set_blocking(pipe.fileno(), False)

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self.process.stdin and self.process.stdout  # noqa: S101 both are PIPE
        return self.process.stdin, self.process.stdout

    def ask(self, job: Job) -> Answer:
        """Send a job, wait for its answer. Raises _Died, with the reason."""
        message = frame(job)
        deadline = time.monotonic() + self._setup.timeout_s
        try:
            self._send(self._first, deadline)
            self._first = bytearray()
            self._send(message, deadline)
            head = self._receive(LENGTH.size, deadline)
            body = self._receive(LENGTH.unpack(head)[0], deadline)
            return msgspec.msgpack.decode(body, type=Answer)
        except TimeoutError:
            raise _Died(f"took longer than {self._setup.timeout_s:g} s to read") from None
        except (EOFError, OSError, msgspec.DecodeError) as error:
            raise _Died(self._reason()) from error

    def _send(self, message: bytearray, deadline: float) -> None:
        pipe, rest = self._pipes()[0], memoryview(message)
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_WRITE)
            while rest:
                _wait(ready, deadline)
                rest = rest[os.write(pipe.fileno(), rest[:_PIECE]) :]

    def _receive(self, length: int, deadline: float) -> bytes:
        pipe, body = self._pipes()[1], bytearray()
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_READ)
            while len(body) < length:
                _wait(ready, deadline)
                piece = os.read(pipe.fileno(), min(_PIECE, length - len(body)))
                if not piece:
                    raise EOFError
                body += piece
        return bytes(body)

    def _reason(self) -> str:
        """Why the process went: its wait status tells."""
        try:
            status = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "crashed its parser, which no longer answered"
        limits = self._setup
        if status == -signal.SIGXCPU:
            return f"took longer than {limits.timeout_s:g} s to read"
        memory = f"needed more than {size(limits.memory_bytes)} of memory to be read"
        if status == OUT_OF_MEMORY:
            return memory
        if status in (-signal.SIGABRT, -signal.SIGKILL):
            # An allocation that fails in native code aborts; the kernel's
            # out-of-memory killer kills.
            return f"ended its parser ({_signal(status)}): most likely it {memory}"
        return f"crashed its parser ({_signal(status)})"

    def end(self) -> None:
        """Kill, reap, close: afterwards nothing of the process is left."""
        self.process.kill()
        self.process.wait()
        for pipe in self._pipes():
            try:
                pipe.close()
            except OSError:
                continue


def _wait(ready: selectors.BaseSelector, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0 or not ready.select(left):
        raise TimeoutError


def _signal(status: int) -> str:
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"exit {status}"
