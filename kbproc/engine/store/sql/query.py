"""Runs one read-only SELECT over the catalog's documented views, in a process of its own.

It has the process copy the catalog's rows into a file of DuckDB when the store has changed, limits
how many queries run at once, and starts, limits and ends the process.

The store's own process never sees a user's SQL: a crash would take the writers along.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.base.sandbox import Child, may_lack_memory, signal_name
from kbproc.engine.store.sql.worker import uncopied
from kbproc.engine.store.store import Store

MEMORY_BYTES = 1 << 30
MOST_BYTES = 8 << 20
RUNNING = 2
WAITING = 2  # more would take the threads of all other reads

if TYPE_CHECKING:
    from kbproc.engine.projections.catalog.catalog import Catalog

_WORKER = "kbproc.engine.store.sql.worker"
_POLL_SECONDS = 0.1
_PIECE = 1 << 18
_SMALLER = "Ask for less: filter with WHERE, aggregate, or select fewer and shorter columns."

_running = threading.Semaphore(RUNNING)
admitted = threading.Semaphore(RUNNING + WAITING)
_copying = threading.Lock()


class Column(Struct, frozen=True, kw_only=True):
    """`type` in DuckDB's words."""

    name: str
    type: str


class Rows(Struct, frozen=True, kw_only=True):
    """`seq`: the position that was read. Ints beyond 64 bits are text; NaN is null."""

    columns: list[Column]
    rows: list[list[Any]]
    has_more: bool
    seq: int


class CatalogSource(NamedTuple):
    """A store's catalog, and the folder for its copies.

    `catalog`: returns it and the position that a copy must have.
    """

    catalog: Callable[[], tuple[Catalog, int]]
    copies: Path

    def copied(self, process: QueryProcess) -> Path:
        """Returns a copy of the current catalog, a new one only if the store has changed.

        No other copy may be made until a process has opened this one, because a new copy removes
        the old ones. Raises store.io.
        """
        from sqlite3 import Error as DatabaseError  # an attached process asks the owner

        try:
            self.copies.mkdir(parents=True, exist_ok=True, mode=0o700)
            catalog, seq = self.catalog()
            current = self.copies / f"{seq}-{catalog.path.stem}.duckdb"
            return current if current.exists() else self._new_copy(process, catalog)
        except (OSError, DatabaseError) as error:
            raise KbprocError(**uncopied(error)) from error

    def _new_copy(self, process: QueryProcess, catalog: Catalog) -> Path:
        """Copies the catalog's rows, and has the process make views of them.

        The copy holds up no writer.
        """
        for old_copy in self.copies.iterdir():
            old_copy.unlink(missing_ok=True)
        process.step("ready")
        rows, views = self.copies / "rows", self.copies / "views"
        catalog.copy(rows, process.check)
        seq = process.step("fill", str(rows), str(views))
        rows.unlink(missing_ok=True)
        try:
            return views.rename(self.copies / f"{seq}-{catalog.path.stem}.duckdb")
        except FileNotFoundError as error:
            raise KbprocError(
                "store.io", "Another process has removed the copy of the catalog."
            ) from error


def current_catalog(store: Store) -> CatalogSource:
    """Returns the store's catalog."""
    return CatalogSource(
        catalog=lambda: (store.catalog, store.seq),
        copies=copies_of(store.folder).absolute(),  # the process works in another folder
    )


def copies_of(folder: Path) -> Path:
    return folder / "views" / "sql"


def remove_copies(folder: Path) -> None:
    """Removes every copy of the store's catalog; a running query keeps the copy it has opened.

    It waits for a copy in progress until its query has opened it.
    """
    with _copying:
        shutil.rmtree(copies_of(folder), ignore_errors=True)


def _never() -> bool:
    return False


def run(
    source: CatalogSource,
    sql: str,
    params: Sequence[Any] | dict[str, Any] = (),
    *,
    limit: int,
    timeout_ms: int,
    cancelled: Callable[[], bool] = _never,
    memory_bytes: int = MEMORY_BYTES,
    most_bytes: int = MOST_BYTES,
) -> Rows:
    """Returns the first `limit` rows. `most_bytes` bounds them as JSON, `timeout_ms` the request.

    Raises input.invalid_params, input.too_large, operation.timeout, operation.failed,
    operation.cancelled, server.overloaded, store.io, and what the store's lane raises.
    """
    deadline = Deadline(timeout_ms, cancelled)
    with turn(deadline), QueryProcess(deadline, memory_bytes) as process:
        with _holding(_copying, deadline):
            copy = source.copied(process)
            process.step("open", str(copy), memory_bytes)
        answer = process.step("query", sql, params, limit, most_bytes)
    return Rows(
        columns=[Column(**column) for column in answer["columns"]],
        rows=answer["rows"],
        has_more=answer["has_more"],
        seq=_seq(copy),
    )


class Deadline:
    """The time that the request has left. Methods raise operation.timeout or .cancelled."""

    def __init__(self, timeout_ms: int, cancelled: Callable[[], bool]) -> None:
        self._timeout_ms = timeout_ms
        self._cancelled = cancelled
        self._deadline = time.monotonic() + timeout_ms / 1000

    @property
    def seconds(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def next(self) -> float:
        """Returns the seconds to wait before the next call."""
        if self._cancelled():
            raise KbprocError("operation.cancelled", "The client cancelled the request.")
        if not self.seconds:
            raise self.over()
        return min(_POLL_SECONDS, self.seconds)

    def over(self) -> KbprocError:
        return KbprocError(
            "operation.timeout",
            f"The query took longer than {self._timeout_ms} ms.",
            field="$.params.timeout_ms",
            hint=f"{_SMALLER} Or allow it more time, up to 60000 ms.",
        )


@contextlib.contextmanager
def turn(deadline: Deadline) -> Iterator[None]:
    """Waits for one of the running slots; raises server.overloaded if too many wait already."""
    if not admitted.acquire(blocking=False):
        raise KbprocError(
            "server.overloaded",
            f"{RUNNING + WAITING} SQL queries are running or waiting already.",
            retry_after_ms=1000,
        )
    try:
        with _holding(_running, deadline):
            yield
    finally:
        admitted.release()


@contextlib.contextmanager
def _holding(lock: threading.Semaphore | threading.Lock, deadline: Deadline) -> Iterator[None]:
    while not lock.acquire(timeout=deadline.next()):
        pass
    try:
        yield
    finally:
        lock.release()


# ---------------------------------------------------------------------- the copies


def _seq(copy: Path) -> int:
    return int(copy.name.partition("-")[0])


# --------------------------------------------------------------------- the process


class QueryProcess(Child):
    """A process for one query; the next query gets a new one."""

    def __init__(self, deadline: Deadline, memory_bytes: int, module: str = _WORKER) -> None:
        # The process ends itself a second after the deadline, so that the caller reports first.
        arguments = (str(os.getpid()), str(deadline.seconds + 1))
        super().__init__(module, *arguments, environment={"TZ": "UTC", "MALLOC_ARENA_MAX": "1"})
        self._deadline = deadline
        self._memory = memory_bytes

    def step(self, name: str, *arguments: Any) -> Any:
        """Runs one step in the process and returns its answer.

        Raises the error that the step was refused with, or the reason why there is no answer.
        """
        try:
            self.send(msgspec.json.encode([name, *arguments]) + b"\n", self._deadline.next)
            answer = msgspec.json.decode(self._line())
        except (EOFError, BrokenPipeError):
            raise self._death() from None
        if isinstance(answer, dict) and "error" in answer:
            raise self._refusal(answer["error"])
        return answer

    def check(self) -> None:
        """Raises operation.timeout or .cancelled."""
        self._deadline.next()

    def _line(self) -> bytearray:
        line = bytearray()
        while not line.endswith(b"\n"):
            line += self.receive(_PIECE, self._deadline.next)
        return line

    def _refusal(self, fields: dict[str, Any]) -> KbprocError:
        if fields["type"] == "memory":
            return KbprocError("input.too_large", f"The query {self._much()}.", hint=_SMALLER)
        return KbprocError(fields.pop("type"), fields.pop("message"), **fields)

    def _much(self) -> str:
        return f"needs more than {self._memory >> 20} MiB of memory"

    def _death(self) -> KbprocError:
        status = self.process.wait()
        if status == -signal.SIGALRM:
            return self._deadline.over()
        how = signal_name(status)
        message = f"The query ended its process ({how})."
        if may_lack_memory(status):
            message = f"The query ended its process ({how}): most likely it {self._much()}."
        return KbprocError("operation.failed", message, hint=_SMALLER)
