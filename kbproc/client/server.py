"""Runs the server, and starts another if it dies; one thread reads and writes its pipes."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from . import errors, messages
from .flights import HELD, EventHook, Flights
from .process import Process, ProcessLines
from .request import OnEnd, OnEvent, PendingRequest, pause_after

if TYPE_CHECKING:
    from pathlib import Path

_DRAINS = 15.0  # seconds for the server to finish what is in flight; its own limit is ten
_SILENT = 1.0  # seconds for a server that missed a deadline before
_MOST_ENDS = 5
_WITHIN = 60.0  # seconds
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 1.6  # seconds before the server is started again


class Server:
    """A thread that serves requests from any thread; answers and events come from this one."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        on_event: EventHook | None = None,
        on_log: Callable[[str], None] | None = None,
    ) -> None:
        self._start: Callable[[], Process] = lambda: Process(
            command, cwd=cwd, env=env, logs=on_log is not None
        )
        self._on_log = on_log
        self._ends: deque[float] = deque()
        self._waking = threading.Lock()
        self._woken, self._waker = os.pipe()
        for fd in (self._woken, self._waker):
            os.set_blocking(fd, False)
        self.flights = Flights(on_event)
        self.holds_back = False  # nothing is read until a reader takes events and wakes this thread
        self.process: Process | None = None
        self.servers = 0
        # One thread for all pipes: it also waits for the one by which other threads wake it.
        self._thread = threading.Thread(target=self._run, name="kbproc client", daemon=True)
        self._thread.start()

    def ask(
        self,
        method: str,
        params: dict[str, object],
        *,
        timeout: float | None,
        on_end: OnEnd,
        on_event: OnEvent | None = None,
    ) -> PendingRequest:
        """Sends a request. `on_end` is called exactly once, unless this raises.

        Raises Closed, BadRequest; TypeError and ValueError for params that are not JSON.
        """
        request = self.flights.add(
            method, params, timeout=timeout, on_end=on_end, on_event=on_event
        )
        self._wake()
        return request

    def take(self, request: PendingRequest, size: int) -> None:
        """Counts an event of `size` bytes as read."""
        request.read_bytes += size
        if self.holds_back:
            self._wake()

    def cancel(self, request: PendingRequest) -> None:
        self.flights.cancel(request.id)
        self._wake()

    def close(self) -> None:
        """Closes the client: the server answers the requests in flight, within limits, and ends."""
        self.flights.is_closed = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _wake(self) -> None:
        with self._waking, contextlib.suppress(BlockingIOError):
            if self._waker >= 0:
                os.write(self._waker, b"!")

    # --------------------------------------------------------------------------- servers

    def _run(self) -> None:
        """Runs one server after another; later ones only while a request waits."""
        try:
            self._serve_one()
            while not self.flights.is_closed:
                self._wait_for(lambda: bool(self.flights), None)
                if not self.flights.is_closed:
                    self._serve_one()
        finally:
            self._end()

    def _end(self) -> None:
        """Ends everything, even after a callback has raised, so that no caller waits for ever."""
        self.flights.is_closed = True
        self.flights.end()
        if self.process is not None:
            self.process.kill()
            self.process.end()
            self.process = None
        self.flights.end_all(errors.closed())
        with self._waking:
            os.close(self._woken)
            os.close(self._waker)
            self._waker = -1

    def _serve_one(self) -> None:
        try:
            process = self._start()
        except OSError as error:
            self.flights.end_all(errors.not_started(error))
            return
        self.process, self.servers = process, self.servers + 1
        self.flights.attach(process)
        self._converse(process)
        self.flights.end()
        code = process.end()
        self.process = None
        if not self.flights.is_closed:
            self._recover(code)

    def _recover(self, code: int) -> None:
        """Decides whether and when another server starts; pending requests wait for it, or fail."""
        flights = self.flights
        if "init" not in flights.events or flights.refusal is not None:
            flights.end_all(flights.refusal or errors.ended_at_once(_how(code)))
            return
        now = time.monotonic()
        self._ends.append(now)
        while now - self._ends[0] > _WITHIN:
            self._ends.popleft()
        if len(self._ends) > _MOST_ENDS:
            flights.end_all(errors.ends_again_and_again(len(self._ends), _how(code)))
        elif len(self._ends) > 1:
            pause = pause_after(len(self._ends) - 1, _FIRST_PAUSE, _LONGEST_PAUSE)
            self._wait_for(lambda: False, now + pause)

    def _wait_for(self, is_done: Callable[[], bool], until: float | None) -> None:
        """Waits while there is no server, and keeps the deadlines."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            while not is_done() and not self.flights.is_closed:
                if until is not None and time.monotonic() >= until:
                    return
                selector.select(self._pause(until))
                self._drain()
                self.flights.keep_time()

    # ---------------------------------------------------------------------- conversation

    def _converse(self, process: Process) -> None:
        """Reads and writes until the server's last line."""
        kill_at: float | None = None
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            if process.log is not None:
                selector.register(process.log.fd, selectors.EVENT_READ)
            while True:
                _watch(selector, process.input, process.has_to_write, selectors.EVENT_WRITE)
                _watch(selector, process.output.fd, self._has_room(), selectors.EVENT_READ)
                ready = {key.fd for key, _ in selector.select(self._pause(kill_at))}
                if self._woken in ready:
                    self._drain()
                if process.input in ready:
                    self.flights.write()
                if process.log is not None and process.log.fd in ready:
                    self._read_log(selector, process.log)
                if process.output.fd in ready and not self._read(process):
                    return
                self.flights.keep_time()
                if self.flights.is_closed:
                    kill_at = kill_at or self._latest_end()
                    if not process.has_to_write:
                        self._leave(selector, process)
                if kill_at is not None and time.monotonic() >= kill_at:
                    process.kill()

    def _has_room(self) -> bool:
        """Returns whether to read on; a server held back is read again when half is taken."""
        limit = HELD // 2 if self.holds_back else HELD
        self.holds_back = True  # an event taken from here on counts here, or wakes this thread
        has_room = self.flights.is_closed or self.flights.has_room(limit)
        self.holds_back = not has_room
        return has_room

    def _latest_end(self) -> float:
        """Returns when the server is killed, even if it reads no more."""
        return time.monotonic() + (_SILENT if self.flights.is_silent else _DRAINS)

    def _leave(self, selector: selectors.BaseSelector, process: Process) -> None:
        """Closes the server's input."""
        if process.input in selector.get_map():
            selector.unregister(process.input)
        self.flights.leave()

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)

    def _pause(self, until: float | None) -> float | None:
        """Returns the seconds until the next deadline; None without one."""
        moments = [moment for moment in (until, self.flights.due()) if moment is not None]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _read(self, process: Process) -> bool:
        """Reads what has come; returns False after the last line."""
        lines = process.output.read()
        for line in lines or ():
            try:
                received = messages.read(line, self.flights.last_id)
            except ValueError as wrong:
                self.flights.refusal = self.flights.refusal or errors.not_the_wire(line, wrong)
                process.kill()
                return True
            for message in received:
                self.flights.hear(message, len(line))
        return lines is not None

    def _read_log(self, selector: selectors.BaseSelector, log: ProcessLines) -> None:
        lines = log.read()
        if lines is None:
            selector.unregister(log.fd)
        elif self._on_log is not None:
            for line in lines:
                self._on_log(line.decode(errors="replace"))


def _watch(selector: selectors.BaseSelector, fd: int, is_needed: bool, event: int) -> None:
    """Watches a pipe only while its readiness matters."""
    is_watched = fd in selector.get_map()
    if is_needed and not is_watched:
        selector.register(fd, event)
    elif is_watched and not is_needed:
        selector.unregister(fd)


def _how(code: int) -> str:
    """Returns how a process ended, as the end of a sentence."""
    return f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
