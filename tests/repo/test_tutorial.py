"""The tutorial's commands print what the tutorial shows, as a newcomer without models sees it.

KBPROC_UPDATE_DOCS=1 writes what they print.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.shell import Run, in_process
from tests.kit.start import REPO

PAGE = REPO / "docs" / "tutorial.md"
BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.M | re.S)
UPDATES = os.environ.get("KBPROC_UPDATE_DOCS") == "1"  # before a test clears the environment
HOME = "/home/robin/work"  # as long as what mkdtemp makes, so that tables are as wide
MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\dZ"), "2026-11-23 09:00Z"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "2026-11-23T09:00:00.000Z"),
    (re.compile(r"--confirm [0-9a-f]{32}"), "--confirm d2c10f437a45e4391298772c9ae5074e"),
)


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp"))
    assert len(str(path)) == len(HOME)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    found = in_process(folder, monkeypatch, capsys)
    shutil.rmtree(folder / "store")  # a newcomer has none
    monkeypatch.setenv("KBPROC_FORMAT", "text")
    monkeypatch.setattr("kbproc.models.weights._CARRIER", "no_such_package")
    return found


def test_what_it_shows(run: Run, folder: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")

    def printed(block: re.Match[str]) -> str:
        lines = [line for line in block[0].splitlines() if line.startswith("$ ")]
        return "".join(f"{line}\n{said(run, folder, line[2:])}" for line in lines)

    seen = BLOCK.sub(printed, page)
    if UPDATES:
        PAGE.write_text(seen, encoding="utf-8")
    assert UPDATES or seen == page, "KBPROC_UPDATE_DOCS=1 writes it"


def said(run: Run, folder: Path, line: str) -> str:
    """What a person sees of it; kbproc runs in this process, anything else in a shell."""
    words = shlex.split(line)
    if words[0] != "kbproc":
        done = subprocess.run(["sh", "-c", line], cwd=folder, check=True, capture_output=True)
        return done.stdout.decode()
    _, out, err = run(*words[1:])
    text = (out + err).replace(str(folder), HOME)
    for pattern, shown in MASKS:
        text = pattern.sub(shown, text)
    return text
