"""A command's requests, answered by whichever process owns the store.

Owns: asking the owner over its socket, opening the store if there is no owner, and
asking the next owner if this one ends meanwhile.
Refuses to know: flags and formats, and how a store is opened (alone.py).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import time
from pathlib import Path
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.base.params import MADE_BY_US
from kbproc.calls.registry import Registry
from kbproc.settings.config import Config
from kbproc.sharing import reach
from kbproc.sharing.alone import InProcess, OnEvent, Progress
from kbproc.sharing.listening import reach_or_listen
from kbproc.sharing.reach import Gone, Hello, Link
from kbproc.sharing.waiting import Waiting
from kbproc.store.folder import is_store


class Attached:
    """A backend that asks the owner of the store. Any method may raise Gone."""

    def __init__(
        self, store: Path, connection: socket.socket, hello: Hello, waiting: Waiting
    ) -> None:
        """Raises what the owner refuses with, and what `waiting` raises."""
        self._store = store
        self._link = Link(connection, hello, waiting)
        # Counted, as a request that Ctrl-C has left in flight may still be answered.
        self._ids = itertools.count(1)
        self._id = 0

    def ask(
        self, name: str, params: dict[str, Any], on_event: OnEvent, waiting: Waiting | None = None
    ) -> dict[str, Any]:
        """`waiting`: how long the owner may keep silent; without it as long as before."""
        if waiting is not None:
            self._link.waiting = waiting
        self._id = next(self._ids)
        self._link.send({"jsonrpc": "2.0", "id": self._id, "method": name, "params": params})
        while True:
            message: dict[str, Any] = msgspec.json.decode(self._link.line())
            if "method" not in message and message["id"] in {self._id, None}:
                return message
            event = message.get("params", {})
            if event.get("request_id") == self._id:
                on_event(event)

    def cancel(self) -> None:
        with contextlib.suppress(Gone):
            self._link.send({"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": self._id}})

    def drain(self, after_seq: int, progress: Progress, deadline: float | None) -> int:
        """The owner embeds; this only waits and watches."""

        def show(event: dict[str, Any]) -> None:
            if event["type"] == "progress":
                progress(event["current"], event["total"])

        params: dict[str, Any] = {"after_seq": after_seq}
        if deadline is not None:
            params["timeout_ms"] = max(0, round((deadline - time.monotonic()) * 1000))
        with contextlib.suppress(KeyboardInterrupt):
            waiting = Waiting(self._store, params.get("timeout_ms"))
            answer = self.ask("doc.wait", params, show, waiting)
            if "result" in answer:
                return 0
            if "pending" in answer["error"]["data"].get("detail", {}):  # the time is up
                return int(answer["error"]["data"]["detail"]["pending"])
        status = self.ask("status", {}, lambda event: None, Waiting(self._store))
        return int(
            status.get("result", {})
            .get("meta", {})
            .get("freshness", {})
            .get("pending_embeddings", 0)
        )

    def close(self) -> None:
        self._link.close()


class Anywhere:
    """A backend for a store, wherever that is open; see alone.Backend."""

    def __init__(self, *, config: Config, registry: Registry, host: Host) -> None:
        self._config = config
        self._registry = registry
        self._host = host
        self._backend: InProcess | Attached | None = None
        self._alone = InProcess(config=config, registry=registry, host=host)

    def ask(self, name: str, params: dict[str, Any], on_event: OnEvent) -> dict[str, Any]:
        method = self._registry.methods.get(name)
        if method is None or params.get("repair") or name in {"version", "describe", "schema"}:
            return self._alone.ask(name, params, on_event)
        if name == "doctor" and not is_store(self._config.store):  # it makes none
            return self._alone.ask(name, params, on_event)
        writes = method.kind != "read" and not params.get("dry_run")
        waiting = Waiting(self._config.store, params.get("timeout_ms"))
        while True:
            try:
                backend = self._reached(waiting)
                if isinstance(backend, InProcess):
                    return backend.ask(name, params, on_event)
                if writes and params.get("client_token") is None:
                    # The next owner must know what the one before has done.
                    params = {**params, "client_token": f"{MADE_BY_US}{os.urandom(12).hex()}"}
                return backend.ask(name, params, on_event, waiting)
            except Gone:
                self._drop()
            except KbprocError as error:
                self._drop()  # an owner that goes on later begins no write of who has gone
                if writes and params.get("client_token") is not None:
                    from kbproc.calls.retry import asked_once_more

                    error = asked_once_more(error, name, params)
                return self._alone.refused(error)

    def cancel(self) -> None:
        for backend in (self._backend, self._alone):
            if backend is not None:
                backend.cancel()

    def drain(self, after_seq: int, progress: Progress, deadline: float | None) -> int:
        while self._backend is not None:
            try:
                return self._backend.drain(after_seq, progress, deadline)
            except Gone:
                self._drop()
                # The next owner goes on embedding; it may be this process.
                self.ask("status", {}, lambda event: None)
            except KbprocError:  # an owner that does not answer any more
                return 0
        return 0

    def close(self) -> None:
        for backend in (self._backend, self._alone):
            if backend is not None:
                backend.close()

    def _drop(self) -> None:
        if self._backend is not None:
            self._backend.close()
        self._backend = None

    def _reached(self, waiting: Waiting) -> InProcess | Attached:
        """Raises KbprocError, Gone."""
        if self._backend is None:
            found = reach_or_listen(self._config, self._host.pid(), waiting.for_owner)
            if isinstance(found, socket.socket):
                hello = reach.hello(self._config, self._host.cwd())
                self._backend = Attached(self._config.store, found, hello, waiting)
            else:
                self._backend = InProcess(
                    config=self._config, registry=self._registry, host=self._host, listening=found
                )
        return self._backend
