"""What goes wrong, as exceptions: one class an exit code, and all that the server says of it.

Owns: which class an error has, and the errors that only a client meets.
Refuses to know: requests, and when an error is met with another try.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .facts import ERRORS

_SHOWN = 100  # bytes of a line


class KbprocError(Exception):
    """A request that failed. Decide by `type`, or by the class; a person reads `message`.

    `hint` says what to do, `retry` is the one request that leads on (`method` and `params`), where
    there is one. `retryable`: whether the same request may work later; None: `detail` tells.
    """

    def __init__(self, told: Mapping[str, Any]) -> None:
        """`told`: the `data` of a JSON-RPC error."""
        self.type: str = told.get("type", "internal.error")
        self.message: str = told.get("message", "")
        super().__init__(self.message)
        exit_code, retryable = ERRORS.get(self.type, (2, None))
        self.exit_code: int = told.get("exit_code", exit_code)
        self.retryable: bool | None = told.get("retryable", retryable)
        self.hint: str = told.get("hint", "")
        self.field: str | None = told.get("field")
        self.valid_values: list[Any] | None = told.get("valid_values")
        self.retry: dict[str, Any] | None = told.get("retry")
        self.retry_after_ms: int | None = told.get("retry_after_ms")
        self.risk: dict[str, Any] | None = told.get("risk")
        self.plan: dict[str, Any] | None = told.get("plan")
        self.detail: dict[str, Any] = told.get("detail", {})
        self.doc_url: str | None = told.get("doc_url")
        self.told: Mapping[str, Any] = told

    def __str__(self) -> str:
        said = f"{self.type}: {self.message}"
        if self.valid_values:
            said += f" Valid: {', '.join(map(str, self.valid_values[:10]))}."
        return f"{said} {self.hint}".strip()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self.told),)


class BadRequest(KbprocError):
    """The caller's mistake: correct `field`; `valid_values` holds the nearest."""


class Failed(KbprocError):
    """Disk, model, network or kbproc itself: `hint` tells what to do; again where `retryable`."""


class Partial(KbprocError):
    """Some items worked, others failed: `detail` holds the first failures."""


class Timeout(KbprocError):
    """The time was over first: again, with more time and the same `client_token`."""


class NotFound(KbprocError):
    """There is no such thing: `valid_values` holds the nearest, or `hint` the command."""


class NotAllowed(KbprocError):
    """A scope, an owner or a root forbids it: ask as another, or below another root."""


class Conflict(KbprocError):
    """The name is taken, or what was read has changed since: read again, then decide again."""


class LimitReached(KbprocError):
    """A quota is used up, or too much waits unread: less, or later."""


class Overloaded(LimitReached):
    """Too many requests at the same time, and still so after several tries: later."""


class Cancelled(KbprocError):
    """The request was cancelled; `detail` says what had been done by then."""


class NeedsPerson(KbprocError):
    """It destroys: show `plan` to a person, whose approval is `confirm=plan["plan_hash"]`."""


class ServerEnded(Failed):
    """kbproc ended, or could not be started, and the client could not mend it."""


class Closed(Failed):
    """This client was closed."""


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
    """From the `error` of a JSON-RPC response; `data` may be missing, as of another server."""
    told = {"message": error.get("message", ""), **(error.get("data") or {})}
    type = str(told.get("type", ""))
    code = told.get("exit_code", ERRORS.get(type, (2, None))[0])
    return _BY_TYPE.get(type, _BY_EXIT.get(code, KbprocError))(told)


def _own(kind: type[KbprocError], type: str, message: str, hint: str, **more: Any) -> KbprocError:
    return kind({"type": type, "message": message, "hint": hint, "exit_code": 2, **more})


def timed_out(method: str, seconds: float) -> KbprocError:
    """By the client's own clock: the server, which keeps the time too, has not answered at all."""
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
    """While it waited for another try: the server has done nothing of it."""
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
    """`wrong`: what the line is, as the object of a sentence."""
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
