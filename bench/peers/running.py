"""A peer's process, as the driver holds it.

Owns: starting it, asking it by line, what it and its children hold in memory and on the disk.
Refuses to know: what is measured.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench.measure import ROOT
from bench.peers.environments import python_of, settings


class Entry(NamedTuple):
    """A peer by its short name; `runner` is a module of bench.peers.runners."""

    key: str
    runner: str

    def argv(self, folder: Path, given: Path, *more: str) -> list[str]:
        module = f"bench.peers.runners.{self.runner}"
        return [python_of(self.key), "-m", module, str(folder), str(given), *more]


ENTRIES = {
    entry.key: entry
    for entry in (
        Entry("bare", "bare"),
        Entry("kbproc", "coprocess"),
        Entry("sqlite", "sqlite"),
        Entry("lancedb", "lancedb"),
        Entry("chroma", "chroma"),
        Entry("txtai", "txtai"),
        Entry("server-memory", "memory_server"),
    )
}


class Running:
    """A trial that is told by line what to do; it ends with the block."""

    def __init__(
        self, entry: Entry, folder: Path, given: Path, *more: str, before: Sequence[str] = ()
    ) -> None:
        self.entry = entry
        self._process = subprocess.Popen(
            [*before, *entry.argv(folder, given, *more)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=settings(given.parent),
            cwd=ROOT,
            text=True,
        )
        self.told = self.ask("open")

    def ask(self, do: str, **params: object) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"do": do, **params}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.entry.key} ended while it was told to {do}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def memory_mib(self) -> float:
        """Resident, of the process that holds the store and of its children."""
        holder = psutil.Process(self.told["pid"])
        family = [holder, *holder.children(recursive=True)]
        return float(sum(process.memory_info().rss for process in family)) / 2**20

    def kill(self) -> None:
        """All that it has started; what traces it ends by itself."""
        for process in psutil.Process(self._process.pid).children(recursive=True):
            process.kill()
        self._process.communicate()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if self._process.returncode is not None:
            return
        if kind is None:
            self.ask("close")
        else:
            self._process.kill()
        self._process.communicate()


def syncs_a_write(entry: Entry, given: Path, few: int, many: int) -> float:
    """How often a single write waits for the disk, as strace sees it.

    Opening waits, too: so it is what `many` writes wait for more than `few`. What may be done
    later is not counted: nobody closes it.
    """
    counts = []
    for writes in (few, many):
        folder = prepared(entry, given.parent / "traced", given, many)
        trace = given.parent / "trace"
        argv = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,msync", "-o", str(trace)]
        with Running(entry, folder, given, before=argv) as peer:
            peer.ask("read", first=0, last=writes)
            peer.ask("insert", first=0, last=writes)
            peer.kill()
        counts.append(trace.read_text().count("sync("))
    return (counts[1] - counts[0]) / (many - few)


def first_answer(entry: Entry, folder: Path, given: Path) -> float:
    """Seconds from the start of the process that holds the store to its first answer."""
    started = time.perf_counter()
    with subprocess.Popen(
        entry.argv(folder, given, "--first"),
        stdout=subprocess.PIPE,
        env=settings(given.parent),
        cwd=ROOT,
    ) as process:
        assert process.stdout
        line = process.stdout.readline()
        took = time.perf_counter() - started
    if not line:
        raise RuntimeError(f"{entry.key} gave no first answer")
    answer = json.loads(line)
    return took if answer["seconds"] is None else float(answer["seconds"])


def disk_mib(folder: Path) -> float:
    """What the files take on the disk: a file that is mostly holes takes little."""
    blocks = sum(path.stat().st_blocks for path in folder.rglob("*") if path.is_file())
    return blocks * 512 / 2**20


def prepared(entry: Entry, folder: Path, given: Path, documents: int) -> Path:
    """An empty folder; kbproc's has a store that names the model, and the vectors."""
    shutil.rmtree(folder, ignore_errors=True)
    if entry.key == "kbproc":
        argv = [sys.executable, "-m", "bench.peers.prepare", str(folder), str(given)]
        env = settings(given.parent)
        subprocess.run([*argv, str(documents)], check=True, cwd=ROOT, env=env)
    return folder
