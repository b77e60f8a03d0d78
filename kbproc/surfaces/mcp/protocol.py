"""One client of the protocol: its requests in flight, and what is asked of it.

Owns: the era of each request, which handler answers it, that it is answered exactly once or, once
cancelled, not at all; progress and logs of a request; requests to a client of the older era.
Refuses to know: what is offered (`handlers`), and over which descriptors the client speaks.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from kbproc.mcp import protocol
from kbproc.mcp.protocol import Id, Incoming, Refusal

_logger = logging.getLogger(__name__)
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_FIRST = frozenset({"initialize", "ping"})
_REMOVED = frozenset({*_FIRST, "logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
_ADDED = frozenset({"server/discover", "subscriptions/listen"})
_OLD_LACKS = _ADDED | {"tasks/get", "tasks/update", "tasks/cancel"}

Answered = Callable[[dict[str, Any]], None]


class Request:
    """One request of the client. Any thread may answer it; only the first answer counts."""

    def __init__(
        self,
        session: Session,
        message: Incoming,
        id: Id,
        method: str,
        *,
        version: str,
        capabilities: dict[str, Any],
        meta: dict[str, Any],
    ) -> None:
        """`version`: of the protocol; `capabilities`: what the client can do."""
        self.session = session
        self.id = id
        self.method = method
        self.params = message.given
        self.version = version
        self.capabilities = capabilities
        self.meta = meta
        # Called once, in the client's thread, if the client gives the request up.
        self.on_cancel: Callable[[], None] = lambda: None
        self._progress: float = -1

    @property
    def is_modern(self) -> bool:
        return self.version == protocol.MODERN

    @property
    def client(self) -> str | None:
        """The client's own name; None where it gives none."""
        info = self.meta.get(protocol.CLIENT) if self.is_modern else self.session.client_info
        name = info.get("name") if isinstance(info, dict) else None
        return name if isinstance(name, str) else None

    def reply(self, result: dict[str, Any], *, cache: dict[str, Any] | None = None) -> None:
        if self.session.settle(self):
            if self.is_modern:
                result = protocol.modern(result, cache or {}, self.session.server)
            self.session.send(protocol.result(self.id, result))

    def refuse(self, refusal: Refusal) -> None:
        if self.session.settle(self):
            self.session.send(protocol.error(self.id, refusal))

    def attempt(self, step: Callable[[], None]) -> None:
        """Runs a step towards the answer. What it raises is the answer, and never ends a thread."""
        try:
            step()
        except Refusal as refusal:
            self.refuse(refusal)
        except Exception:
            _logger.exception("a request failed: %s", self.method)
            self.refuse(Refusal(protocol.INTERNAL_ERROR, "Something is wrong in kbproc."))

    def progress(self, done: float, total: float | None, message: str | None = None) -> None:
        """Only for a client that asked for it; the protocol wants it to grow each time."""
        token = protocol.as_id(self.meta.get("progressToken"))
        if token is None or done <= self._progress or not self.session.is_open(self):
            return
        self._progress = done
        params: dict[str, Any] = {"progressToken": token, "progress": done}
        if total is not None:
            params["total"] = total
        if message:
            params["message"] = message
        self.session.send(protocol.notification("notifications/progress", params))

    def log(self, level: str, data: Any) -> None:
        """Only for a client that asked for messages of that level."""
        least = self.meta.get(protocol.LOG_LEVEL) if self.is_modern else self.session.log_level
        if least in LEVELS and LEVELS.index(level) >= LEVELS.index(least):
            params = {"level": level, "logger": "kbproc", "data": data}
            self.session.send(protocol.notification("notifications/message", params))

    def ask(self, method: str, params: dict[str, Any], then: Answered) -> Callable[[], None]:
        """Asks a client of the older era; `then` gets its result, or {} where it refused.

        Returns how to withdraw the question.
        """
        return self.session.ask(method, params, then)


Handler = Callable[[Request], None]


class Session:
    """One client. `handlers`: what answers which method; each may raise Refusal."""

    def __init__(
        self,
        handlers: dict[str, Handler],
        send: Callable[[bytes], None],
        *,
        described: dict[str, Any],
        server: dict[str, str],
        on_introduction: Callable[[Request], None] = lambda request: None,
        on_initialized: Callable[[Session], None] = lambda session: None,
    ) -> None:
        """`described`: capabilities and instructions; `server`: the name and version of what
        serves. `send` gets whole lines, in order. `on_introduction` gets each request in which the
        client may name itself, before it is answered.
        """
        self._handlers = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": lambda request: request.reply({}),
            "logging/setLevel": self._set_level,
            **handlers,
        }
        self.send = send
        self._described = described
        self._on_introduction = on_introduction
        self._on_initialized = on_initialized
        self.server = server
        self.version: str | None = None  # of the older era, once the client has introduced itself
        self.capabilities: dict[str, Any] = {}
        self.client_info: Any = None  # of initialize
        self.log_level: str | None = None
        self._lock = threading.Lock()
        self._open: dict[Id, Request] = {}
        self._asked: dict[Id, Answered] = {}
        self._ids = itertools.count(1)

    # ------------------------------------------------------------------ from the client

    def receive(self, line: bytes) -> None:
        """One line of the client; never raises."""
        if not line.strip():
            return
        try:
            if line.lstrip()[:1] != b"[":
                self._take(line)
            elif self.version == protocol.BATCHES:
                for member in protocol.members(line):
                    self._take(member)
            else:
                raise Refusal(protocol.INVALID_REQUEST, "There are no batches in this version.")
        except Refusal as refusal:
            self.send(protocol.error(None, refusal))
        except Exception:
            _logger.exception("a message could not be handled")

    def _take(self, line: bytes) -> None:
        try:
            message = protocol.parse(line)
        except Refusal as refusal:
            self.send(protocol.error(protocol.id_of(line), refusal))
            return
        if message.method is UNSET:
            self._take_answer(message)
        elif message.id is UNSET:
            self._take_notification(message)
        elif message.id is not None:
            self._take_request(message, message.id, message.method)

    def _take_request(self, message: Incoming, id: Id, method: str) -> None:
        try:
            request = self._admitted(message, id, method)
        except Refusal as refusal:
            self.send(protocol.error(id, refusal))
            return
        with self._lock:
            is_known = request.id in self._open
            self._open.setdefault(request.id, request)
        if is_known:
            again = f"A request with id {request.id!r} is in flight."
            self.send(protocol.error(id, Refusal(protocol.INVALID_REQUEST, again)))
            return

        def answer() -> None:
            if request.is_modern:
                self._on_introduction(request)
            self._handlers[method](request)

        request.attempt(answer)

    def _admitted(self, message: Incoming, id: Id, method: str) -> Request:
        """Raises Refusal for what its era does not have."""
        meta = protocol.meta_of(message.given)
        is_modern = protocol.VERSION in meta or method in _ADDED
        if not is_modern and self.version is None and method not in _FIRST:
            missing = "params._meta lacks {}: say them with every request, or initialize first."
            said = missing.format(f"{protocol.VERSION} and {protocol.CAPABILITIES}")
            raise Refusal(protocol.INVALID_PARAMS, said)
        if is_modern:
            protocol.check_envelope(meta)
        if method not in self._handlers or method in (_REMOVED if is_modern else _OLD_LACKS):
            raise Refusal(protocol.METHOD_NOT_FOUND, f"There is no method {method!r}.")
        version = protocol.MODERN if is_modern else self.version or protocol.LEGACY[-1]
        capabilities = meta[protocol.CAPABILITIES] if is_modern else self.capabilities
        return Request(
            self, message, id, method, version=version, capabilities=capabilities, meta=meta
        )

    def _take_notification(self, message: Incoming) -> None:
        """Its sender hears nothing."""
        if message.method == "notifications/initialized":
            self._on_initialized(self)
        if message.method != "notifications/cancelled":
            return
        id = protocol.as_id(message.given.get("requestId"))
        with self._lock:
            request = None if id is None else self._open.get(id)
        if request is not None and request.method != "initialize" and self.settle(request):
            request.on_cancel()

    def _take_answer(self, message: Incoming) -> None:
        id = protocol.as_id(message.id)
        with self._lock:
            then = None if id is None else self._asked.pop(id, None)
        if then is not None:
            then(message.result if isinstance(message.result, dict) else {})

    # -------------------------------------------------------------------- to the client

    def ask(self, method: str, params: dict[str, Any], then: Answered) -> Callable[[], None]:
        """Returns how to withdraw the question."""
        id = f"kbproc-{next(self._ids)}"

        def withdraw() -> None:
            with self._lock:
                is_open = self._asked.pop(id, None) is not None
            if is_open:
                self.send(protocol.notification("notifications/cancelled", {"requestId": id}))

        with self._lock:
            self._asked[id] = then
        self.send(protocol.request(id, method, params))
        return withdraw

    def is_open(self, request: Request) -> bool:
        """Whether the client still waits for its answer."""
        with self._lock:
            return self._open.get(request.id) is request

    def settle(self, request: Request) -> bool:
        """False where it was answered or cancelled before."""
        with self._lock:
            if self._open.get(request.id) is not request:
                return False
            del self._open[request.id]
        return True

    # ---------------------------------------------------------------------- introductions

    def _initialize(self, request: Request) -> None:
        wanted = request.params.get("protocolVersion")
        if not isinstance(wanted, str):
            raise Refusal(protocol.INVALID_PARAMS, "params.protocolVersion must be a string.")
        capabilities = request.params.get("capabilities")
        self.capabilities = capabilities if isinstance(capabilities, dict) else {}
        self.client_info = request.params.get("clientInfo")
        self.version = wanted if wanted in protocol.LEGACY else protocol.LEGACY[-1]
        self._on_introduction(request)
        request.reply(
            {
                "protocolVersion": self.version,
                "serverInfo": self.server,
                **_without_extensions(self._described),
            }
        )

    def _discover(self, request: Request) -> None:
        found = {"supportedVersions": [protocol.MODERN], **self._described}
        request.reply(found, cache=PUBLIC)

    def _set_level(self, request: Request) -> None:
        if request.params.get("level") not in LEVELS:
            raise Refusal(protocol.INVALID_PARAMS, f"params.level can be {', '.join(LEVELS)}.")
        self.log_level = request.params["level"]
        request.reply({})


def _without_extensions(described: dict[str, Any]) -> dict[str, Any]:
    """Extensions came with 2026-07-28."""
    capabilities = {k: v for k, v in described["capabilities"].items() if k != "extensions"}
    return {**described, "capabilities": capabilities}


# For how long, in milliseconds, a client may keep an answer, and whether others may have it, too.
PUBLIC = {"ttlMs": 3_600_000, "cacheScope": "public"}
PRIVATE = {"ttlMs": 3_600_000, "cacheScope": "private"}
STALE = {"ttlMs": 0, "cacheScope": "private"}
