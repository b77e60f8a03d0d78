"""`python -m bench.chat_logs`: measures how session logs of a coding agent are read.

The logs are Claude Code's, of real text, and the vectors the hash embedder's. A turn is a question,
a call of a tool with its output, and an answer. Most of a log's bytes are output, of which a store
keeps the head and the tail.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from bench import corpus, real_text
from bench.__main__ import machine
from bench.measure import KBPROC, Child
from bench.peers.running import disk_mib

_BEGAN = datetime(2026, 3, 5, 9, tzinfo=UTC)
_PASSAGES = 4_000  # different ones; they come again in other turns
_OUTPUT = (1, 12)  # least and most passages in a tool's output
_SECONDS = 40  # between two turns
_GROWN = 6  # times that a log grows by one turn


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chat_logs", description=__doc__)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--mb", type=float, default=5, help="size of each file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kbproc-chats-") as own:
        logs, store = Path(own, "logs"), Path(own, "store")
        size = write_logs(logs, options.files, int(options.mb * 1e6))
        corpus.open_store(store, corpus.HASH).close()
        figures = {"machine": machine(), "files": options.files, "mb": size / 1e6}
        with Child([*KBPROC, "serve", "--root", own], KBPROC_STORE=str(store)) as child:
            figures |= _measured(child, logs, size)
        figures["disk_mib"] = disk_mib(store)
    print(json.dumps(figures, indent=1))
    return 0


def _measured(child: Child, logs: Path, size: int) -> dict[str, float]:
    began = time.perf_counter()
    added = child.result("doc.ingest", paths=[str(logs)])["data"]
    took = time.perf_counter() - began
    peaks, own_mib = _peaks_mib(child.pid), child.own_memory_mib()
    beside = _delays(child, logs, 0)
    while child.pending_embeddings():
        time.sleep(1)
    delays = _delays(child, logs, _GROWN)
    return {
        "documents": added["added"],
        "chunks": added["chunks"],
        "took_s": took,
        "mb_per_s": size / 1e6 / took,
        "peak_mib": peaks[0],
        "own_memory_after_mib": own_mib,
        "peak_of_parsers_mib": sum(peaks[1:]),
        "found_beside_embedding_p50_s": statistics.median(beside),
        "found_p50_s": statistics.median(delays),
    }


def _delays(child: Child, logs: Path, first: int) -> list[float]:
    """Returns the seconds after which each new turn of a log is found, its ingest included."""
    delays = []
    for number in range(first, first + _GROWN):
        word = f"zeppelin{number}"
        at = _BEGAN + timedelta(days=300, seconds=number * _SECONDS)
        began = time.perf_counter()
        with (logs / f"{session_of(0)}.jsonl").open("ab") as file:
            file.write(turn_lines(0, 100_000 + number, at, f"Where is the {word}?", "out", "Here."))
        child.result("doc.ingest", paths=[str(logs)])
        results = child.result("search", query=word, mode="fts")["data"]["results"]
        if word not in results[0]["text"]:
            raise RuntimeError(f"{word} was not found")
        delays.append(time.perf_counter() - began)
    return delays


def _peaks_mib(pid: int) -> list[float]:
    """Returns the greatest resident memory of a process, and of each of its children."""
    children = psutil.Process(pid).children(recursive=True)
    statuses = [Path(f"/proc/{id}/status").read_text() for id in (pid, *(c.pid for c in children))]
    return [int(status.split("VmHWM:")[1].split()[0]) / 1024 for status in statuses]


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


if __name__ == "__main__":
    raise SystemExit(main())
