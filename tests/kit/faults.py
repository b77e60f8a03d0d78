"""Faults that are tried, ways to harm a store, and the table that says what came of each.

A module that tries faults makes its fixture with `faults_of(GROUP)` and calls `note`.
When the module ends, the rows must be those of the block GROUP in docs/reliability.md (or OTHERS);
KBPROC_UPDATE_DOCS=1 writes them there. A group belongs to one module. Where it is `counted`, each
row also says how often that was noted. Where the module tries all only in the long profile
(`thinned`), rows are missing and counts are lower otherwise.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import failpoints
from tests.kit.patience import LONG
from tests.kit.talk import REPO

PAGE = REPO / "docs" / "reliability.md"
# Pages of other groups.
OTHERS = {
    "streams": REPO / "docs" / "cluster.md",
    "reading": REPO / "docs" / "evidence" / "reading.md",
    **dict.fromkeys(
        ("shortage", "odd", "sight", "endpoints", "extremes"),
        REPO / "docs" / "evidence" / "hostile.md",
    ),
}
HEADER = "| fault | what happened |\n| --- | --- |\n"
COUNTED = "| attack | tries | what happened |\n| --- | --- | --- |\n"
# The heads of groups that are no faults.
HEADERS = {"reading": "| kind of source | files | outcome |\n| --- | --- | --- |\n"}

_seen: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)


def note(group: str, fault: str, outcome: str) -> None:
    """One row; the same fault with the same outcome is one row however often it is tried."""
    assert "|" not in fault + outcome and "\n" not in fault + outcome
    _seen[group][fault, outcome] += 1


def faults_of(group: str, *, counted: bool = False, thinned: bool = False) -> Any:
    """A fixture that holds what a module has noted against the page when the module ends."""

    @pytest.fixture(scope="module", autouse=True)
    def compared(request: pytest.FixtureRequest) -> Iterator[None]:
        _seen[group].clear()
        failed = request.session.testsfailed
        yield
        if request.session.testsfailed == failed:
            whole = _runs_whole(request) and (LONG or not thinned)
            compare(group, whole=whole, counted=counted)

    return compared


def _runs_whole(request: pytest.FixtureRequest) -> bool:
    """Whether every test of the module is run, not only some of them."""
    option, module = request.config.option, request.module
    if (
        option.keyword
        or option.markexpr
        or any("::" in argument for argument in request.config.args)
    ):
        return False
    ran = {item.originalname for item in request.session.items if item.module is module}  # type: ignore[attr-defined]
    return ran == {name for name in vars(module) if name.startswith("test_")}


def compare(group: str, *, whole: bool, counted: bool = False) -> None:
    """Of a module that runs in part the counts are not compared."""
    rows = {_row(*seen, count if counted else None) for seen, count in _seen[group].items()}
    if whole and os.environ.get("KBPROC_UPDATE_DOCS") == "1":
        _rewrite(group, rows, HEADERS.get(group, COUNTED if counted else HEADER))
    page = _page(group)
    told = _block(page, group)
    if not whole and counted:
        rows, told = {_uncounted(row) for row in rows}, {_uncounted(row) for row in told}
    assert rows <= told, f"not in {page.name}: {sorted(rows - told)}; {_HOW}"
    assert not whole or rows == told, f"{page.name} tells what is not tried: {sorted(told - rows)}"


def _row(fault: str, outcome: str, count: int | None) -> str:
    return f"| {fault} | {outcome} |" if count is None else f"| {fault} | {count} | {outcome} |"


def _uncounted(row: str) -> str:
    return re.sub(r" \| \d+ \| ", " | ", row)


_HOW = "KBPROC_UPDATE_DOCS=1 writes them there (with KBPROC_TEST_PROFILE=long where thinned)"


def _pattern(group: str) -> re.Pattern[str]:
    return re.compile(f"(<!-- faults:{group} -->\n)(.*?)(<!-- /faults:{group} -->)", re.DOTALL)


def _page(group: str) -> Path:
    return OTHERS.get(group, PAGE)


def _block(page: Path, group: str) -> set[str]:
    found = _pattern(group).search(page.read_text())
    assert found, f"{page.name} has no block faults:{group}"
    heads = "".join((HEADER, COUNTED, *HEADERS.values())).splitlines()
    return {line for line in found[2].splitlines() if line} - set(heads)


def _rewrite(group: str, rows: set[str], header: str) -> None:
    """Modules of other processes may be rewriting their blocks at the same time."""
    with _page(group).open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        table = header + "".join(f"{row}\n" for row in sorted(rows))
        page = _pattern(group).sub(lambda found: found[1] + table + found[3], file.read())
        file.seek(0)
        file.truncate()
        file.write(page)


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A real file system of this size; the test is skipped where none may be mounted."""
    disk = folder / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(disk)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("may not mount a file system")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@contextlib.contextmanager
def full_at(point: str) -> Iterator[None]:
    """The disk is full wherever `point` is reached within the block."""

    def refuse(name: str) -> None:
        if name == point:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    failpoints.arm(refuse)
    try:
        yield
    finally:
        failpoints.arm(None)


@contextlib.contextmanager
def killed_at(points: Sequence[str], store: Path, copies: Path) -> Iterator[None]:
    """In `copies`, for each point, the store as a kill -9 leaves it where it is first reached."""

    def die(name: str) -> None:
        if name in points and not (copies / name).exists():
            as_killed(store, copies / name)

    failpoints.arm(die)
    try:
        yield
    finally:
        failpoints.arm(None)
    missed = [point for point in points if not (copies / point).exists()]
    assert not missed, f"{missed} were never reached"


def as_killed(store: Path, copy: Path, *without: str) -> None:
    """The files that a kill -9 leaves at this moment; some may go while they are copied."""

    def keep(source: str, target: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(source, target)

    shutil.copytree(
        store, copy, copy_function=keep, ignore=shutil.ignore_patterns(*(without or ("lock",)))
    )


def bytes_of(folder: Path) -> int:
    """How much a process has written there by now: a moment at which to kill it."""
    return sum(path.stat().st_size for path in folder.iterdir())


def everything_in(folder: Path) -> dict[str, tuple[bytes | None, int, int]]:
    """Every file and folder: its bytes, its mode and when it was changed."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        told = path.lstat()
        data = path.read_bytes() if path.is_file() else None
        found[str(path)] = data, told.st_mode, told.st_mtime_ns
    return found


# ------------------------------------------------------------------------- harm

Harm = Callable[[bytes, float], bytes]


def flip(data: bytes, where: float) -> bytes:
    """One bit, at this part of the file: 0 is its start, 1 its end."""
    bit = min(int(where * len(data) * 8), len(data) * 8 - 1)
    harmed = bytearray(data)
    harmed[bit // 8] ^= 1 << bit % 8
    return bytes(harmed)


def cut(data: bytes, where: float) -> bytes:
    return data[: int(where * len(data))]


def zero(data: bytes, where: float) -> bytes:
    """As when a sector is lost."""
    start = int(where * len(data)) // 512 * 512
    return data[:start] + bytes(len(data[start : start + 512])) + data[start + 512 :]


def lines_of(log: Path) -> list[tuple[Path, int, bytes]]:
    """Segment, line number and bytes of every line of a log."""
    return [
        (segment, number, line)
        for segment in sorted(log.glob("*.ndjson"))
        for number, line in enumerate(segment.read_bytes().splitlines(keepends=True), 1)
    ]
