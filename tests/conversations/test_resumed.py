"""Every prefix of a golden stream, with its resume, equals the whole stream byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conversations.scripts import CONVERSATIONS
from tests.conversations.transcripts import messages
from tests.kit.talk import Message, Session, as_bytes, converse, request

# Conversations whose events stay valid; a purge removes some.
LASTING = [name for name in CONVERSATIONS if name.startswith("answer") and "purged" not in name]
OF_THE_REQUEST = {"request_id", "index"}


class Stream:
    """One request's events with a cursor, without their numbering, and its end."""

    def __init__(self, lines: list[bytes]) -> None:
        *events, self.end = messages(lines)
        notifications = [event["params"] for event in events]
        self.where = {name: notifications[0][name] for name in ("session_id", "message_id")}
        self.events = [_bare(event) for event in notifications if "cursor" in event]

    @property
    def outcome(self) -> Any:
        """The answer or error at its end; None if a cancel ended it only for this reader."""
        if "result" in self.end:
            return self.end["result"]["data"]
        error = self.end["error"]["data"]
        return error if error["type"] != "operation.cancelled" else None


def _bare(event: Message) -> str:
    return json.dumps({name: event[name] for name in event if name not in OF_THE_REQUEST})


def streams(lines: list[bytes]) -> list[Stream]:
    """Returns the streams of answers."""
    lines_by_id: dict[Any, list[bytes]] = {}
    result = []
    for line, message in zip(lines, messages(lines), strict=True):
        id = message.get("id", message.get("params", {}).get("request_id"))
        lines_by_id.setdefault(id, []).append(line)
        if id is not None and "method" not in message:
            heard = lines_by_id.pop(id)
            if len(heard) > 2 and "session_id" in json.loads(heard[0])["params"]:
                result.append(Stream(heard))
    return result


def resumed(session: Session, where: Message, after: str) -> Stream:
    session.send(as_bytes(request(1, "session.resume", **where, after=after)))
    lines = [session.receive()]
    while b'"id":1' not in lines[-1]:
        lines.append(session.receive())
    return Stream(lines)


@pytest.mark.parametrize("name", LASTING)
def test_every_part_and_its_resume_are_the_whole(name: str, folder: Path) -> None:
    """Resumes after the processes that made and requested the answers have ended."""
    talk = CONVERSATIONS[name]
    with talk.around(folder) as more:
        options = {**talk.options, **(more or {})}
        peer = Session(folder / "store", cwd=folder, **options)
        all_streams = streams(converse(peer, talk.script, talk.parked).received)
        assert all_streams
        session = Session(folder / "store", cwd=folder, **options)
        while "ready" not in json.loads(session.receive())["params"]["type"]:
            pass
        for stream in all_streams:
            _check(session, stream)
        session.close()


def _check(session: Session, stream: Stream) -> None:
    for cut, event in enumerate(stream.events, 1):
        rest = resumed(session, stream.where, json.loads(event)["cursor"])
        whole = stream.events[:cut] + rest.events
        assert whole[: len(stream.events)] == stream.events
        if len(whole) == len(stream.events):
            assert stream.outcome in (None, rest.outcome)
        else:  # a repeated request after an interrupted answer
            assert json.loads(stream.events[-1])["status"] == "interrupted"
