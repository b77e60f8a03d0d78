"""Tests the processes that tests run in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.kit.talk import REPO

PASSES, FAILS, DIES = "assert True", "print('seen'); assert 1 == 2", "import os; os._exit(0)"


def run(folder: Path, **files: str) -> str:
    """Runs files of one test each in two workers; returns what pytest prints.

    The run's own folder is `folder/base`: pytest would clean up in the machine's otherwise.
    """
    for name, body in files.items():
        (folder / f"test_{name}.py").write_text(f"def test_it(tmp_path):\n    {body}\n")
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "tests.kit.pytest_workers"]
    plain = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--basetemp", "base"]
    return subprocess.run(
        [*pytest, "--workers", "2", *plain, "."],
        check=False,
        cwd=folder,
        env={"PYTHONPATH": str(REPO), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def test_each_test_is_reported_once(tmp_path: Path) -> None:
    output = run(tmp_path, a=PASSES, b=FAILS, c="import pytest; pytest.skip('why')", d=PASSES)
    assert "1 failed, 2 passed, 1 skipped" in output
    assert "assert 1 == 2" in output
    assert "Captured stdout call" in output
    assert "seen" in output


def test_a_worker_that_dies_fails_its_test_and_ends_the_run(tmp_path: Path) -> None:
    output = run(tmp_path, a=PASSES, b=DIES)
    assert "FAILED test_b.py::test_it - its worker has died" in output
    assert "a worker can't go on after test_b.py::test_it" in output


def test_a_worker_has_a_folder_of_its_own(tmp_path: Path) -> None:
    output = run(tmp_path, a=PASSES, b=PASSES)
    base = tmp_path / "base"
    assert {path.name for path in base.iterdir()} <= {"worker0", "worker1"}, output
    assert {path.parent.parent for path in base.glob("*/test_it*")} == {base}, output
