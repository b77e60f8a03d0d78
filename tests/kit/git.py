"""Runs git in a test's repository, at a fixed date."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kbproc.base.host import environment

COMMITTED = "2025-03-04T05:06:07.000Z"


def run_git(top: Path, *words: str) -> None:
    own = {**environment(), "GIT_COMMITTER_DATE": COMMITTED, "GIT_AUTHOR_DATE": COMMITTED}
    names = ("-c", "user.name=A", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *names, *words], cwd=top, env=own, check=True, capture_output=True)
