"""A process that has attached, as the owner serves it.

Owns: its greeting, its connection, and ending it.
Refuses to know: who owns the store next.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc import __version__
from kbproc.base.errors import KbprocError
from kbproc.calls.call import Peer
from kbproc.sharing import reach
from kbproc.sharing.opened import ready
from kbproc.sharing.reach import SHARE, Hello, Welcome
from kbproc.wire import messages
from kbproc.wire.connection import Connection, serve_lines
from kbproc.wire.lines import Lines, Signals
from kbproc.wire.outbox import Outbox

if TYPE_CHECKING:
    from kbproc.sharing.owner import Owner

_logger = logging.getLogger(__name__)
_HELLO_SECONDS = 10.0
_HAND_OVER_SECONDS = 1.0


class Guest:
    """One attached process."""

    def __init__(self, owner: Owner, connection: socket.socket, left: Any) -> None:
        self._owner = owner
        self._socket = connection
        self._left = left
        self._connection: Connection | None = None
        self._going = threading.Lock()
        self._handed_over = False

    def run(self) -> None:
        try:
            if reach.peer_uid(self._socket) == os.getuid():
                self._serve()
        except OSError:
            pass  # it has gone: there is nobody to tell
        except Exception:
            _logger.exception("a connection failed")
        finally:
            self._left(self)
            with self._going:
                self._socket.close()

    def _serve(self) -> None:
        self._socket.settimeout(_HELLO_SECONDS)
        line, rest = reach.first_line(self._socket)
        if not line:
            return
        self._socket.settimeout(None)
        self._owner.opened.settled.wait()
        try:
            hello = self._checked(line)
            store = self._owner.opened.get()
        except KbprocError as error:
            data = msgspec.to_builtins(messages.error_data(error))
            self._say(Welcome(share=SHARE, ok=False, error=data))
            return
        methods = self._owner.registry.methods.values()
        self._say(
            Welcome(
                share=SHARE,
                ok=True,
                pid=self._owner.host.pid(),
                writes=[m.name for m in methods if m.kind != "read"],
                reads=[m.name for m in methods if m.kind == "read" and not m.streams],
            )
        )
        outbox = Outbox(self._socket.fileno())
        connection = self._connected(hello, outbox)
        with self._going:
            if self._handed_over:
                return
            self._connection = connection
        outbox.send(ready(store, connection.wire, connection.peer))
        store.embedding.start()
        store.start_upkeep()
        lines = Lines(self._socket.fileno(), hello.max_line_bytes, Signals(), rest)
        serve_lines(connection, lines)
        outbox.close()

    def _say(self, welcome: Welcome) -> None:
        self._socket.sendall(msgspec.json.encode(welcome) + b"\n")

    def _checked(self, line: bytes) -> Hello:
        """Raises store.incompatible, input.invalid_params."""
        try:
            number = msgspec.json.decode(line, type=dict[str, Any]).get("share")
            if number == SHARE:
                return msgspec.json.decode(line, type=Hello)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise KbprocError("input.invalid_json", f"That was no hello: {error}.") from None
        raise KbprocError(
            "store.incompatible",
            f"The store is open in process {self._owner.host.pid()}, kbproc {__version__}, which "
            f"shares it by protocol {SHARE}, not {number!r}.",
            hint="Use the same version of kbproc everywhere, or end that process first.",
        )

    def _connected(self, hello: Hello, outbox: Outbox) -> Connection:
        known = frozenset(self._owner.registry.scopes)
        peer = Peer(
            actor=hello.actor,
            scopes=frozenset(hello.scopes) & known,
            cwd=Path(hello.cwd),
            root=None if hello.root is None else Path(hello.root),
            kb=hello.kb,
            surface=hello.surface,
            named=hello.named,
        )
        service = self._owner.service
        return Connection(
            service,
            peer,
            outbox,
            wire=service.wire.limited(hello.max_line_bytes),
            max_in_flight=hello.max_in_flight,
            settings={"allow_private_addresses": hello.allow_private_addresses},
        )

    def hand_over(self) -> None:
        """What is nearly done is answered; the rest goes to the next owner, unanswered."""
        with self._going:
            self._handed_over = True
            connection = self._connection
        if connection is not None:
            connection.hand_over(_HAND_OVER_SECONDS)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
