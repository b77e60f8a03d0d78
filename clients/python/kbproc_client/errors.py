"""Errors as exceptions: one class for each exit code, with all members of the server's error.

The errors that only a client meets are here, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .facts import ERRORS

_SHOWN = 100  # bytes shown of a line
# The hints of these errors name flags of `kbproc serve`, which are arguments of the client.
_ABOUT_THE_START = frozenset({"path.outside_root", "auth.insufficient_scope"})
_FLAG = re.compile(r"--(root|scopes)\b")


class KbprocError(Exception):
    """A request that failed. Programs decide by `type` or by the class; people read `message`.

    `hint` says what to do, and `retry` is the one request to send next (`method` and `params`), if
    there is one. `retryable`: whether the same request may work later; None: see `detail`.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        """`data`: the `data` of a JSON-RPC error."""
        self.type: str = data.get("type") or "internal.error"
        self.message: str = data.get("message") or ""
        super().__init__(self.message)
        exit_code, retryable = ERRORS.get(self.type, (2, None))
        self.exit_code: int = data.get("exit_code", exit_code)
        self.retryable: bool | None = data.get("retryable", retryable)
        self.hint: str = data.get("hint") or ""
        self.field: str | None = data.get("field")
        self.valid_values: list[Any] | None = data.get("valid_values")
        self.retry: dict[str, Any] | None = data.get("retry")
        self.retry_after_ms: int | None = data.get("retry_after_ms")
        self.risk: dict[str, Any] | None = data.get("risk")
        self.plan: dict[str, Any] | None = data.get("plan")
        self.detail: dict[str, Any] = data.get("detail") or {}
        self.doc_url: str | None = data.get("doc_url")
        self.told: Mapping[str, Any] = data

    def __str__(self) -> str:
        text = f"{self.type}: {self.message}"
        if self.valid_values:
            text += f" Valid: {', '.join(map(str, self.valid_values[:10]))}."
        return f"{text} {self.hint}".strip()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self.told),)


class BadRequest(KbprocError):
    """The caller's mistake: correct `field`; `valid_values` holds the nearest."""


class Failed(KbprocError):
    """Disk, model, network or kbproc itself: `hint` says what to do; retry if `retryable`."""


class Partial(KbprocError):
    """Some items worked, others failed: `detail` holds the first failures."""


class Timeout(KbprocError):
    """The time ran out first: ask again with more time and the same `client_token`."""


class NotFound(KbprocError):
    """The thing does not exist: `valid_values` holds the nearest, or `hint` the command."""


class NotAllowed(KbprocError):
    """A scope, an owner or a root forbids it: ask as another, or below another root."""


class Conflict(KbprocError):
    """The name is taken, or the state has changed since it was read: read and decide again."""


class LimitReached(KbprocError):
    """A quota is used up, or too many events are unread: ask for less, or later."""


class Overloaded(LimitReached):
    """Too many requests at the same time, even after several tries: ask later."""


class Cancelled(KbprocError):
    """The request was cancelled; `detail` says what had been done before."""


class NeedsPerson(KbprocError):
    """A person has to approve of `plan`; `confirm=plan["plan_hash"]` says that one has."""


class ServerEnded(Failed):
    """kbproc ended, or could not be started, and the client could not recover."""


class Closed(Failed):
    """The client was closed."""


_BY_TYPE: dict[str, type[KbprocError]] = {"server.overloaded": Overloaded}
_BY_EXIT: dict[int, type[KbprocError]] = {
    1: BadRequest,
    2: Failed,
    3: Partial,
    4: Timeout,
    5: NotFound,
    6: NotAllowed,
    7: Conflict,
    8: LimitReached,
    9: Cancelled,
    10: NeedsPerson,
}


def of(error: Mapping[str, Any]) -> KbprocError:
    """Returns the exception for a JSON-RPC `error`; another server's may lack `data`."""
    data = {"message": error.get("message", ""), **(error.get("data") or {})}
    type = str(data.get("type", ""))
    if type in _ABOUT_THE_START:
        data["hint"] = _FLAG.sub(r"\1=", str(data.get("hint") or ""))
    code = data.get("exit_code", ERRORS.get(type, (2, None))[0])
    return _BY_TYPE.get(type, _BY_EXIT.get(code, KbprocError))(data)


def _own(kind: type[KbprocError], type: str, message: str, hint: str, **more: Any) -> KbprocError:
    return kind({"type": type, "message": message, "hint": hint, "exit_code": 2, **more})


def timed_out(method: str, seconds: float) -> KbprocError:
    """Returns the error of the client's own clock: the server, which has the same limit, is
    silent.
    """
    return _own(
        Timeout,
        "operation.timeout",
        f"{method} was not answered within {seconds:g} s, and kbproc does not say why.",
        "It may be stopped or overloaded. What it was asked may still be done: ask again with the "
        "same client_token.",
        exit_code=4,
        retryable=True,
    )


def too_large(method: str, most: int) -> KbprocError:
    return _own(
        BadRequest,
        "input.too_large",
        f"The request {method} has more than {most} bytes.",
        "Send it in smaller parts.",
        exit_code=1,
        retryable=False,
    )


def cancelled(method: str) -> KbprocError:
    """Returns the error of a request that waited for another try: the server did nothing of it."""
    return _own(
        Cancelled,
        "operation.cancelled",
        f"{method} was cancelled before kbproc took it.",
        "",
        exit_code=9,
        retryable=True,
    )


def unread(method: str, most: int) -> KbprocError:
    return _own(
        LimitReached,
        "client.unread",
        f"{method} was cancelled: {most >> 20} MiB of its events were not read, and other requests "
        "wait for what comes behind them.",
        "Read the events as they come, or ask in a client of its own, which then waits.",
        exit_code=8,
        retryable=False,
    )


def _ended(message: str, hint: str, *, retryable: bool = True) -> KbprocError:
    return _own(ServerEnded, "client.server_ended", message, hint, retryable=retryable)


def not_started(error: OSError) -> KbprocError:
    return _ended(
        f"kbproc can't be started: {error}.",
        "Install it (pip install kbproc), or say where it is: command=[...].",
        retryable=False,
    )


def ended_at_once(how: str) -> KbprocError:
    return _ended(
        f"kbproc ended {how} before its first line.",
        "What it says on stderr tells why; on_log= passes that on.",
        retryable=False,
    )


def ends_again_and_again(times: int, how: str) -> KbprocError:
    return _ended(
        f"kbproc ended {times} times within a minute, the last time {how}.",
        "What it says on stderr tells why; a request that ends it every time should not be asked "
        "again.",
    )


def lost(method: str) -> KbprocError:
    return _ended(
        f"kbproc ended while it was asked {method}, which this client does not know.",
        "Whether it was done is not known. Look, then ask again.",
        retryable=False,
    )


def not_the_wire(line: bytes, wrong: object) -> KbprocError:
    """Returns the error for a line that is not the protocol; `wrong` completes "It said …"."""
    begins = line[:_SHOWN].decode(errors="replace") + ("…" if len(line) > _SHOWN else "")
    return _ended(
        f"What was started does not speak kbproc's protocol. It said {wrong}: “{begins}”.",
        "The command must be that of `kbproc serve`, and nothing else may write to its stdout.",
        retryable=False,
    )


def closed() -> KbprocError:
    return _own(
        Closed,
        "client.closed",
        "This client was closed.",
        "Make another one. A write that was under way can be asked again with its client_token.",
        retryable=False,
    )
