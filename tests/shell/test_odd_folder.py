"""A working folder whose name is not UTF-8: answers escape its odd bytes, and nothing breaks."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.values import as_json
from tests.kit.shell import environment
from tests.kit.start import ran
from tests.kit.talk import Process


def odd_folder(folder: Path) -> Path:
    return folder / os.fsdecode(b"odd\xff")


def run(folder: Path, *argv: str) -> tuple[int, dict[str, Any]]:
    """Returns the exit code and the answer, which an error puts on stderr."""
    env = {"PATH": os.environ["PATH"], **environment(folder), "KBPROC_FORMAT": "json"}
    done = ran(["-m", "kbproc", *argv], cwd=odd_folder(folder), env=env)
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


@pytest.fixture
def serving(folder: Path) -> Iterator[Callable[[Path], Process]]:
    """Serves the store from a folder; later processes attach to the first one."""
    environment(folder)
    with contextlib.ExitStack() as ended:

        def serve(cwd: Path) -> Process:
            process = Process(folder / "store", cwd=cwd)
            ended.callback(process.stop)
            return process.ready()

        yield serve


def namesake(folder: Path) -> Path:
    """Makes a folder, with a file, whose name equals the odd folder's escaped name."""
    spelled = folder / "odd\\xff"
    spelled.mkdir()
    (spelled / "a.md").write_text("# Theirs\n")
    return spelled


def test_relative_paths_of_an_attached_command_mean_its_folder(
    folder: Path, serving: Callable[[Path], Process]
) -> None:
    """The paths stay right although another folder has this one's escaped name."""
    serving(folder)
    spelled = namesake(folder)
    assert run(folder, "kb", "create", "birds")[0] == 0
    code, answer = run(folder, "store", "export", "all.ndjson")
    assert (code, answer["data"]["path"]) == (0, f"{spelled}/all.ndjson")
    assert (odd_folder(folder) / "all.ndjson").exists()
    assert run(folder, "store", "import", "all.ndjson")[0] == 0
    code, answer = run(folder, "add", "a.md")
    assert (code, answer["data"]["documents"]) == (3, [])
    assert "is not UTF-8" in answer["data"]["failures"][0]["message"]
    code, answer = run(folder, "call", "store.import", "path=none.ndjson")
    assert (code, answer["error"]["type"]) == (5, "resource.not_found")
    assert [path.name for path in spelled.iterdir()] == ["a.md"]


def test_an_attached_process_has_its_folder_as_its_root(
    folder: Path, serving: Callable[[Path], Process]
) -> None:
    serving(folder)
    spelled = namesake(folder)
    process = serving(odd_folder(folder))
    data = process.ask(1, "doc.ingest", paths=["a.md"])["result"]["data"]
    assert (data["documents"], len(data["failures"])) == ([], 1)
    error = process.ask(2, "doc.ingest", paths=[f"{spelled}/a.md"])["error"]["data"]
    assert (error["type"], error["detail"]["root"]) == ("path.outside_root", str(spelled))
    assert "result" in process.ask(3, "store.export", path="all.ndjson")
    assert (odd_folder(folder) / "all.ndjson").exists()


def test_odd_bytes_are_spelled_wherever_they_stand() -> None:
    odd = os.fsdecode(b"x\xff")
    text = as_json({"id": 1, "paths": [odd, {odd: None}], "more": ("a", odd), "half": "\ud83d"})
    assert json.loads(text) == {
        "id": 1,
        "paths": ["x\\xff", {"x\\xff": None}],
        "more": ["a", "x\\xff"],
        "half": "\\ud83d",
    }
    assert as_json({"a": "é"}) == '{"a":"é"}'.encode()
