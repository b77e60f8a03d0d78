"""The Model Context Protocol's messages, from bytes to requests and from results to bytes.

Owns: what a well-formed message is, the eras, what each request must say of itself, and what
every result of an era carries.
Refuses to know: what is offered, and where messages come from.

Protocol: https://modelcontextprotocol.io/specification/2026-07-28. Written here and not taken from
the official SDK, whose import takes longer than a client should wait for its first answer: 1.0 s
and 65 MB against 0.07 s and 14 MB. The SDK's client and types are what the tests hold it against.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from kbproc.base.values import decoder

MODERN = "2026-07-28"
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
BATCHES = "2025-03-26"  # the one version that has them

_PREFIX = "io.modelcontextprotocol/"
VERSION = f"{_PREFIX}protocolVersion"
CAPABILITIES = f"{_PREFIX}clientCapabilities"
CLIENT = f"{_PREFIX}clientInfo"
LOG_LEVEL = f"{_PREFIX}logLevel"
SUBSCRIPTION = f"{_PREFIX}subscriptionId"
_SERVER = f"{_PREFIX}serverInfo"
TASKS = f"{_PREFIX}tasks"

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
NOT_FOUND_LEGACY = -32002  # of a resource, up to 2025-11-25; since then it is INVALID_PARAMS

Id = int | str


class Refusal(Exception):
    """A mistake in the protocol, answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Incoming(Struct):
    """One message of the client: a request, a notification, or an answer to one of ours."""

    jsonrpc: Literal["2.0"]
    id: Id | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: dict[str, Any] | UnsetType | None = UNSET
    result: dict[str, Any] | UnsetType = UNSET
    error: dict[str, Any] | UnsetType = UNSET

    @property
    def given(self) -> dict[str, Any]:
        return self.params or {}


_decode = decoder(Incoming).decode
_decode_any = msgspec.json.Decoder().decode
_batch = decoder(list[msgspec.Raw]).decode
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def parse(line: bytes) -> Incoming:
    """Raises Refusal."""
    try:
        found = _decode(line)
    except msgspec.ValidationError as error:
        raise Refusal(INVALID_REQUEST, f"That is no message of JSON-RPC 2.0: {error}.") from None
    except _NOT_JSON as error:
        raise Refusal(PARSE_ERROR, f"The line is not JSON: {error}.") from None
    if found.id is None or (found.method is UNSET and found.id is UNSET):
        raise Refusal(INVALID_REQUEST, "A request needs an id that is a string or an integer.")
    return found


def members(line: bytes) -> list[bytes]:
    """The messages of a batch. Raises Refusal."""
    try:
        found = [bytes(member) for member in _batch(line)]
    except _NOT_JSON as error:
        raise Refusal(PARSE_ERROR, f"The line is not JSON: {error}.") from None
    if not found:
        raise Refusal(INVALID_REQUEST, "A batch needs at least one message.")
    return found


def as_id(value: Any) -> Id | None:
    """The value, if it can be an id; 77.0 and true are none, though they equal 77 and 1."""
    return value if type(value) in (int, str) else None


def id_of(line: bytes) -> Id | None:
    """Of a message that is not well-formed, as far as it can be found."""
    try:
        value = _decode_any(line)
    except _NOT_JSON:
        return None
    return as_id(value.get("id")) if isinstance(value, dict) else None


def meta_of(params: dict[str, Any]) -> dict[str, Any]:
    """Raises Refusal."""
    meta = params.get("_meta", {})
    if not isinstance(meta, dict):
        raise Refusal(INVALID_PARAMS, "params._meta must be an object.")
    return meta


def check_envelope(meta: dict[str, Any]) -> None:
    """What every request since 2026-07-28 says of itself. Raises Refusal."""
    missing = [name for name in (VERSION, CAPABILITIES) if name not in meta]
    if missing:
        raise Refusal(INVALID_PARAMS, f"params._meta lacks {' and '.join(missing)}.")
    version = meta[VERSION]
    if not isinstance(version, str):
        raise Refusal(INVALID_PARAMS, f"params._meta[{VERSION!r}] must be a string.")
    if version != MODERN:
        raise unsupported(version)
    if not isinstance(meta[CAPABILITIES], dict):
        raise Refusal(INVALID_PARAMS, f"params._meta[{CAPABILITIES!r}] must be an object.")


def unsupported(requested: str) -> Refusal:
    data = {"supported": [MODERN], "requested": requested}
    return Refusal(UNSUPPORTED_VERSION, f"Protocol {requested!r} is not spoken here.", data)


def modern(found: dict[str, Any], cache: dict[str, Any], server: dict[str, str]) -> dict[str, Any]:
    """A result as it is since 2026-07-28.

    `cache`: for how long, and for whom, a client may keep it; older versions have none.
    """
    meta = {**found.get("_meta", {}), _SERVER: server}
    return {"resultType": "complete", **found, **cache, "_meta": meta}


def result(id: Id, found: dict[str, Any]) -> bytes:
    return encode({"jsonrpc": "2.0", "id": id, "result": found})


def error(id: Id | None, refusal: Refusal) -> bytes:
    """Without an id where none could be found, as the protocol's schema has no null."""
    told: dict[str, Any] = {"code": refusal.code, "message": refusal.message}
    if refusal.data is not None:
        told["data"] = refusal.data
    head = {"jsonrpc": "2.0"} if id is None else {"jsonrpc": "2.0", "id": id}
    return encode({**head, "error": told})


def notification(method: str, params: dict[str, Any]) -> bytes:
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def request(id: Id, method: str, params: dict[str, Any]) -> bytes:
    return encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


encode = msgspec.json.encode
