"""An attached `kbproc serve`: its client's lines to the owner, and the owner's back.

Owns: the connection to the owner, the order of lines in both directions, asking the next
owner what the last one has not answered, and answering for an owner that does not.
Refuses to know: what lines mean (unanswered.py), how long an owner is waited for
(waiting.py), and how the next owner is found (takeover.py). As long as another process
owns the store, nothing heavy is imported here.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.sharing import reach
from kbproc.sharing.reach import Gone, Hello
from kbproc.sharing.takeover import Takeover
from kbproc.sharing.unanswered import Asked, Key, Unanswered
from kbproc.sharing.waiting import TICK_SECONDS, Waiting, silent, state_of
from kbproc.wire.lines import Lines, Stop, skipped
from kbproc.wire.outbox import Outbox

END_SECONDS = 12.0  # for the owner to answer what is in flight at the end
_MOST_HELD = 1000  # lines that wait for an owner; no more are read meanwhile


class _Parted(Gone):
    """This process has left an owner that is stopped."""


class _Over(Exception):
    """The client has gone, and nobody waits for an answer any more."""


class Relay:
    """The client on one side, the owner of the store on the other.

    One thread reads the client's lines, another finds the owner and reads its answers. The
    client's lines are taken, and their time runs, whether there is an owner or not.
    """

    def __init__(self, outbox: Outbox, hello: Hello, takeover: Takeover) -> None:
        self._outbox = outbox
        self._hello = hello
        self._takeover = takeover
        self._unanswered = Unanswered()
        self._owner: socket.socket | None = None
        self._pid = 0
        self._attached = False  # whether the owner has all lines that came before
        self._held: list[bytes] = []  # lines without an answer that came meanwhile
        self._sending = threading.Lock()
        self._came = threading.Event()
        self._ending = False
        self._deadline = float("inf")
        self._ended = threading.Event()
        self._waiting = takeover.waiting()
        self._looked = 0.0

    def run(self, owner: socket.socket | None, lines: Lines) -> int:
        """Serves until the client's last line or a signal; returns the exit code.

        `owner`: a connection to the first owner; None looks for it.
        """
        threading.Thread(target=self._serve, args=(owner,), name="relay", daemon=True).start()
        code = 0
        try:
            for line in lines:
                self._outbox.wait_until_not_full(lines.ended)
                self._send(skipped(line) if isinstance(line, int) else line, lines)
        except Stop as stop:
            code = stop.exit_code
        self._deadline = time.monotonic() + END_SECONDS
        self._ending = True
        self._came.set()
        if self._sending.acquire(timeout=END_SECONDS):
            self._send_end()
            self._sending.release()
        while not self._ended.wait(TICK_SECONDS):
            if lines.signals.hurried or time.monotonic() > self._deadline:
                break
        self._outbox.flush(1.0)
        return code

    # ------------------------------------------------------------------ to the owner

    def _send(self, line: bytes, lines: Lines) -> None:
        """In the order in which lines came; what has to be asked again goes first."""
        while not self._attached and len(self._unanswered) + len(self._held) > _MOST_HELD:
            if lines.ended():
                break
            time.sleep(TICK_SECONDS)
        with self._sending:
            line, is_kept = self._unanswered.from_client(line)
            if self._attached:
                self._push(line, lines.signals.check)
            elif not is_kept:
                self._held.append(line)
        self._came.set()

    def _push(self, line: bytes, check: reach.Check) -> None:
        """The thread that listens notices if the owner has gone."""
        if self._owner is None:
            return
        try:
            reach.send(self._owner, line + b"\n", check)
        except Gone:
            self._attached = False

    def _send_end(self) -> None:
        if self._owner is not None and self._attached:
            try:
                self._owner.shutdown(socket.SHUT_WR)
            except OSError:
                self._attached = False

    # ---------------------------------------------------------------- from the owner

    def _serve(self, owner: socket.socket | None) -> None:
        """One owner after the other, until the client has gone and has all its answers."""
        try:
            while not (self._ending and not self._unanswered):
                try:
                    found = owner or self._takeover.reach_owner(self._look)
                    owner = None
                    self._pass_on(self._attach(found))
                except _Parted:
                    self._lose(self._waiting)
                except Gone:
                    self._lose()
                except KbprocError as error:
                    self._lose()
                    self._refuse(error)
                except _Over:
                    raise
                except Exception:  # without this thread nothing would be answered any more
                    import logging  # as a rule nothing waits for it

                    logging.getLogger(__name__).exception("the owner's lines can't be passed on")
                    self._lose()
                    time.sleep(TICK_SECONDS)
        except _Over:
            pass
        finally:
            self._ended.set()

    def _lose(self, waiting: Waiting | None = None) -> None:
        """`waiting`: goes on for the same owner."""
        with self._sending:
            if self._owner is not None:
                self._owner.close()
            self._owner, self._pid, self._attached = None, 0, False
        self._waiting = waiting or self._takeover.waiting()

    def _attach(self, owner: socket.socket) -> bytes:
        """Returns the bytes that came after the owner's welcome.

        Raises Gone, and what the owner refuses with or `_look` raises.
        """
        with self._sending:
            self._owner = owner
        self._pid = reach.peer_pid(owner)
        welcome, rest = reach.greet(owner, self._hello, self._look)
        self._unanswered.writes = frozenset(welcome.writes)
        # Another thread: the owner may not read on before its answers are read.
        threading.Thread(target=self._ask_again, args=(owner,), daemon=True).start()
        return rest

    def _ask_again(self, owner: socket.socket) -> None:
        with self._sending:
            if owner is not self._owner:  # it has gone, and another was found meanwhile
                return
            self._attached = True
            held, self._held = self._held, []
            for line in [*self._unanswered.to_ask_again(), *held]:
                self._push(line, self._in_time)
            if self._ending:
                self._send_end()

    def _in_time(self) -> None:
        """Raises Gone once nobody waits any more."""
        if time.monotonic() > self._deadline:
            raise Gone

    def _pass_on(self, data: bytes) -> None:
        """Until the owner ends, with Gone.

        Whole lines only: a line that the owner's death has torn was never answered.
        """
        owner = self._owner
        while owner is not None:
            *lines, data = data.split(b"\n")
            for line in lines:
                for passed in self._unanswered.from_owner(line):
                    self._outbox.send(passed)
            self._outbox.wait_until_not_full(lambda: self._ending)
            block = reach.receive(owner, self._watch)
            if not block:
                raise Gone
            data += block

    # ------------------------------------------------- for an owner that does not answer

    def _look(self) -> None:
        """While no owner is attached. Raises store.locked, _Over."""
        now = time.monotonic()
        if now - self._looked < TICK_SECONDS:
            return
        self._looked = now
        if self._ending and (not self._unanswered or now > self._deadline):
            raise _Over
        self._answer_late()
        if self._owner is None:
            self._waiting.for_owner()
            return
        try:
            self._waiting.for_answer(self._pid)
        except KbprocError as error:
            if not self._unanswered.was_ready:
                raise
            self._answer(self._unanswered.give_up(), error)

    def _watch(self) -> None:
        """While an owner is attached: it may be stopped, and go on later. Raises _Over, _Parted."""
        due = self._unanswered.due()
        late = [([one], silent(self._pid, one[1].timeout_ms or 0)) for one in due]
        try:
            self._waiting.for_answer(self._pid)
        except KbprocError as error:
            late.append((self._unanswered.give_up(), error))
        given_up = [one for some, _ in late for one in some]
        withdrawn = not given_up or self._withdraw([key for key, _ in given_up])
        for some, why in late:
            self._answer(some, why)
        if self._ending and time.monotonic() > self._deadline:
            raise _Over
        if not withdrawn:
            raise _Parted

    def _withdraw(self, keys: list[Key]) -> bool:
        """Asks the owner to begin nothing of what was given up. False: it was left instead.

        An owner that is stopped would read that too late. It begins no write of a process that has
        gone: only what it was doing when it was stopped is done later.
        """
        owner = self._owner
        if owner is None:
            return True
        if state_of(self._pid) != "stopped" and self._sending.acquire(timeout=TICK_SECONDS):
            try:
                reach.send(owner, b"".join(map(_cancels, keys)), _give_in)
                return True
            except Gone:
                pass
            finally:
                self._sending.release()
        with contextlib.suppress(OSError):  # without the lock: somebody may be sending
            owner.shutdown(socket.SHUT_RDWR)
        return False

    def _answer_late(self) -> None:
        for key, asked in self._unanswered.due():
            self._answer([(key, asked)], silent(self._pid, asked.timeout_ms or 0))

    def _refuse(self, error: KbprocError) -> None:
        """Nobody can open the store now: this process answers, and the next line tries again."""
        self._came.clear()
        connection = self._takeover.without_store(error, self._hello, self._outbox)
        for line in self._unanswered.take():
            connection.receive(line)
        if self._ending:  # no line will come any more
            connection.wait_until_idle(END_SECONDS)
        else:
            self._came.wait()
        self._waiting = self._takeover.waiting()

    def _answer(self, given_up: list[tuple[Key, Asked]], error: KbprocError) -> None:
        """A write gets its token, under which it happens once however often it is asked."""
        if not given_up:
            return
        from kbproc.calls.retry import asked_once_more
        from kbproc.wire.messages import Wire

        wire = Wire(self._hello.max_line_bytes)

        def line(asked: Asked, id: int | str | None) -> bytes:
            write = asked.write_of(id)
            told = error if write is None else asked_once_more(error, *write)
            return wire.error(id, told)

        for key, asked in given_up:
            if isinstance(key, tuple):
                self._outbox.send(b"[" + b",".join(line(asked, id) for id in key) + b"]")
            else:
                self._outbox.send(line(asked, key))


def _give_in() -> None:
    """The owner reads nothing."""
    raise Gone


def _cancels(key: Key) -> bytes:
    """The line that cancels a request, or those of a batch."""
    ids = key if isinstance(key, tuple) else (key,)
    cancels = ({"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": id}} for id in ids)
    return b"".join(msgspec.json.encode(cancel) + b"\n" for cancel in cancels)
