"""The contract kit in tests: starts its servers by forking, and compares its verdicts with docs."""

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

from kbproc.contract.judge import judge, rules_of
from kbproc.contract.kit import Kit, own_kit
from kbproc.contract.verdicts import PASS, RuleFinding, Verdict, exit_code
from tests.kit.patience import PATIENCE
from tests.kit.start import REPO, start

PAGE = REPO / "docs" / "contract.md"
_BLOCK = "(<!-- table: {name} -->\n(?:\\|[^`\n]*\n)*)(.*?)(<!-- end of {name} -->)"

KIT = own_kit()
CONVERSATIONS = {one["name"]: one for one in KIT.conversations()}
CLIENTS = [row for row in KIT.requirements if row["id"].startswith("client.")]
SERVED = [row for row in KIT.requirements if row not in CLIENTS]
JUDGED = [row for row in SERVED if "unjudged" not in row]
KEPT = (
    "kbproc serve",
    "contract/examples/more.py",
    "contract/examples/server.py",
    "contract/examples/server.mjs",
    "kbproc.client",
    "clients/typescript",
)
FIXED = shlex.join([sys.executable, "-m", "tests.kit.fixed", "{store}", "hash"])
OURS = shlex.join([sys.executable, "-m", "tests.kit.fixed", "{store}", "hash", "real=1"])


def started(command: list[str], **options: Any) -> subprocess.Popen[Any]:
    """Starts a forked server; replaces `kbproc.contract.exchange.popen`."""
    assert command[0] == sys.executable
    surroundings = {"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin"}
    return start(command[1:], cwd=Path.cwd(), env=surroundings, **options)


def judging(rules: Collection[str]) -> list[str]:
    """Returns the conversations that judge one of these rules."""
    return [name for name, one in CONVERSATIONS.items() if set(rules) & set(rules_of(one))]


def findings(
    command: str, names: Collection[str], kit: Kit = KIT, patience: float = PATIENCE
) -> list[RuleFinding]:
    """Returns the verdicts of these conversations, under the tests' long timeout."""
    chosen = [one for one in kit.conversations() if one["name"] in names]
    hurried = [_hurried(one, patience) for one in chosen]
    return [verdict for one in hurried for verdict in judge(one, command, kit, patience)]


def _hurried(conversation: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Returns the conversation with rules' own limits of at most so many seconds."""
    steps = [
        {**step, "within": min(step["within"], seconds)} if "within" in step else step
        for step in conversation["steps"]
    ]
    return {**conversation, "steps": steps}


def minimal(fault: str) -> str:
    """Returns the command of the kit's minimal server with a fault; "-" is none."""
    return shlex.join([sys.executable, "-m", "tests.kit.minimal", fault, "{store}"])


@contextlib.contextmanager
def told_in(block: str, names: Collection[str], page: Path = PAGE) -> Iterator[dict[str, str]]:
    """Compares the yielded rows with a table of the page, by the first name in each row.

    KBPROC_UPDATE_DOCS=1 writes the rows; other rows of the table stay.
    """
    new_rows: dict[str, str] = {}
    yield new_rows
    pattern = re.compile(_BLOCK.format(name=block), re.DOTALL)
    text = page.read_text()
    block_match = pattern.search(text)
    assert block_match, f"{page.name} has no table {block!r}"
    documented = {row.split("`")[1]: row for row in block_match[2].splitlines()}
    if os.environ.get("KBPROC_UPDATE_DOCS") == "1":
        documented |= new_rows
        rows = "".join(f"{documented[name]}\n" for name in names if name in documented)
        page.write_text(pattern.sub(lambda match: match[1] + rows + match[3], text))
    assert {name: documented.get(name) for name in new_rows} == new_rows, (
        "KBPROC_UPDATE_DOCS=1 writes them"
    )
    assert set(documented) <= set(names), f"{page.name} tells of what is no more"


def all_kept(name: str, command: str, verdicts: list[Verdict]) -> None:
    """Asserts that each rule passed and that the table says so."""
    assert [one for one in verdicts if one.verdict != PASS] == []
    assert exit_code(verdicts) == 0
    with told_in("kept", KEPT) as rows:
        rows[name] = f"| `{name}` | `contract {command}` | {len(verdicts)} of {len(verdicts)} |"
