"""Whatever part of a golden stream was heard: it and its resume are the whole, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conversations.scripts import CONVERSATIONS
from tests.conversations.transcripts import messages
from tests.kit.talk import Message, Session, as_bytes, converse, request

# Those after which all that was told still stands: a purge takes some of it back.
LASTING = [name for name in CONVERSATIONS if name.startswith("answer") and "purged" not in name]
OF_THE_REQUEST = {"request_id", "index"}


class Stream:
    """One request's events with a cursor, as they came but for what numbers them, and its end."""

    def __init__(self, lines: list[bytes]) -> None:
        *events, self.end = messages(lines)
        told = [event["params"] for event in events]
        self.where = {name: told[0][name] for name in ("session_id", "message_id")}
        self.events = [_bare(event) for event in told if "cursor" in event]

    @property
    def outcome(self) -> Any:
        """What its end tells of the answer; None where a cancel ended it for this reader alone."""
        if "result" in self.end:
            return self.end["result"]["data"]
        error = self.end["error"]["data"]
        return error if error["type"] != "operation.cancelled" else None


def _bare(event: Message) -> str:
    return json.dumps({name: event[name] for name in event if name not in OF_THE_REQUEST})


def streams(lines: list[bytes]) -> list[Stream]:
    """Those that tell of an answer."""
    told: dict[Any, list[bytes]] = {}
    found = []
    for line, message in zip(lines, messages(lines), strict=True):
        id = message.get("id", message.get("params", {}).get("request_id"))
        told.setdefault(id, []).append(line)
        if id is not None and "method" not in message:
            heard = told.pop(id)
            if len(heard) > 2 and "session_id" in json.loads(heard[0])["params"]:
                found.append(Stream(heard))
    return found


def resumed(session: Session, where: Message, after: str) -> Stream:
    session.send(as_bytes(request(1, "session.resume", **where, after=after)))
    lines = [session.receive()]
    while b'"id":1' not in lines[-1]:
        lines.append(session.receive())
    return Stream(lines)


@pytest.mark.parametrize("name", LASTING)
def test_every_part_and_its_resume_are_the_whole(name: str, folder: Path) -> None:
    """After those who made the answers and asked for them have gone."""
    talk = CONVERSATIONS[name]
    with talk.around(folder) as more:
        options = {**talk.options, **(more or {})}
        peer = Session(folder / "store", cwd=folder, **options)
        told = streams(converse(peer, talk.script, talk.parked).received)
        assert told
        session = Session(folder / "store", cwd=folder, **options)
        while "ready" not in json.loads(session.receive())["params"]["type"]:
            pass
        for stream in told:
            _check(session, stream)
        session.close()


def _check(session: Session, stream: Stream) -> None:
    for cut, event in enumerate(stream.events, 1):
        rest = resumed(session, stream.where, json.loads(event)["cursor"])
        whole = stream.events[:cut] + rest.events
        assert whole[: len(stream.events)] == stream.events
        if len(whole) == len(stream.events):
            assert stream.outcome in (None, rest.outcome)
        else:  # asked for again after it was cut off
            assert json.loads(stream.events[-1])["status"] == "interrupted"
