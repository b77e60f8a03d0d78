"""Runs a conversation, over pipes or in memory, and checks the received lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conversations.scripts import CONVERSATIONS, Conversation
from tests.kit.fixed import leading
from tests.kit.schemas import fit
from tests.kit.talk import (
    REPO,
    Message,
    Process,
    Session,
    Transcript,
    assert_log_lines,
    converse,
    parsed,
)

GOLDEN = REPO / "golden" / "test_golden"
PIPED = [name for name, talk in CONVERSATIONS.items() if talk.registry is None]
IN_MEMORY = [name for name, talk in CONVERSATIONS.items() if talk.in_memory and name in PIPED]
# Over pipes in the quick profile: what needs a process, and some of each kind.
QUICK = [
    *(name for name in PIPED if name not in IN_MEMORY),
    *IN_MEMORY[::8],
]
TOYS = [name for name, talk in CONVERSATIONS.items() if talk.registry is not None]


def over_pipes(talk: Conversation, folder: Path) -> Transcript:
    with talk.around(folder) as more:
        options = {**talk.options, **(more or {})}
        peer = Process(folder / "store", cwd=folder, model=talk.model, **options)
        transcript = converse(peer, talk.script, talk.parked)
        code = peer.stop()
    transcript.lines.append(f"exit {code}".encode())
    assert code == talk.exit
    assert_log_lines(peer.told())
    return transcript


def in_memory(talk: Conversation, folder: Path) -> Transcript:
    with talk.around(folder) as more:
        options = {**talk.options, **(more or {})}
        with leading(options.pop("lead", "")):
            peer = Session(
                folder / "store", cwd=folder, model=talk.model, registry=talk.registry, **options
            )
            transcript = converse(peer, talk.script, talk.parked)
    transcript.lines.append(b"exit 0")
    return transcript


def golden(name: str) -> str:
    return (GOLDEN / f"{name}.txt").read_text()


# ----------------------------------------------------------------------- the schemas


def check(transcript: Transcript, schemas: dict[str, dict[str, Any]]) -> None:
    """Asserts that received lines fit their schemas and that streams' indexes have no gap."""
    methods = dict(_asked(transcript))
    indexes: dict[Any, int] = {}
    for message in messages(transcript.received):
        assert message["jsonrpc"] == "2.0"
        if "method" in message:
            assert list(message) == ["jsonrpc", "method", "params"]
            params = message["params"]
            fit(params, schemas[f"event.{params['type']}"])
            if "request_id" in params:
                assert params["index"] == indexes.setdefault(params["request_id"], 0)
                assert (params["type"] == "init") == (params["index"] == 0)
                indexes[params["request_id"]] += 1
        elif "error" in message:
            assert list(message) == ["jsonrpc", "id", "error"]
            fit(message["error"], schemas["error"])
            indexes.pop(message["id"], None)
        else:
            assert list(message) == ["jsonrpc", "id", "result"]
            fit(message["result"], schemas[f"{methods[message['id']]}.result"])
            indexes.pop(message["id"], None)


def messages(lines: list[bytes]) -> Iterator[Message]:
    for line in lines:
        message = json.loads(line)
        yield from message if isinstance(message, list) else [message]


def _asked(transcript: Transcript) -> Iterator[tuple[Any, str]]:
    for line in transcript.sent:
        sent = parsed(line)
        for message in sent if isinstance(sent, list) else [sent]:
            if isinstance(message, dict) and isinstance(message.get("id"), str | int):
                yield message["id"], message.get("method", "")
