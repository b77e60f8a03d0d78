"""Servers that send malformed lines: callers get an error that quotes the line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbproc.client import KbprocError, ServerEnded, messages
from tests.client.conftest import Open
from tests.kit.harness import running
from tests.kit.patience import LONG

SERVER = """
import pathlib, sys
print('{"jsonrpc":"2.0","method":"event","params":{"type":"init"}}', flush=True)
for line in sys.stdin:
    print(pathlib.Path("said").read_text(), flush=True)
"""
RIGHT = {"jsonrpc": "2.0", "id": 1, "result": {"data": None, "meta": {}}}


def response(**members: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, **members})


def event(params: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": "event", "params": params})


def refused(type: object = "store.io", **members: object) -> str:
    return response(error={"code": 1, "message": "No.", "data": {"type": type, **members}})


WRONG = {
    "what is no JSON": ["Welcome!", '{"jsonrpc":', "[" * 100_000, "1" * 5000],
    "what is no message of JSON-RPC": [
        "42",
        "[]",
        "[1]",
        "null",
        '"hello"',
        '{"jsonrpc":"2.0"}',
        json.dumps([RIGHT, 1]),
        response(id=[1], result={"data": 1, "meta": {}}),
    ],
    "a result without data": [response(result=None), response(result=[1]), response(result={})],
    "a result without meta": [
        response(result={"data": 1}),
        response(result={"data": 1, "meta": None}),
    ],
    "a result without the id of a request": [response(id=None, result={"data": 1, "meta": {}})],
    "an answer to what was not asked": [
        response(id=99, result={"data": 1, "meta": {}}),
        response(id="1", result={"data": 1, "meta": {}}),
        response(id=0, error={"code": 1, "message": "No."}),
    ],
    "an error that is no object": [response(error=None), response(error="No.")],
    "an error whose data has no type": [response(error={"data": [1]}), refused(7)],
    "an error whose numbers are none": [refused(exit_code=[2]), refused(retry_after_ms="soon")],
    "an event without a type": [event([1]), event({}), event({"type": 1})],
    "an event of a request that can't be": [event({"type": "item", "request_id": [1]})],
    "an event whose capabilities are no object": [event({"type": "init", "capabilities": None})],
}
CASES = [(wrong, line) for wrong, lines in WRONG.items() for line in lines]
FEW = [(wrong, lines[0]) for wrong, lines in WRONG.items()]


def test_what_it_said_is_shown(opened: Open, tmp_path: Path) -> None:
    """All pending requests fail with one error; the client continues with a new server."""
    kb = opened(command=running(SERVER))
    for wrong, line in CASES if LONG else FEW:
        (tmp_path / "said").write_text(line)
        waits = [kb.stream("ping"), kb.stream("status")]
        for wait in waits:
            with pytest.raises(ServerEnded) as refused:
                wait.result()
        error = refused.value
        assert (error.type, error.exit_code, error.retryable) == ("client.server_ended", 2, False)
        assert error.message.endswith(f"It said {wrong}: “{line[:100]}{'…' * (len(line) > 100)}”.")
        assert "`kbproc serve`" in error.hint


def test_awaited_too(tmp_path: Path, either: Open) -> None:
    it = either(command=running(SERVER))
    (tmp_path / "said").write_text("[1]")
    with pytest.raises(KbprocError, match=r"no message of JSON-RPC: “\[1\]"):
        it.ask(it.kb.ping)


def test_what_comes_late_is_right(opened: Open, tmp_path: Path) -> None:
    """A takeover may bring a second answer to a request; the client ignores it."""
    kb = opened(command=running(SERVER))
    (tmp_path / "said").write_text(json.dumps(RIGHT))
    assert kb.ping().data is None
    two = {**RIGHT, "id": 2}
    (tmp_path / "said").write_text(json.dumps([RIGHT, {**two, "later": 1}, two]))
    assert kb.ping().data is None


@pytest.mark.parametrize(("wrong", "line"), CASES)
def test_every_wrong_line(wrong: str, line: str) -> None:
    with pytest.raises(ValueError, match=f"^{wrong}$"):
        messages.read(line.encode(), 1)


def test_many_messages_in_a_line() -> None:
    assert messages.read(json.dumps([RIGHT, RIGHT]).encode(), 1) == [RIGHT, RIGHT]
