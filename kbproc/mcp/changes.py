"""Telling a client that what it watches has changed.

Owns: what is watched, waiting for the log to move, and comparing what was seen before.
Refuses to know: what is in the log: it asks as the client may ask, and so tells no more than the
client could find out by asking.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kbproc.mcp import protocol
from kbproc.mcp.inside import Inside, Message
from kbproc.mcp.protocol import Id, Refusal
from kbproc.mcp.resources import read_of
from kbproc.mcp.session import Request

_MOST = 256  # resources that one client watches
_LIST = "resourcesListChanged"
_FIELDS = {"doc.get": "revision", "note.get": "revision"}


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


class Changes:
    """What one client watches. Nothing is asked of the store before something is watched."""

    def __init__(self, inside: Inside, send: Callable[[bytes], None]) -> None:
        self._inside = inside
        self._notify = send
        self._lock = threading.Lock()
        self._watches: dict[Id | None, _Watch] = {}
        self._seen: dict[str, Any] = {}
        self._runs = False

    # ------------------------------------------------------------------------ watching

    def listen(self, request: Request) -> None:
        """The first notification says what is honoured; the answer comes when it ends."""
        wanted = request.params.get("notifications")
        if not isinstance(wanted, dict):
            raise Refusal(protocol.INVALID_PARAMS, "params.notifications must be an object.")
        uris = [uri for uri in wanted.get("resourceSubscriptions") or () if read_of(uri)]
        watch = _Watch(request.id, set(uris[:_MOST]), lists=wanted.get(_LIST) is True)
        honoured: dict[str, Any] = {_LIST: True} if watch.lists else {}
        if watch.uris:
            honoured["resourceSubscriptions"] = uris[:_MOST]
        request.on_cancel = lambda: self._drop(request.id)
        self._send(watch, "subscriptions/acknowledged", {"notifications": honoured})
        if watch.lists or watch.uris:
            self._add(watch)

    def subscribe(self, request: Request) -> None:
        uri = request.params.get("uri")
        if read_of(uri) is None:
            raise Refusal(protocol.NOT_FOUND_LEGACY, f"There is no resource {uri!r}.", {"uri": uri})
        with self._lock:
            watch = self._watches.get(None) or _Watch(None, set(), lists=True)
            if len(watch.uris) >= _MOST:
                raise Refusal(protocol.INVALID_PARAMS, f"A client may watch {_MOST} resources.")
            watch.uris.add(str(uri))
        request.reply({})
        self._add(watch)

    def unsubscribe(self, request: Request) -> None:
        with self._lock:
            watch = self._watches.get(None)
            if watch is not None:
                watch.uris.discard(str(request.params.get("uri")))
        request.reply({})

    def _add(self, watch: _Watch) -> None:
        with self._lock:
            self._watches[watch.stream] = watch
            begins, self._runs = not self._runs, True
        if begins:
            self._inside.ask("ping", {}, self._moved)
        else:
            self._look(tell=False)

    def _drop(self, stream: Id) -> None:
        with self._lock:
            self._watches.pop(stream, None)

    # ---------------------------------------------------------------- when the log moves

    def _moved(self, response: Message) -> None:
        """The log has reached a position; looks, and waits for the next."""
        if "error" in response:  # the store is gone, or never came
            with self._lock:
                self._runs = False
            return
        self._look(tell=True)
        seq = response["result"]["meta"]["seq"]
        self._inside.ask("ping", {"min_seq": seq + 1}, self._moved)

    def _look(self, *, tell: bool) -> None:
        with self._lock:
            watches = list(self._watches.values())
        if any(watch.lists for watch in watches):
            self._ask(_LIST, "doc.list", {"limit": 1, "fields": ["id"]}, tell=tell)
        for uri in sorted({uri for watch in watches for uri in watch.uris}):
            wanted = read_of(uri)
            if wanted is not None:
                method, params = wanted
                params.pop("text", None)
                self._ask(uri, method, {**params, "fields": [_FIELDS[method]]}, tell=tell)

    def _ask(self, name: str, method: str, params: dict[str, Any], *, tell: bool) -> None:
        def answer(response: Message) -> None:
            if "result" in response:
                result = response["result"]
                state = result["meta"].get("total"), result["data"]
            else:
                state = None, response["error"]["data"]["type"]
            before = self._seen.get(name)
            self._seen[name] = state
            if tell and before is not None and before != state:
                self._tell(name)

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
