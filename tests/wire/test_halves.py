"""Escapes of half a character, from programs that cut a text within an emoji, do no harm."""

from __future__ import annotations

import json
import random

import msgspec
import pytest

from kbproc.base.values import without_halves
from kbproc.surfaces.wire.jsonrpc import Malformed, Request, parse, parse_open
from tests.kit.patience import LONG

HEAD = r'{"jsonrpc":"2.0","id":1,"method":"search"'


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (HEAD + r',"params":{"query":"a \ud83d"}}', (1, "search", {"query": "a �"})),
        (HEAD + r',"params":{"query":["\uDE00\uD83D"]}}', (1, "search", {"query": ["��"]})),
        (HEAD + r',"params":{"\ud83d":{"\ude00":1}}}', (1, "search", {"�": {"�": 1}})),
        (
            HEAD + r',"params":{"query":"\ud83d\ude00 \\ud83d \ud83d"}}',
            (1, "search", {"query": "😀 \\ud83d �"}),
        ),
        (r'{"jsonrpc":"2.0","id":"\ud83d","method":"\ude00x"}', ("�", "�x", {})),
    ],
)
def test_it_is_read_as_a_replacement(line: str, expected: tuple[object, str, object]) -> None:
    for read in (parse, parse_open):
        for message in (read(line.encode()), *read(f"[{line}]".encode())):
            assert isinstance(message, Request)
            assert (message.id, message.method, msgspec.json.decode(message.params)) == expected


def test_a_request_that_is_wrong_keeps_its_id() -> None:
    message = parse(rb'{"jsonrpc":"2.0","id":7,"method":1,"params":{"q":"\ud83d"}}')
    assert isinstance(message, Malformed) and message.id == 7
    message = parse(rb'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"q":"\ud83d"}')
    assert isinstance(message, Malformed) and message.error.type == "input.invalid_json"


def test_only_halves_are_replaced() -> None:
    chance = random.Random(1)
    parts = ["\\", "u", "d", "8", r"\ud83d", r"\ude00", r"\uD83D\uDE00", "a", r"\\", "n", r"\n"]
    for _ in range(200_000 if LONG else 2_000):
        text = '"' + "".join(chance.choices(parts, k=8)) + '"'
        try:
            value = json.loads(text)
        except ValueError:
            continue
        # The standard library reads halves as they are.
        expected = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        assert json.loads(without_halves(text.encode())) == expected
