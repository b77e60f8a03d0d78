"""Session logs of a coding agent for measurements: Claude Code's, of real text.

A turn is a question, a call of a tool with its output, and an answer. Half of a log's bytes are
output, as in logs of people; a store keeps its head and tail.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench import real_text

_BEGAN = datetime(2026, 3, 5, 9, tzinfo=UTC)
_PASSAGES = 4_000  # different ones; they come again in other turns
_OUTPUT = (1, 12)  # least and most passages in a tool's output
_SECONDS = 40  # between two turns


def write_logs(folder: Path, files: int, size: int) -> int:
    """Writes `files` logs of some `size` bytes below a folder; returns their bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = list(real_text.texts(_PASSAGES))
    total = 0
    for number in range(files):
        path = folder / f"{session_of(number)}.jsonl"
        with path.open("wb") as file:
            for lines in turns(number, texts):
                total += file.write(lines)
                if file.tell() >= size:
                    break
    return total


def session_of(number: int) -> str:
    return f"6f1c2a34-0000-4000-8000-{number:012}"


def turns(number: int, texts: list[str]) -> Iterator[bytes]:
    """Yields the lines of one turn after another, without an end."""
    chance = random.Random(number)
    for turn in itertools.count(1):
        at = _BEGAN + timedelta(days=number, seconds=turn * _SECONDS)
        output = "\n".join(chance.choices(texts, k=chance.randint(*_OUTPUT)))
        yield turn_lines(number, turn, at, chance.choice(texts), output, chance.choice(texts))


def turn_lines(
    number: int, turn: int, at: datetime, question: str, output: str, answer: str
) -> bytes:
    """Returns the lines of one turn."""
    id = f"t{turn}"
    call = {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": f"less {turn}.txt"}}
    result = {"type": "tool_result", "tool_use_id": id, "content": output}
    contents: list[tuple[str, Any]] = [
        ("user", f"{turn}: {question[:300]}"),
        ("assistant", [call]),
        ("user", [result]),
        ("assistant", [{"type": "text", "text": answer}]),
    ]
    return b"".join(
        _line(number, f"{turn}-{step}", role, at + timedelta(seconds=step), content)
        for step, (role, content) in enumerate(contents)
    )


def _line(number: int, uuid: str, role: str, at: datetime, content: object) -> bytes:
    message: dict[str, Any] = {"role": role, "content": content}
    if role == "assistant":
        message["model"] = "claude-opus-4-6"
    record = {
        "parentUuid": None,
        "isSidechain": False,
        "sessionId": session_of(number),
        "cwd": f"/home/ann/project-{number % 20}",
        "version": "2.1.0",
        "type": role,
        "message": message,
        "uuid": f"{number}-{uuid}",
        "timestamp": at.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
    }
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
