"""JSON-RPC 2.0, from bytes to requests and from answers to bytes.

Owns: what a well-formed message is, ids, batches, error objects, the check of
every outgoing message against its schema.
Refuses to know: pipes, threads, and what methods do.

Protocol: https://www.jsonrpc.org/specification, params by name only.
"""

from __future__ import annotations

import copy
import errno
import logging
import traceback
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from kbproc.base.errors import KbprocError, Retry, Risk
from kbproc.base.params import why_not_json
from kbproc.base.values import as_json, decoder
from kbproc.calls.method import Method
from kbproc.calls.reply import Answer
from kbproc.calls.schemas.check import Checker
from kbproc.calls.schemas.messages import ErrorData, ErrorRetry, ErrorRisk
from kbproc.settings.config import MAX_BATCH, MAX_ID

_logger = logging.getLogger(__name__)

Id = int | str
_MOST_SHOWN = 100
# What the system refuses for lack of descriptors, memory or room: no fault in kbproc.
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT})


class Request(Struct, frozen=True, forbid_unknown_fields=True):
    """One request; without `id` it is a notification and gets no answer."""

    jsonrpc: Literal["2.0"]
    method: str
    params: Raw = Raw(b"{}")
    id: Id | UnsetType = UNSET


class Malformed(Struct, frozen=True):
    """A message that is no request; answered with `error`."""

    id: Id | None
    error: KbprocError


Message = Request | Malformed

_decode_request = decoder(Request).decode
_decode_batch = decoder(list[Raw]).decode
_decode_any = msgspec.json.Decoder().decode


def parse(line: bytes) -> Message | list[Message]:
    """The message that a line holds, or all messages of a batch."""
    if line.lstrip()[:1] != b"[":
        return _message(line)
    try:
        parts = _decode_batch(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _not_json(error)
    if not parts:
        return Malformed(None, _invalid("A batch needs at least one request."))
    if len(parts) > MAX_BATCH:
        return Malformed(None, _long_batch(len(parts)))
    return [_message(bytes(part)) for part in parts]


def _message(line: bytes) -> Message:
    try:
        request = _decode_request(line)
    except msgspec.ValidationError:
        return _malformed(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _not_json(error)
    if isinstance(request.id, str) and len(request.id) > MAX_ID:
        return Malformed(None, _long_id())
    first = memoryview(request.params)[:1].tobytes()
    if first == b"{" or (first == b"[" and request.id is UNSET):  # a notification has no answer
        return request
    return Malformed(None if request.id is UNSET else request.id, _by_name_only())


def cancelled_id(params: bytes | Raw) -> Id | None:
    """The id in the params of `$/cancel`: 1.0 and true cancel no request whose id is 1."""
    try:
        value = _decode_any(bytes(params))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    id = value.get("id") if isinstance(value, dict) else None
    return id if type(id) in (int, str) else None


def _long_id() -> KbprocError:
    """An id comes back with every answer and event, and a long one makes them too long."""
    return _invalid(f"id has more than {MAX_ID} characters.", field="$.id")


def _long_batch(size: int) -> KbprocError:
    return KbprocError(
        "input.too_large",
        f"The batch has {size} messages; it may have {MAX_BATCH}.",
        detail={"messages": size, "max_batch": MAX_BATCH},
    )


def _by_name_only() -> KbprocError:
    return KbprocError(
        "input.invalid_params",
        "params must be an object: parameters go by name only.",
        field="$.params",
    )


def _not_json(error: Exception) -> Malformed:
    said = why_not_json(error)
    return Malformed(None, KbprocError("input.invalid_json", f"The line is not JSON: {said}."))


def _malformed(line: bytes) -> Malformed:
    """Finds the id, so that the client can tell which of its requests was wrong."""
    try:
        value = _decode_any(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _not_json(error)
    if not isinstance(value, dict):
        return Malformed(None, _invalid("A request is a JSON object."))
    id = value.get("id")
    known = id if isinstance(id, (int, str)) and not isinstance(id, bool) else None
    if "id" in value and known is None:
        return Malformed(None, _invalid("id must be a string or an integer.", field="$.id"))
    if isinstance(known, str) and len(known) > MAX_ID:
        return Malformed(None, _long_id())
    return Malformed(known, _wrong_member(value))


def _wrong_member(value: dict[str, Any]) -> KbprocError:
    for name in value:
        if name not in Request.__struct_fields__:
            return _invalid(
                f"{shortened(name)!r} is not a member of a request.",
                field=f"$.{shortened(name)}",
                valid_values=Request.__struct_fields__,
            )
    if value.get("jsonrpc") != "2.0":
        return _invalid('jsonrpc must be "2.0".', field="$.jsonrpc")
    return _invalid("method must be a string.", field="$.method")


def shortened(text: str) -> str:
    """What a client sent, as far as it is shown in a message."""
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"


def _invalid(message: str, **more: Any) -> KbprocError:
    return KbprocError("input.invalid_request", message, **more)


# ------------------------------------------------------------------------ answers


def error_data(error: KbprocError) -> ErrorData:
    """An error as clients get it."""
    return ErrorData(
        schema="error/1",
        type=error.type,
        message=error.message,
        exit_code=error.row.exit,
        retryable=error.retryable,
        hint=error.hint,
        doc_url=error.row.doc_url,
        detail=error.detail,
        retry=UNSET if error.retry is None else _retry(error.retry),
        retry_after_ms=_or_unset(error.retry_after_ms),
        field=_or_unset(error.field),
        valid_values=_or_unset(error.valid_values),
        risk=UNSET if error.risk is None else _risk(error.risk),
        plan=_or_unset(error.plan),
        seq=_or_unset(error.seq),
    )


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value


def _retry(retry: Retry) -> ErrorRetry:
    return ErrorRetry(method=retry.method, params=retry.params, argv=_or_unset(retry.argv))


def _risk(risk: Risk) -> ErrorRisk:
    return ErrorRisk(level=risk.level, action=risk.action)


def unexpected(error: BaseException) -> KbprocError:
    """The one place where an unknown exception becomes internal.error.

    A shortage of the system is none: it passes, and so the request may be sent again.
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
    _logger.error("internal error: %s", "".join(traceback.format_exception(error)))
    return KbprocError(
        "internal.error",
        f"Something went wrong inside kbproc ({type(error).__name__}).",
        detail={"exception": type(error).__name__},
    )


def is_no_thread(error: BaseException) -> bool:
    """True where the system has refused to start a thread, for which Python has no type."""
    return isinstance(error, RuntimeError) and "start new thread" in str(error)


def no_thread() -> KbprocError:
    return KbprocError(
        "server.overloaded",
        "No thread can be started for the request.",
        hint="Wait for answers, or raise the limit (ulimit -u), then send the request again.",
        retry_after_ms=1000,
    )


class Wire:
    """Turns answers, errors and events into lines that fit their schemas."""

    def __init__(self, max_line_bytes: int) -> None:
        self.max_line_bytes = max_line_bytes
        self._checker = Checker()

    def limited(self, max_line_bytes: int) -> Wire:
        """The same with another limit, for one connection; schemas are compiled once."""
        wire = copy.copy(self)
        wire.max_line_bytes = max_line_bytes
        return wire

    def result(self, id: Id, method: Method, answer: Answer) -> bytes:
        """The response without newline; a result that breaks its schema becomes internal.error."""
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
        """The error instead of an answer of `size` bytes; it is short, so nobody measures it."""
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
            "data": msgspec.to_builtins(error_data(error)),
        }
        complaint = self._checker.error(value)
        if complaint is not None:
            _logger.error("an error of type %s breaks its schema at %s", error.type, complaint)
            return self._error(id, _broken(error.type))
        return as_json({"jsonrpc": "2.0", "id": id, "error": value})

    def event(self, name: str, fields: dict[str, Any]) -> bytes | None:
        """None if the event breaks its schema: the event is left out, and stderr says so."""
        params = {"type": name, **msgspec.to_builtins(fields)}
        complaint = self._checker.event(name, params)
        if complaint is not None:
            _logger.error("the event %s breaks its schema at %s", name, complaint)
            return None
        return as_json({"jsonrpc": "2.0", "method": "event", "params": params})

    def plain_event(self, name: str, fields: dict[str, Any]) -> bytes:
        """An event of the process itself, which always comes."""
        return self.event(name, fields) or as_json(
            {"jsonrpc": "2.0", "method": "event", "params": {"type": name}}
        )


def _broken(what: str) -> KbprocError:
    return KbprocError(
        "internal.error",
        f"What kbproc made for {what} does not fit its schema.",
        detail={"schema": what},
    )
