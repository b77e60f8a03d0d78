"""The benchmark's legs run to their end; the quick profile tries those that call inner parts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.__main__ import LEGS
from tests.kit.patience import PATIENCE, all_or
from tests.kit.start import REPO

QUICK = ("ingest", "embed", "rebuild")


@pytest.mark.parametrize("leg", all_or(QUICK, LEGS))
def test_a_leg_runs(leg: str) -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--only", leg]
    done = subprocess.run(
        command, cwd=REPO, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"({leg} took" in done.stderr
