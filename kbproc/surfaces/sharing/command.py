"""Asks the requests of one command, such as `kbproc search`, and returns their answers.

The command asks the owner of the store over a link. If the owner ends before it answers, the next
one is asked. Without an owner this process becomes it, and the link leads to itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.base.params import MADE_BY_US
from kbproc.base.settings.config import MAX_LINE_BYTES
from kbproc.base.spared import import_validator
from kbproc.base.values import as_json
from kbproc.client.asker import AskedRequest, Asker
from kbproc.client.in_flight import with_token
from kbproc.engine.store.folder import is_store
from kbproc.methods.calls.retry import with_token_and_retry
from kbproc.surfaces.sharing.link import (
    RESTART,
    Check,
    Gone,
    Hello,
    Link,
    converse,
    deadly,
    peer_of,
    refusal,
)
from kbproc.surfaces.sharing.link import hello as hello_of
from kbproc.surfaces.sharing.reach import Waiting, reach_or_listen
from kbproc.surfaces.wire import messages
from kbproc.surfaces.wire.connection import Connection, Service, serve_lines
from kbproc.surfaces.wire.jsonrpc import timeout_of
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
    from kbproc.surfaces.sharing.reach import Listening
    from kbproc.surfaces.wire.in_flight import InFlight as InFlightRequest

OnEvent = Callable[[dict[str, Any]], None]
# Gets the stage, the number of embedded chunks, and their total, which is None at first.
Progress = Callable[[str, int, int | None], None]
_LOCAL = frozenset({"version", "describe", "schema"})  # methods that need no store
_END_SECONDS = 1.0
_logger = logging.getLogger(__name__)


class Command:
    """The requests of one command, one after the other."""

    def __init__(
        self,
        *,
        config: Config,
        registry: Registry,
        host: Host,
        approved_addresses: Collection[str] = (),
        surface: str = "call",
    ) -> None:
        self._surface = surface
        self._config = config
        self._registry = registry
        self._host = host
        self._approved_addresses = sorted(approved_addresses)
        self._link: Link | None = None  # to the owner in another process
        self.here: OwnerHere | None = None  # the owner, once it is this process
        self._local: OwnerHere | None = None  # for requests that need no owner of the store
        self._asker = Asker(RESTART)
        self._request: AskedRequest | None = None
        self._model_problem: str | None = None

    def ask(self, name: str, params: dict[str, Any], on_event: OnEvent) -> dict[str, Any]:
        """Returns the JSON-RPC response, decoded: with `result` or with `error`."""
        timeout_ms = timeout_of(as_json({"timeout_ms": params.get("timeout_ms")}))
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        answers: list[dict[str, Any]] = []
        request = self._asker.ask(name, params, answers.append, on_event, timeout_s)
        self._request = request
        try:
            if self._is_local(name, params):
                self._local = self._local or OwnerHere(self._late_owner(), self._hello())
                self._converse(self._local.link, self._local.look)
            else:
                self._ask_owners(request, Waiting(self._config.store, timeout_ms))
                self._check_answer(request, answers[0])
            # The id is used again, because events show it; not the id of a request that ended
            # early, because that may still get a response.
            self._asker.last_id = request.id - 1
        except KbprocError as error:
            answers = [self._refused(_with_retry(error, name, request.params))]
        finally:
            self._asker.drop(request)
        self._request = None
        return answers[0]

    def _ask_owners(self, request: AskedRequest, waiting: Waiting) -> None:
        """Asks one owner after the other for the answer. Raises KbprocError without one."""
        writes = self._registry.methods[request.method].kind != "read"
        while True:
            try:
                link, check = self._reach(waiting)
                if writes and self.here is None:
                    # The token tells the next owner whether the last one has done the write.
                    request.params = with_token(
                        request.params, f"{MADE_BY_US}{os.urandom(12).hex()}"
                    )
                self._converse(link, check)
                return
            except Gone as error:
                if self.here is not None:
                    raise messages.unexpected(error) from error
                request.note_end(died=self._link is not None and not self._link.is_handed_over)
                self._drop()
                if request.is_deadly:
                    raise deadly(request.method) from error
            except KbprocError:
                self._drop()  # so that an owner that wakes later begins no write
                raise

    def _check_answer(self, request: AskedRequest, answer: dict[str, Any]) -> None:
        """Raises the error of a store that does not open after an owner may have done the write."""
        data = answer.get("error", {}).get("data", {})
        may_be_done = request.params.get("client_token") is not None and request.is_repeated
        if may_be_done and self.here is not None and str(data.get("type")).startswith("store."):
            raise refusal(data)

    def _converse(self, link: Link, check: Check) -> None:
        try:
            converse(self._asker, link, check)
        finally:
            self._asker.end()

    def _is_local(self, name: str, params: dict[str, Any]) -> bool:
        """Returns whether this process answers the request, whichever process is the owner."""
        if name not in self._registry.methods or name in _LOCAL or params.get("repair"):
            return True
        return name == "doctor" and not is_store(self._config.store)  # which makes no store

    def _refused(self, error: KbprocError) -> dict[str, Any]:
        """Returns the response that holds the error."""
        response: dict[str, Any] = msgspec.json.decode(
            messages.Wire(sys.maxsize, reads_files=True).error(0, error)
        )
        return response

    def cancel(self) -> None:
        """Asks the running request to stop; its commits stay. A signal handler may call this."""
        if self._request is not None:
            with contextlib.suppress(Gone):
                self._asker.cancel(self._request.id)

    # --------------------------------------------------------------------------- the owner

    def _reach(self, waiting: Waiting) -> tuple[Link, Check]:
        """Returns the link to the owner, and the check of a wait. Raises Gone, KbprocError."""
        if self.here is None and self._link is None:
            reached = reach_or_listen(self._config, self._host.pid(), waiting.for_owner)
            if isinstance(reached, socket.socket):
                link = Link(reached)
                link.greet(self._hello(), partial(waiting.for_answer, link.pid))
                self._link = link
            else:
                self.here = self._owner_here(reached)
        if self.here is not None:
            return self.here.link, self.here.look
        if self._link is None:
            raise Gone
        return self._link, partial(waiting.for_answer, self._link.pid)

    def _hello(self) -> Hello:
        hello = hello_of(self._config, self._host.cwd())
        return replace(hello, approved_addresses=self._approved_addresses, surface=self._surface)

    def _owner_here(self, listening: Listening | None) -> OwnerHere:
        return OwnerHere(self._owner(listening), self._hello())

    def _late_owner(self) -> LateOwner:
        return LateOwner(self._config, self._host, self._registry, lambda: self._owner(None))

    def _owner(self, listening: Listening | None) -> Owner:
        from kbproc.surfaces.sharing.owner import Owner  # not above: some methods need no store

        return Owner(self._config, self._host, listening, registry=self._registry, for_one=True)

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None

    def close(self) -> None:
        self._drop()
        for here in (self.here, self._local):
            if here is not None:
                here.close(is_working=self._request is not None)

    # --------------------------------------------------------------------------- embedding

    def drain(self, after_seq: int, progress: Progress, deadline: float | None) -> int:
        """Embeds the changes after this position; returns the number of chunks still pending.

        `deadline`: by the monotonic clock; None sets no limit.
        """
        if self.here is not None:
            return self.here.drain(after_seq, progress, deadline)
        if self._link is None:
            return 0

        def show(event: dict[str, Any]) -> None:
            if event["type"] == "progress":
                progress(event["stage"], event["current"], event["total"])

        params: dict[str, Any] = {"after_seq": after_seq}
        if deadline is not None:
            params["timeout_ms"] = max(0, round((deadline - time.monotonic()) * 1000))
        with contextlib.suppress(KeyboardInterrupt):
            answer = self.ask("doc.wait", params, show)
            if "result" in answer:
                return 0
            error = answer["error"]["data"]
            if "pending" in error["detail"]:  # the time is up
                return int(error["detail"]["pending"])
            if error["type"] == "model.unavailable" and error["retryable"] is False:
                self._model_problem = error["message"]
            elif error["type"] in {"operation.timeout", "store.locked"}:
                return 0  # because the owner does not answer any more
        meta = self.ask("status", {}, lambda event: None).get("result", {}).get("meta", {})
        return int(meta.get("freshness", {}).get("pending_embeddings", 0))

    @property
    def model_problem(self) -> str | None:
        """Returns why `drain` can embed nothing: the model is not on this machine."""
        return self._model_problem if self.here is None else self.here.model_problem


def _with_retry(error: KbprocError, name: str, params: dict[str, Any]) -> KbprocError:
    """Returns the error; that of a write which an owner may have done holds its token."""
    if params.get("client_token") is None or params.get("dry_run"):
        return error
    return with_token_and_retry(error, name, params)


# ---------------------------------------------------------------- the owner in this process


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
        ours, self._theirs = socket.socketpair()
        self.link = Link(ours)
        scopes = frozenset(owner.registry.scopes)
        hello = replace(hello, scopes=sorted(scopes))
        peer = peer_of(hello, scopes, owner.config.profile_names)
        self._outbox = Outbox(self._theirs.fileno())
        self._connection = _CommandConnection(owner, peer, self._outbox)
        self._serving = threading.Thread(target=self._serve, name="owner", daemon=True)
        try:
            self._serving.start()
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
