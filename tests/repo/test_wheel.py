"""The wheel holds all that kbproc needs, and works without a checkout."""

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
from markdown_it import MarkdownIt

from kbproc import __version__
from kbproc.surfaces.shell import pages
from tests.kit.patience import LONG
from tests.kit.start import REPO
from tools.generate.plugin import REGISTERED

# Folders beside the package in a checkout → their places inside it in a wheel.
WITHIN = {"schemas": "schemas", "docs": "docs", "plugin": "plugin", "contract": "contract/cases"}
INDEX = ("PIP_", "UV_", "SSL_", "REQUESTS_")  # settings of package indexes
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


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
    """Unpacks the wheel's files as an installation does."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel_in(dist)) as wheel:
        wheel.extractall(folder)
    return folder


def wheel_in(folder: Path) -> Path:
    (path,) = folder.glob("*.whl")
    return path


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist()}


def files(folder: Path, under: str) -> set[str]:
    """Returns the folder's files as paths below `under`, without `__pycache__`."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    sources = (path for path in paths if "__pycache__" not in path.parts)
    return {f"{under}/{path.relative_to(folder)}" for path in sources}


def test_a_wheel_holds_the_package_and_all_that_it_shows(dist: Path) -> None:
    there = {name for name in contents(wheel_in(dist)) if ".dist-info/" not in name}
    expected = files(REPO / "kbproc", "kbproc")
    for name, within in WITHIN.items():
        expected |= files(REPO / name, f"kbproc/{within}")
    assert there == expected


def test_it_says_what_it_is(dist: Path) -> None:
    entries = contents(wheel_in(dist))
    about = f"kbproc-{__version__}.dist-info"
    metadata = message_from_bytes(entries[f"{about}/METADATA"])
    assert (metadata["Name"], metadata["Version"]) == ("kbproc", __version__)
    assert metadata["Requires-Python"] == ">=3.11"
    for version in PYTHONS:
        assert f"Programming Language :: Python :: {version}" in metadata.get_all("Classifier", [])
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert not {"torch", "sentence-transformers", "pytest"} & {name(line) for line in required}
    assert b"kbproc = kbproc.__main__:main" in entries[f"{about}/entry_points.txt"]


def test_an_index_shows_a_description_without_broken_links(dist: Path) -> None:
    """An index has none of the repository's files, so every place must be whole."""
    entries = contents(wheel_in(dist))
    metadata = message_from_bytes(entries[f"kbproc-{__version__}.dist-info/METADATA"])
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = metadata.get_payload(decode=True).decode()
    children = [child for token in MarkdownIt().parse(text) for child in token.children or ()]
    places = {child.attrGet("href") or child.attrGet("src") for child in children} - {None}
    assert [place for place in places if not str(place).startswith("https://")] == []
    assert f"<!-- mcp-name: {REGISTERED} -->" in text, "the registry of servers looks for it"
    assert "pip install kbproc" in text and "pip install ." not in text
    for page, _, anchor in re.findall(r"`kbproc docs ([\w/-]+)(#([\w-]+))?`", text):
        section = pages.find(f"{page}#{anchor}" if anchor else page)
        assert section[1].text, page


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
    assert contents(wheel_in(tmp_path)) == contents(wheel_in(dist))


ELSEWHERE = """
import sys
import kbproc
from kbproc.base.pipes import leave
from kbproc.surfaces.shell.cli import main
assert kbproc.__file__.startswith(sys.argv[1]), kbproc.__file__
for line in (
    "--version",
    "docs errors#store.locked --format text",
    "docs --format text",
    "contract requirements ids --format text",
    "schema --jq .data.names[0]",
    "skills install --yes",
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
    for text in (
        "When another process has the store open",
        "tutorial",
        "ids.as_sent",
        "name: kbproc",
    ):
        assert text in done.stdout


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
    """Returns a Python of that version from the PATH, or beside this one (pyenv, uv)."""
    interpreters = sorted(Path(sys.base_prefix).parent.glob(f"*{version}.*/bin/python{version}"))
    for path in filter(None, [shutil.which(f"python{version}"), *map(str, interpreters)]):
        child = subprocess.run([path, "-c", "import venv"], capture_output=True, check=False)
        if child.returncode == 0:
            return path
    return None


def stated_megabytes() -> int:
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    (stated,) = re.findall(r"^\| `pip install \.` \| (\d+) MB", readme, re.M)
    return int(stated)


def megabytes(folder: Path) -> float:
    """Returns the folder's size as `du -sm` counts it."""
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
    stated = stated_megabytes()
    assert 0.9 * stated < megabytes(tmp_path / "env") < 1.1 * stated, "what the README says"
    env = {"PATH": f"{bin}:/usr/bin:/bin", "HOME": str(tmp_path)}
    judged = ["contract", "check", "--exec", "kbproc serve --store {store}", "--format", "text"]
    for words, expected in (
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
        assert (done.returncode, expected in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.skipif(not LONG, reason="installs uv and pipx, and with each all that kbproc needs")
def test_uvx_and_pipx_run_it(dist: Path, tmp_path: Path) -> None:
    """uvx and pipx run the wheel without an installation, in an empty home."""
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
    for words, expected in (
        (["uvx", "--from", wheel, "kbproc", "--version"], f"kbproc {__version__}"),
        (["uvx", "--from", wheel, "kbproc", "add", "docs"], '"added":1'),
        (["pipx", "run", "--spec", wheel, "kbproc", "search", "restore"], '"title":"Backups"'),
    ):
        done = subprocess.run(words, cwd=home, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, expected in done.stdout) == (0, True), done.stdout + done.stderr
