"""Injects faults, damages stores, and compares the outcomes with the documented table.

A module that injects faults makes its fixture with `faults_of(GROUP)` and calls `note`.
When the module ends, its rows must be those of the block GROUP in
docs/evidence/reliability.md (or OTHERS); KBPROC_UPDATE_DOCS=1 writes them there.
A group belongs to one module. In a `counted` group each row holds its number of notes.
A `thinned` module tries every fault only in the long profile; otherwise it lacks rows, and its
counts are lower.
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

PAGE = REPO / "docs" / "evidence" / "reliability.md"
# The pages of groups that are not in reliability.md.
OTHERS = {
    "streams": REPO / "docs" / "cluster.md",
    "hooks": REPO / "docs" / "evidence" / "agents.md",
    "reading": REPO / "docs" / "evidence" / "reading.md",
    "secrets": REPO / "docs" / "evidence" / "secrets.md",
    **dict.fromkeys(
        ("shortage", "odd", "sight", "endpoints", "extremes"),
        REPO / "docs" / "evidence" / "hostile.md",
    ),
}
HEADER = "| fault | what happened |\n| --- | --- |\n"
COUNTED = "| attack | tries | what happened |\n| --- | --- | --- |\n"
# The table heads of groups that are not about faults.
HEADERS = {
    "reading": "| kind of source | files | outcome |\n| --- | --- | --- |\n",
    "secrets": "| what | forms | outcome |\n| --- | --- | --- |\n",
}

_counts: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)


def note(group: str, fault: str, outcome: str) -> None:
    """Notes one row; repeats of a fault with the same outcome share a row."""
    assert "|" not in fault + outcome and "\n" not in fault + outcome
    _counts[group][fault, outcome] += 1


def faults_of(group: str, *, counted: bool = False, thinned: bool = False) -> Any:
    """Returns a fixture that compares the module's rows with the page when the module ends."""

    @pytest.fixture(scope="module", autouse=True)
    def compared(request: pytest.FixtureRequest) -> Iterator[None]:
        _counts[group].clear()
        failed = request.session.testsfailed
        yield
        if request.session.testsfailed == failed:
            whole = _runs_whole(request) and (LONG or not thinned)
            compare(group, whole=whole, counted=counted)

    return compared


def _runs_whole(request: pytest.FixtureRequest) -> bool:
    """Returns True if this run includes every test of the module."""
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
    """Compares the noted rows with the page; the counts only if the `whole` module ran."""
    rows = {_row(*key, count if counted else None) for key, count in _counts[group].items()}
    if whole and os.environ.get("KBPROC_UPDATE_DOCS") == "1":
        _rewrite(group, rows, HEADERS.get(group, COUNTED if counted else HEADER))
    page = _page(group)
    documented = _block(page, group)
    if not whole and counted:
        rows, documented = (
            {_uncounted(row) for row in rows},
            {_uncounted(row) for row in documented},
        )
    assert rows <= documented, f"not in {page.name}: {sorted(rows - documented)}; {_HOW}"
    assert not whole or rows == documented, (
        f"{page.name} tells what is not tried: {sorted(documented - rows)}"
    )


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
    match = _pattern(group).search(page.read_text())
    assert match, f"{page.name} has no block faults:{group}"
    heads = "".join((HEADER, COUNTED, *HEADERS.values())).splitlines()
    return {line for line in match[2].splitlines() if line} - set(heads)


def _rewrite(group: str, rows: set[str], header: str) -> None:
    """Writes the rows to the page under a lock, because other processes may write theirs."""
    with _page(group).open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        table = header + "".join(f"{row}\n" for row in sorted(rows))
        page = _pattern(group).sub(lambda match: match[1] + table + match[3], file.read())
        file.seek(0)
        file.truncate()
        file.write(page)


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """Mounts a real file system of this size; skips the test if mounting is forbidden."""
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
    """Within the block, reaching `point` raises the error of a full disk."""

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
    """Copies the store to `copies`/POINT at each point's first hit, as a kill -9 would leave it."""

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
    """Copies the files that a kill -9 would leave now; skips files that vanish during the copy."""

    def keep(source: str, target: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(source, target)

    shutil.copytree(
        store, copy, copy_function=keep, ignore=shutil.ignore_patterns(*(without or ("lock",)))
    )


def bytes_of(folder: Path) -> int:
    """Returns the total size of the folder's files, for tests that kill a process at a size."""
    return sum(path.stat().st_size for path in folder.iterdir())


def everything_in(folder: Path) -> dict[str, tuple[bytes | None, int, int]]:
    """Returns the bytes, mode and modification time of every file and folder."""
    files = {}
    for path in (folder, *folder.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() else None
        files[str(path)] = data, status.st_mode, status.st_mtime_ns
    return files


# ------------------------------------------------------------------------- harm

Harm = Callable[[bytes, float], bytes]


def flip(data: bytes, where: float) -> bytes:
    """Flips one bit; `where` is its place in the file, from 0 (start) to 1 (end)."""
    bit = min(int(where * len(data) * 8), len(data) * 8 - 1)
    harmed = bytearray(data)
    harmed[bit // 8] ^= 1 << bit % 8
    return bytes(harmed)


def cut(data: bytes, where: float) -> bytes:
    return data[: int(where * len(data))]


def zero(data: bytes, where: float) -> bytes:
    """Zeroes one sector, as a failed disk would."""
    start = int(where * len(data)) // 512 * 512
    return data[:start] + bytes(len(data[start : start + 512])) + data[start + 512 :]


def lines_of(log: Path) -> list[tuple[Path, int, bytes]]:
    """Returns segment, line number and bytes of every line of a log."""
    return [
        (segment, number, line)
        for segment in sorted(log.glob("*.ndjson"))
        for number, line in enumerate(segment.read_bytes().splitlines(keepends=True), 1)
    ]
