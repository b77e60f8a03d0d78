"""Threads that use a type for the first time together end no process."""

from __future__ import annotations

import subprocess
import sys

from tests.kit.patience import LONG
from tests.kit.talk import REPO

PROCESSES = 8 if LONG else 2


def test_threads_may_meet_a_type_together() -> None:
    """msgspec shares a half-learnt type with other threads, which would end in SIGSEGV."""
    ends = [
        subprocess.run(
            [sys.executable, "-m", "tests.kit.first_use"],
            cwd=REPO,
            capture_output=True,
            check=False,
        )
        for _ in range(PROCESSES)
    ]
    assert [(end.returncode, end.stderr[-500:]) for end in ends] == [(0, b"")] * PROCESSES
