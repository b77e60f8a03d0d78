"""The owner of a store in the process of a command, and the command's link to it.

A command that another process answers imports none of this.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kbproc.base import sockets
from kbproc.base.settings.config import MAX_LINE_BYTES
from kbproc.base.spared import import_validator
from kbproc.base.threads import start_thread
from kbproc.surfaces.sharing.link import Hello, Link, peer_of
from kbproc.surfaces.wire import messages
from kbproc.surfaces.wire.connection import Connection, Service, serve_lines
from kbproc.surfaces.wire.lines import InputLines, Signals
from kbproc.surfaces.wire.outbox import Outbox

if TYPE_CHECKING:
    from kbproc.base.host import Host
    from kbproc.base.pool import End, Job
    from kbproc.base.settings.config import Config
    from kbproc.knowledge.app.library import Library
    from kbproc.methods.calls.call import Call, Emit, Peer
    from kbproc.methods.calls.registry import Registry
    from kbproc.surfaces.sharing.owner import Owner
    from kbproc.surfaces.wire.in_flight import InFlight as InFlightRequest

# Gets the stage, the number of embedded chunks, and their total, which is None at first.
Progress = Callable[[str, int, int | None], None]
_END_SECONDS = 1.0
_logger = logging.getLogger(__name__)


class LateOwner:
    """An owner that is made when a request first needs the store, which hardly any here does."""

    def __init__(
        self, config: Config, host: Host, registry: Registry, make: Callable[[], Owner]
    ) -> None:
        self.config = config
        self.registry = registry
        self.service = Service(
            registry=registry,
            host=host,
            open_library=self.open_library,
            wire=messages.Wire(MAX_LINE_BYTES, reads_files=True),
        )
        self._make = make
        self._making = threading.Lock()
        self._owner: Owner | None = None

    @property
    def library(self) -> Library | None:
        """Returns the store if it is open."""
        return None if self._owner is None else self._owner.library

    def open_library(self) -> Library:
        """Returns the open store. Raises the error why there is none."""
        with self._making:
            if self._owner is None:
                self._owner = self._make()
        return self._owner.open_library()

    def close(self) -> None:
        """Closes the store, if it is open."""
        self.service.close()
        if self._owner is not None:
            self._owner.close()


class OwnerHere:
    """The owner of the store in the command's process, and the link to it."""

    def __init__(self, owner: Owner | LateOwner, hello: Hello) -> None:
        import_validator()  # before there are threads, which could import, too
        self.owner = owner
        ours, self._theirs = sockets.pair()
        self.link = Link(ours)
        scopes = frozenset(owner.registry.scopes)
        hello = replace(hello, scopes=sorted(scopes))
        peer = peer_of(hello, scopes, owner.config.profile_names)
        self._outbox = Outbox(self._theirs.fileno())
        self._connection = _CommandConnection(owner, peer, self._outbox)
        try:
            self._serving = start_thread(self._serve, "owner")
        except RuntimeError:
            owner.close()
            raise messages.no_thread() from None

    def _serve(self) -> None:
        try:
            lines = InputLines(self._theirs.fileno(), sys.maxsize, Signals())
            serve_lines(self._connection, lines)
        except Exception:
            _logger.exception("the command's connection failed")
        finally:
            self._outbox.close()
            self._theirs.close()

    def look(self) -> None:
        """Has parked requests polled, because some wait for changes that wake no request."""
        self.owner.service.parking.wake()

    def drain(self, after_seq: int, progress: Progress, deadline: float | None) -> int:
        """Embeds the chunks that the command has added, not those of other commands."""
        library = self.owner.library
        if library is None or not library.embedding.pending_count:
            return 0
        with library.store.reading() as snapshot:
            documents = snapshot.queries.chunk_counts(after_seq)
        with contextlib.suppress(KeyboardInterrupt):
            return library.embedding.drain(progress, documents.keys(), deadline)
        return library.embedding.pending_count

    @property
    def model_problem(self) -> str | None:
        library = self.owner.library
        if library is None or library.embedding.state != "missing":
            return None
        problem = library.embedding.problem
        return None if problem is None else problem.message

    def close(self, *, is_working: bool) -> None:
        """Closes the store. `is_working`: a request has no response yet."""
        if is_working or self._connection.has_abandoned:
            return  # because a thread still uses the store; the process's end frees the lease
        self.link.close()
        self._serving.join(_END_SECONDS)
        self.owner.close()


class _CommandConnection(Connection):
    """The owner's connection to the command in its process."""

    def __init__(self, owner: Owner | LateOwner, peer: Peer, outbox: Outbox) -> None:
        wire = owner.service.wire.of_client(sys.maxsize, peer.surface)
        super().__init__(owner.service, peer, outbox, wire=wire)
        self.has_abandoned = False  # true once a request was answered while a thread worked on it
        self._owner = owner
        self._threads: dict[InFlightRequest, int] = {}

    def call(
        self, emit: Emit, cancelled: Callable[[], bool], begin_turn: Callable[[], None]
    ) -> Call:
        call = super().call(emit, cancelled, begin_turn)
        call.folder = self._owner.config.store
        return call

    def submit(self, request: InFlightRequest, job: Job) -> None:
        def run() -> End | None:
            self._threads[request] = threading.get_ident()
            try:
                return job()
            finally:
                del self._threads[request]

        super().submit(request, run)

    def answer(self, request: InFlightRequest, line: bytes | None) -> None:
        here = threading.get_ident()
        self.has_abandoned = self.has_abandoned or self._threads.get(request, here) != here
        super().answer(request, line)

    def park(self, request: InFlightRequest, timeout_ms: int | None) -> None:
        """Parks the request, which expires once nothing is left to wait for.

        A request that waits for files of notes goes on, because other processes change them.
        """
        if request.method.startswith("note."):
            super().park(request, timeout_ms)
            return
        library = self._owner.open_library()
        library.embedding.start()
        self.service.parking.add(_Awaiting(request, library), timeout_ms)


class _Awaiting:
    """A parked request that waits for the embedding, or follows the log."""

    def __init__(self, request: InFlightRequest, library: Library) -> None:
        self._request = request
        self._library = library

    def has_more(self) -> bool:
        return self._request.has_more()

    def poll(self, *, expired: bool) -> bool:
        is_idle = not (self._request.is_stream or self._library.embedding.pending_count)
        return self._request.poll(expired=expired or is_idle)
