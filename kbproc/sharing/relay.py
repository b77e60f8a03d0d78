"""An attached `kbproc serve`: its client's lines to the owner, and the owner's back.

Owns: the connection to the owner, the order of lines in both directions, and asking the
next owner what the last one has not answered.
Refuses to know: what lines mean (unanswered.py), and how the next owner is found
(takeover.py). As long as another process owns the store, nothing heavy is imported here.
"""

from __future__ import annotations

import contextlib
import socket
import threading

from kbproc.base.errors import KbprocError
from kbproc.sharing import reach
from kbproc.sharing.reach import Gone, Hello
from kbproc.sharing.takeover import Takeover
from kbproc.sharing.unanswered import Unanswered
from kbproc.wire.lines import Lines, Stop, skipped
from kbproc.wire.outbox import Outbox

_BLOCK = 1 << 16
END_SECONDS = 12.0  # for the owner to answer what is in flight at the end


class Relay:
    """The client on one side, the owner of the store on the other."""

    def __init__(self, outbox: Outbox, hello: Hello, takeover: Takeover) -> None:
        self._outbox = outbox
        self._hello = hello
        self._takeover = takeover
        self._unanswered = Unanswered()
        self._owner: socket.socket | None = None
        self._sending = threading.Lock()
        self._ending = False
        self._ended = threading.Event()
        self._asked_again = threading.Event()
        self._asked_again.set()
        self._failed: KbprocError | None = None

    def run(self, owner: socket.socket, lines: Lines) -> int:
        """Serves until the client's last line or a signal; returns the exit code.

        Raises what the first owner refused with; no line has been read then.
        """
        try:
            rest = self._attach(owner)
        except Gone:
            rest = self._attach_to_next()
        threading.Thread(target=self._listen, args=(rest,), name="relay", daemon=True).start()
        code = 0
        try:
            for line in lines:
                self._outbox.wait_until_not_full(lines.ended)
                self._send(skipped(line) if isinstance(line, int) else line)
        except Stop as stop:
            code = stop.exit_code
        with self._sending:
            self._ending = True
            self._send_end()
        self._ended.wait(END_SECONDS)
        self._outbox.flush(1.0)
        return code

    # ------------------------------------------------------------------ to the owner

    def _send(self, line: bytes) -> None:
        """After whatever has to be asked again: writes commit in the order they came."""
        while True:
            self._asked_again.wait()
            with self._sending:
                if self._asked_again.is_set():
                    self._push(self._unanswered.from_client(line))
                    break
        if self._failed is not None:
            self._fail(self._failed)

    def _push(self, line: bytes) -> None:
        if self._owner is not None:
            with contextlib.suppress(OSError):  # the thread that listens notices the end
                self._owner.sendall(line + b"\n")

    def _send_end(self) -> None:
        if self._owner is not None:
            with contextlib.suppress(OSError):
                self._owner.shutdown(socket.SHUT_WR)

    # ---------------------------------------------------------------- from the owner

    def _listen(self, rest: bytes) -> None:
        while True:
            self._pass_on(rest)
            if self._ending and not self._unanswered:
                break
            try:
                rest = self._take_over()
            except KbprocError as error:
                self._failed = error
                self._asked_again.set()
                self._fail(error)
                break
        self._ended.set()

    def _pass_on(self, data: bytes) -> None:
        """Whole lines only: a line that the owner's death has torn was never answered."""
        owner = self._owner
        while owner is not None:
            *lines, data = data.split(b"\n")
            for line in lines:
                for passed in self._unanswered.from_owner(line):
                    self._outbox.send(passed)
            self._outbox.wait_until_not_full(lambda: self._ending)
            try:
                block = owner.recv(_BLOCK)
            except OSError:
                return
            if not block:
                return
            data += block

    # ------------------------------------------------------------------- the next owner

    def _attach(self, owner: socket.socket) -> bytes:
        """Returns the bytes that came after the owner's welcome."""
        welcome, rest = reach.greet(owner, self._hello)
        self._unanswered.writes = frozenset(welcome.writes)
        self._owner = owner
        return rest

    def _attach_to_next(self) -> bytes:
        """Owners may come and go while one is looked for."""
        while True:
            try:
                return self._attach(self._takeover.reach_owner())
            except Gone:
                continue

    def _take_over(self) -> bytes:
        """Attaches to the next owner and asks it again what was not answered.

        Raises KbprocError if the store can't be had any more.
        """
        with self._sending:
            self._asked_again.clear()
            if self._owner is not None:
                self._owner.close()
            rest = self._attach_to_next()
            again = self._unanswered.to_ask_again()
            # Another thread: the owner may not read on before its answers are read.
            threading.Thread(target=self._ask_again, args=(again,), daemon=True).start()
        return rest

    def _ask_again(self, lines: list[bytes]) -> None:
        with self._sending:
            for line in lines:
                self._push(line)
            if self._ending:
                self._send_end()
            self._asked_again.set()

    def _fail(self, error: KbprocError) -> None:
        """Nobody can open the store: every request is answered with the error."""
        from kbproc.wire.messages import Wire

        wire = Wire(self._hello.max_line_bytes)
        for key in self._unanswered.give_up():
            if isinstance(key, tuple):
                self._outbox.send(b"[" + b",".join(wire.error(id, error) for id in key) + b"]")
            else:
                self._outbox.send(wire.error(key, error))
