"""Notifies a client when the resources and tasks that it watches change.

Each time the log grows, the state of each watched resource is compared with the last one.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from kbproc.base.workers import Backoff
from kbproc.client.asker import Message
from kbproc.surfaces.mcp import protocol
from kbproc.surfaces.mcp.protocol import McpRequest, Refusal
from kbproc.surfaces.mcp.resources import read_of
from kbproc.surfaces.mcp.tasks import Scopes, Task
from kbproc.surfaces.sharing.inside import Inside
from kbproc.surfaces.wire.jsonrpc import Id

_MOST = 256  # resources that one client watches
_LIST = "resourcesListChanged"
_SHORTEST_S, _LONGEST_S = 1.0, 30.0  # between two tries after an error
_STATE_ERRORS = ("resource.", "auth.", "input.")  # types that are a resource's state


class _Watch:
    """A stream of notifications, for a request of the newer era or a client of the older."""

    def __init__(self, stream: Id | None, uris: set[str], *, lists: bool) -> None:
        self.stream = stream
        self.uris = uris
        self.lists = lists

    def params(self, members: dict[str, Any]) -> dict[str, Any]:
        if self.stream is None:
            return members
        return {**members, "_meta": {protocol.SUBSCRIPTION: self.stream}}


# Returns the tasks of a client's ids that exist. Raises Refusal.
FindTasks = Callable[[McpRequest, Any, Scopes], list[Task]]


class Changes:
    """The resources and tasks that a client watches; without any, the store is not asked."""

    def __init__(self, inside: Inside, send: Callable[[bytes], None], tasks: FindTasks) -> None:
        self._inside = inside
        self._find_tasks = tasks
        self._notify = send
        self._lock = threading.Lock()
        self._watches: dict[Id | None, _Watch] = {}
        self._states: dict[str, Any] = {}
        self._adding: Counter[str] = Counter()  # names of watches that have not begun yet
        self._runs = False
        self._backoff = Backoff(_SHORTEST_S, _LONGEST_S)

    # ------------------------------------------------------------------------ watching

    def listen(self, request: McpRequest, scopes: Scopes) -> None:
        """Starts a stream; its first notification lists what is watched, its end is the answer."""
        filters = request.params.get("notifications")
        if not isinstance(filters, dict):
            raise Refusal(protocol.INVALID_PARAMS, "params.notifications must be an object.")
        subscriptions = filters.get("resourceSubscriptions")
        if not isinstance(subscriptions, list | None):
            raise Refusal(protocol.INVALID_PARAMS, "resourceSubscriptions must be an array.")
        uris = [uri for uri in subscriptions or () if read_of(uri)]
        watch = _Watch(request.id, set(uris[:_MOST]), lists=filters.get(_LIST) is True)
        honoured: dict[str, Any] = {_LIST: True} if watch.lists else {}
        if watch.uris:
            honoured["resourceSubscriptions"] = uris[:_MOST]
        tasks: list[Task] = []
        if (ids := filters.get("taskIds")) is not None:
            tasks = self._find_tasks(request, ids, scopes)
            honoured["taskIds"] = [task.id for task in tasks]

        def acknowledge() -> None:
            self._send(watch, "subscriptions/acknowledged", {"notifications": honoured})
            for task in tasks:
                task.when_settled(functools.partial(self._watch, request, watch, task))

        request.on_cancel = functools.partial(self._drop, request.id, tasks)
        self._add(watch, request, acknowledge)

    def subscribe(self, request: McpRequest) -> None:
        uri = request.params.get("uri")
        if read_of(uri) is None:
            raise Refusal(protocol.NOT_FOUND_LEGACY, f"There is no resource {uri!r}.", {"uri": uri})
        with self._lock:
            current = self._watches.get(None)
            if current is not None and len(current.uris) >= _MOST:
                raise Refusal(protocol.INVALID_PARAMS, f"A client may watch {_MOST} resources.")
        watch = _Watch(None, {str(uri)}, lists=True)
        self._add(watch, request, lambda: request.reply({}))

    def unsubscribe(self, request: McpRequest) -> None:
        uri = str(request.params.get("uri"))
        with self._lock:
            watch = self._watches.get(None)
            if watch is not None:
                watch.uris.discard(uri)
                if not watch.uris:
                    del self._watches[None]
                self._forget([uri, _LIST])
        request.reply({})

    def _add(self, watch: _Watch, request: McpRequest, on_begin: Callable[[], None]) -> None:
        """Calls `on_begin` once all present states are read, so that no later change is missed."""
        names = _names([watch])
        remaining = len(names)
        with self._lock:
            self._adding.update(names)

        def count_down() -> None:  # always in the thread in which answers come
            nonlocal remaining
            remaining -= 1
            if remaining > 0:
                return
            self._begin(watch, request, on_begin)
            with self._lock:
                self._adding -= Counter(names)
                self._forget(names)

        for name in names:
            self._ask(name, count_down)
        if not names:
            on_begin()

    def _begin(self, watch: _Watch, request: McpRequest, on_begin: Callable[[], None]) -> None:
        is_stream = watch.stream is not None
        if not request.session.is_open(request):  # the client has cancelled it
            return
        if is_stream:
            on_begin()
        with self._lock:
            # A client that has read the answer may have cancelled the stream since.
            if is_stream and not request.session.is_open(request):
                return
            self._watches.setdefault(watch.stream, watch).uris.update(watch.uris)
            runs, self._runs = self._runs, True
        # The client of a subscription may end it as soon as the answer arrives.
        if not is_stream:
            on_begin()
        if not runs:
            self._inside.ask("ping", {}, self._log_moved)

    def _watch(self, request: McpRequest, watch: _Watch, task: Task) -> None:
        if request.session.is_open(request):
            task.watch(watch.stream, lambda state: self._send(watch, "tasks", state))

    def _drop(self, stream: Id, tasks: list[Task]) -> None:
        with self._lock:
            watch = self._watches.pop(stream, None)
            if watch is not None:
                self._forget(_names([watch]))
        for task in tasks:
            task.unwatch(stream)

    # ---------------------------------------------------------------- when the log moves

    def _log_moved(self, response: Message) -> None:
        """Reads all watched states after a change of the log, and waits for the next change."""
        if "error" in response:
            self._ask_again(response["error"]["data"])
            return
        with self._lock:
            self._backoff.reset()
            if not self._watches:
                self._runs = False  # the next watch asks
                return
            names = _names(self._watches.values())
        for name in names:
            self._ask(name, lambda: None)
        seq = response["result"]["meta"]["seq"]
        self._inside.ask("ping", {"min_seq": seq + 1}, self._log_moved)

    def _ask_again(self, error: dict[str, Any]) -> None:
        """Asks again later, while anything is watched and the store may come back."""
        with self._lock:
            is_refused = error["type"].startswith("store.") and not error["retryable"]
            if is_refused or not self._watches:
                self._runs = False  # the next watch asks
                return
            delay_s = error.get("retry_after_ms", self._backoff.failed() * 1000) / 1000
        timer = threading.Timer(delay_s, self._inside.ask, ("ping", {}, self._log_moved))
        timer.daemon = True
        timer.start()

    def _is_watched(self, name: str) -> bool:
        watches = self._watches.values()
        return name in self._adding or any(
            name in watch.uris or (watch.lists and name == _LIST) for watch in watches
        )

    def _forget(self, names: Collection[str]) -> None:
        """Drops the states of the names that no stream watches any more."""
        for name in names:
            if not self._is_watched(name):
                self._states.pop(name, None)

    def _ask(self, name: str, then: Callable[[], None]) -> None:
        def answer(response: Message) -> None:
            if (state := _state(response)) is not None:
                self._note(name, state)
            then()

        method, params = _state_request(name)
        self._inside.ask(method, params, answer)

    def _note(self, name: str, state: Any) -> None:
        with self._lock:
            if not self._is_watched(name):
                return
            before, self._states[name] = self._states.get(name), state
        if before is not None and before != state:
            self._notify_watches(name)

    def _notify_watches(self, name: str) -> None:
        with self._lock:
            watches = list(self._watches.values())
        for watch in watches:
            if name == _LIST and watch.lists:
                self._send(watch, "resources/list_changed", {})
            elif name in watch.uris:
                self._send(watch, "resources/updated", {"uri": name})

    def _send(self, watch: _Watch, name: str, params: dict[str, Any]) -> None:
        self._notify(protocol.notification_line(f"notifications/{name}", watch.params(params)))


def _state(response: Message) -> tuple[Any, Any] | None:
    """Returns the state in a response; None for an error that tells nothing about the state."""
    if "result" in response:
        result = response["result"]
        return result["meta"].get("total"), result["data"]
    type: str = response["error"]["data"]["type"]
    return (None, type) if type.startswith(_STATE_ERRORS) else None


def _names(watches: Collection[_Watch]) -> list[str]:
    """Returns the names of all watched states: addresses, and the list."""
    uris = {uri for watch in watches for uri in watch.uris}
    return sorted(uris | {_LIST for watch in watches if watch.lists})


def _state_request(name: str) -> tuple[str, dict[str, Any]]:
    """Returns a small request whose answer changes with the resource."""
    reading = None if name == _LIST else read_of(name)
    if reading is None:
        return "doc.list", {"limit": 1, "fields": ["id"]}
    method, params = reading
    params.pop("text", None)
    return method, {**params, "fields": ["revision"]}
