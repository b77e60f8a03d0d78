"""Parses and checks the server's lines, so that other modules can rely on the messages' shapes."""

from __future__ import annotations

import json
from typing import Any

_SCALARS = (int, str, type(None))


def read(line: bytes, last_id: int) -> list[dict[str, Any]]:
    """Returns the line's messages. Raises ValueError, whose text completes "It said …".

    `last_id`: the id of the last request so far.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("what is no JSON") from None
    messages = value if isinstance(value, list) and value else [value]
    for message in messages:
        if wrong := _wrong(message, last_id):
            raise ValueError(wrong)
    return messages


def _wrong(message: Any, last_id: int) -> str | None:
    """Returns what is wrong with a message; None if nothing is.

    Unknown members are right, because a later version may send more.
    """
    if not isinstance(message, dict):
        return "what is no message of JSON-RPC"
    if "method" in message:
        return _wrong_event(message.get("params")) if message["method"] == "event" else None
    id = message.get("id")
    if not isinstance(id, _SCALARS) or not {"result", "error"} & message.keys():
        return "what is no message of JSON-RPC"
    # A late answer to a request that was given up, or answered before, is right.
    if id is not None and not (type(id) is int and 0 < id <= last_id):
        return "an answer to what was not asked"
    return _wrong_error(message["error"]) if "error" in message else _wrong_result(message)


def _wrong_event(event: Any) -> str | None:
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        return "an event without a type"
    if not isinstance(event.get("request_id"), _SCALARS):
        return "an event of a request that can't be"
    if not isinstance(event.get("capabilities", {}), dict):
        return "an event whose capabilities are no object"
    return None


def _wrong_result(message: dict[str, Any]) -> str | None:
    result = message["result"]
    if message.get("id") is None:
        return "a result without the id of a request"
    if not isinstance(result, dict) or "data" not in result:
        return "a result without data"
    return None if isinstance(result.get("meta"), dict) else "a result without meta"


def _wrong_error(error: Any) -> str | None:
    if not isinstance(error, dict):
        return "an error that is no object"
    data = {} if error.get("data") is None else error["data"]
    if not isinstance(data, dict) or not isinstance(data.get("type", ""), str):
        return "an error whose data has no type"
    numbers = (data.get("exit_code"), data.get("retry_after_ms"))
    if not all(isinstance(number, (int, float, type(None))) for number in numbers):
        return "an error whose numbers are none"
    return None
