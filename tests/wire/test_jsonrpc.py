"""The examples of the JSON-RPC 2.0 specification, on a registry of toys.

https://www.jsonrpc.org/specification#examples; those with params by position
must get a typed error instead, and those in notifications nothing at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit import toys
from tests.kit.talk import Session

PARSE_ERROR, INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602


def result(id: Any, data: Any) -> tuple[Any, Any]:
    return id, data


def error(id: Any, code: int) -> tuple[Any, str]:
    return id, f"error {code}"


EXAMPLES: dict[str, tuple[str, Any]] = {
    "positional": (
        '{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}',
        error(1, INVALID_PARAMS),
    ),
    "positional, the other way": (
        '{"jsonrpc": "2.0", "method": "subtract", "params": [23, 42], "id": 2}',
        error(2, INVALID_PARAMS),
    ),
    "named": (
        '{"jsonrpc": "2.0", "method": "subtract", '
        '"params": {"subtrahend": 23, "minuend": 42}, "id": 3}',
        result(3, 19),
    ),
    "named, the other way": (
        '{"jsonrpc": "2.0", "method": "subtract", '
        '"params": {"minuend": 42, "subtrahend": 23}, "id": 4}',
        result(4, 19),
    ),
    "notification": ('{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}', None),
    "notification without params": ('{"jsonrpc": "2.0", "method": "foobar"}', None),
    "no such method": (
        '{"jsonrpc": "2.0", "method": "foobar", "id": "1"}',
        error("1", UNKNOWN_METHOD),
    ),
    "invalid JSON": (
        '{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]',
        error(None, PARSE_ERROR),
    ),
    "invalid request": (
        '{"jsonrpc": "2.0", "method": 1, "params": "bar"}',
        error(None, INVALID_REQUEST),
    ),
    "batch, invalid JSON": (
        '[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},'
        '{"jsonrpc": "2.0", "method"]',
        error(None, PARSE_ERROR),
    ),
    "empty array": ("[]", error(None, INVALID_REQUEST)),
    "invalid batch, not empty": ("[1]", [error(None, INVALID_REQUEST)]),
    "invalid batch": ("[1,2,3]", [error(None, INVALID_REQUEST)] * 3),
    "batch": (
        '[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},'
        '{"jsonrpc": "2.0", "method": "notify_hello", "params": [7]},'
        '{"jsonrpc": "2.0", "method": "subtract", "params": [42,23], "id": "2"},'
        '{"foo": "boo"},'
        '{"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},'
        '{"jsonrpc": "2.0", "method": "get_data", "id": "9"}]',
        [
            error("1", INVALID_PARAMS),
            error("2", INVALID_PARAMS),
            error(None, INVALID_REQUEST),
            error("5", UNKNOWN_METHOD),
            result("9", ["hello", 5]),
        ],
    ),
    "batch, by name": (
        '[{"jsonrpc": "2.0", "method": "sum", "params": {"numbers": [1,2,4]}, "id": "1"},'
        '{"jsonrpc": "2.0", "method": "notify_hello", "params": {"numbers": [7]}},'
        '{"jsonrpc": "2.0", "method": "subtract", "params": {"minuend": 42, "subtrahend": 23}, '
        '"id": "2"}]',
        [result("1", 7), result("2", 19)],
    ),
    "batch of notifications": (
        '[{"jsonrpc": "2.0", "method": "notify_sum", "params": [1,2,4]},'
        '{"jsonrpc": "2.0", "method": "notify_hello", "params": [7]}]',
        None,
    ),
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("toys")
    session = Session(folder / "store", cwd=folder, registry=toys.registry())
    session.receive(), session.receive()
    yield session
    session.close()


def outcome(message: Any) -> Any:
    if isinstance(message, list):
        return [outcome(part) for part in message]
    assert message["jsonrpc"] == "2.0"
    if "error" in message:
        assert "result" not in message
        return error(message["id"], message["error"]["code"])
    return result(message["id"], message["result"]["data"])


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, toy: Session) -> None:
    line, expected = EXAMPLES[name]
    toy.send(line.encode())
    if expected is not None:
        assert outcome(json.loads(toy.receive())) == expected
    toy.idle()
    assert toy.outbox.rest() == []
