"""What is built holds all that kbproc needs, and works where there is no checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from kbproc import __version__
from tests.kit.patience import LONG
from tests.kit.start import REPO

WITHIN = ("schemas", "docs", "contract")  # beside the package in a checkout, in it in a wheel
INDEX = ("PIP_", "UV_", "SSL_", "REQUESTS_")  # where packages come from, and whom to trust for that
PYTHONS = ("3.11", "3.12", "3.13")


def build(source: Path, to: Path, *targets: str) -> None:
    chosen = [word for target in targets for word in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", *chosen, "-d", str(to)]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(command, cwd=source, env=env, check=True, capture_output=True)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build(REPO, folder, "wheel", "sdist")
    return folder


@pytest.fixture(scope="module")
def unpacked(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files as they lie once they are installed."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel_in(dist)) as wheel:
        wheel.extractall(folder)
    return folder


def wheel_in(folder: Path) -> Path:
    (path,) = folder.glob("*.whl")
    return path


def held(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist()}


def files(folder: Path, under: str) -> set[str]:
    """Below the folder, named as below `under`; without what running leaves behind."""
    found = (path for path in folder.rglob("*") if path.is_file())
    kept = (path for path in found if "__pycache__" not in path.parts)
    return {f"{under}/{path.relative_to(folder)}" for path in kept}


def test_a_wheel_holds_the_package_and_all_that_it_shows(dist: Path) -> None:
    there = {name for name in held(wheel_in(dist)) if ".dist-info/" not in name}
    wanted = files(REPO / "kbproc", "kbproc")
    for name in WITHIN:
        wanted |= files(REPO / name, f"kbproc/{name}")
    assert there == wanted


def test_it_says_what_it_is(dist: Path) -> None:
    entries = held(wheel_in(dist))
    about = f"kbproc-{__version__}.dist-info"
    told = message_from_bytes(entries[f"{about}/METADATA"])
    assert (told["Name"], told["Version"]) == ("kbproc", __version__)
    assert told["Requires-Python"] == ">=3.11"
    for version in PYTHONS:
        assert f"Programming Language :: Python :: {version}" in told.get_all("Classifier", [])
    required = [line for line in told.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert not {"torch", "sentence-transformers", "pytest"} & {name(line) for line in required}
    assert b"kbproc = kbproc.__main__:main" in entries[f"{about}/entry_points.txt"]


def name(requirement: str) -> str:
    return requirement.partition(">")[0].partition("[")[0]


@pytest.mark.skipif(not LONG, reason="builds once more")
def test_an_sdist_builds_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert {"Makefile", "tests", "clients", "LICENSE"} <= {one.name for one in source.iterdir()}
    build(source, tmp_path, "wheel")
    assert held(wheel_in(tmp_path)) == held(wheel_in(dist))


ELSEWHERE = """
import sys
import kbproc
from kbproc.base.pipes import leave
from kbproc.shell.cli import main
assert kbproc.__file__.startswith(sys.argv[1]), kbproc.__file__
for line in (
    "--version",
    "docs errors#store.locked --format text",
    "docs --format text",
    "contract requirements ids --format text",
    "schema --jq .data.names[0]",
):
    assert main(line.split()) == 0, line
leave(0)
"""


def away(site: Path, folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(site)}


def test_it_works_away_from_the_repository(unpacked: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", ELSEWHERE, str(unpacked)],
        cwd=tmp_path,
        env=away(unpacked, tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.startswith(f"kbproc {__version__}\nstore.locked\n")
    for shown in ("When another process holds the store.", "tutorial", "ids.as_sent"):
        assert shown in done.stdout


@pytest.mark.skipif(not LONG, reason="exports a model and embeds")
@pytest.mark.model
def test_a_wheel_does_the_demo(unpacked: Path, tmp_path: Path) -> None:
    shutil.copytree(REPO / "demo", tmp_path / "demo")
    done = subprocess.run(
        [sys.executable, "-P", "-c", DEMO, str(tmp_path / "demo")],
        cwd=tmp_path,
        env=away(unpacked, tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ingested 7 files" in done.stdout and "mode hybrid" in done.stdout
    assert "7 unchanged, nothing to do" in done.stdout


DEMO = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
runpy.run_path(sys.argv[1] + "/run.py", run_name="__main__")
"""


def interpreter(version: str) -> str | None:
    """A Python of that version: on the PATH, or beside this one, as pyenv and uv keep them."""
    kept = sorted(Path(sys.base_prefix).parent.glob(f"*{version}.*/bin/python{version}"))
    for path in filter(None, [shutil.which(f"python{version}"), *map(str, kept)]):
        asked = subprocess.run([path, "-c", "import venv"], capture_output=True, check=False)
        if asked.returncode == 0:
            return path
    return None


def told_megabytes() -> tuple[int, int]:
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    ((least, most),) = re.findall(r"^\| `pip install \.` \| (\d+) to (\d+) MB", readme, re.M)
    return int(least), int(most)


def megabytes(folder: Path) -> float:
    """As `du -sm` counts."""
    return sum(path.lstat().st_blocks for path in folder.rglob("*")) * 512 / 2**20


@pytest.mark.skipif(not LONG, reason="installs all that kbproc needs, a minute each")
@pytest.mark.parametrize("version", PYTHONS)
def test_it_installs_into_an_empty_environment(version: str, dist: Path, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    subprocess.run([python, "-m", "venv", str(tmp_path / "env")], check=True)
    bin = tmp_path / "env" / "bin"
    pip = [bin / "python", "-m", "pip", "install", "--quiet", wheel_in(dist)]
    installed = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert installed.returncode == 0, installed.stderr
    least, most = told_megabytes()
    assert 0.9 * least < megabytes(tmp_path / "env") < 1.1 * most, "what the README says"
    env = {"PATH": f"{bin}:/usr/bin:/bin", "HOME": str(tmp_path)}
    judged = ["contract", "check", "--exec", "kbproc serve --store {store}", "--format", "text"]
    for words, said in (
        (["--version"], f"kbproc {__version__}\n"),
        (["docs", "errors#store.locked", "--format", "text"], "When another process"),
        (judged, " 0 broken (wrong), 0 that the harness could not tell"),
    ):
        done = subprocess.run(
            [bin / "kbproc", *words],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, said in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.skipif(not LONG, reason="installs uv and pipx, and with each all that kbproc needs")
def test_uvx_and_pipx_run_it(dist: Path, tmp_path: Path) -> None:
    """Without an installation of one's own, in a home that is empty."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "tools")], check=True)
    bin = tmp_path / "tools" / "bin"
    subprocess.run([bin / "python", "-m", "pip", "install", "-q", "uv", "pipx"], check=True)
    home = tmp_path / "home"
    (home / "docs").mkdir(parents=True)
    (home / "docs" / "backups.md").write_text(
        "# Backups\n\nTo restore a backup, open its folder.\n"
    )
    index = {key: value for key, value in os.environ.items() if key.startswith(INDEX)}
    env = {**index, "PATH": f"{bin}:/usr/bin:/bin", "HOME": str(home)}
    wheel = str(wheel_in(dist))
    for words, said in (
        (["uvx", "--from", wheel, "kbproc", "--version"], f"kbproc {__version__}"),
        (["uvx", "--from", wheel, "kbproc", "add", "docs"], '"added":1'),
        (["pipx", "run", "--spec", wheel, "kbproc", "search", "restore"], '"title":"Backups"'),
    ):
        done = subprocess.run(words, cwd=home, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, said in done.stdout) == (0, True), done.stdout + done.stderr
