"""What all answers say goes into the log together.

Owns: when it is written, and how long deltas are gathered.
Refuses to know: what is said.

One commit takes in what has come from every answer: a record each, one sync for all. So a hundred
answers hold other writes up hardly more than one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.events.event import Event
from kbproc.events.session import AnswerEnded
from kbproc.sessions.live import Live
from kbproc.store.lane import Lane
from kbproc.store.store import Store

GATHER_SECONDS = 0.03  # deltas wait so long at most before they are written
_JOIN_SECONDS = 10.0
Unit = tuple[Live, list[Event]]


class Scribe:
    """A thread of its own, from the first thing that is said to `close`."""

    def __init__(self, store: Store, done: Callable[[Live], None]) -> None:
        """`done` gets each answer whose end is in the log, or that the log did not take."""
        self._store = store
        self._done = done
        self._offered: dict[Live, None] = {}
        self._is_urgent = False
        self._closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def offer(self, live: Live, *, urgent: bool) -> None:
        """It has something to be written. `urgent`: at once."""
        with self._changed:
            is_news = not self._offered or (urgent and not self._is_urgent)
            self._offered[live] = None
            self._is_urgent = self._is_urgent or urgent
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="scribe", daemon=True)
                thread.start()
                self._thread = thread
            if is_news:  # of a hundred answers' words the thread would be woken all the time
                self._changed.notify_all()

    def close(self) -> None:
        """Once all that was offered is written."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while lives := self._next():
            self.write(lives)

    def _next(self) -> list[Live]:
        """What is to be written now; nothing once it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._offered or self._closing)
            due = time.monotonic() + GATHER_SECONDS
            while not (self._is_urgent or self._closing) and (left := due - time.monotonic()) > 0:
                self._changed.wait(left)
            lives, self._offered, self._is_urgent = list(self._offered), {}, False
            return lives

    def write(self, lives: list[Live]) -> None:
        units = [(live, unit) for live in lives for unit in live.take()]
        try:
            seqs = self._store.commit(lambda lane: [_append(lane, *unit) for unit in units])
        except KbprocError as error:
            for live in lives:
                live.fail(error)
                self._done(live)
        else:
            for (live, unit), seq in zip(units, seqs, strict=True):
                live.written(seq, unit)
            for live in lives:
                if live.has_ended:
                    self._done(live)
        self._store.changed()


def _append(lane: Lane, live: Live, unit: list[Event]) -> int:
    """The last record of an answer holds its outcome: where to find it."""
    asked, of_end = live.asked, isinstance(unit[-1], AnswerEnded)
    told = {"data": {"session_id": asked.session, "message_id": asked.message}}
    keeps = asked.token is not None and of_end and unit[-1].status != "interrupted"  # type: ignore[attr-defined]
    return lane.append(
        unit,
        actor=asked.actor,
        method=asked.method,
        token=asked.token if keeps else None,
        params_hash=asked.params_hash if keeps else None,
        result=msgspec.json.encode(told) if keeps else b"null",
    )
