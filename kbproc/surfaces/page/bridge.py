"""Sends the page's requests on the wire, and collects what each open window is to hear.

The page may call the methods that its views need, and no others: none that reads or writes files
by a path, reaches an address, or changes settings. What the caller's scopes forbid, the owner of
the store refuses, as for any client.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from kbproc.surfaces.sharing.inside import Inside

Message = dict[str, Any]

READS = frozenset(
    {
        "agent.list",
        "chunk.get",
        "chunk.list",
        "chunk.map",
        "describe",
        "doc.download",
        "doc.get",
        "doc.history",
        "doc.list",
        "doctor",
        "events.read",
        "kb.list",
        "knowledge.get",
        "knowledge.list",
        "note.get",
        "note.history",
        "note.list",
        "ping",
        "review.list",
        "search",
        "session.get",
        "session.list",
        "session.resume",
        "sql.query",
        "status",
        "tag.list",
        "watch.list",
    }
)
WRITES = frozenset(
    {
        "doc.delete",
        "doc.restore",
        "doc.update",
        "events.revert",
        "knowledge.delete",
        "knowledge.store",
        "knowledge.supersede",
        "knowledge.unsupersede",
        "knowledge.verify",
        "note.delete",
        "note.put",
        "plan.approve",
        "plan.refuse",
        "review.approve",
        "review.edit",
        "review.reject",
        "session.ask",
        "session.create",
        "session.delete",
        "session.stop",
        "store.purge",
    }
)
# Params with which a read writes a file, or repairs the store.
_NOT_FOR_PAGES = frozenset({"path", "repair"})
_MOST_EVENTS = 2000  # the longest queue of a window
_RETRY_SECONDS = 2.0
_logger = logging.getLogger(__name__)


class Window:
    """The events that wait for one open window of the page. Any thread may use it."""

    def __init__(self) -> None:
        self._events: deque[Message] = deque()
        self._changed = threading.Condition()
        self._has_lost = False
        self.is_open = True

    def put(self, event: Message) -> None:
        """Adds an event; a window that reads too slowly loses all, and hears that it has."""
        with self._changed:
            if len(self._events) >= _MOST_EVENTS:
                self._events.clear()
                self._has_lost = True
            self._events.append(event)
            self._changed.notify_all()

    def take(self, timeout_s: float) -> list[Message]:
        """Returns the events that have come; none after the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._events or not self.is_open, timeout_s)
            events = list(self._events)
            self._events.clear()
            if self._has_lost:
                events.insert(0, {"type": "lost"})
                self._has_lost = False
            return events

    def close(self) -> None:
        with self._changed:
            self.is_open = False
            self._changed.notify_all()


class Bridge:
    """The page's side of the wire. Any thread may use it."""

    def __init__(self, inside: Inside, *, read_only: bool) -> None:
        self._inside = inside
        self._read_only = read_only
        self._windows: dict[str, Window] = {}
        self._lock = threading.Lock()
        self._seq: int | None = None  # the position of the last record
        self._plans: Message = {}  # the last answer to plan.list
        self._is_closed = threading.Event()

    def start(self) -> None:
        """Follows the log and the plans that wait, for all windows."""
        self._follow_log()
        self._follow_plans(None)

    def close(self) -> None:
        self._is_closed.set()
        with self._lock:
            windows = list(self._windows.values())
        for window in windows:
            window.close()

    # ------------------------------------------------------------------------ windows

    def window(self, name: str) -> Window:
        """Returns a new window of this name; an older one of the same name closes."""
        window = Window()
        with self._lock:
            older = self._windows.get(name)
            self._windows[name] = window
            if self._plans:
                window.put({"type": "plans", **self._plans})
        if older is not None:
            older.close()
        return window

    def forget(self, name: str, window: Window) -> None:
        window.close()
        with self._lock:
            if self._windows.get(name) is window:
                del self._windows[name]

    def _tell(self, event: Message) -> None:
        with self._lock:
            windows = list(self._windows.values())
        for window in windows:
            window.put(event)

    # ----------------------------------------------------------------------- requests

    def refusal(self, method: str, params: Message) -> str | None:
        """Returns why the page may not send the request; None if it may."""
        if method in READS:
            wrong = _NOT_FOR_PAGES.intersection(params)
            return f"The page sends no {min(wrong)}." if wrong else None
        if method not in WRITES:
            return f"The page does not use {method}."
        if self._read_only and not params.get("dry_run"):
            return "This page was opened with --read-only."
        return None

    def ask(
        self, window: str, id: Any, method: str, params: Message, done: Callable[[Message], None]
    ) -> Callable[[], None]:
        """Sends a request for a window; returns the function that cancels a read.

        A write goes on, even if the window has closed: an answer is read again after a reload.
        """

        def on_event(event: Message) -> None:
            with self._lock:
                asking = self._windows.get(window)
            if asking is not None:
                asking.put({"type": "event", "event": {**event, "request_id": id}})

        number = self._inside.ask(method, params, done, on_event).id
        return lambda: self._inside.cancel(number) if method in READS else None

    # ---------------------------------------------------------------------- following

    def _follow_log(self) -> None:
        """Subscribes to the log, after the last record; each end of the stream begins it anew."""
        params: Message = {} if self._seq is None else {"after_seq": self._seq}

        def on_event(event: Message) -> None:
            if event["type"] == "item":
                record = event["item"]
                self._seq = record["seq"]
                self._tell({"type": "record", "record": record})

        self._inside.ask("events.subscribe", params, self._later(self._follow_log), on_event)

    def _follow_plans(self, version: str | None) -> None:
        """Asks for the plans that wait; each answer asks for the next change."""

        def on_answer(answer: Message) -> None:
            if "result" not in answer:
                self._later(lambda: self._follow_plans(None))(answer)
                return
            data = answer["result"]["data"]
            with self._lock:
                self._plans = data
            self._tell({"type": "plans", **data})
            self._follow_plans(data["version"])

        params: Message = {} if version is None else {"after": version}
        self._inside.ask("plan.list", params, on_answer)

    def _later(self, again: Callable[[], None]) -> Callable[[Message], None]:
        """Returns a callback that repeats a request after a pause, unless it was not allowed."""

        def on_answer(answer: Message) -> None:
            type = answer.get("error", {}).get("data", {}).get("type", "")
            if self._is_closed.is_set() or type.startswith(("auth.", "input.")):
                return
            timer = threading.Timer(_RETRY_SECONDS, again)
            timer.daemon = True
            timer.start()

        return on_answer


def encoded(event: Message) -> bytes:
    """Returns an event as server-sent events frame it."""
    return b"data: " + msgspec.json.encode(event) + b"\n\n"
