"""Runs the commands in the fenced blocks of docs pages, one shell per page."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.kit.patience import LIVES, until
from tests.kit.processes import processes_in
from tests.kit.program import program
from tests.kit.start import REPO

FENCED = re.compile(r"^(?P<fence>```+)(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)$", re.M | re.S)
HOME = "/home/robin/work"  # same length as the paths of mkdtemp, so that tables have the same width
# A newcomer has no models, so installed ones are hidden.
_BEGINS = """
from kbproc.__main__ import main
from kbproc.engine.models import weights
from tests.kit.fixed import NOT_HERE
weights.CARRIERS = NOT_HERE
main()
"""
_MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\dZ"), "2026-11-23 09:00Z"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "2026-11-23T09:00:00.000Z"),
    (re.compile(r"\d{4}-\d\d-\d\d, (?:today|yesterday)"), "2026-11-23, today"),
    (re.compile(r"\d{4}-\d\d-\d\d, \d days ago"), "2026-11-20, 3 days ago"),
    (re.compile(r"§\d{4}-\d\d-\d\d > turn"), "§2026-11-20 > turn"),
    (re.compile(r"\d+ (?:weeks|months|years) ago"), "9 months ago"),
    (re.compile(r"--confirm [0-9a-f]{32}"), "--confirm d2c10f437a45e4391298772c9ae5074e"),
)
_RUN = """
number=0
while [ -e "$COMMANDS/$number" ]; do
    eval "$(cat "$COMMANDS/$number")" >"$COMMANDS/$number.out" 2>&1 </dev/null
    echo $? >"$COMMANDS/$number.exit"
    number=$((number + 1))
done
"""


class Block(NamedTuple):
    """A fenced block. `name`: its page and its first line, which lists may use."""

    page: str
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}: {self.text.partition(chr(10))[0]}"

    @property
    def commands(self) -> list[str]:
        """The commands: in sh, lines with their continuations; in console, the lines after `$ `."""
        if self.language == "console":
            return [line[2:] for line in self.text.splitlines() if line.startswith("$ ")]
        if self.language != "sh":
            return []
        results, command = [], ""
        for line in self.text.splitlines():
            command += line + "\n"
            quotes = len(re.findall(r'(?<!\\)"', re.sub(r"'[^']*'", "", command)))
            if not line.endswith("\\") and quotes % 2 == 0:
                results.append(command)
                command = ""
        return [one for one in results if one.strip() and not one.startswith("#")]


class Ran(NamedTuple):
    command: str
    exit: int
    said: str

    @property
    def expected(self) -> int:
        """The exit code that a comment in the command states; 0 without one."""
        named = re.search(r"#.*\bexit (\d+)", self.command)
        return int(named[1]) if named else 0


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(page.stem, m["language"], m["text"]) for m in FENCED.finditer(text)]


def ran(commands: list[str], files: dict[str, str]) -> list[Ran]:
    """Runs the commands in order in one bash, in a new home that holds `files`.

    Paths of the home and times are masked in their output.
    """
    home, surroundings = Path(tempfile.mkdtemp(dir="/tmp")), Path(tempfile.mkdtemp(dir="/tmp"))
    assert len(str(home)) == len(HOME)
    try:
        for name, text in files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text, encoding="utf-8")
        results = list(_ran(commands, home, surroundings))
        # The owner of a store ends a moment after the last command, and writes until then.
        until(
            lambda: not processes_in(home), "the last owner's end", lambda: str(processes_in(home))
        )
        return results
    finally:
        shutil.rmtree(home)
        shutil.rmtree(surroundings)


def _ran(commands: list[str], home: Path, surroundings: Path) -> Iterator[Ran]:
    for number, command in enumerate(commands):
        (surroundings / str(number)).write_text(command, encoding="utf-8")
    env = {
        "PATH": f"{surroundings}:{Path(shutil.which('node') or '/bin/sh').parent}:/usr/bin:/bin",
        "HOME": str(home),
        "PYTHONPATH": str(REPO),
        "KBPROC_FORMAT": "text",
        "COLUMNS": "80",
        "COMMANDS": str(surroundings),
    }
    with program(surroundings / "kbproc", ("-c", _BEGINS)):
        subprocess.run(["bash", "-c", _RUN], cwd=home, env=env, check=True, timeout=LIVES)
    for number, command in enumerate(commands):
        output = (surroundings / f"{number}.out").read_text(encoding="utf-8")
        output = output.replace(str(home), HOME).replace(str(surroundings), "/usr/local/bin")
        for pattern, placeholder in _MASKS:
            output = pattern.sub(placeholder, output)
        yield Ran(command, int((surroundings / f"{number}.exit").read_text()), output)
