"""A working folder whose name is no UTF-8: answers spell its odd bytes, and nothing breaks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.values import as_json
from tests.kit.patience import PATIENCE
from tests.kit.shell import environment


def odd_folder(folder: Path) -> Path:
    return folder / os.fsdecode(b"odd\xff")


def run(folder: Path, *argv: str) -> tuple[int, dict[str, Any]]:
    """Exit code and answer, which stands on stderr if it is an error."""
    env = {"PATH": os.environ["PATH"], **environment(folder), "KBPROC_FORMAT": "json"}
    done = subprocess.run(
        [sys.executable, "-m", "kbproc", *argv],
        cwd=odd_folder(folder),
        env=env,
        check=False,
        capture_output=True,
        timeout=PATIENCE,
    )
    assert b"Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout or done.stderr)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    odd_folder(tmp_path).mkdir()
    (odd_folder(tmp_path) / "a.md").write_text("# A\nheron\n")
    return tmp_path


def test_what_is_written_there_is_named(folder: Path) -> None:
    odd = f"{folder}/odd\\xff"
    assert run(folder, "kb", "create", "birds")[0] == 0
    code, answer = run(folder, "store", "export", "all.ndjson")
    assert (code, answer["data"]["path"]) == (0, f"{odd}/all.ndjson")
    assert (odd_folder(folder) / "all.ndjson").exists()
    code, answer = run(folder, "link")
    assert (code, answer["data"]["file"]) == (0, f"{odd}/.kbproc.toml")
    assert run(folder, "list", "--path-prefix", ".")[1]["data"] == []


def test_its_files_are_refused_by_name(folder: Path) -> None:
    code, answer = run(folder, "add", ".")
    (failure,) = answer["data"]["failures"]
    assert (code, failure["path"]) == (3, f"{folder}/odd\\xff/a.md")
    assert "is not UTF-8" in failure["message"]


def test_odd_bytes_are_spelled_wherever_they_stand() -> None:
    odd = os.fsdecode(b"x\xff")
    said = as_json({"id": 1, "paths": [odd, {odd: None}], "more": ("a", odd), "half": "\ud83d"})
    assert json.loads(said) == {
        "id": 1,
        "paths": ["x\\xff", {"x\\xff": None}],
        "more": ["a", "x\\xff"],
        "half": "\\ud83d",
    }
    assert as_json({"a": "é"}) == '{"a":"é"}'.encode()
