"""Answers encoded for other protocols, validated against the schemas that these publish."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kbproc.knowledge.sessions.encoders import ag_ui, ai_sdk
from tests.kit.talk import REPO, Message

PROTOCOLS = Path(__file__).parent / "protocols"
GOLDEN = REPO / "golden" / "test_golden"


def answers() -> Iterator[tuple[str, list[Message]]]:
    """Yields name and transcript of each answer in the goldens: its events, then its response."""
    for path in sorted(GOLDEN.glob("*.txt")):
        transcripts: dict[Any, list[Message]] = {}
        for line in path.read_text().splitlines():
            if not line.startswith("< {"):
                continue
            message = json.loads(line[2:])
            id = message.get("id", message.get("params", {}).get("request_id"))
            transcripts.setdefault(id, []).append(message)
            if "id" in message and "method" not in message:
                transcript = transcripts.pop(id)
                if "session_id" in transcript[0].get("params", {}):
                    name = re.sub(r".*\[|\].*", "", path.name)
                    yield f"{name}-{id}", transcript


ANSWERS = dict(answers())


def validator(name: str) -> jsonschema.protocols.Validator:
    schema = json.loads((PROTOCOLS / f"{name}.json").read_text())
    kind = jsonschema.validators.validator_for(schema)
    return kind(schema)


AI, AG_UI = validator("ai"), validator("ag-ui-core")


def text_of(transcript: list[Message]) -> list[str]:
    """Returns the final text of the answer; empty if the transcript is partial or cancelled."""
    end = transcript[-1]
    answer = end["result"]["data"] if "result" in end else end["error"]["data"]["detail"]
    first = transcript[1]["params"] if len(transcript) > 2 else {}
    is_whole = first.get("type") == "references" or "text" in first
    return [answer["text"]] if is_whole and answer.get("text") else []


def test_there_are_answers_of_every_kind() -> None:
    transcripts = list(ANSWERS.values())
    ends = {t[-1].get("result", {}).get("data", {}).get("status", "error") for t in transcripts}
    assert {"finished", "refused", "interrupted", "error"} <= ends
    kinds = {m["params"].get("kind") for t in transcripts for m in t[:-1]}
    assert "restarted" in kinds
    assert any("text" in m["params"] for t in transcripts for m in t[:-1]), "a snapshot"
    assert sum(bool(text_of(t)) for t in transcripts) > 5


def test_the_ai_sdks_chunks(subtests: pytest.Subtests) -> None:
    for name, transcript in ANSWERS.items():
        with subtests.test(name):
            chunks = list(ai_sdk.chunks(transcript))
            for chunk in chunks:
                AI.validate(chunk)
            assert [chunk["type"] == "start" for chunk in chunks] == [True] + [False] * (
                len(chunks) - 1
            )
            assert [chunk["type"] in {"finish", "abort"} for chunk in chunks[-2:]] == [False, True]
            parts: dict[str, str] = {}
            for chunk in chunks:
                if chunk["type"] == "text-start":
                    parts[chunk["id"]] = ""
                elif chunk["type"] == "text-delta":
                    parts[chunk["id"]] += chunk["delta"]
            opened = [chunk["id"] for chunk in chunks if chunk["type"] == "text-start"]
            closed = [chunk["id"] for chunk in chunks if chunk["type"] == "text-end"]
            assert opened == closed == list(parts)
            if text := text_of(transcript):
                assert list(parts.values())[-1:] == text


def test_ag_uis_events(subtests: pytest.Subtests) -> None:
    for name, transcript in ANSWERS.items():
        with subtests.test(name):
            events = list(ag_ui.events(transcript))
            for event in events:
                AG_UI.validate(event)
            types = [event["type"] for event in events]
            assert [type == "RUN_STARTED" for type in types] == [True] + [False] * (len(types) - 1)
            assert [type in {"RUN_FINISHED", "RUN_ERROR"} for type in types[-2:]] == [False, True]
            texts: dict[str, str] = {}
            open_one = None
            for event in events:
                match event["type"]:
                    case "TEXT_MESSAGE_START":
                        assert open_one is None and event["messageId"] not in texts
                        open_one = event["messageId"]
                        texts[open_one] = ""
                    case "TEXT_MESSAGE_CONTENT":
                        assert event["messageId"] == open_one and event["delta"]
                        texts[event["messageId"]] += event["delta"]
                    case "TEXT_MESSAGE_END":
                        assert event["messageId"] == open_one
                        open_one = None
            assert open_one is None
            if text := text_of(transcript):
                assert list(texts.values())[-1:] == text


def test_each_comes_as_soon_as_it_is_known() -> None:
    transcript = next(one for one in ANSWERS.values() if len(one) > 4)
    for encode in (ai_sdk.chunks, ag_ui.events):
        read: list[Message] = []

        def reading(read: list[Message] = read) -> Iterator[Message]:
            for message in transcript:
                read.append(message)
                yield message

        encoded = encode(reading())
        next(encoded)
        assert len(read) == 1
        assert len(list(itertools.chain(encoded))) > 3


def test_server_sent_events() -> None:
    transcript = next(iter(ANSWERS.values()))
    chunks = list(ai_sdk.chunks(transcript))
    *sent, end = ai_sdk.as_sse(chunks)
    assert end == b"data: [DONE]\n\n"
    assert [json.loads(line.removeprefix(b"data: ")) for line in sent] == chunks
    assert all(line.endswith(b"\n\n") and line.count(b"\n") == 2 for line in sent)
