"""Writes responses and events, each checked against its schema, and makes errors of exceptions."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from kbproc.base import libraries
from kbproc.base.errors import ASK_AGAIN, KbprocError, Retry, Risk
from kbproc.base.values import as_json
from kbproc.methods.calls.checker import Checker

if TYPE_CHECKING:
    from kbproc.methods.calls.messages import ErrorData, ErrorRetry, ErrorRisk
    from kbproc.methods.calls.method import Method
    from kbproc.methods.calls.reply import Answer
    from kbproc.surfaces.wire.jsonrpc import Id

_logger = logging.getLogger(__name__)

# Errors for lack of descriptors, memory or room, which are no fault in kbproc.
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT})


def error_data(error: KbprocError, *, words_advice: bool = True) -> ErrorData:
    """Returns an error in the form that clients get.

    `words_advice`: the hint says in words what `ask_again` means.
    """
    from kbproc.methods.calls.messages import ErrorData  # not above: most answers are no errors

    says_again = error.ask_again and words_advice
    return ErrorData(
        schema="error/1",
        type=error.type,
        message=error.message,
        exit_code=error.row.exit,
        retryable=error.retryable,
        hint=f"{error.hint} {ASK_AGAIN}".lstrip() if says_again else error.hint,
        doc_url=error.row.doc_url,
        detail=error.detail,
        retry=UNSET if error.retry is None else _retry(error.retry),
        retry_after_ms=_or_unset(error.retry_after_ms),
        field=_or_unset(error.field),
        valid_values=_or_unset(error.valid_values),
        risk=UNSET if error.risk is None else _risk(error.risk),
        plan=_or_unset(error.plan),
        seq=_or_unset(error.seq),
        ask_again=error.ask_again or UNSET,
    )


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value


def _retry(retry: Retry) -> ErrorRetry:
    from kbproc.methods.calls.messages import ErrorRetry

    return ErrorRetry(method=retry.method, params=retry.params, argv=_or_unset(retry.argv))


def _risk(risk: Risk) -> ErrorRisk:
    from kbproc.methods.calls.messages import ErrorRisk

    return ErrorRisk(level=risk.level, action=risk.action)


def unexpected(error: BaseException) -> KbprocError:
    """Returns the error for an unknown exception: internal.error, which only this function makes.

    A shortage of the system becomes another error, because it passes and allows a retry.
    """
    if isinstance(error, OSError) and error.errno in _SHORTAGES:
        reason = f"{error.strerror}."
        _logger.warning("the system refused a request: %s", reason)
        return KbprocError(
            "store.io",
            f"The system has refused what the request needs: {reason}",
            hint="Close other programs or raise the limit (ulimit -n for open files), then send "
            "the request again.",
            detail={"errno": errno.errorcode[error.errno or 0]},
        )
    if is_no_thread(error):
        return no_thread()
    if isinstance(error, ModuleNotFoundError) and libraries.is_lack(error):
        sentence, command = libraries.advice(error)
        return KbprocError("internal.error", sentence, hint=f"Install it: {command}")
    import traceback  # not above: hardly any request fails so

    _logger.error("internal error: %s", "".join(traceback.format_exception(error)))
    return KbprocError(
        "internal.error",
        f"Something went wrong inside kbproc ({type(error).__name__}).",
        detail={"exception": type(error).__name__},
    )


def is_no_thread(error: BaseException) -> bool:
    """Returns true if the system has refused a thread, for which Python has no error type."""
    return isinstance(error, RuntimeError) and "start new thread" in str(error)


def no_thread() -> KbprocError:
    return KbprocError(
        "server.overloaded",
        "No thread can be started for the request.",
        hint="Wait for answers, or raise the limit (ulimit -u), then send the request again.",
        retry_after_ms=1000,
    )


class Wire:
    """An encoder of answers, errors and events, as lines that fit their schemas."""

    def __init__(
        self,
        max_line_bytes: int,
        *,
        surface: str = "serve",
        reads_files: bool = False,
        checker: Checker | None = None,
    ) -> None:
        """`surface`: the client's; that of MCP words the advice of errors itself.

        `reads_files`: for a process that ends soon, see Checker. `checker`: another encoder's.
        """
        self.max_line_bytes = max_line_bytes
        self._surface = surface
        self._checker = checker or Checker(reads_files=reads_files)

    def of_client(self, max_line_bytes: int, surface: str) -> Wire:
        """Returns a copy for one connection, which shares compiled schemas."""
        return Wire(max_line_bytes, surface=surface, checker=self._checker)

    def result(self, id: Id, method: Method, answer: Answer) -> bytes:
        """Returns the response without newline; a result against its schema is internal.error."""
        value = {"data": msgspec.to_builtins(answer.data), "meta": msgspec.to_builtins(answer.meta)}
        complaint = self._checker.result(method, value)
        if complaint is not None:
            _logger.error("the result of %s breaks its schema at %s", method.name, complaint)
            return self.error(id, _broken(method.name))
        line = as_json({"jsonrpc": "2.0", "id": id, "result": value})
        return line if len(line) <= self.max_line_bytes else self.too_long(id, len(line))

    def error(self, id: Id | None, error: KbprocError) -> bytes:
        line = self._error(id, error)
        return line if len(line) <= self.max_line_bytes else self.too_long(id, len(line))

    def too_long(self, id: Id | None, size: int) -> bytes:
        """Returns the error in place of an answer of `size` bytes; it always fits a line."""
        error = KbprocError(
            "input.too_large",
            f"The answer has {size} bytes; a line holds at most {self.max_line_bytes}.",
            hint="Ask for less: a smaller limit, or offset and length.",
            detail={"bytes": size, "max_line_bytes": self.max_line_bytes},
        )
        return self._error(id, error)

    def _error(self, id: Id | None, error: KbprocError) -> bytes:
        value = {
            "code": error.row.code,
            "message": error.message,
            "data": msgspec.to_builtins(error_data(error, words_advice=self._surface != "mcp")),
        }
        complaint = self._checker.error(value)
        if complaint is not None:
            _logger.error("an error of type %s breaks its schema at %s", error.type, complaint)
            return self._error(id, _broken(error.type))
        return as_json({"jsonrpc": "2.0", "id": id, "error": value})

    def event(self, name: str, fields: dict[str, Any]) -> bytes | None:
        """Returns the event's line; None, with a line in the log, if it breaks its schema."""
        params = {"type": name, **msgspec.to_builtins(fields)}
        complaint = self._checker.event(name, params)
        if complaint is not None:
            _logger.error("the event %s breaks its schema at %s", name, complaint)
            return None
        return as_json({"jsonrpc": "2.0", "method": "event", "params": params})

    def plain_event(self, name: str, fields: dict[str, Any]) -> bytes:
        """Returns an event of the process itself, without fields if these break their schema."""
        return self.event(name, fields) or as_json(
            {"jsonrpc": "2.0", "method": "event", "params": {"type": name}}
        )


def _broken(name: str) -> KbprocError:
    return KbprocError(
        "internal.error",
        f"What kbproc made for {name} does not fit its schema.",
        detail={"schema": name},
    )
