"""Runs one read-only SELECT over the catalog's documented views, in a process of its own.

It hands the process the rows that changed since the last query, for the tables of DuckDB, limits
how many queries run at once, and starts, limits and ends the process.

The store's own process never sees a user's SQL: a crash would take the writers along. A file that
a query reads is not written: the next query goes on with a copy of it, a new generation.
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
from kbproc.base.hashes import blake2b
from kbproc.base.sandbox import Child, may_lack_memory, signal_name
from kbproc.engine.log.record import Position
from kbproc.engine.store.follow import may_go_on
from kbproc.engine.store.sql.views import FOLLOW, SCHEMA
from kbproc.engine.store.sql.worker import uncopied
from kbproc.engine.store.store import Store

MEMORY_BYTES = 1 << 30
MOST_BYTES = 8 << 20
RUNNING = 2
WAITING = 2  # more would take the threads of all other reads

if TYPE_CHECKING:
    from kbproc.engine.log.interface import Log
    from kbproc.engine.projections.catalog.catalog import Catalog

_WORKER = "kbproc.engine.store.sql.worker"
_POLL_SECONDS = 0.1
_REBUILD = "Send the request again: the tables for SQL are made afresh."
_SMALLER = "Ask for less: filter with WHERE, aggregate, or select fewer and shorter columns."
_AGAIN = "The tables for SQL are being filled. Send the request again: it goes on from there."

_running = threading.Semaphore(RUNNING)
admitted = threading.Semaphore(RUNNING + WAITING)
_catching_up = threading.Lock()


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


class DamagedTables(KbprocError):
    """The file of SQL's tables is damaged, or has ended the process that opened it."""


class CatalogSource(NamedTuple):
    """A store's catalog and log, and the folder of SQL's tables."""

    catalog: Callable[[], Catalog]
    log: Log
    folder: Path

    def open_tables(self, process: QueryProcess) -> int:
        """Has the process open tables at the catalog's position; returns its seq.

        No other process may do so at the same time, because a catch-up removes earlier
        generations. Raises store.io and DamagedTables.
        """
        from sqlite3 import Error as DatabaseError  # an attached process asks the owner

        while True:
            catalog = None
            try:
                self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                catalog = self.catalog()
                return self._open_tables(process, catalog)
            except (OSError, DatabaseError) as error:
                if catalog is None or catalog is self.catalog():
                    raise KbprocError(**uncopied(error)) from error
                # A rebuild has put another catalog in its place.

    def _open_tables(self, process: QueryProcess, catalog: Catalog) -> int:
        from kbproc.engine.projections.catalog.changes import committed_position

        generation = _latest(self.folder)
        origin, since = _origin(catalog), 0
        if generation.exists():
            position = process.step("read", str(generation), process.memory_bytes)
            committed = committed_position(catalog)
            if position == [origin, committed.seq, committed.hash]:
                return int(position[1])
            if position is not None and position[0] == origin and self._has(*position[1:]):
                since = position[1]
        if not since:
            _remove_all(self.folder)
        generation = Path(process.step("write", str(generation), str(_next(generation))))
        _remove_all(self.folder, but=generation)
        seq = self._catch_up(process, catalog, origin, since)
        process.step("read", str(generation), process.memory_bytes)
        return seq

    def _catch_up(self, process: QueryProcess, catalog: Catalog, origin: str, since: int) -> int:
        """Gives the process the rows that changed after `since`, in steps; returns the last seq.

        The process commits each step, so that the next query goes on from it.
        """
        from kbproc.engine.projections.catalog.changes import write_changes

        path = self.folder / _CHANGES
        try:
            while True:
                changes = write_changes(catalog, since, path, process.check)
                since = changes.seq
                hash = changes.head.hash if changes.is_last else self._hash(since)
                process.step("take", str(path), origin, since, hash)
                if changes.is_last:
                    return since
        finally:
            path.unlink(missing_ok=True)

    def _has(self, seq: int, hash: str) -> bool:
        """Returns whether the log has this record, so that later ones are enough."""
        with contextlib.suppress(KbprocError):  # a damaged log
            return seq <= self.log.head.seq and may_go_on(self.log, Position(seq, hash))
        return False

    def _hash(self, seq: int) -> str:
        """Returns a record's hash; "" where the log is damaged, so that no query goes on there."""
        with contextlib.suppress(KbprocError):
            return next((record.hash for record in self.log.read(seq - 1, seq)), "")
        return ""


def current_catalog(store: Store) -> CatalogSource:
    """Returns the store's catalog."""
    folder = tables_of(store.folder).absolute()  # the process works in another folder
    return CatalogSource(lambda: store.catalog, store.log, folder)


# The files of a store's folder of SQL's tables: generations, and changes on their way.
_GENERATIONS, _CHANGES = "tables-{:06}.duckdb", "changes.sqlite"


def tables_of(folder: Path) -> Path:
    return folder / "views" / "sql"


def remove_tables(folder: Path) -> None:
    """Removes every generation of SQL's tables; a running query keeps the one it has opened.

    It waits for a catch-up in progress until its query has opened the tables.
    """
    with _catching_up:
        shutil.rmtree(tables_of(folder), ignore_errors=True)


def _latest(folder: Path) -> Path:
    """Returns the path of the latest generation, or of the first one."""
    return max(folder.glob("tables-*.duckdb"), default=folder / _GENERATIONS.format(1))


def _next(generation: Path) -> Path:
    number = int(generation.stem.partition("-")[2])
    return generation.with_name(_GENERATIONS.format(number + 1))


def _remove_all(folder: Path, but: Path | None = None) -> None:
    """Removes every file of a folder of SQL's tables except one generation."""
    for path in folder.iterdir():
        if but is None or not path.name.startswith(but.name):
            path.unlink(missing_ok=True)


def _origin(catalog: Catalog) -> str:
    """Returns what tells rows of this catalog from others of the same seq: file, tables, views."""
    from kbproc.engine.projections.catalog.tables import schema_digest

    parts = (catalog.path.stem, schema_digest(), SCHEMA, *FOLLOW.values())
    return blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


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

    def attempt() -> Rows:
        with QueryProcess(deadline, memory_bytes) as process:
            with _holding(_catching_up, deadline):
                deadline.hint = _AGAIN
                seq = source.open_tables(process)
                deadline.hint = _SMALLER
            process.step("limit", memory_bytes)
            answer = process.step("query", sql, params, limit, most_bytes)
        columns = [Column(**column) for column in answer["columns"]]
        return Rows(columns=columns, rows=answer["rows"], has_more=answer["has_more"], seq=seq)

    with turn(deadline):
        try:
            return attempt()
        except DamagedTables:
            with _holding(_catching_up, deadline):
                _remove_all(source.folder)
            return attempt()


class Deadline:
    """The time that the request has left. Methods raise operation.timeout or .cancelled.

    `hint`: what helps where the time is over.
    """

    def __init__(self, timeout_ms: int, cancelled: Callable[[], bool]) -> None:
        self.hint = _SMALLER
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
            hint=f"{self.hint} Or allow it up to 60 seconds with timeout_ms.",
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


# --------------------------------------------------------------------- the process


class QueryProcess(Child):
    """A process for one query; the next query gets a new one."""

    def __init__(self, deadline: Deadline, memory_bytes: int, module: str = _WORKER) -> None:
        # The process ends itself a second after the deadline, so that the caller reports first.
        arguments = (str(os.getpid()), str(deadline.seconds + 1))
        super().__init__(module, *arguments, environment={"TZ": "UTC", "MALLOC_ARENA_MAX": "1"})
        self._deadline = deadline
        self.memory_bytes = memory_bytes
        self._is_limited = False  # before its limits only the file can end the process

    def step(self, name: str, *arguments: Any) -> Any:
        """Runs one step in the process and returns its answer.

        Raises the error that the step was refused with, or the reason why there is no answer.
        """
        try:
            self.send(msgspec.json.encode([name, *arguments]) + b"\n", self._deadline.next)
            answer = msgspec.json.decode(self.receive_line(self._deadline.next))
        except (EOFError, BrokenPipeError):
            raise self._death() from None
        if isinstance(answer, dict) and "error" in answer:
            raise self._refusal(answer["error"])
        self._is_limited = self._is_limited or name == "limit"
        return answer

    def check(self) -> None:
        """Raises operation.timeout or .cancelled."""
        self._deadline.next()

    def _refusal(self, fields: dict[str, Any]) -> KbprocError:
        if fields["type"] == "memory":
            return KbprocError("input.too_large", f"The query {self._much()}.", hint=_SMALLER)
        if fields["type"] == "damaged":
            return DamagedTables("operation.failed", fields["message"], hint=_REBUILD)
        return KbprocError(fields.pop("type"), fields.pop("message"), **fields)

    def _much(self) -> str:
        return f"needs more than {self.memory_bytes >> 20} MiB of memory"

    def _death(self) -> KbprocError:
        status = self.process.wait()
        if status == -signal.SIGALRM:
            return self._deadline.over()
        how = signal_name(status)
        message = f"The query ended its process ({how})."
        if may_lack_memory(status):
            message = f"The query ended its process ({how}): most likely it {self._much()}."
        kind = KbprocError if self._is_limited else DamagedTables
        return kind("operation.failed", message, hint=_SMALLER)
