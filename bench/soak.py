"""`python -m bench.soak --minutes 20`: does anything grow that should not?

An owner and an attached client write, search, ingest and delete. At each rest, deleted data is
compacted, and memory, threads, file descriptors and disk are measured. The last figures must equal
those of the second rest, except for the log's bytes of each write. Before the second rest, threads
and parsers start on their first use.

It has the traffic, the measurements and the tolerances, and judges no speed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import subprocess
import sys
import tempfile
import time
from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench import corpus, real_text
from bench.measure import KBPROC, ROOT, Child, aligned, answer, environment, request

_LIVE = 300  # documents that stay; older ones are deleted
_FILES = 30  # files of the ingested folder; a few change each time
_NEW = 10  # documents of each process a round
_RESTS = 10  # rests of a run
_QUIET_S = 3.0  # upkeep is done if the disk stays unchanged for so long
_MOST_QUIET_S = 60.0
_MODES = ("hybrid", "fts", "vector")


class Look(NamedTuple):
    """The figures of one rest: memory and disk in MiB; threads and files of both processes."""

    minutes: float
    writes: int
    owner_memory: float
    guest_memory: float
    threads: int
    files: int
    children: int
    log: float
    catalog: float
    views: float
    vectors: float
    sources: float


# Tolerance of the last look above the second: factor, and addition to that.
_ALLOWED = {
    "owner_memory": (1.15, 24.0),
    "guest_memory": (1.15, 4.0),
    "threads": (1.0, 2.0),
    "files": (1.0, 4.0),
    "children": (1.0, 0.0),
    "views": (1.1, 2.0),
    "vectors": (1.1, 2.0),
    "sources": (1.1, 2.0),
}
# Bytes of each write in the log and the catalog, which hold its author and time.
_KEPT = {"log": 1_500, "catalog": 1_500}


def main() -> int:
    """Returns 1 if something has grown."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    minutes = parser.parse_args().minutes
    looks: list[Look] = []
    with (
        tempfile.TemporaryDirectory(prefix="kbproc-soak-") as folder,
        contextlib.closing(Traffic(Path(folder))) as traffic,
    ):
        _soak(traffic, minutes, looks)
    print(aligned([list(Look._fields), *(_cells(look) for look in looks)]))
    grown = _grown(looks[1], looks[-1])
    print("\n".join(grown) or "Nothing has grown.")
    return int(bool(grown))


def _soak(traffic: Traffic, minutes: float, looks: list[Look]) -> None:
    """Runs the traffic, and appends a look at each rest; the second is the baseline."""
    started = time.monotonic()
    for number in range(1, _RESTS + 1):
        until = started + minutes * 60 * number / _RESTS
        while time.monotonic() < until:
            traffic.round()
        looks.append(traffic.rest((time.monotonic() - started) / 60))
        print("  ".join(_cells(looks[-1])), file=sys.stderr, flush=True)


class Traffic:
    """One store, its owner, an attached client, and the ids of their writes."""

    def __init__(self, folder: Path) -> None:
        self._store, self._files = folder / "store", folder / "files"
        corpus.open_store(self._store, corpus.HASH).close()
        corpus.markdown_files(self._files, _FILES)
        self._texts = itertools.cycle(list(real_text.texts(500, seed=11)))
        self._queries = itertools.cycle(real_text.queries(200))
        self._random = random.Random(1)
        self._owner, self._guest = self._serve(), self._serve()
        self._made: deque[int] = deque()
        self._entries: deque[int] = deque()
        self._rounds = self._writes = 0

    def _serve(self) -> Child:
        argv = [*KBPROC, "serve", "--store", str(self._store), "--root", str(self._files)]
        child = Child(argv)
        child.until(lambda message: message["params"]["type"] == "ready")
        return child

    def round(self) -> None:
        self._rounds += 1
        for child in (self._owner, self._guest):
            self._create(child)
            for mode in _MODES:
                _data(child, "search", query=next(self._queries), mode=mode)
        self._learn()
        self._ingest()
        self._delete_oldest()
        if self._rounds % 10 == 0:
            self._call()
        if self._rounds % 25 == 0:
            self._guest.__exit__()
            self._guest = self._serve()

    def _confirmed(self, method: str, **params: object) -> None:
        plan = _result(self._owner, method, dry_run=True, **params)["meta"]["plan"]
        _data(self._owner, method, confirm=plan["plan_hash"], **params)
        self._writes += 1

    def _create(self, child: Child) -> None:
        for _ in range(_NEW):
            text = next(self._texts)
            document = _data(child, "doc.create", title=text[:30], text=f"{self._writes} {text}")
            self._made.append(document["id"])
            self._writes += 1

    def _learn(self) -> None:
        text = next(self._texts)
        entry = _data(self._guest, "knowledge.store", title=text[:40], body=text)
        self._entries.append(entry["id"])
        self._writes += 1
        if len(self._entries) > 20:
            self._confirmed("knowledge.delete", ids=[self._entries.popleft()])

    def _ingest(self) -> None:
        for _ in range(3):
            file = self._files / f"{self._random.randrange(_FILES):05}.md"
            file.write_text(f"# {file.stem}\n\n{next(self._texts)}\n\n{next(self._texts)}\n")
            self._writes += 1
        _data(self._owner, "doc.ingest", paths=[str(self._files)])

    def _delete_oldest(self) -> None:
        if len(self._made) > _LIVE + 50:
            old = [self._made.popleft() for _ in range(len(self._made) - _LIVE)]
            self._confirmed("doc.delete", ids=old)

    def _call(self) -> None:
        """Runs a process that attaches, asks once and ends."""
        argv = [*KBPROC, "call", "ping", "--store", str(self._store)]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, env=environment())

    def rest(self, minutes: float) -> Look:
        """Waits until all chunks are embedded, deleted data is compacted, and upkeep is done."""
        _data(self._owner, "doc.wait")
        now = datetime.now(UTC) + timedelta(seconds=1)
        self._confirmed("store.compact", before=now.strftime("%Y-%m-%dT%H:%M:%SZ"))
        self._wait_until_quiet()
        owner, guest = psutil.Process(self._owner.pid), psutil.Process(self._guest.pid)
        sizes = _sizes(self._store)
        return Look(
            minutes=minutes,
            writes=self._writes,
            owner_memory=self._owner.memory_mib(),
            guest_memory=self._guest.memory_mib(),
            threads=owner.num_threads() + guest.num_threads(),
            files=owner.num_fds() + guest.num_fds(),
            children=len(owner.children(recursive=True)) + len(guest.children(recursive=True)),
            log=sizes["log"],
            catalog=sizes["catalog"],
            views=sizes["views"],
            vectors=sizes["vectors"],
            sources=sizes["sources"],
        )

    def _wait_until_quiet(self) -> None:
        deadline = time.monotonic() + _MOST_QUIET_S
        last, since = _sizes(self._store), time.monotonic()
        while time.monotonic() < deadline and time.monotonic() - since < _QUIET_S:
            time.sleep(0.25)
            now = _sizes(self._store)
            if now != last:
                last, since = now, time.monotonic()

    def close(self) -> None:
        for child in (self._guest, self._owner):
            child.__exit__()


def _result(child: Child, method: str, **params: object) -> dict[str, Any]:
    line = child.ask(request(method, **params))
    while b'"id":' not in line[:40]:  # events come before their answer
        line = child.line()
    return answer(line)


def _data(child: Child, method: str, **params: object) -> Any:
    return _result(child, method, **params)["data"]


def _sizes(store: Path) -> dict[str, float]:
    """Returns MiB on the disk by folder; the catalog apart from the other views."""
    sizes: dict[str, float] = {}
    for path in store.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # upkeep removes replaced files
            if path.is_file():
                name = path.relative_to(store).parts[0]
                name = "catalog" if path.name.startswith("catalog") else name
                sizes[name] = sizes.get(name, 0.0) + path.stat().st_blocks * 512 / 2**20
    return sizes


def _cells(look: Look) -> list[str]:
    return [f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" for value in look]


def _grown(first: Look, last: Look) -> list[str]:
    messages = []
    for name, (factor, more) in _ALLOWED.items():
        was, now = getattr(first, name), getattr(last, name)
        if now > was * factor + more:
            messages.append(f"{name} has grown from {was:.1f} to {now:.1f}")
    writes = last.writes - first.writes
    for name, most in _KEPT.items():
        each = (getattr(last, name) - getattr(first, name)) * 2**20 / max(1, writes)
        print(f"{name}: {each:,.0f} bytes a write")
        if each > most:
            messages.append(f"{name} keeps {each:,.0f} bytes of each write, more than {most:,}")
    return messages


if __name__ == "__main__":
    sys.exit(main())
