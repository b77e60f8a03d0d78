"""What the contract kit starts in tests: forked from what has imported kbproc, like all else."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from kbproc.client.contract.judge import judge, rules_of
from kbproc.client.contract.kit import Kit, own_kit
from kbproc.client.contract.verdicts import PASS, Finding, Verdict, exit_code
from tests.kit.patience import PATIENCE
from tests.kit.start import REPO, start

PAGE = REPO / "docs" / "contract.md"
_BLOCK = "(<!-- table: {name} -->\n(?:\\|[^`\n]*\n)*)(.*?)(<!-- end of {name} -->)"

KIT = own_kit()
CONVERSATIONS = {one["name"]: one for one in KIT.conversations()}
CLIENTS = [row for row in KIT.requirements if row["id"].startswith("client.")]
SERVED = [row for row in KIT.requirements if row not in CLIENTS]
KEPT = ("kbproc serve", "kbproc.client", "clients/typescript")
FIXED = shlex.join([sys.executable, "-m", "tests.kit.fixed", "{store}", "hash"])
OURS = shlex.join([sys.executable, "-m", "tests.kit.fixed", "{store}", "hash", "real=1"])


def started(command: list[str], **given: Any) -> subprocess.Popen[Any]:
    """For `kbproc.client.contract.peer.popen`."""
    assert command[0] == sys.executable
    surroundings = {"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin"}
    return start(command[1:], cwd=Path.cwd(), env=surroundings, **given)


def judging(rules: Collection[str]) -> list[str]:
    """The conversations that judge one of these rules."""
    return [name for name, one in CONVERSATIONS.items() if set(rules) & set(rules_of(one))]


def findings(command: str, names: Collection[str], kit: Kit = KIT) -> list[Finding]:
    """Of those conversations, with all the time they need."""
    chosen = [one for one in kit.conversations() if one["name"] in names]
    return [found for one in chosen for found in judge(one, command, kit, PATIENCE)]


@contextlib.contextmanager
def told_in(block: str, names: Collection[str], page: Path = PAGE) -> Iterator[dict[str, str]]:
    """A table of a page, by the name that stands first in a row: what was seen must stand
    there, and KBPROC_UPDATE_DOCS=1 writes it. What was not tried this time stays.
    """
    seen: dict[str, str] = {}
    yield seen
    pattern = re.compile(_BLOCK.format(name=block), re.DOTALL)
    text = page.read_text()
    found = pattern.search(text)
    assert found, f"{page.name} has no table {block!r}"
    told = {row.split("`")[1]: row for row in found[2].splitlines()}
    if os.environ.get("KBPROC_UPDATE_DOCS") == "1":
        told |= seen
        rows = "".join(f"{told[name]}\n" for name in names if name in told)
        page.write_text(pattern.sub(lambda match: match[1] + rows + match[3], text))
    assert {name: told.get(name) for name in seen} == seen, "KBPROC_UPDATE_DOCS=1 writes them"
    assert set(told) <= set(names), f"{page.name} tells of what is no more"


def all_kept(name: str, command: str, found: list[Verdict]) -> None:
    """Each rule passed; the table of those that keep them has it so."""
    assert [one for one in found if one.verdict != PASS] == []
    assert exit_code(found) == 0
    with told_in("kept", KEPT) as rows:
        rows[name] = f"| `{name}` | `contract {command}` | {len(found)} of {len(found)} |"
