"""Golden transcripts of both eras: raw bytes; the SDK's own models accept every line.

`pytest tests/mcp/test_transcripts.py --snapshot-update` rewrites them: read the difference.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import ValidationError
from syrupy.assertion import SnapshotAssertion

from tests.kit.golden import Transcripts
from tests.kit.mcp import ADMIN, MODERN, Client, served
from tests.kit.protocol import check

Message = dict[str, Any]
DELETE = {"method": "doc.delete", "params": {"ids": [1]}}
APPROVED = {"action": "accept", "content": {}}


class Written(Client):
    """A client that records every line of both sides."""

    lines: list[str]

    def line(self, message: Any) -> None:
        text = json.dumps(message, ensure_ascii=False)
        self.__dict__.setdefault("lines", []).append(f"> {text}")
        self.process.send(text.encode())

    def next(self) -> Message:
        raw = self.process.receive()
        self.lines.append(f"< {raw.decode()}")
        return self.checked(raw)


def converse(one: Written) -> None:
    if one.era == MODERN:
        one.ask("server/discover")
    one.ask("tools/list")
    one.ask("resources/templates/list")
    calls: list[tuple[str, Message]] = [
        ("doc_add", {"title": "Git", "text": "Install git with apt."}),
        ("kb_call", {"method": "doc.wait", "params": {"ids": [1]}}),
        ("search_knowledge", {"query": "install git", "mode": "fts"}),
        ("search_knowledge", {"query": "git", "limit": 1000}),
        ("doc_view", {"id": 1, "length": 7}),
        ("kb_call", {"method": "tags.list"}),
    ]
    for name, arguments in calls:
        one.ask("tools/call", name=name, arguments=arguments)
    one.ask("resources/list")
    one.ask("resources/read", uri="kb://doc/1")
    one.ask("resources/read", uri="kb://doc/2")
    one.ask("tools/call", name="nope")
    one.ask("no/such/method")
    delete(one)


def delete(one: Written) -> None:
    id = one.send("tools/call", name="kb_call", arguments=DELETE)
    if one.era != MODERN:
        question = one.until("elicitation/create")
        one.line({"jsonrpc": "2.0", "id": question["id"], "result": APPROVED})
        one.answer_to(id)
        return
    state = one.answer_to(id)["result"]["requestState"]
    more = {"requestState": state, "inputResponses": {"approval": APPROVED}}
    one.ask("tools/call", name="kb_call", arguments=DELETE, **more)


def check_lines(lines: list[str], era: str) -> None:
    """Checks every line against the protocol's schema and the SDK's models."""
    from mcp_types import methods

    method_by_id: dict[Any, str] = {}
    for line in lines:
        message = json.loads(line[2:])
        check(message, era, method_by_id.get(message.get("id")))
        if "method" in message and "id" in message:
            method_by_id[message["id"]] = message["method"]
        elif line[0] == "<" and "result" in message:
            methods.validate_server_result(method_by_id[message["id"]], era, message["result"])
        elif line[0] == "<" and "error" in message:
            assert message.keys() == {"jsonrpc", "id", "error"}
            assert {"code", "message"} <= message["error"].keys()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("tools/call", {"result": {"structuredContent": {}, "isError": False}}),
        ("tools/list", {"result": {"tools": []}}),
        ("tools/list", {"error": {"code": "x", "message": "y"}}),
        (None, {"method": "notifications/progress", "params": {"progress": 1}}),
    ],
)
def test_what_the_protocol_does_not_have_is_seen(method: str | None, message: Message) -> None:
    with pytest.raises(ValidationError):
        check({"jsonrpc": "2.0", "id": 1, **message}, MODERN, method)


@pytest.mark.parametrize("era", [MODERN, "2025-11-25"])
def test_a_conversation(era: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    with served(tmp_path, scopes=ADMIN) as process:
        one = Written(process, era, elicitation={})
        converse(one)
    check_lines(one.lines, era)
    assert "\n".join([*one.lines, ""]) == snapshot.use_extension(Transcripts)
