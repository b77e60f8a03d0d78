"""Lists of many pages, an item a line, and sources as they are."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.kit.shell import Run, environment, in_process, refused
from tests.kit.start import ran


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_process(tmp_path, monkeypatch, capsys)


def fill(run: Run, count: int) -> None:
    for n in range(count):
        code, *_ = run("doc", "create", f"--title=Title {n}", f"--text=text {n}", "--no-wait")
        assert code == 0


def test_all_pages(run: Run) -> None:
    fill(run, 5)
    code, out, _ = run("doc", "list", "--limit=2", "--all")
    answer = json.loads(out)
    assert (code, len({one["id"] for one in answer["data"]})) == (0, 5)
    meta = answer["meta"]
    assert (meta["count"], meta["total"], meta["has_more"]) == (5, 5, False)
    assert "next_cursor" not in meta
    assert json.loads(run("doc", "list", "--limit=2")[1])["meta"]["count"] == 2


def test_all_means_nothing_without_pages(run: Run) -> None:
    assert refused(run, "status", "--all")["message"] == "--all means nothing for kbproc status."
    error = refused(run, "doc", "list", "--all", "--cursor=x")
    assert error["message"] == "--all and --cursor exclude each other."
    assert error["hint"] == "Leave one of them out."


def test_a_list_in_ndjson_is_an_item_a_line(run: Run) -> None:
    fill(run, 3)
    *items, result = map(json.loads, run("doc", "list", "--format=ndjson")[1].splitlines())
    assert [item["type"] for item in items] == ["item"] * 3
    assert [item["item"]["title"] for item in items] == ["Title 0", "Title 1", "Title 2"]
    assert (result["type"], result["data"], result["meta"]["count"]) == ("result", None, 3)


def download(folder: Path, *argv: str) -> bytes:
    """Returns what `doc download` writes to a pipe."""
    command = ["-m", "kbproc", "doc", "download", "1", *argv]
    done = ran(command, env={"PATH": os.environ["PATH"], **environment(folder)}, cwd=folder)
    assert done.returncode == 0, done.stderr
    return bytes(done.stdout)


def test_a_download_to_a_pipe_is_the_source(run: Run, tmp_path: Path) -> None:
    text = b"# Words\n" + b"caf\xc3\xa9 \x0c ".ljust(1 << 20) + b"end\n"
    (tmp_path / "all.txt").write_bytes(text)
    assert run("doc", "ingest", "all.txt", "--no-wait")[0] == 0
    source = (tmp_path / "all.txt").read_bytes()
    assert len(source) > 1 << 20
    assert download(tmp_path) == source
    assert download(tmp_path, "--offset=3", "--length=5") == source[3:8]
    assert download(tmp_path, "--offset=3") == source[3:]
    assert json.loads(download(tmp_path, "--format=json"))["data"]["size_bytes"] == len(source)
    assert download(tmp_path, "--jq=.data.id") == b"1\n"
