"""Telling a client that what it watches has changed.

Owns: what is watched, waiting for the log to move, and comparing what was seen before.
Refuses to know: what is in the log: it asks as the client may ask, and so tells no more than the
client could find out by asking.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection
from typing import Any

from kbproc.mcp import protocol
from kbproc.mcp.inside import Inside, Message
from kbproc.mcp.protocol import Id, Refusal
from kbproc.mcp.resources import read_of
from kbproc.mcp.session import Request
from kbproc.mcp.tasks.task import Task
from kbproc.mcp.tasks.tasks import Scopes

_MOST = 256  # resources that one client watches
_LIST = "resourcesListChanged"


class _Watch:
    """One stream of notifications: of a request of the newer era, or of a client of the older."""

    def __init__(self, stream: Id | None, uris: set[str], *, lists: bool) -> None:
        self.stream = stream
        self.uris = uris
        self.lists = lists

    def params(self, found: dict[str, Any]) -> dict[str, Any]:
        if self.stream is None:
            return found
        return {**found, "_meta": {protocol.SUBSCRIPTION: self.stream}}


# Those that are there, of the ids that a client names. Raises Refusal.
FindTasks = Callable[[Request, Any, Scopes], list[Task]]


class Changes:
    """What one client watches. Nothing is asked of the store before something is watched."""

    def __init__(self, inside: Inside, send: Callable[[bytes], None], tasks: FindTasks) -> None:
        self._inside = inside
        self._find_tasks = tasks
        self._notify = send
        self._lock = threading.Lock()
        self._watches: dict[Id | None, _Watch] = {}
        self._seen: dict[str, Any] = {}
        self._runs = False

    # ------------------------------------------------------------------------ watching

    def listen(self, request: Request, scopes: Scopes) -> None:
        """The first notification says what is honoured; the answer comes when it ends."""
        wanted = request.params.get("notifications")
        if not isinstance(wanted, dict):
            raise Refusal(protocol.INVALID_PARAMS, "params.notifications must be an object.")
        asked = wanted.get("resourceSubscriptions")
        if not isinstance(asked, list | None):
            raise Refusal(protocol.INVALID_PARAMS, "resourceSubscriptions must be an array.")
        uris = [uri for uri in asked or () if read_of(uri)]
        watch = _Watch(request.id, set(uris[:_MOST]), lists=wanted.get(_LIST) is True)
        honoured: dict[str, Any] = {_LIST: True} if watch.lists else {}
        if watch.uris:
            honoured["resourceSubscriptions"] = uris[:_MOST]
        tasks: list[Task] = []
        if (ids := wanted.get("taskIds")) is not None:
            tasks = self._find_tasks(request, ids, scopes)
            honoured["taskIds"] = [task.id for task in tasks]

        def begun() -> None:
            self._send(watch, "subscriptions/acknowledged", {"notifications": honoured})
            for task in tasks:
                task.once_known(functools.partial(self._watch, request, watch, task))

        request.on_cancel = functools.partial(self._drop, request.id, tasks)
        self._add(watch, request, begun)

    def subscribe(self, request: Request) -> None:
        uri = request.params.get("uri")
        if read_of(uri) is None:
            raise Refusal(protocol.NOT_FOUND_LEGACY, f"There is no resource {uri!r}.", {"uri": uri})
        with self._lock:
            known = self._watches.get(None)
            if known is not None and len(known.uris) >= _MOST:
                raise Refusal(protocol.INVALID_PARAMS, f"A client may watch {_MOST} resources.")
        watch = _Watch(None, {str(uri)}, lists=True)
        self._add(watch, request, lambda: request.reply({}))

    def unsubscribe(self, request: Request) -> None:
        with self._lock:
            watch = self._watches.get(None)
            if watch is not None:
                watch.uris.discard(str(request.params.get("uri")))
        request.reply({})

    def _add(self, watch: _Watch, request: Request, begun: Callable[[], None]) -> None:
        """`begun` is called once it is known how everything is now: what changes later is told."""
        names = _names([watch])
        left = len(names)

        def seen() -> None:  # always in the thread in which answers come
            nonlocal left
            left -= 1
            if left <= 0:
                self._begin(watch, request, begun)

        for name in names:
            self._ask(name, seen)
        if not names:
            begun()

    def _begin(self, watch: _Watch, request: Request, begun: Callable[[], None]) -> None:
        if not request.session.is_open(request):  # it was cancelled meanwhile
            return
        begun()
        with self._lock:
            self._watches.setdefault(watch.stream, watch).uris.update(watch.uris)
            runs, self._runs = self._runs, True
        if not runs:
            self._inside.ask("ping", {}, self._moved)

    def _watch(self, request: Request, watch: _Watch, task: Task) -> None:
        if request.session.is_open(request):
            task.watch(watch.stream, lambda state: self._send(watch, "tasks", state))

    def _drop(self, stream: Id, tasks: list[Task]) -> None:
        with self._lock:
            self._watches.pop(stream, None)
        for task in tasks:
            task.unwatch(stream)

    # ---------------------------------------------------------------- when the log moves

    def _moved(self, response: Message) -> None:
        """The log has reached a position; looks, and waits for the next."""
        if "error" in response:  # the store is gone, or never came
            with self._lock:
                self._runs = False
            return
        with self._lock:
            names = _names(self._watches.values())
        for name in names:
            self._ask(name, lambda: None)
        seq = response["result"]["meta"]["seq"]
        self._inside.ask("ping", {"min_seq": seq + 1}, self._moved)

    def _ask(self, name: str, then: Callable[[], None]) -> None:
        def answer(response: Message) -> None:
            if "result" in response:
                result = response["result"]
                state = result["meta"].get("total"), result["data"]
            else:
                state = None, response["error"]["data"]["type"]
            before, self._seen[name] = self._seen.get(name), state
            if before is not None and before != state:
                self._tell(name)
            then()

        method, params = _asked(name)
        self._inside.ask(method, params, answer)

    def _tell(self, name: str) -> None:
        with self._lock:
            watches = list(self._watches.values())
        for watch in watches:
            if name == _LIST and watch.lists:
                self._send(watch, "resources/list_changed", {})
            elif name in watch.uris:
                self._send(watch, "resources/updated", {"uri": name})

    def _send(self, watch: _Watch, name: str, params: dict[str, Any]) -> None:
        told = watch.params(params)
        self._notify(protocol.notification(f"notifications/{name}", told))


def _names(watches: Collection[_Watch]) -> list[str]:
    """What is watched: addresses, and the list."""
    found = {uri for watch in watches for uri in watch.uris}
    return sorted(found | {_LIST for watch in watches if watch.lists})


def _asked(name: str) -> tuple[str, dict[str, Any]]:
    """What tells whether it has changed, at little cost."""
    wanted = None if name == _LIST else read_of(name)
    if wanted is None:
        return "doc.list", {"limit": 1, "fields": ["id"]}
    method, params = wanted
    params.pop("text", None)
    return method, {**params, "fields": ["revision"]}
