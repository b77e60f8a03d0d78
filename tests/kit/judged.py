"""What the contract kit starts in tests: forked from what has imported kbproc, like all else."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from kbproc.client.contract.judge import judge, rules_of
from kbproc.client.contract.kit import Kit, own_kit
from kbproc.client.contract.verdicts import Finding
from tests.kit.patience import PATIENCE
from tests.kit.start import REPO, start

KIT = own_kit()
CONVERSATIONS = {one["name"]: one for one in KIT.conversations()}
OURS = shlex.join([sys.executable, "-m", "tests.kit.fixed", "{store}", "hash", "real=1"])


def started(command: list[str], *, cwd: Path, **given: Any) -> subprocess.Popen[Any]:
    """For `kbproc.client.contract.peer.popen`."""
    assert command[0] == sys.executable
    surroundings = {"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin"}
    return start(command[1:], cwd=cwd, env=surroundings, **given)


def judging(rules: Collection[str]) -> list[str]:
    """The conversations that judge one of these rules."""
    return [name for name, one in CONVERSATIONS.items() if set(rules) & set(rules_of(one))]


def findings(command: str, names: Collection[str], kit: Kit = KIT) -> list[Finding]:
    """Of those conversations, with all the time they need."""
    chosen = [one for one in kit.conversations() if one["name"] in names]
    return [found for one in chosen for found in judge(one, command, kit, PATIENCE)]
