"""The writers' lane: who may write now, and what a turn may use.

Owns: what one writer may use, turns, their order and their outcomes.
Refuses to know: the shared fsync and what readers see (store.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from kbproc.base.errors import KbprocError, bare
from kbproc.base.gate import Hold
from kbproc.base.host import Host
from kbproc.base.wording import plural
from kbproc.events import codec
from kbproc.events.event import Event
from kbproc.events.kb import KbCreated
from kbproc.log.record import Draft, salted
from kbproc.settings.config import DEFAULT_KB
from kbproc.store.group import Group
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.reader import EVERYTHING
from kbproc.views.catalog.rows import Head

_MOST = 500  # turns in a commit: a shared log takes twice as many records as one
T = TypeVar("T")


class Lane:
    """What a writer may use while it decides: the newest state, and `append`.

    `now` is the host's clock; `ts` dates what is appended, and never goes back.
    `check_writable` raises whatever would keep a record from being written.
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
        """The catalog with all that was appended; asking for it costs the time to fold that in."""
        queries = self.group.queries
        if not self._sees_all:  # another writer's sight may be left
            queries.see(EVERYTHING)
            self._sees_all = True
        return queries

    def append(
        self,
        events: Sequence[Event],
        *,
        actor: str,
        method: str,
        token: str | None = None,
        params_hash: str | None = None,
        result: bytes = b"null",
    ) -> int:
        """One record; returns its seq. Durable when the lane is left.

        Raises what `check_writable` raises, or store.io, with nothing appended.
        """
        self.check_writable()
        salt = self._host.salt()
        draft = Draft(
            ts=self.ts,
            actor=actor,
            method=method,
            salt=salt,
            events=codec.encode(events),
            token=token,
            params_hash=None if params_hash is None else salted(params_hash, salt),
            result=msgspec.Raw(result),
        )
        return self.group.append(draft, events).seq


class PurgeDue(Exception):
    """Others have written a record that purges: first this node forgets what it names."""


class Ticket(Generic[T]):
    """A writer's turn in the lane. `woken`: it is done, or its writer is to work for all.

    Only a writer who waits for it makes `woken`, and so may be asked to work.
    """

    def __init__(self, work: Callable[[Lane], T]) -> None:
        self.work = work
        self.done = False
        self.result: T | None = None
        self.error: BaseException | None = None
        self.woken: threading.Event | None = None


class Turns:
    """Writers in the order they came; one of them works for all who wait.

    Whoever works is let go with its own turn, and the next who waits goes on: nobody waits
    for turns that come after its own.
    """

    def __init__(self, run: Callable[[list[Ticket[Any]]], None]) -> None:
        """`run` gives each ticket its turn, and makes what they appended durable."""
        self.lane = Hold()
        self.purge: Callable[[], object] | None = None
        self._run = run
        self.queue: list[Ticket[Any]] = []
        self._is_led = False
        self._changing = threading.Lock()

    def take(self, work: Callable[[Lane], T]) -> T:
        """Its turn, once it comes. Raises whatever `work` raised, or what `run` raised."""
        return self.enter(work)()

    def enter(self, work: Callable[[Lane], T]) -> Callable[[], T]:
        """Nobody who comes later comes before it. What is returned waits as `take` does, and must
        be called: until somebody waits, nobody works."""
        ticket = Ticket(work)
        if self.lane.is_mine:  # nobody else could work for it
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
        ticket.work = _done  # what it was decided from is let go of before anybody is answered
        if ticket.error is not None:
            raise bare(ticket.error) if isinstance(ticket.error, KbprocError) else ticket.error
        return ticket.result  # type: ignore[return-value]

    def _wait(self, ticket: Ticket[Any]) -> None:
        """Until it is done, by whoever works for all, which may be this thread."""
        try:
            with self._changing:
                if ticket.done:
                    return
                ticket.woken = threading.Event()
                if not self._is_led:
                    self._is_led = True
                    ticket.woken.set()
            ticket.woken.wait()
        except BaseException:  # Ctrl-C: nobody may wait for a writer that has gone
            self._withdraw(ticket)
            raise
        if not ticket.done:
            self._lead(ticket)

    def _lead(self, ticket: Ticket[Any]) -> None:
        """Works for all who have come by now, or until its own turn; the next who waits goes on."""
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
        """Where nobody waits yet, whoever is the first to wait works for all."""
        first = next((one.woken for one in self.queue if one.woken is not None), None)
        self._is_led = first is not None
        if first is not None:
            first.set()

    def _withdraw(self, ticket: Ticket[Any]) -> None:
        with self._changing:
            if ticket in self.queue:
                self.queue.remove(ticket)
                if ticket.woken is not None and ticket.woken.is_set():
                    self._pass_on()

    def _work(self, tickets: list[Ticket[Any]]) -> None:
        try:
            self._run(tickets)
        except BaseException as error:
            for ticket in tickets:
                ticket.error = ticket.error or error
            if not isinstance(error, Exception):
                raise
        finally:
            with self._changing:  # whoever begins to wait now sees that it is done
                for ticket in tickets:
                    ticket.done = True
            for ticket in tickets:
                if ticket.woken is not None:
                    ticket.woken.set()


def _done(lane: Lane) -> Any:
    """Nobody asks for it."""


def take_turn(ticket: Ticket[Any], lane: Lane) -> None:
    """What fails before it has appended anything fails alone, else the batch fails with it."""
    before, ticket.error = lane.group.position, None
    try:
        ticket.result = ticket.work(lane)
    except Exception as error:
        if lane.group.failed is not None or lane.group.position != before:
            raise
        ticket.error = error


def ahead(ts: str, now: str) -> str | None:
    """What to say of a record that is dated more than a day after the host's clock."""
    if ts <= now:  # told with every answer, so the common case is quick
        return None
    by = datetime.fromisoformat(ts) - datetime.fromisoformat(now)
    if by <= timedelta(days=1):
        return None
    return (
        f"The log's last record is dated {ts}, {plural(by.days, 'day')} ahead of this machine's "
        "clock: a clock was wrong then, or is now. Records written meanwhile get that date, too."
    )


def birth(lane: Lane) -> None:
    """The first record of a store."""
    event = KbCreated(slug=DEFAULT_KB, name="Default", description="Where everything goes.")
    lane.append([event], actor="kbproc", method="store.create")
