"""A command's requests, answered by whichever process owns the store.

Owns: asking the owner over its socket, or opening the store where nobody does, and
asking the next owner where one ends meanwhile.
Refuses to know: flags and formats, and how a store is opened (oneshot.py).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from kbproc import __version__, share
from kbproc.config import MAX_IN_FLIGHT, Config
from kbproc.errors import KbprocError
from kbproc.host import Host
from kbproc.oneshot import InProcess, OnEvent
from kbproc.registry import Registry
from kbproc.share import SHARE, Gone, Hello

_ID = 1
_MAX_LINE_BYTES = 1 << 30  # an answer of any size may be printed
_BLOCK = 1 << 16


class Attached:
    """A session on a store that another process owns. Any method may raise Gone."""

    def __init__(self, connection: socket.socket, hello: Hello) -> None:
        """Raises what the owner refuses with."""
        self._socket = connection
        self._data = share.greet(connection, hello)[1]

    def ask(self, name: str, params: dict[str, Any], on_event: OnEvent) -> dict[str, Any]:
        self._send({"jsonrpc": "2.0", "id": _ID, "method": name, "params": params})
        while True:
            message: dict[str, Any] = msgspec.json.decode(self._line())
            if "method" not in message:
                return message
            event = message["params"]
            if event.get("request_id") == _ID:
                on_event(event)

    def cancel(self) -> None:
        with contextlib.suppress(Gone):
            self._send({"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": _ID}})

    def drain(self, progress: Callable[[int, int], None]) -> int:
        """The owner embeds; this only waits and watches."""

        def tell(event: dict[str, Any]) -> None:
            if event["type"] == "progress":
                progress(event["current"], event["total"])

        with contextlib.suppress(KeyboardInterrupt, Gone):
            self.ask("doc.wait", {}, tell)
        status = self.ask("status", {}, lambda event: None)
        return int(status.get("result", {}).get("meta", {}).get("freshness", {})
                   .get("pending_embeddings", 0))  # fmt: skip

    def close(self) -> None:
        self._socket.close()

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._socket.sendall(msgspec.json.encode(message) + b"\n")
        except OSError as error:
            raise Gone from error

    def _line(self) -> bytes:
        parts = [self._data]
        while b"\n" not in parts[-1]:
            try:
                block = self._socket.recv(_BLOCK)
            except OSError as error:
                raise Gone from error
            if not block:
                raise Gone
            parts.append(block)
        line, _, self._data = b"".join(parts).partition(b"\n")
        return line


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
                self._link = None
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
                self._link = None
        return 0

    def close(self) -> None:
        for link in (self._link, self._alone):
            if link is not None:
                link.close()

    def _reached(self) -> InProcess | Attached:
        """Raises KbprocError, Gone."""
        if self._link is None:
            found = share.reach(self._config.store, self._host.pid())
            if isinstance(found, socket.socket):
                self._link = Attached(found, self._hello())
            else:
                self._link = InProcess(
                    config=self._config, registry=self._registry, host=self._host, lock=found
                )
        return self._link

    def _hello(self) -> Hello:
        return Hello(
            share=SHARE, version=__version__, surface="call", cwd=str(self._host.cwd()),
            actor=self._config.actor, kb=self._config.kb, scopes=list(self._registry.scopes),
            max_line_bytes=_MAX_LINE_BYTES, max_in_flight=MAX_IN_FLIGHT,
        )  # fmt: skip
