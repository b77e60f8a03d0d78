"""The files of tests that take long, as tests/kit/slow.json lists them.

`make test` begins with them, and `make changed` leaves out what would take more than a minute.
`KBPROC_TEST_SECONDS=1 make test` measures them anew.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

LEAST_S = 8  # seconds of a file that is listed
_FILE = Path(__file__).with_name("slow.json")
_measured: Counter[str] = Counter()


def seconds() -> dict[str, int]:
    """Returns the slow files, each with its seconds, the slowest first."""
    listed: dict[str, int] = json.loads(_FILE.read_text(encoding="utf-8"))
    return listed


def add(test: str, duration_s: float) -> None:
    """Adds the duration of a part of a test."""
    _measured[test.partition("::")[0]] += duration_s  # type: ignore[assignment]


def write() -> None:
    """Writes the measured durations; files that did not run keep theirs."""
    rows = {name: s for name, s in seconds().items() if name not in _measured}
    rows |= {name: round(s) for name, s in _measured.items() if s >= LEAST_S}
    in_order = sorted(rows.items(), key=lambda row: (-row[1], row[0]))
    _FILE.write_text(json.dumps(dict(in_order), indent=1) + "\n", encoding="utf-8")
