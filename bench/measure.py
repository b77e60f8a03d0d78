"""Times actions, and shows the results as a table.

Product and floor take turns; children speak lines over pipes. What is measured comes from the
caller.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import kbproc

ROOT = Path(kbproc.__file__).parent.parent
KBPROC = [sys.executable, "-m", "kbproc"]


class Result(NamedTuple):
    """One line of the table; both values are in `unit`, and for "s" in seconds.

    `aim` bounds the ratio, or where there is no floor the product itself.
    """

    leg: str
    product: float
    floor: float | None = None
    aim: float | None = None
    unit: Literal["s", "MiB", "/s"] = "s"
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return None if self.floor is None else self.product / self.floor

    @property
    def ok(self) -> bool | None:
        if self.aim is None:
            return None
        value = self.product if self.ratio is None else self.ratio
        return value >= self.aim if self.unit == "/s" else value <= self.aim

    def cells(self) -> list[str]:
        sign = "≥" if self.unit == "/s" else "≤"
        aim = "" if self.aim is None else f"{sign} {self.aim:g}"
        if self.aim is not None:
            aim += "×" if self.floor is not None else f" {self.unit}"
        return [
            self.leg,
            _value(self.product, self.unit),
            "" if self.floor is None else _value(self.floor, self.unit),
            "" if self.ratio is None else f"{self.ratio:.2f}×",
            aim,
            {True: "yes", False: "NO", None: ""}[self.ok],
            self.note,
        ]


def _value(value: float, unit: str) -> str:
    if unit != "s":
        return f"{value:.0f} {unit}" if unit == "MiB" else f"{value:.1f}{unit}"
    if value < 1e-3:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.2f} ms" if value < 1 else f"{value:.2f} s"


HEAD = ["leg", "product", "floor", "ratio", "aim", "ok?", "note"]


def table(results: Sequence[Result]) -> str:
    return aligned([HEAD, *(result.cells() for result in results)])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table with padded columns; the first row is the head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def take_turns(
    actions: Sequence[Callable[[int], object]], rounds: int, *, warm: int = 0
) -> list[list[float]]:
    """Returns seconds of each action's rounds, in turns A, B, B, A, … for equal conditions.

    The first `warm` rounds do not count. An action that clears up afterwards returns the time
    of its end, by time.perf_counter.
    """
    times: list[list[float]] = [[] for _ in actions]
    for number in range(warm + rounds):
        order = list(range(len(actions)))
        for which in order if number % 2 else reversed(order):
            started = time.perf_counter()
            done = actions[which](number)
            if number >= warm:
                ended = done if isinstance(done, float) else time.perf_counter()
                times[which].append(ended - started)
    return times


def medians(
    actions: Sequence[Callable[[int], object]], rounds: int, *, warm: int = 0
) -> list[float]:
    return [statistics.median(times) for times in take_turns(actions, rounds, warm=warm)]


@contextlib.contextmanager
def cores_apart() -> Iterator[None]:
    """Runs this process on one core, and its children on the others.

    Otherwise the scheduler decides from run to run whether two processes share
    a core, and with that whether a round trip takes 8 or 45 µs.
    """
    if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2:
        yield
        return
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(all_cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_cores)


def _other_cores(pid: int) -> None:
    if hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) == 1:
        others = set(range(os.cpu_count() or 1)) - os.sched_getaffinity(0)
        os.sched_setaffinity(pid, others or {0})


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "KBPROC_FORMAT": "json", **more}


class Child:
    """A process that reads and answers lines."""

    def __init__(self, argv: Sequence[str], **env: str) -> None:
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(**env),
            cwd=ROOT,
            bufsize=0,
        )
        _other_cores(self.process.pid)
        assert self.process.stdin and self.process.stdout
        self._in, self._out = self.process.stdin.fileno(), self.process.stdout.fileno()
        self._rest = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> bytes:
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            block = os.read(self._out, 1 << 18)
            if not block:
                raise EOFError(f"{self.process.args!r} has ended")
            parts.append(block)
        line, self._rest = b"".join(parts).split(b"\n", 1)
        return line

    def send(self, line: bytes) -> None:
        os.write(self._in, line)

    def ask(self, line: bytes) -> bytes:
        self.send(line)
        return self.line()

    def until(self, matches: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Returns the first message that `matches`."""
        while True:
            message: dict[str, Any] = json.loads(self.line())
            if matches(message):
                return message

    def result(self, method: str, **params: object) -> dict[str, Any]:
        """Sends a request and returns its result. Raises RuntimeError for an error."""
        self.send(request(method, **params))
        return _result(self.until(lambda message: "id" in message))

    def pending_embeddings(self) -> int:
        """Returns the number of chunks without a vector."""
        meta = self.result("search", query="zeppelin", mode="fts", limit=1)["meta"]
        return int(meta["freshness"]["pending_embeddings"])

    def memory_mib(self) -> float:
        """Returns the resident memory."""
        return self._resident("VmRSS")

    def own_memory_mib(self) -> float:
        """Returns resident memory without pages of files, which the kernel can reclaim."""
        return self._resident("RssAnon")

    def _resident(self, kind: str) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split(f"{kind}:")[1].split()[0]) / 1024

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *args: object) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


def serve(store: Path) -> Child:
    """Starts a coprocess on `store`; returns it when it is ready."""
    child = Child([*KBPROC, "serve"], KBPROC_STORE=str(store))
    first = child.until(lambda message: message["params"]["type"] in {"ready", "error"})
    if first["params"]["type"] == "error":
        raise RuntimeError(first["params"]["error"]["message"])
    return child


def request(method: str, **params: object) -> bytes:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return json.dumps(message).encode() + b"\n"


def answer(line: bytes) -> dict[str, Any]:
    """Returns the result of a response; raises RuntimeError for an error."""
    return _result(json.loads(line))


def _result(message: dict[str, Any]) -> dict[str, Any]:
    if "result" not in message:
        raise RuntimeError(message["error"]["message"])
    result: dict[str, Any] = message["result"]
    return result
