"""`python -m bench`: every leg against its floor, one table, and bench/results.json.

Everything but that file lies in a temporary folder that is gone afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from bench import bulk_legs, real_text, shared_legs, wire_legs
from bench.measure import Result, table
from bench.wire_legs import Setting
from kbproc.base.pipes import leave

RESULTS = Path(__file__).parent / "results.json"
LEGS: dict[str, Callable[[Setting], Iterator[Result]]] = {
    "ping": wire_legs.ping,
    "search": wire_legs.search,
    "in_flight": wire_legs.in_flight,
    "get": wire_legs.get,
    "start": wire_legs.start,
    "call": wire_legs.call,
    "memory": wire_legs.memory,
    "attached": shared_legs.attached,
    "beside_ingest": shared_legs.beside_ingest,
    "beside_fill": shared_legs.beside_fill,
    "past": shared_legs.past,
    "ingest": bulk_legs.ingest,
    "embed": bulk_legs.embed,
    "rebuild": bulk_legs.rebuild,
}
_LIBRARIES = ("duckdb", "tantivy", "faiss-cpu", "onnxruntime", "msgspec", "numpy")


def main() -> int:
    """Returns 1 if a leg misses its aim; never so with --quick, which is too small to judge."""
    options = _options()
    real_text.use_collection(options.collection)
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="kbproc-bench-") as folder:
        setting = Setting(folder=Path(folder), quick=options.quick, files=options.files)
        for name in options.only or LEGS:
            started = time.perf_counter()
            for result in LEGS[name](setting):
                results.append(result)
                _say("  ".join(cell for cell in result.cells() if cell))
            _say(f"({name} took {time.perf_counter() - started:.0f} s)")
    measured_on = f"{machine()} Text: {real_text.source_name()}."
    print(f"{measured_on}\n\n{table(results)}")
    if options.out:
        data = {"machine": measured_on, "legs": [result._asdict() for result in results]}
        text = json.dumps(data, indent=1, ensure_ascii=False)
        options.out.write_text(f"{text}\n", encoding="utf-8")
        print("python -m bench.performance shows it in docs/evidence/performance.md")
    return int(not options.quick and any(result.ok is False for result in results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=LEGS, help="this leg; may be repeated")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that it runs, no more")
    parser.add_argument("--files", type=Path, help="folder of Markdown files to ingest")
    parser.add_argument(
        "--collection", type=Path, help="folder in BEIR's form, instead of Python's documentation"
    )
    parser.add_argument("--out", type=Path, help="results file; by default only of a whole run")
    options = parser.parse_args()
    if options.out is None and not options.quick and not options.only and not options.collection:
        options.out = RESULTS
    return options


def machine() -> str:
    """Returns a line about the machine that the legs run on."""
    busy = f", load {os.getloadavg()[0]:.1f} at the end"
    libraries = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores{busy}; "
        f"Python {platform.python_version()}, kbproc {version('kbproc')}, {libraries}."
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    leave(main())
