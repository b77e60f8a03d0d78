"""`python -m bench.watch`: measures how soon a search finds an edit in a watched folder.

The folder has many small Markdown files, and the vectors are the hash embedder's. A delay begins
when the file is saved and ends when a search, asked again and again, answers with its new word.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from bench import corpus
from bench.__main__ import machine
from bench.measure import KBPROC, Child

_IN_A_FOLDER = 100
_ASKS_EVERY_S = 0.02
_FIRST_EDITS = 2  # not counted: the first one in a process loads modules


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.watch", description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--edits", type=int, default=20)
    parser.add_argument("--idle", type=float, default=30, help="seconds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kbproc-watch-") as own:
        folder, store = Path(own, "docs"), Path(own, "store")
        paths = write_files(folder, options.files)
        corpus.open_store(store, corpus.HASH).close()
        figures: dict[str, Any] = {"machine": machine(), "files": options.files}
        settings = {"KBPROC_STORE": str(store), "KBPROC_CONFIG_HOME": own, "XDG_CONFIG_HOME": own}
        with Child([*KBPROC, "serve", "--root", own], **settings) as child:
            figures |= _measured(child, folder, paths, options.edits, options.idle)
    print(json.dumps(figures, indent=1))
    return 0


def write_files(folder: Path, count: int) -> list[Path]:
    """Writes Markdown files into folders below `folder`, and returns their paths."""
    paths = []
    for number in range(count):
        path = folder / f"part{number // _IN_A_FOLDER}" / f"page{number}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Page {number}\n\nWhat page {number} says.\n")
        paths.append(path)
    return paths


def _measured(
    child: Child, folder: Path, paths: list[Path], edits: int, idle: float
) -> dict[str, float]:
    began = time.perf_counter()
    child.result("watch.add", folder=str(folder))
    while not _is_at_rest(child):
        time.sleep(0.5)
    took = time.perf_counter() - began
    chance = random.Random(47)
    edited = chance.sample(paths, _FIRST_EDITS + edits)
    used = _cpu_s(child.pid)
    delays = [_delay(child, path, number) for number, path in enumerate(edited)][_FIRST_EDITS:]
    per_edit = (_cpu_s(child.pid) - used) / len(edited)
    time.sleep(2)
    used = _cpu_s(child.pid)
    time.sleep(idle)
    return {
        "filled_s": took,
        "found_p50_s": statistics.median(delays),
        "found_p95_s": sorted(delays)[int(len(delays) * 0.95) - 1],
        "found_most_s": max(delays),
        "cpu_for_an_edit_s": per_edit,
        "idle_cpu_percent": 100 * (_cpu_s(child.pid) - used) / idle,
        "load": os.getloadavg()[0],
    }


def _is_at_rest(child: Child) -> bool:
    """Returns True once the documents are in step and have their vectors."""
    (watch,) = child.result("watch.list")["data"]
    return watch["state"] == "current" and not child.pending_embeddings()


def _delay(child: Child, path: Path, number: int) -> float:
    word = f"zeppelin{number}"
    began = time.perf_counter()
    path.write_text(f"# An edit\n\nThe {word} has landed.\n")
    while not _finds(child, word):
        time.sleep(_ASKS_EVERY_S)
    return time.perf_counter() - began


def _finds(child: Child, word: str) -> bool:
    results = child.result("search", query=word, mode="fts", limit=1)["data"]["results"]
    return bool(results) and word in results[0]["text"]


def _cpu_s(pid: int) -> float:
    """Returns the processor time of a process and its children so far."""
    process = psutil.Process(pid)
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)


if __name__ == "__main__":
    raise SystemExit(main())
