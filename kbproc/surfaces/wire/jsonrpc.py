"""Parses the lines of JSON-RPC 2.0, for kbproc's own wire and for MCP.

It imports little, because attached processes and `kbproc mcp` parse lines before anything heavy is
loaded.

Protocol: https://www.jsonrpc.org/specification, params by name only.
"""

# Annotations are values here: msgspec compiles each that is a text, at every start.

import contextlib
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import MAX_BATCH, MAX_ID
from kbproc.base.values import (
    NOT_READABLE,
    TimeoutMs,
    check_depth,
    decoder,
    why_not_json,
    without_halves,
)

Id = int | str
_MOST_SHOWN = 100
_NO_PARAMS = Raw(b"{}")


class Request(Struct, frozen=True, forbid_unknown_fields=True):
    """A request; without `id` it is a notification and gets no response."""

    jsonrpc: Literal["2.0"]
    method: str
    params: Raw = _NO_PARAMS
    id: Id | UnsetType = UNSET


class Response(Struct, frozen=True):
    """A client's response to a question of the server; `result` is null for an error."""

    id: Id
    result: Raw


class Malformed(Struct, frozen=True):
    """A message that is no request; answered with `error`."""

    id: Id | None
    error: KbprocError


class _OpenFields(Struct, frozen=True):
    """The members of a request or a response of MCP."""

    jsonrpc: Literal["2.0"]
    method: str | UnsetType = UNSET
    params: Raw = _NO_PARAMS
    id: Id | UnsetType = UNSET
    result: Raw = Raw(b"null")


class _Timed(Struct):
    timeout_ms: TimeoutMs | None = None


Message = Request | Malformed
OpenMessage = Message | Response
_M = TypeVar("_M")

_decode_request = decoder(Request).decode
_decode_open = decoder(_OpenFields).decode
_decode_batch = decoder(list[Raw]).decode
_decode_timed = decoder(_Timed).decode
_decode_any = msgspec.json.Decoder().decode


def is_batch(line: bytes) -> bool:
    return line.lstrip()[:1] == b"["


def batch_members(line: bytes) -> list[bytes]:
    """Returns the messages of a batch as bytes. Raises the errors in NOT_READABLE."""
    return [bytes(member) for member in _decode_batch(line)]


def parse(line: bytes) -> Message | list[Message]:
    """Returns the message of a line, or all messages of a batch."""
    return _parse(line, parse_message)


def parse_open(line: bytes) -> OpenMessage | list[OpenMessage]:
    """Returns the message or the messages of a client of MCP.

    Such a client also responds to questions, and may send members that no version knows.
    """
    return _parse(line, _parse_open_message)


def _parse(line: bytes, parse_one: Callable[[bytes], _M]) -> _M | Malformed | list[_M]:
    try:
        check_depth(line)
        if not is_batch(line):
            return parse_one(line)
        members = _readable(batch_members, line)
    except NOT_READABLE as error:
        return _not_json(error)
    if not members:
        return Malformed(None, _invalid("A batch needs at least one request."))
    if len(members) > MAX_BATCH:
        return Malformed(None, _long_batch(len(members)))
    return [parse_one(member) for member in members]


def _readable(decode: Callable[[bytes], _M], line: bytes) -> _M:
    """Decodes the line; where it holds half a character, with U+FFFD instead.

    So the client gets an answer with its id.
    """
    try:
        return decode(line)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        whole = without_halves(line)
        if whole == line:
            raise
        return decode(whole)


def parse_message(line: bytes) -> Message:
    """Returns the message of a line that is no batch, or of a batch's member."""
    try:
        request = _readable(_decode_request, line)
    except msgspec.ValidationError:
        return _malformed(line, is_open=False)
    except NOT_READABLE as error:
        return _not_json(error)
    return _checked(request)


def _parse_open_message(line: bytes) -> OpenMessage:
    try:
        message = _readable(_decode_open, line)
    except msgspec.ValidationError:
        return _malformed(line, is_open=True)
    except NOT_READABLE as error:
        return _not_json(error)
    if message.method is not UNSET:
        params = _NO_PARAMS if bytes(message.params) == b"null" else message.params
        return _checked(Request("2.0", message.method, params, message.id))
    if message.id is not UNSET:
        return Response(message.id, message.result)
    return Malformed(None, _invalid("A message needs a method or an id."))


def _checked(request: Request) -> Message:
    """Returns the request, or an error for its id or its params."""
    if isinstance(request.id, str) and len(request.id) > MAX_ID:
        return Malformed(None, _long_id())
    first = memoryview(request.params)[:1].tobytes()
    if first == b"{" or (first == b"[" and request.id is UNSET):  # because it gets no response
        return request
    return Malformed(None if request.id is UNSET else request.id, _by_name_only())


def cancelled_id(params: bytes | Raw) -> Id | None:
    """Returns the id in the params of `$/cancel`; None for 1.0 and true, which are not id 1."""
    try:
        value = _decode_any(bytes(params))
    except NOT_READABLE:
        return None
    id = value.get("id") if isinstance(value, dict) else None
    return id if type(id) in (int, str) else None


def timeout_of(params: Raw | bytes) -> int | None:
    """Returns the timeout; None without one, and for params that will be refused."""
    if b'"timeout_ms"' in bytes(params):
        with contextlib.suppress(*NOT_READABLE):
            return _decode_timed(params).timeout_ms
    return None


def shortened(text: str) -> str:
    """Returns a client's text, shortened for a message."""
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"


def _long_id() -> KbprocError:
    """Returns the error of a long id, which would make every response and event too long."""
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
    reason = why_not_json(error)
    return Malformed(None, KbprocError("input.invalid_json", f"The line is not JSON: {reason}."))


def _malformed(line: bytes, *, is_open: bool) -> Malformed:
    """Returns the error with the id, so that the client knows which request is wrong."""
    try:
        value = _readable(_decode_any, line)
    except NOT_READABLE as error:
        return _not_json(error)
    if not isinstance(value, dict):
        return Malformed(None, _invalid("A request is a JSON object."))
    id = value.get("id")
    valid_id = id if isinstance(id, (int, str)) and not isinstance(id, bool) else None
    if "id" in value and valid_id is None:
        return Malformed(None, _invalid("id must be a string or an integer.", field="$.id"))
    if isinstance(valid_id, str) and len(valid_id) > MAX_ID:
        return Malformed(None, _long_id())
    return Malformed(valid_id, _wrong_member(value, is_open=is_open))


def _wrong_member(value: dict[str, Any], *, is_open: bool) -> KbprocError:
    for name in value:
        if name not in Request.__struct_fields__ and not is_open:
            return _invalid(
                f"{shortened(name)!r} is not a member of a request.",
                field=f"$.{shortened(name)}",
                valid_values=Request.__struct_fields__,
            )
    if value.get("jsonrpc") != "2.0":
        return _invalid('jsonrpc must be "2.0".', field="$.jsonrpc")
    return _invalid("method must be a string.", field="$.method")


def _invalid(message: str, **more: Any) -> KbprocError:
    return KbprocError("input.invalid_request", message, **more)
