"""An attached process, as the owner of the store serves it.

Owns: its greeting, its connection, and how it is sent to the next owner.
Refuses to know: who else is attached, and who owns the store next.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from kbproc import __version__
from kbproc.base.errors import KbprocError
from kbproc.sharing import reach
from kbproc.sharing.client import Opened, begin, connection_of
from kbproc.sharing.reach import SHARE, Check, Gone, Hello, Welcome
from kbproc.wire import messages
from kbproc.wire.connection import Connection, serve_lines
from kbproc.wire.lines import Lines, Signals
from kbproc.wire.outbox import Outbox
from kbproc.wire.service import Service

_logger = logging.getLogger(__name__)
_HELLO_SECONDS = 10.0
_HAND_OVER_SECONDS = 0.1
_TURN_AWAY_SECONDS = 0.1


class Guest:
    """One attached process."""

    def __init__(
        self,
        connection: socket.socket,
        service: Service,
        opened: Opened,
        left: Callable[[Guest], None],
        *,
        folder: str,
    ) -> None:
        """`left` is called once, when the process is served no more; `folder`: see Hello."""
        self._folder = folder
        self._socket = connection
        self._service = service
        self._opened = opened
        self._left = left
        self._connection: Connection | None = None
        self._going = threading.Lock()
        self._handed_over = False

    def turn_away(self) -> None:
        """Tells the process that the owner has no descriptor left for it, and closes."""
        with self._socket, contextlib.suppress(OSError):
            self._socket.settimeout(_TURN_AWAY_SECONDS)
            self._socket.recv(reach.HELLO_BYTES)  # before it is sent, the process expects nothing
            error = KbprocError(
                "server.overloaded",
                f"Process {self._service.host.pid()}, which has the store open, has too many "
                "open files to serve one more process.",
                hint="End processes that use the store, or raise the limit of open files "
                "(ulimit -n) before it starts. Then ask again.",
                retry_after_ms=1000,
            )
            data = msgspec.to_builtins(messages.error_data(error))
            self._say(Welcome(share=SHARE, ok=False, error=data))

    def run(self) -> None:
        try:
            if reach.peer(self._socket).uid == os.getuid():
                self._serve()
        except (OSError, Gone):
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
        connection.has_gone = self.has_gone
        with self._going:
            if self._handed_over:
                return
            self._connection = connection
        threading.Thread(target=self._begin, args=(connection,), name="begin", daemon=True).start()
        lines = Lines(self._socket.fileno(), hello.max_line_bytes, Signals(), rest)
        try:
            serve_lines(connection, lines)
        finally:
            self._hang_up()
            outbox.close()

    def _begin(self, connection: Connection) -> None:
        """Lines are read before the store is open, so that their time can run out."""
        self._opened.settled.wait()
        begin(self._opened, connection)

    def _admit(self) -> tuple[Hello, bytes] | None:
        """The hello, and what came after it; None for a process that is not let in."""
        line, rest = reach.first_line(self._socket, _until(time.monotonic() + _HELLO_SECONDS))
        if not line:
            return None
        try:
            hello = self._checked(line)
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
        """Raises store.incompatible, store.locked, input.invalid_json."""
        try:
            number = msgspec.json.decode(line, type=dict[str, Any]).get("share")
            if number == SHARE:
                return self._of_this_store(reach.decode_hello(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise KbprocError("input.invalid_json", f"That was no hello: {error}.") from None
        raise KbprocError(
            "store.incompatible",
            f"The store is open in process {self._service.host.pid()}, kbproc {__version__}, which "
            f"shares it by protocol {SHARE}, not {number!r}.",
            hint="Use the same version of kbproc everywhere, or end that process first.",
        )

    def _of_this_store(self, hello: Hello) -> Hello:
        """Raises store.locked for a process that has come here from another folder."""
        if hello.folder not in ("", self._folder):
            raise KbprocError(
                "store.locked",
                f"Process {self._service.host.pid()} listens here for another store.",
                hint="Remove the file kbproc.sock in the store that you named, if no process of "
                "its own has it open.",
            )
        return hello

    def has_gone(self) -> bool:
        """True once the process has closed its end and hears no answer any more."""
        poll = select.poll()
        with self._going:
            if self._socket.fileno() < 0:
                return True
            poll.register(self._socket, 0)
            return bool(poll.poll(0))

    def hand_over(self) -> None:
        """Answers what is nearly done; the process asks the next owner for the rest."""
        with self._going:
            self._handed_over = True
            connection = self._connection
        if connection is not None:
            connection.hand_over(_HAND_OVER_SECONDS)
        self._hang_up()

    def _hang_up(self) -> None:
        """Nothing is written after it: the socket's number may soon be another process's."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def _until(deadline: float) -> Check:
    """Raises Gone once that moment has passed."""

    def check() -> None:
        if time.monotonic() > deadline:
            raise Gone

    return check
