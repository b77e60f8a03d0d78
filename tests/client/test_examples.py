"""The docs' examples run: each is a file, and prints what its page shows."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from kbproc.engine.store.folder import write_settings
from tests.kit.harness import REPO, popen
from tests.kit.patience import LONG

EXAMPLES = REPO / "clients" / "python" / "examples"


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Forks the server that a harness starts by default; its store embeds without a model."""

    def start(command: list[str], **options: object) -> subprocess.Popen[bytes]:
        assert command[1:4] == ["-P", "-m", "kbproc"]
        rest = {**options, "env": dict(os.environ), "cwd": tmp_path}
        return popen([command[0], *command[2:]], **rest)  # type: ignore[arg-type]

    monkeypatch.setattr("kbproc.client.process.popen", start)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir(mode=0o700)
    write_settings(tmp_path / "notes" / "store.toml", {"kind": "hash", "name": "hash"})


def output_of(capsys: pytest.CaptureFixture[str], name: str, *argv: str) -> str:
    sys.argv = [name, *argv]
    try:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    except SystemExit as end:
        assert not end.code, capsys.readouterr()
    return capsys.readouterr().out


def test_ten_lines(capsys: pytest.CaptureFixture[str]) -> None:
    out = output_of(capsys, "first.py")
    assert re.search(r"^0\.\d+ Tides .*High tide.*\n.*High tide is at noon\. \[1\]", out, re.M)
    # The vector of the new document may come after the search, which then scores by words alone.
    out = re.sub(r"^0\.358479 ", "0.594073 ", out)
    readme = (REPO / "clients" / "python" / "README.md").read_text()
    lines = (EXAMPLES / "first.py").read_text().split("\n\n", 1)[1]
    assert f"```python\n{lines}```" in readme
    assert f"```python\n{lines}```\n\n```text\n{out}```" in (REPO / "docs/harness.md").read_text()
    assert len(lines.splitlines()) <= 10


def test_a_whole_harness(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "backup.md").write_text("# Backups\n\nA backup is restored by opening it.\n")
    out = output_of(capsys, "harness.py", "notes", "docs")
    for line in (
        "read 1 files, 0 failed",
        "sources: Backups",
        "status: finished",
        "first record: ",
        "cancelled: operation.cancelled",
        "meant: default",
        "a person would have to approve: ",
        "20 notes written, 1 restart",
        "the same again: True True",
    ):
        assert line in out


def test_a_harness_without_a_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """kbproc without a model searches words only, and does everything else."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "backup.md").write_text("A backup is restored by opening it.\n")
    settings = {"kind": "onnx", "name": "no-such-model"}
    write_settings(tmp_path / "notes" / "store.toml", settings)
    out = output_of(capsys, "harness.py", "notes", "docs")
    assert "\nfound by words alone: " in out
    assert "the same again: True True" in out


def test_awaited(capsys: pytest.CaptureFixture[str]) -> None:
    out = output_of(capsys, "awaited.py", "notes")
    assert "added 2\nbest ['Tides', 'Lamp']\n" in out and "The lamp is lit at eight. [1]" in out
    assert "operation.timeout" in out


@pytest.mark.skipif(not LONG, reason="starts four processes really")
@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_in_bash(tmp_path: Path) -> None:
    program = tmp_path / "kbproc"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kbproc "$@"\n')
    program.chmod(0o700)
    done = subprocess.run(
        ["bash", str(REPO / "docs" / "examples" / "harness.sh"), "notes"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"duplicate":true' in done.stdout and "High tide is at noon. [1]" in done.stdout


@pytest.mark.skipif(not LONG, reason="starts a process really")
def test_the_harness_in_the_readme(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "backup.md").write_text(
        "# Backups\n\nA backup is restored by opening it.\n"
    )
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", readme, re.M | re.S)
    program = tmp_path / "kbproc"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kbproc "$@"\n')
    program.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "KBPROC_STORE": str(tmp_path / "notes"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, code.rpartition("# such as: ")[2]), done.stderr


@pytest.mark.skipif(not LONG, reason="starts a dozen processes really")
@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_every_night(tmp_path: Path) -> None:
    """The backup script runs twice on one day, after fifteen other days."""
    program = tmp_path / "kbproc"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kbproc "$@"\n')
    program.chmod(0o700)
    for day in range(1, 16):
        (tmp_path / "backups" / f"2020-01-{day:02}").mkdir(parents=True)
    (tmp_path / "backups" / "of-mine").mkdir()
    env = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "KBPROC_STORE": str(tmp_path / "notes"),
    }
    create = [program, "doc", "create", "--title", "Tides", "--text", "High tide is at noon."]
    subprocess.run(create, env=env, check=True, capture_output=True)
    for _ in range(2):
        done = subprocess.run(
            ["bash", str(REPO / "docs" / "examples" / "nightly.sh"), "backups"],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[0] == "true" and done.stdout.splitlines()[-1] == "1"
    backups = sorted(path.name for path in (tmp_path / "backups").iterdir())
    assert len(backups) == 15 and backups[0] == "2020-01-03" and "of-mine" in backups


def build(source: Path, to: Path, target: str) -> None:
    hatch = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(to)]
    subprocess.run(hatch, cwd=source, check=True, capture_output=True)


@pytest.mark.parametrize("packed", ["checkout", "copy", "sdist"])
def test_by_itself(tmp_path: Path, packed: str) -> None:
    """The client works as a package of its own, without kbproc."""
    source = EXAMPLES.parent
    if packed == "copy":
        source = shutil.copytree(source, tmp_path / "python")
    if packed == "sdist":
        build(source, tmp_path, "sdist")
        (path,) = tmp_path.glob("*.tar.gz")
        with tarfile.open(path) as sdist:
            sdist.extractall(tmp_path, filter="data")
        (source,) = tmp_path.glob("kbproc_client-*/")
    build(source, tmp_path, "wheel")
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        there = {name for name in archive.namelist() if name.startswith("kbproc_client/")}
    files = [path for path in (REPO / "kbproc" / "client").iterdir() if path.is_file()]
    assert there == {f"kbproc_client/{path.name}" for path in files}
    program = "import kbproc_client, sys; print('kbproc' in sys.modules, kbproc_client.Kbproc)"
    out = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert out == "False <class 'kbproc_client.kbproc.Kbproc'>\n"


@pytest.mark.skipif(not LONG, reason="mypy begins anew")
def test_its_types_hold(tmp_path: Path) -> None:
    """The type checker accepts both clients and the examples."""
    (tmp_path / "typed.py").write_text(TYPED)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "typed.py", *map(str, EXAMPLES.glob("*.py"))],
        env={**os.environ, "MYPYPATH": str(REPO)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.findall(r"py:(\d+): error: .*\[(.*?)\]", checked.stdout) == WRONG, checked.stdout


TYPED = """\
from kbproc.client import AsyncKbproc, Kbproc
kb = Kbproc()
number: int = kb.search("x", limit=3).data["total_matches"]
kb.search("x", limit="3")
kb.search("x", limt=3)
kb.doc.get(1).data["titel"]
for event in kb.doc.ingest.stream(["docs"], timeout=3.5):
    index: int = event["index"]
async def awaited(kb: AsyncKbproc) -> str:
    return (await kb.doc.get(1)).data["title"]
"""
WRONG = [
    ("4", "arg-type"),
    ("5", "call-arg"),
    ("6", "misc"),
]
