"""One task: how it stands, and who waits to hear of it.

Owns: its state as the extension tells it, from working to its one end.
Refuses to know: which tasks there are, and how its call is made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kbproc.base.host import Host, rfc3339
from kbproc.mcp import approval, told
from kbproc.mcp.calling import Again, Caller
from kbproc.mcp.inside import Message

GRACE_SECONDS = 0.5  # what is done by then needs no task
_POLL_MS = 1000
_TOLD_EVERY_MS = 1000.0
_OVER = frozenset({"completed", "cancelled"})
Tell = Callable[[Message], None]


class Task:
    """Stands in for a caller. Any thread may use it.

    `is_known`: it has ended, waits for a person, or goes on for longer: whoever waits is answered.
    `lost`: why the store could not be asked how it stands.
    """

    def __init__(
        self, id: str, began_ms: int, caller: Caller, host: Host, mark: Callable[[str], None]
    ) -> None:
        """`mark`: keeps that the task of this id was cancelled."""
        self.id = id
        self.caller = caller
        self.lost: str | None = None
        self.cancel: Callable[[], None] = lambda: None
        self._mark = mark
        self.is_known = False
        self._host = host
        self._waiting: list[Callable[[], None]] = []
        self._watching: dict[Any, Tell] = {}
        self._told_ms = 0.0
        self._grace = threading.Timer(GRACE_SECONDS, self.settle)
        self._grace.daemon = True
        self._asked: tuple[Message, Again] | None = None  # a plan's error, and how to go on with it
        self._lock = threading.RLock()
        began = rfc3339(began_ms)
        self._state: Message = {"taskId": id, "status": "working", "createdAt": began}
        self._state |= {"lastUpdatedAt": began, "ttlMs": None, "pollIntervalMs": _POLL_MS}

    @property
    def state(self) -> Message:
        with self._lock:
            return dict(self._state)

    @property
    def is_over(self) -> bool:
        return self._state["status"] in _OVER

    def once_known(self, then: Callable[[], None]) -> None:
        with self._lock:
            if not self.is_known:
                self._waiting.append(then)
                return
        then()

    def watch(self, stream: Any, tell: Tell) -> None:
        """`tell` gets how it stands, now and whenever that changes."""
        with self._lock:
            self._watching[stream] = tell
            tell(self.state)

    def unwatch(self, stream: Any) -> None:
        with self._lock:
            self._watching.pop(stream, None)

    def settle(self) -> None:
        """Whoever waits is answered."""
        with self._lock:
            self.is_known = True
            waiting, self._waiting = self._waiting, []
        self._grace.cancel()
        for then in waiting:
            then()

    def _change(self, *, quietly: bool = False, **changed: Any) -> None:
        """A member that becomes None is left out."""
        with self._lock:
            if self.is_over:
                return
            whole = {**self._state, **changed, "lastUpdatedAt": self._host.now()}
            self._state = {k: v for k, v in whole.items() if v is not None or k == "ttlMs"}
            for tell in () if quietly else self._watching.values():
                tell(self.state)

    # ------------------------------------------------------------- as who the call is made for

    def begun(self) -> None:
        with self._lock:
            if self.is_known or self._grace.is_alive():
                return
            if GRACE_SECONDS > 0:
                self._grace.start()
                return
        self.settle()

    def progress(self, done: float, total: float | None, said: str) -> None:
        now = self._host.monotonic_ms()
        is_due = now - self._told_ms >= _TOLD_EVERY_MS
        self._told_ms = now if is_due else self._told_ms
        self._change(statusMessage=said, quietly=not is_due)

    def decide(self, data: Message, again: Again) -> None:
        caller = self.caller
        if not caller.can_ask:
            self.end(caller.unapproved(data))
            return
        asked = approval.required(data["plan"], caller.request)
        self._asked = data, again
        self._change(status="input_required", inputRequests=asked["inputRequests"])
        self.settle()

    def answer(self, responses: dict[str, Any]) -> None:
        """What a person has decided. What comes unasked is passed over."""
        with self._lock:
            given = responses.get(approval.KEY)
            if self._asked is None or not isinstance(given, dict):
                return
            (data, again), self._asked = self._asked, None

        def go_on(plan_hash: str) -> None:
            self._change(status="working", inputRequests=None)
            again(plan_hash)

        self.caller.follow(approval.verdict(given, self.caller.request), data, go_on, self.end)

    def end(self, result: Message) -> None:
        error = result.get("_meta", {}).get(told.ERROR, {})
        if error.get("type") == "operation.cancelled":
            self._mark(self.id)
            self.be_cancelled()
        else:
            self._change(status="completed", statusMessage=None, inputRequests=None, result=result)
        self.settle()

    def give_up(self) -> None:
        """At the client's wish."""
        with self._lock:
            waits, self._asked = self._asked is not None, None
        if waits:
            self._mark(self.id)
            self.be_cancelled()
        elif not self.is_over:
            self.cancel()

    def be_cancelled(self) -> None:
        self._change(status="cancelled", statusMessage=None, inputRequests=None)


class Called(Task):
    """For a call whose caller still waits: what ends soon is its result, and no task."""

    def progress(self, done: float, total: float | None, said: str) -> None:
        self.caller.progress(done, total, said)  # says nothing once it is answered
        super().progress(done, total, said)

    def decide(self, data: Message, again: Again) -> None:
        """The caller asks the person, and then once more for this."""
        with self._lock:
            is_known = self.is_known
            if not is_known:
                self._waiting = []
                self._grace.cancel()
        if is_known:
            super().decide(data, again)
        else:
            self.caller.decide(data, again)


class Found(Task):
    """For an id whose task this process does not know, and so asks for once more."""

    def end(self, result: Message) -> None:
        error = result.get("_meta", {}).get(told.ERROR, {})
        if not self.is_known and str(error.get("type")).startswith("store."):
            self.lost = result["content"][0]["text"]
            self.settle()
        else:
            super().end(result)
