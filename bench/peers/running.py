"""Runs a peer's process for the driver.

It starts the process, sends requests by line, and measures memory and disk space.
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

    def argv(self, folder: Path, inputs: Path, *more: str) -> list[str]:
        module = f"bench.peers.runners.{self.runner}"
        return [python_of(self.key), "-m", module, str(folder), str(inputs), *more]


ENTRIES = {
    entry.key: entry
    for entry in (
        Entry("bare", "bare"),
        Entry("kbproc", "coprocess"),
        Entry("sqlite", "sqlite"),
        Entry("sqlite-piped", "sqlite_piped"),
        Entry("lancedb", "lancedb"),
        Entry("chroma", "chroma"),
        Entry("txtai", "txtai"),
        Entry("server-memory", "memory_server"),
    )
}


class Running:
    """A trial's process, which reads commands as lines and ends with the block."""

    def __init__(
        self, entry: Entry, folder: Path, inputs: Path, *more: str, before: Sequence[str] = ()
    ) -> None:
        self.entry = entry
        self._process = subprocess.Popen(
            [*before, *entry.argv(folder, inputs, *more)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=settings(inputs.parent),
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
        """Returns resident memory of the process that holds the store and of its children."""
        holder = psutil.Process(self.told["pid"])
        family = [holder, *holder.children(recursive=True)]
        return float(sum(process.memory_info().rss for process in family)) / 2**20

    def kill(self) -> None:
        """Kills the peer and its children; strace ends by itself."""
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


def syncs_a_write(entry: Entry, inputs: Path, few: int, many: int) -> float:
    """Returns how often a single write waits for the disk, as strace counts it.

    Opening syncs, too, so the difference between `many` and `few` writes counts. The peer is
    killed, so that syncs at closing do not count.
    """
    counts = []
    for writes in (few, many):
        folder = prepared(entry, inputs.parent / "traced", inputs, many)
        trace = inputs.parent / "trace"
        argv = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,msync", "-o", str(trace)]
        with Running(entry, folder, inputs, before=argv) as peer:
            peer.ask("read", first=0, last=writes)
            peer.ask("insert", first=0, last=writes)
            peer.kill()
        counts.append(trace.read_text().count("sync("))
    return (counts[1] - counts[0]) / (many - few)


def first_answer(entry: Entry, folder: Path, inputs: Path) -> float:
    """Returns seconds from the start of the process that holds the store to its first answer."""
    started = time.perf_counter()
    with subprocess.Popen(
        entry.argv(folder, inputs, "--first"),
        stdout=subprocess.PIPE,
        env=settings(inputs.parent),
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
    """Returns the files' space on the disk, where a sparse file takes little."""
    blocks = sum(path.stat().st_blocks for path in folder.rglob("*") if path.is_file())
    return blocks * 512 / 2**20


def prepared(entry: Entry, folder: Path, inputs: Path, documents: int) -> Path:
    """Returns an empty folder; kbproc's has a store with the model's name and the vectors."""
    shutil.rmtree(folder, ignore_errors=True)
    if entry.key == "kbproc":
        argv = [sys.executable, "-m", "bench.peers.prepare", str(folder), str(inputs)]
        env = settings(inputs.parent)
        subprocess.run([*argv, str(documents)], check=True, cwd=ROOT, env=env)
    return folder
