"""`python -m bench.begin COLLECTIONS` times `kbproc start`, and writes docs/start.md.

It installs this checkout into an empty environment. In an empty home it makes a folder of 200 files
from the real texts of COLLECTIONS (`docs/til`), and 20 sessions of Claude Code from real
conversations (`ir/locomo`), and starts there as a newcomer does: with all steps, the model among
them, and nothing in a cache but what pip and the system keep.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from uuid import UUID

from bench.conversations import lines
from bench.measure import ROOT
from tools.generate.outputs import with_blocks

PAGE = ROOT / "docs" / "start.md"
RESULTS = ROOT / "bench" / "begin.json"
FILES, SESSIONS = 200, 20
_ANSWERED = "Questions from what was read"  # the answers come in one piece
_READ = {f"{FILES} documents read", f"{SESSIONS} conversations read"}
_READY = "The model is here"


def main() -> int:
    collections = Path(sys.argv[1])
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        measured = _measured(collections, Path(place))
    RESULTS.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    return 0


def page() -> str:
    """Returns the page with the times that were measured."""
    blocks = {"begin": _table(json.loads(RESULTS.read_text(encoding="utf-8")))}
    return with_blocks(PAGE.read_text(encoding="utf-8"), blocks)


def _measured(collections: Path, place: Path) -> dict[str, Any]:
    home, environment = place / "home", place / "environment"
    folder = home / "notes"
    size = _write_notes(collections / "docs" / "til" / "files", folder)
    turns = _write_sessions(collections / "ir" / "locomo" / "corpus.jsonl", home, folder)
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    env = {
        key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "KBPROC"))
    }
    env |= {"HOME": str(home), "PYTHONUNBUFFERED": "1"}
    begun = time.perf_counter()
    pip = [str(environment / "bin" / "pip"), "install", "--quiet", str(ROOT)]
    subprocess.run(pip, check=True, env={**os.environ}, stdout=subprocess.DEVNULL)
    installed_s = time.perf_counter() - begun
    command = [str(environment / "bin" / "kbproc"), "start", "--yes", "--format", "text"]
    moments = _moments(command, folder, env)
    return {
        "python": platform.python_version(),
        "files": FILES,
        "bytes": size,
        "sessions": SESSIONS,
        "turns": turns,
        "pip_s": round(installed_s, 1),
        "answers_s": round(moments["answers"], 1),
        "model_s": round(moments["model"], 1),
        "end_s": round(moments["end"], 1),
    }


def _write_notes(source: Path, folder: Path) -> int:
    """Writes the first files in the order of their paths; returns their size."""
    size = 0
    for path in sorted(source.rglob("*.md"))[:FILES]:
        target = folder / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        size += target.write_bytes(path.read_bytes())
    return size


def _write_sessions(corpus: Path, home: Path, folder: Path) -> int:
    """Writes conversations as logs of Claude Code; returns the number of their turns."""
    sessions: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for turn in lines(corpus):
        sessions[turn["conv"], turn["session"]].append(turn)
    logs = home / ".claude" / "projects" / "notes"
    logs.mkdir(parents=True)
    chosen = list(sessions.values())[:SESSIONS]
    for number, turns in enumerate(chosen):
        first, roles = turns[0]["speaker"], ("assistant", "user")
        rows = [
            {
                "parentUuid": None,
                "isSidechain": False,
                "version": "2.1.0",
                "sessionId": str(UUID(int=number)),
                "cwd": str(folder),
                "uuid": f"{number}-{at}",
                "timestamp": f"2026-03-{number + 1:02}T{at // 60:02}:{at % 60:02}:00Z",
                "type": (role := roles[turn["speaker"] == first]),
                "message": {"role": role, "content": turn["text"]},
            }
            for at, turn in enumerate(turns)
        ]
        text = "".join(f"{json.dumps(row, separators=(',', ':'))}\n" for row in rows)
        (logs / f"session-{number}.jsonl").write_text(text, encoding="utf-8")
    return sum(map(len, chosen))


def _moments(command: list[str], folder: Path, env: dict[str, str]) -> dict[str, float]:
    """Returns after how many seconds the answers, the model and the end came."""
    begun, moments = time.perf_counter(), dict[str, float]()
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    unread = set(_READ)
    for line in process.stdout:
        unread = {words for words in unread if words not in line}
        for name, words in (("answers", _ANSWERED), ("model", _READY)):
            if words in line:
                moments[name] = time.perf_counter() - begun
    if process.wait() or unread:
        raise RuntimeError(f"kbproc start ended with {process.returncode}; not said: {unread}")
    return {**moments, "end": time.perf_counter() - begun}


def _table(one: dict[str, Any]) -> str:
    rows = [
        ("`pip install .`", one["pip_s"], ""),
        ("`kbproc start --yes`: three answers, found by words", one["answers_s"], "60"),
        ("the model is installed", one["model_s"], ""),
        ("all has its vectors: searches go by meaning, too", one["end_s"], ""),
    ]
    head = [
        f"{one['files']} files ({one['bytes'] / 1e6:.1f} MB) and {one['sessions']} sessions "
        f"({one['turns']:,} turns), Python {one['python']}:",
        "",
        "| | seconds | aim |",
        "| --- | --- | --- |",
    ]
    return "\n".join([*head, *(f"| {what} | {s} | {aim} |" for what, s, aim in rows)]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
