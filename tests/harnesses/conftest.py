"""Fixtures: the installed harnesses, a desk for each test, and the tables of results.

KBPROC_UPDATE_DOCS=1 writes docs/evidence/harnesses.md, a row for each harness that ran; rows of
others stay. Otherwise outcomes are compared with the page; measures are not.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.harnesses import HARNESSES, Desk, missing
from tests.kit.start import REPO

PAGE = REPO / "docs" / "evidence" / "harnesses.md"
UPDATES = os.environ.get("KBPROC_UPDATE_DOCS") == "1"

# block → harness → column → cell
Rows = dict[str, dict[str, dict[str, str]]]
Note = Callable[[str, str, str], None]


@pytest.fixture(params=HARNESSES)
def name(request: pytest.FixtureRequest) -> str:
    harness = str(request.param)
    if reason := missing(harness):
        pytest.skip(reason)
    return harness


@pytest.fixture
def desk(tmp_path: Path, shared: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path, shared / "cache")
    yield desk
    desk.end()


@pytest.fixture(scope="module")
def rows() -> Iterator[Rows]:
    tables: Rows = defaultdict(lambda: defaultdict(dict))
    yield tables
    if UPDATES:
        for block, harnesses in tables.items():
            _write(block, harnesses)


@pytest.fixture
def note(name: str, rows: Rows) -> Note:
    """Records one cell of a block's table: `note(block, column, cell)`."""

    def keep(block: str, column: str, cell: str) -> None:
        rows[block][name][column] = cell
        if block == "outcomes" and not UPDATES:
            documented = _read(block).get(name, {}).get(column)
            assert cell == documented, f"not in {PAGE.name}; KBPROC_UPDATE_DOCS=1 writes it"

    return keep


def _pattern(block: str) -> re.Pattern[str]:
    return re.compile(f"(<!-- harnesses:{block} -->\n)(.*?)(<!-- /harnesses:{block} -->)", re.S)


def _read(block: str) -> dict[str, dict[str, str]]:
    match = _pattern(block).search(PAGE.read_text())
    assert match, f"{PAGE.name} has no block {block}"
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in match[2].splitlines()]
    if not lines:
        return {}
    head, _, *cells = lines
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in cells}


def _write(block: str, new: dict[str, dict[str, str]]) -> None:
    old = _read(block)
    merged = {name: {**old.get(name, {}), **new.get(name, {})} for name in HARNESSES}
    columns = list(dict.fromkeys(column for row in merged.values() for column in row))
    lines = [["harness", *columns], ["---"] * (len(columns) + 1)]
    lines += [
        [name, *(row.get(column, "") for column in columns)] for name, row in merged.items() if row
    ]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    text = PAGE.read_text()
    PAGE.write_text(_pattern(block).sub(lambda match: match[1] + table + match[3], text))
