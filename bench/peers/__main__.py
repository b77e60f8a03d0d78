"""`python -m bench.peers`: kbproc beside its peers, and bench/peers/results.json.

Owns: the options, the file, the aims. Everything that is measured lies in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.measure import ROOT
from bench.peers import given
from bench.peers.environments import python_of
from bench.peers.phases import Figures, Plan, measured
from bench.peers.running import ENTRIES, Entry

RESULTS = Path(__file__).parent / "results.json"


def main() -> int:
    """Returns 1 if an aim is missed; never so with --quick, which is too small to judge."""
    options = _options()
    entries, missing = _installed(options.only or list(ENTRIES))
    if options.install:
        return int(bool(missing))
    with tempfile.TemporaryDirectory(prefix="kbproc-peers-", dir=options.folder) as folder:
        sizes = {"documents": options.documents, "inserts": options.inserts}
        if options.quick:
            sizes |= {"documents": 1_000, "inserts": 150, "questions": 60, "rounds": 1}
        plan = Plan(folder=Path(folder), entries=entries, **sizes)
        load = os.getloadavg()[0]
        figures = measured(plan)
    results = _results(plan, figures, missing, load)
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    print(json.dumps(results["aims"], indent=1))
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    return int(not options.quick and any(not aim["met"] for aim in results["aims"]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--only", action="append", choices=ENTRIES, help="may be repeated")
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--inserts", type=int, default=1_500)
    parser.add_argument("--quick", action="store_true", help="tiny: shows that it runs, no more")
    parser.add_argument("--install", action="store_true", help="makes the environments, no more")
    parser.add_argument("--folder", type=Path, help="on the disk that is to be measured")
    parser.add_argument("--out", type=Path, help="results file; by default only of a whole run")
    options = parser.parse_args()
    if options.out is None and not options.quick and not options.only:
        options.out = RESULTS
    return options


def _installed(keys: list[str]) -> tuple[list[Entry], dict[str, str]]:
    """Those that are there, and why others are not."""
    found, missing = [], {}
    for key in keys:
        try:
            python_of(key)
            found.append(ENTRIES[key])
        except (OSError, subprocess.CalledProcessError) as error:
            missing[key] = str(error)
            print(f"{key} is left out: {error}", file=sys.stderr)
    return found, missing


def _results(plan: Plan, figures: Figures, missing: dict[str, str], load: float) -> dict[str, Any]:
    return {
        "measured": {
            "on": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
            f"Python {platform.python_version()}",
            "commit": _commit(),
            "load": [round(load, 1), round(os.getloadavg()[0], 1)],
            "documents": plan.documents,
            "words": given.WORDS,
            "inserts": plan.inserts,
            "questions": plan.questions,
            "rounds": plan.rounds,
        },
        "aims": _aims(figures),
        "missing": missing,
        "peers": {key: _rounded(value) for key, value in figures.items()},
    }


def _commit() -> str:
    """The last one that changed the product."""
    argv = ["git", "log", "-1", "--format=%h", "--abbrev=12", "--", "kbproc"]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _aims(figures: Figures) -> list[dict[str, Any]]:
    if not {"kbproc", "sqlite"} <= figures.keys():
        return []
    mine, theirs = figures["kbproc"], figures["sqlite"]
    ratios = [
        (
            "pipelined doc.create / SQLite FTS5's separately committed inserts, words alone",
            mine["words_insert_many_s"] / theirs["words_insert_s"],
            1.5,
        ),
        (
            "keyword search / SQLite FTS5's, median",
            mine["keyword"]["p50_s"] / theirs["keyword"]["p50_s"],
            0.7,
        ),
    ]
    return [
        {"claim": claim, "ratio": round(ratio, 2), "aim": aim, "met": ratio <= aim}
        for claim, ratio, aim in ratios
    ]


def _rounded(value: Any) -> Any:
    """Four significant digits: the rest is noise."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
