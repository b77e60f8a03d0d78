"""An attached process, as the owner of the store serves it.

Owns: its greeting, its connection, and how it is sent to the next owner.
Refuses to know: who else is attached, and who owns the store next.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from kbproc import __version__
from kbproc.base.errors import KbprocError
from kbproc.sharing import reach
from kbproc.sharing.client import begin, connection_of
from kbproc.sharing.opened import Opened
from kbproc.sharing.reach import SHARE, Hello, Welcome
from kbproc.wire import messages
from kbproc.wire.connection import Connection, serve_lines
from kbproc.wire.lines import Lines, Signals
from kbproc.wire.outbox import Outbox
from kbproc.wire.service import Service

_logger = logging.getLogger(__name__)
_HELLO_SECONDS = 10.0
_HAND_OVER_SECONDS = 1.0


class Guest:
    """One attached process."""

    def __init__(
        self,
        connection: socket.socket,
        service: Service,
        opened: Opened,
        left: Callable[[Guest], None],
    ) -> None:
        """`left` is called once, when the process is served no more."""
        self._socket = connection
        self._service = service
        self._opened = opened
        self._left = left
        self._connection: Connection | None = None
        self._going = threading.Lock()
        self._handed_over = False

    def run(self) -> None:
        try:
            if reach.peer_uid(self._socket) == os.getuid():
                self._serve()
        except OSError:
            pass  # the process has gone
        except Exception:
            _logger.exception("a connection failed")
        finally:
            self._left(self)
            with self._going:
                self._socket.close()

    def _serve(self) -> None:
        admitted = self._admit()
        if admitted is None:
            return
        hello, rest = admitted
        outbox = Outbox(self._socket.fileno())
        connection = connection_of(self._service, hello, outbox)
        with self._going:
            if self._handed_over:
                return
            self._connection = connection
        begin(self._opened, connection)
        lines = Lines(self._socket.fileno(), hello.max_line_bytes, Signals(), rest)
        serve_lines(connection, lines)
        outbox.close()

    def _admit(self) -> tuple[Hello, bytes] | None:
        """The hello, and what came after it; None for a process that is not let in."""
        self._socket.settimeout(_HELLO_SECONDS)
        line, rest = reach.first_line(self._socket)
        if not line:
            return None
        self._socket.settimeout(None)
        self._opened.settled.wait()
        try:
            hello = self._checked(line)
            self._opened.get()
        except KbprocError as error:
            data = msgspec.to_builtins(messages.error_data(error))
            self._say(Welcome(share=SHARE, ok=False, error=data))
            return None
        self._say(self._welcome())
        return hello, rest

    def _welcome(self) -> Welcome:
        methods = self._service.registry.methods.values()
        return Welcome(
            share=SHARE,
            ok=True,
            pid=self._service.host.pid(),
            writes=[m.name for m in methods if m.kind != "read"],
            reads=[m.name for m in methods if m.kind == "read" and not m.streams],
        )

    def _say(self, welcome: Welcome) -> None:
        self._socket.sendall(msgspec.json.encode(welcome) + b"\n")

    def _checked(self, line: bytes) -> Hello:
        """Raises store.incompatible, input.invalid_params."""
        try:
            number = msgspec.json.decode(line, type=dict[str, Any]).get("share")
            if number == SHARE:
                return reach.decode_hello(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise KbprocError("input.invalid_json", f"That was no hello: {error}.") from None
        raise KbprocError(
            "store.incompatible",
            f"The store is open in process {self._service.host.pid()}, kbproc {__version__}, which "
            f"shares it by protocol {SHARE}, not {number!r}.",
            hint="Use the same version of kbproc everywhere, or end that process first.",
        )

    def hand_over(self) -> None:
        """Answers what is nearly done; the process asks the next owner for the rest."""
        with self._going:
            self._handed_over = True
            connection = self._connection
        if connection is not None:
            connection.hand_over(_HAND_OVER_SECONDS)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
