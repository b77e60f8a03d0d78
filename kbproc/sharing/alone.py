"""One command's requests, answered in this process.

Owns: opening the store when it is first needed, asking, waiting, numbering a request's
events, and embedding what is new before the process ends.
Refuses to know: flags and formats. The answers are those of the wire, so that a
connection to another process can take its place.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.base.values import as_json
from kbproc.calls.call import Call, Emit, Peer
from kbproc.calls.registry import Registry
from kbproc.calls.reply import Answer, Entered, Parked
from kbproc.calls.retry import led_on
from kbproc.calls.run import run
from kbproc.library.library import Library
from kbproc.settings.config import Config
from kbproc.sharing.listening import Listening
from kbproc.sharing.owner import Owner
from kbproc.wire import messages
from kbproc.wire.deadlines import timeout_of
from kbproc.wire.in_flight import late
from kbproc.wire.stream import Stream

OnEvent = Callable[[dict[str, Any]], None]
Progress = Callable[[int, int], None]  # how many chunks are embedded, of how many
_ID = 1
_POLL_SECONDS = 0.2


class Backend(Protocol):
    """What answers the requests of one command."""

    def ask(self, name: str, params: dict[str, Any], on_event: OnEvent) -> dict[str, Any]:
        """The JSON-RPC response, decoded: with `result` or with `error`."""

    def cancel(self) -> None:
        """Asks the request that runs to stop; what it has committed stays."""

    def drain(self, after_seq: int, progress: Progress, deadline: float | None) -> int:
        """Has what was changed after this position embedded; returns how many chunks are not.

        `deadline`: by the monotonic clock; None has all the time it takes.
        """

    def close(self) -> None: ...


class InProcess:
    """A backend that opens the store in this process."""

    def __init__(
        self,
        *,
        config: Config,
        registry: Registry,
        host: Host,
        listening: Listening | None = None,
    ) -> None:
        """`listening`: the lease, and where others may attach. Without it nobody may."""
        self._config = config
        self._registry = registry
        self._host = host
        self._listening = listening
        self._owner: Owner | None = None
        self._cancelled = False
        self._is_expired = self._is_abandoned = False
        self._works = False  # it may be changing something
        self._changing = threading.Lock()
        self._wire = messages.Wire(sys.maxsize)
        self._peer = Peer(
            actor=config.actor,
            named_by=config.agent_named_by,
            scopes=frozenset(registry.scopes),
            cwd=host.cwd(),
            root=None,
            kb=config.kb,
            surface="call",
            profile=config.profile,
            profiles=config.profile_names,
        )

    def ask(self, name: str, params: dict[str, Any], on_event: OnEvent) -> dict[str, Any]:
        timeout_ms = timeout_of(as_json({"timeout_ms": params.get("timeout_ms")}))
        if not timeout_ms:
            return self._asked(name, params, on_event)
        return self._asked_in_time(name, params, on_event, timeout_ms)

    def _asked_in_time(
        self, name: str, params: dict[str, Any], on_event: OnEvent, timeout_ms: int
    ) -> dict[str, Any]:
        """Asks on another thread, and gives up in time.

        What may be changing something is waited for: it ends at its next step.
        """
        answers: SimpleQueue[dict[str, Any]] = SimpleQueue()

        def ask() -> None:
            answers.put(self._asked(name, params, on_event))

        threading.Thread(target=ask, name="request", daemon=True).start()
        try:
            return answers.get(timeout=timeout_ms / 1000)
        except Empty:
            pass
        with self._changing:
            self._is_expired = self._cancelled = True
            self._is_abandoned = not self._works
        if self._is_abandoned:
            return self.refused(late(name, timeout_ms))
        return answers.get()

    def _begin_turn(self) -> None:
        with self._changing:
            if self._is_expired:
                raise KbprocError("operation.cancelled", "Nobody waits for it any more.")
            self._works = True

    def _asked(self, name: str, params: dict[str, Any], on_event: OnEvent) -> dict[str, Any]:
        try:
            found = self._registry.find(name)
            stream = Stream(
                wire=self._wire,
                id=_ID,
                host=self._host,
                send=lambda line: on_event(msgspec.json.decode(line)["params"]),
            )
            if found.streams and not found.from_log:
                stream.begin()
            line = self._wire.result(_ID, found, self._answer(name, params, stream.emit))
        except KbprocError as error:
            if self._is_expired and error.type == "operation.cancelled":
                error = late(name, params["timeout_ms"], **error.detail)
            return self.refused(led_on(error, self._registry, name, msgspec.json.encode(params)))
        except Exception as error:  # noqa: BLE001  the boundary: see messages.unexpected
            return self.refused(messages.unexpected(error))
        response: dict[str, Any] = msgspec.json.decode(line)
        return response

    def refused(self, error: KbprocError) -> dict[str, Any]:
        """The response that holds an error."""
        response: dict[str, Any] = msgspec.json.decode(self._wire.error(_ID, error))
        return response

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        """Whether the request is to end at its next step: it was cancelled, or its time is up."""
        return self._cancelled

    def drain(self, after_seq: int, progress: Progress, deadline: float | None) -> int:
        library = None if self._owner is None else self._owner.opened.library
        if library is None or not library.embedding.pending_count:
            return 0
        with library.store.reading() as snapshot:
            own = snapshot.queries.chunk_counts(after_seq)
        with contextlib.suppress(KeyboardInterrupt):
            return library.embedding.drain(progress, own.keys(), deadline)
        return library.embedding.pending_count

    def close(self) -> None:
        if self._is_abandoned:
            return  # a thread still uses what is open; the process ends, and the lease with it
        if self._owner is not None:
            self._owner.close()
        elif self._listening is not None:
            self._listening.close()

    def open(self) -> Library:
        if self._owner is None:
            self._owner = Owner(self._config, self._host, registry=self._registry, for_one=True)
            self._owner.open(self._listening)
        return self._owner.opened.get()

    def _answer(self, name: str, params: dict[str, Any], emit: Emit) -> Answer:
        call = Call(
            registry=self._registry,
            host=self._host,
            peer=self._peer,
            open_library=self.open,
            emit=emit,
            now=self._host.now(),
            cancelled=self.cancelled,
            begin_turn=self._begin_turn,
            folder=self._config.store,
        )
        method = self._registry.find(name)
        if method.streams and method.needs_store:
            self.open()
            self._begin_turn()
        reached = run(call, name, msgspec.json.encode(params))
        while isinstance(reached, Parked):
            self._wait(call.library, reached, for_files=name.startswith("note."))
            reached = reached.resume()
        return reached.end() if isinstance(reached, Entered) else reached

    def _wait(self, library: Library, parked: Parked, *, for_files: bool) -> None:
        """`for_files`: the request waits for files of notes, which others may be looking at.

        Any other request waits in vain once there is nothing to embed any more.
        """
        started = self._host.monotonic_ms()
        if not for_files:
            library.embedding.start()
        while not parked.ready():
            if self._cancelled and parked.cancel is not None:
                parked.cancel()
            elif self._cancelled:
                raise KbprocError(
                    "operation.cancelled", "The request was cancelled.", detail=parked.detail()
                )
            passed = self._host.monotonic_ms() - started
            if parked.timeout_ms is not None and passed >= parked.timeout_ms:
                raise parked.expired()
            if parked.tail is not None:
                if parked.tail.more():
                    continue
            elif not for_files and not library.embedding.pending_count and not parked.ready():
                raise parked.expired()
            left = _POLL_SECONDS
            if parked.timeout_ms is not None:
                left = min(left, (parked.timeout_ms - passed) / 1000)
            library.store.wait_for_change(left)
