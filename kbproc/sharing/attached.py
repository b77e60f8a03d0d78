"""A command's requests, answered by whichever process owns the store.

Owns: asking the owner over its socket, or opening the store where nobody does, and
asking the next owner where one ends meanwhile.
Refuses to know: flags and formats, and how a store is opened (oneshot.py).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.calls.method import Registry
from kbproc.settings.config import Config
from kbproc.sharing import reach
from kbproc.sharing.alone import InProcess, OnEvent
from kbproc.sharing.reach import Gone, Hello, Link


class Attached:
    """A session on a store that another process owns. Any method may raise Gone."""

    def __init__(self, connection: socket.socket, hello: Hello) -> None:
        """Raises what the owner refuses with."""
        self._link = Link(connection, hello)
        # Counted: what Ctrl-C has left in flight may still be answered.
        self._ids = itertools.count(1)
        self._id = 0

    def ask(self, name: str, params: dict[str, Any], on_event: OnEvent) -> dict[str, Any]:
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

    def drain(self, progress: Callable[[int, int], None]) -> int:
        """The owner embeds; this only waits and watches."""

        def tell(event: dict[str, Any]) -> None:
            if event["type"] == "progress":
                progress(event["current"], event["total"])

        with contextlib.suppress(KeyboardInterrupt):
            self.ask("doc.wait", {}, tell)
        status = self.ask("status", {}, lambda event: None)
        return int(
            status.get("result", {})
            .get("meta", {})
            .get("freshness", {})
            .get("pending_embeddings", 0)
        )

    def close(self) -> None:
        self._link.close()


class Anywhere:
    """A session on a store, wherever it is open; see oneshot.Session."""

    def __init__(self, *, config: Config, registry: Registry, host: Host) -> None:
        self._config = config
        self._registry = registry
        self._host = host
        self._link: InProcess | Attached | None = None
        self._alone = InProcess(config=config, registry=registry, host=host)

    def ask(self, name: str, params: dict[str, Any], on_event: OnEvent) -> dict[str, Any]:
        method = self._registry.methods.get(name)
        if method is None or params.get("repair") or name in {"version", "describe", "schema"}:
            return self._alone.ask(name, params, on_event)
        writes = method.kind != "read" and not params.get("dry_run")
        while True:
            try:
                link = self._reached()
                if writes and isinstance(link, Attached) and "client_token" not in params:
                    # Whoever is asked next must know what the one before has done.
                    params = {"client_token": f"attached-{os.urandom(12).hex()}", **params}
                return link.ask(name, params, on_event)
            except Gone:
                self._drop()
            except KbprocError as error:
                return self._alone.refused(error)

    def cancel(self) -> None:
        for link in (self._link, self._alone):
            if link is not None:
                link.cancel()

    def drain(self, progress: Callable[[int, int], None]) -> int:
        while self._link is not None:
            try:
                return self._link.drain(progress)
            except Gone:
                self._drop()
                # Whoever owns the store now goes on; it may be this process.
                self.ask("status", {}, lambda event: None)
        return 0

    def close(self) -> None:
        for link in (self._link, self._alone):
            if link is not None:
                link.close()

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None

    def _reached(self) -> InProcess | Attached:
        """Raises KbprocError, Gone."""
        if self._link is None:
            found = reach.reach(self._config.store, self._host.pid())
            if isinstance(found, socket.socket):
                self._link = Attached(found, reach.hello(self._config, self._host.cwd()))
            else:
                self._link = InProcess(
                    config=self._config, registry=self._registry, host=self._host, lock=found
                )
        return self._link
