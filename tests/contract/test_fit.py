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
_LINE = re.compile(r'(?:[><→←] )?([\[{].*"jsonrpc".*)')


def messages(path: Path) -> Iterator[tuple[int, Message]]:
    """Yields the messages that a file shows, each with its line's number.

    A line of the docs may leave members out with `…`; it is read without them.
    """
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        try:
            value = json.loads(_ELIDED.sub("", match[1]))
        except ValueError:
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
        if "method" in message:
            event = message["params"]
            why = KIT.misfit(f"event.{event['type']}", event)
        elif "error" in message:
            params.pop(id, None)
            why = KIT.misfit("error", message["error"])
        elif "result" in message:
            why = KIT.misfit(f"{methods.get(id, '')}.result", message["result"])
        if why is not None and not (is_elided and "is a required property" in why):
            yield f"{path.name}:{number}: {why}"
    yield from params.values()


SHOWN = [
    *sorted((REPO / "contract" / "transcripts").glob("*.txt")),
    *sorted((REPO / "golden" / "test_golden").glob("test_over_pipes*.txt")),
    *sorted((REPO / "docs").rglob("*.md")),
    *(REPO / name for name in ("README.md", "contract/README.md", "SECURITY.md")),
]


@pytest.mark.parametrize("folder", ["contract", "golden", "docs"])
def test_lines_that_are_shown_fit_their_schemas(folder: str) -> None:
    paths = [path for path in SHOWN if folder in path.relative_to(REPO).parts[:1]]
    assert sum(1 for path in paths for _ in messages(path)) > 8
    assert [why for path in paths for why in misfits(path)] == []


def test_a_line_that_lacks_a_member_is_found(tmp_path: Path) -> None:
    path = tmp_path / "shown.txt"
    path.write_text(
        '> {"jsonrpc":"2.0","id":1,"method":"ping"}\n'
        '< {"jsonrpc":"2.0","id":1,"result":{"data":{},"meta":{"schema":"ping/1","seq":1}}}\n'
        '> {"jsonrpc":"2.0","id":2,"method":"ping","params":{"no":1}}\n'
    )
    assert [why.split(": ")[0] for why in misfits(path)] == ["shown.txt:2", "shown.txt:3"]
