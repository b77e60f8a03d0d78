"""Lets one writer at a time decide and append, in the order of arrival.

Waiting writers share a commit: one of them, the leader, works for all. Each record is folded into
the catalog's open transaction before it joins the log's batch. So the next writer decides from it,
and a record that can't be folded is never written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from kbproc.base.errors import KbprocError, bare
from kbproc.base.gate import Hold
from kbproc.base.settings.config import DEFAULT_KB
from kbproc.base.wording import plural
from kbproc.engine.events.document import DocWritten
from kbproc.engine.events.kb import KbCreated
from kbproc.engine.log.record import RecordDraft, salted
from kbproc.engine.projections.catalog.reader import EVERYTHING

if TYPE_CHECKING:
    from kbproc.base.host import Host
    from kbproc.engine.events.event import Event
    from kbproc.engine.log.interface import LogBatch
    from kbproc.engine.log.record import Position, Record
    from kbproc.engine.projections.catalog.catalog import Catalog
    from kbproc.engine.projections.catalog.queries import Queries
    from kbproc.engine.projections.catalog.rows import Head, Roster
    from kbproc.engine.sources.blobs import NewSource
    from kbproc.engine.store.snapshot import Published

_MOST = 500  # turns in a commit: a shared log takes twice as many records as one
T = TypeVar("T")


class NotWritten(Exception):
    """The disk has taken nothing of a commit; the cause tells why."""


class Group:
    """One batch of the log with its fold. `published`: what readers see before it."""

    def __init__(self, *, batch: LogBatch, catalog: Catalog, published: Published) -> None:
        self.batch = batch
        self.head = published.head
        self.failed: BaseException | None = None  # why no writer of the group can go on
        self.count = 0  # the number of its records
        self.sources: list[NewSource] = []  # sources that its records name
        self._catalog = catalog
        self._roster: Roster | None = published.roster

    def append(
        self, draft: RecordDraft, events: Sequence[Event], sources: Sequence[NewSource]
    ) -> Record:
        """Folds one record and appends it to the batch.

        Raises store.io with nothing appended, and NotWritten where the disk has taken back all
        that the group has folded in.
        """
        record = self.batch.append([draft], partial(self._fold, events))[-1]
        self.count += 1
        self.head = self._catalog.head
        names = {event.source_sha256 for event in events if isinstance(event, DocWritten)}
        self.sources += (source for source in sources if source.name in names)
        return record

    def _fold(self, events: Sequence[Event], records: Sequence[Record]) -> None:
        """Folds the record of these events into the catalog's open transaction, or nothing.

        A disk that is full or fails takes back the whole transaction: then the group fails.
        """
        from sqlite3 import Error as DatabaseError  # not above: attached processes fold nothing

        try:
            with self._catalog.savepoint():
                self._catalog.apply(records, lambda _: events)
        except (DatabaseError, MemoryError, OSError) as error:
            refusal = _unfolded_error(error)
            if self.count and self._catalog.is_rolled_back:
                self.failed = error
                raise NotWritten from refusal
            raise refusal from error
        if self._catalog.roster_changed:
            self._roster = None

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *exception: object) -> None:
        """Rolls the fold back unless it was committed."""
        self._catalog.rollback()

    @property
    def queries(self) -> Queries:
        """The catalog with all appended records."""
        return self._catalog.queries

    @property
    def roster(self) -> Roster:
        """Agents, knowledge bases and entries, with those that appended records have made."""
        if self._roster is None:
            self._roster = self._catalog.queries.roster()
        return self._roster

    @property
    def position(self) -> Position:
        """The position of the last appended record."""
        return self.batch.head


def _unfolded_error(error: Exception) -> KbprocError:
    """Returns the error for a record that the catalog could not take in."""
    return KbprocError(
        "store.io",
        f"Nothing was written: the catalog could not take it in: {error}.",
        hint="Make room or check the disk, then send the request again.",
        detail={"kept": False},
    )


class Lane:
    """The newest state and `append`, for a writer while it decides.

    `now` is the host's clock; `ts` dates appended records, and never goes back.
    `check_writable` raises the error that would keep a record from being written.
    """

    def __init__(self, host: Host, group: Group, check_writable: Callable[[], None]) -> None:
        self.group = group
        self.check_writable = check_writable
        self._host = host
        self._sees_all = False
        self.now = host.now()
        self.ts = max(self.now, group.batch.last_ts)

    @property
    def head(self) -> Head:
        return self.group.head

    @property
    def queries(self) -> Queries:
        """The catalog with all appended records."""
        queries = self.group.queries
        if not self._sees_all:  # another writer may have narrowed the sight
            queries.see(EVERYTHING)
            self._sees_all = True
        return queries

    def append(
        self,
        events: Sequence[Event],
        sources: Sequence[NewSource] = (),
        *,
        actor: str,
        method: str,
        token: str | None = None,
        params_hash: str | None = None,
        result: bytes = b"null",
    ) -> int:
        """Appends one record, which is durable when the lane is left; returns its seq.

        `sources`: new ones that its events name, which are stored with it.
        Raises what `check_writable` raises, or store.io, with nothing appended.
        """
        from kbproc.engine.events import codec  # not above: a read needs no event

        self.check_writable()
        salt = self._host.salt()
        draft = RecordDraft(
            ts=self.ts,
            actor=actor,
            method=method,
            salt=salt,
            events=codec.encode(events),
            token=token,
            params_hash=None if params_hash is None else salted(params_hash, salt),
            result=msgspec.Raw(result),
        )
        return self.group.append(draft, events, sources).seq


class PurgeDue(Exception):
    """Another node has written a purge, and this node must carry it out first."""


class Ticket(Generic[T]):
    """A writer's turn in the lane. `woken` is set when it is done, or its writer is to lead.

    Only a waiting writer makes `woken`, and so only waiting writers lead.
    """

    def __init__(self, work: Callable[[Lane], T]) -> None:
        self.work = work
        self.done = False
        self.result: T | None = None
        self.error: BaseException | None = None
        self.woken: threading.Event | None = None


class Turns:
    """Writers in the order they came; one of them, the leader, works for all who wait.

    The leader stops after its own commit; the next waiter leads. So no writer waits for turns
    that come after its own.
    """

    def __init__(self, run: Callable[[list[Ticket[Any]]], None]) -> None:
        """`run` gives each ticket its turn, and makes the appended records durable."""
        self.lane = Hold()
        self.purge: Callable[[], object] | None = None
        self._run = run
        self.queue: list[Ticket[Any]] = []
        self._has_leader = False
        self._changing = threading.Lock()

    def enter(self, work: Callable[[Lane], T]) -> Callable[[], T]:
        """Takes a place in the queue; returns a function that waits for the turn, runs `work` in it
        and returns its result.

        The function must be called, because only waiting writers lead. It raises the error of
        `work` or of `run`.
        """
        ticket = Ticket(work)
        if self.lane.is_mine:  # no other thread could lead
            self._work([ticket])
        else:
            with self._changing:
                self.queue.append(ticket)
        return partial(self._outcome, ticket)

    def _outcome(self, ticket: Ticket[T]) -> T:
        if not ticket.done:
            self._wait(ticket)
        if isinstance(ticket.error, PurgeDue) and self.purge is not None:
            self.purge()  # outside of the lane
            return self.enter(ticket.work)()
        ticket.work = _no_work  # frees the state it decided from before the response is sent
        if ticket.error is not None:
            raise bare(ticket.error) if isinstance(ticket.error, KbprocError) else ticket.error
        return ticket.result  # type: ignore[return-value]

    def _wait(self, ticket: Ticket[Any]) -> None:
        """Waits until the ticket is done; this thread may have to lead for that."""
        try:
            with self._changing:
                if ticket.done:
                    return
                ticket.woken = threading.Event()
                if not self._has_leader:
                    self._has_leader = True
                    ticket.woken.set()
            ticket.woken.wait()
        except BaseException:  # Ctrl-C: no other writer may wait for one that has left
            self._withdraw(ticket)
            raise
        if not ticket.done:
            self._lead(ticket)

    def _lead(self, ticket: Ticket[Any]) -> None:
        """Works for all who wait, until its own turn is done; then the next waiter leads."""
        try:
            with self.lane:
                while not ticket.done:
                    with self._changing:
                        tickets, self.queue = self.queue[:_MOST], self.queue[_MOST:]
                    self._work(tickets)
        finally:
            with self._changing:
                if ticket in self.queue:  # Ctrl-C while it waited for the lane
                    self.queue.remove(ticket)
                self._pass_on()

    def _pass_on(self) -> None:
        """Makes the next waiter the leader; without waiters, the next one to wait will lead."""
        first_waiter = next(
            (ticket.woken for ticket in self.queue if ticket.woken is not None), None
        )
        self._has_leader = first_waiter is not None
        if first_waiter is not None:
            first_waiter.set()

    def _withdraw(self, ticket: Ticket[Any]) -> None:
        with self._changing:
            if ticket in self.queue:
                self.queue.remove(ticket)
                if ticket.woken is not None and ticket.woken.is_set():
                    self._pass_on()

    def _work(self, tickets: list[Ticket[Any]]) -> None:
        try:
            self._run(tickets)
        except NotWritten as refused:
            if len(tickets) == 1:
                tickets[0].error = refused.__cause__
            else:  # the disk may have room for some of them
                for ticket in tickets:
                    self._work([ticket])
        except BaseException as error:
            for ticket in tickets:
                ticket.error = ticket.error or error
            if not isinstance(error, Exception):
                raise
        finally:
            with self._changing:  # a writer that begins to wait now sees `done`
                for ticket in tickets:
                    ticket.done = True
            for ticket in tickets:
                if ticket.woken is not None:
                    ticket.woken.set()


def _no_work(lane: Lane) -> Any:
    """Stands in for a ticket's work once it is done; never called."""


def take_turn(ticket: Ticket[Any], lane: Lane) -> None:
    """Runs a ticket's work. Without an append its error stays its own, else the batch fails."""
    before, ticket.error = lane.group.position, None
    try:
        ticket.result = ticket.work(lane)
    except Exception as error:
        if lane.group.failed is not None or lane.group.position != before:
            raise
        ticket.error = error


def ahead(ts: str, now: str) -> str | None:
    """Returns a warning if a record is dated more than a day after the host's clock."""
    if ts <= now:  # runs for every response, so the common case is quick
        return None
    difference = datetime.fromisoformat(ts) - datetime.fromisoformat(now)
    if difference <= timedelta(days=1):
        return None
    return (
        f"The log's last record is dated {ts}, {plural(difference.days, 'day')} ahead of this "
        "machine's clock: a clock was wrong then, or is now. Records written until then get that "
        "date, too."
    )


def birth(lane: Lane) -> None:
    """Appends the first record of a store."""
    event = KbCreated(slug=DEFAULT_KB, name="Default")
    lane.append([event], actor="kbproc", method="store.create")
