"""Every line that transcripts, goldens and docs show fits schemas/v1."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.contract.always import key
from tests.kit.judged import KIT
from tests.kit.start import REPO

Message = dict[str, Any]
_ELIDED = re.compile(r"""(,?"\w+":(\{…\}|"…"))|,?…(?=[}\]])""")
# A sign before a line tells its sender, or the stream of a command.
_LINE = re.compile(r'(?:(?P<from>[><→←12]) )?(?P<text>[\[{].*"(?:jsonrpc|ok|meta)".*)')
_SENT = (">", "→")


def messages(path: Path) -> Iterator[tuple[int, Message]]:
    """Yields the messages and the envelopes of commands that a file shows, each with its line's
    number; a line of ours that is no JSON as `{"broken": …}`.

    A line of the docs may leave members out with `…`; it is read without them.
    """
    for number, line in enumerate(path.read_text().split("\n"), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        try:
            value = json.loads(_ELIDED.sub("", match["text"]), parse_constant=int)
        except ValueError as error:
            if match["from"] not in (*_SENT, None):
                yield number, {"broken": str(error)}
            continue
        for message in value if isinstance(value, list) else [value]:
            if isinstance(message, dict):
                yield number, message


def misfits(path: Path) -> Iterator[str]:
    """Yields the messages that fit no schema; a refused request, and a notification, may have any
    params.
    """
    methods: dict[str, str] = {}
    params: dict[str, str] = {}
    is_elided = "…" in path.read_text()
    for number, message in messages(path):
        id = key(message.get("id"))
        if "method" in message and message["method"] != "event":
            methods[id] = message["method"]
            why = KIT.misfit(f"{message['method']}.params", message.get("params", {}))
            if why is not None and "id" in message:
                params[id] = f"{path.name}:{number}: {why}"
            continue
        if "error" in message:
            params.pop(id, None)
        why = misfit(message, methods.get(id, ""))
        if why is not None and not (is_elided and "is a required property" in why):
            yield f"{path.name}:{number}: {why}"
    yield from params.values()


def misfit(message: Message, method: str) -> str | None:
    """Returns why an event, an answer or a command's envelope fits no schema."""
    if "broken" in message:
        return str(message["broken"])
    if "method" in message:
        event = message["params"]
        return KIT.misfit(f"event.{event['type']}", event)
    if "error" in message and "jsonrpc" in message:
        return KIT.misfit("error", message["error"])
    if "error" in message:
        return KIT.misfit("event.error", {"type": "error", "error": message["error"]})
    result = message.get("result", message)
    if not isinstance(result.get("meta"), dict):
        return None  # a page shows answers in general
    if result.get("type") == "result" and result.get("data") is None:
        return None  # a list as ndjson, whose items stand in lines of their own
    name = str(result["meta"].get("schema", f"{method}/")).partition("/")[0]
    return KIT.misfit(f"{name}.result", {part: result.get(part) for part in ("data", "meta")})


# Pattern → the least number of lines in its files: a pattern that finds no line judges nothing.
SHOWN = {
    "contract/transcripts/*.txt": 600,
    "golden/test_golden/*.txt": 2000,
    "docs/**/*.md": 12,
    "*.md": 0,
}


def test_lines_that_are_shown_fit_their_schemas(subtests: pytest.Subtests) -> None:
    for pattern, least in SHOWN.items():
        paths = sorted(REPO.glob(pattern))
        with subtests.test(pattern):
            assert [why for path in paths for why in misfits(path)] == []
            assert sum(1 for path in paths for _ in messages(path)) >= least


def test_a_line_that_lacks_a_member_is_found(tmp_path: Path) -> None:
    path = tmp_path / "shown.txt"
    path.write_text(
        '> {"jsonrpc":"2.0","id":1,"method":"ping"}\n'
        '< {"jsonrpc":"2.0","id":1,"result":{"data":{},"meta":{"schema":"ping/1","seq":1}}}\n'
        '> {"jsonrpc":"2.0","id":2,"method":"ping","params":{"no":1}}\n'
        '> {"jsonrpc":"2.0","id":3,\n'
        '< {"jsonrpc":"2.0","id":3,\n'
        '1 {"ok":true,"data":{"seq":1},"meta":{"schema":"ping/1"},"profile":null}\n'
        '2 {"ok":false,"error":{"schema":"error/1"}}\n'
    )
    lines = [why.split(": ")[0] for why in misfits(path)]
    assert lines == [f"shown.txt:{number}" for number in (2, 5, 6, 7, 3)]
