"""`python -m bench.peers`: compares kbproc with its peers; writes bench/peers/results.json.

All measured stores lie in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from bench import real_text
from bench.measure import ROOT
from bench.peers import given
from bench.peers.environments import python_of
from bench.peers.phases import Figures, Plan, measured
from bench.peers.running import ENTRIES, Entry

RESULTS = Path(__file__).parent / "results.json"


def main() -> int:
    """Returns 1 if an aim is missed; never so with --quick, which is too small to judge."""
    options = _options()
    real_text.use_collection(options.collection)
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
    parser.add_argument(
        "--collection", type=Path, help="folder in BEIR's form, instead of Python's documentation"
    )
    parser.add_argument("--folder", type=Path, help="on the disk that is to be measured")
    parser.add_argument("--out", type=Path, help="results file; by default only of a whole run")
    options = parser.parse_args()
    if options.out is None and not options.quick and not options.only and not options.collection:
        options.out = RESULTS
    return options


def _installed(keys: list[str]) -> tuple[list[Entry], dict[str, str]]:
    """Returns the installed peers, and the reasons why others are missing."""
    entries, missing = [], {}
    for key in keys:
        try:
            python_of(key)
            entries.append(ENTRIES[key])
        except (OSError, subprocess.CalledProcessError) as error:
            missing[key] = str(error)
            print(f"{key} is left out: {error}", file=sys.stderr)
    return entries, missing


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
            "text": real_text.source_name(),
            "inserts": plan.inserts,
            "questions": plan.questions,
            "rounds": plan.rounds,
        },
        "aims": _aims(figures),
        "missing": missing,
        "peers": {key: _rounded(value) for key, value in figures.items()},
    }


def _commit() -> str:
    """Returns the last commit that changed the product."""
    argv = ["git", "log", "-1", "--format=%h", "--abbrev=12", "--", "kbproc"]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


class Aim(NamedTuple):
    """A ratio of two figures, and the greatest that it may be."""

    claim: str
    mine: Sequence[str]  # the path to kbproc's figure
    peer: str
    theirs: Sequence[str]
    most: float


_KEYWORD, _HYBRID = ("keyword", "p50_s"), ("hybrid", "p50_s")
_AIMS = (
    Aim("seconds of a fill / LanceDB's", ("load_s",), "lancedb", ("load_s",), 3),
    Aim("seconds of a fill / the bare parts'", ("load_s",), "bare", ("load_s",), 3),
    Aim("keyword search / LanceDB's, median", _KEYWORD, "lancedb", _KEYWORD, 0.45),
    Aim("keyword search / SQLite's behind pipes", _KEYWORD, "sqlite-piped", _KEYWORD, 0.13),
    Aim("keyword search / the bare parts', median", _KEYWORD, "bare", _KEYWORD, 7),
    Aim("hybrid search / LanceDB's, median", _HYBRID, "lancedb", _HYBRID, 0.3),
    Aim(
        "pipelined doc.create / SQLite FTS5's separately committed inserts, words alone",
        ("words_insert_many_s",),
        "sqlite",
        ("words_insert_s",),
        1.0,
    ),
    Aim(
        "lone doc.create / SQLite FTS5's committed inserts, words alone",
        ("words_insert_s",),
        "sqlite",
        ("words_insert_s",),
        2.5,
    ),
)


def _aims(figures: Figures) -> list[dict[str, Any]]:
    aims = []
    for aim in _AIMS:
        mine, theirs = figures.get("kbproc"), figures.get(aim.peer)
        if mine is not None and theirs is not None:
            ratio = round(_at(mine, aim.mine) / _at(theirs, aim.theirs), 2)
            entry = {"claim": aim.claim, "ratio": ratio, "aim": aim.most}
            aims.append({**entry, "met": ratio <= aim.most})
    return aims


def _at(figures: dict[str, Any], path: Sequence[str]) -> float:
    value: Any = figures
    for name in path:
        value = value[name]
    return float(value)


def _rounded(value: Any) -> Any:
    """Rounds numbers to four significant digits, because the rest is noise."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
