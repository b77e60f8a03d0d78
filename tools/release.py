"""Does all of a release but publishing it: `make release-check`.

It builds sdist and wheel twice and compares them byte for byte, compares every version that the
repository states, renders the description that an index shows, installs the wheel on each Python
that is here, and writes the bundle and the formula, which needs the sdist's sha256, into dist/.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from kbproc import __version__

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
_EPOCH = "1767225600"  # because the same tree has to give the same bytes
_FORMULA = """class Kbproc < Formula
  include Language::Python::Virtualenv

  desc "Knowledge base that agents run as a coprocess"
  homepage "https://pypi.org/project/kbproc/"
  url "https://files.pythonhosted.org/packages/source/k/kbproc/kbproc-{version}.tar.gz"
  sha256 "{sha256}"
  license "Apache-2.0"

  depends_on "python@3.13"

  def install
    virtualenv_create(libexec, "python3.13")
    system libexec/"bin/python", "-m", "pip", "install", "--no-cache-dir", buildpath
    bin.install_symlink libexec/"bin/kbproc"
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/kbproc --version")
  end
end
"""


def main() -> int:
    """Returns 0 if all holds; else prints each line that does not, and returns 1."""
    faults = [*versions(), *notes()]
    build(DIST)
    again = DIST / "again"
    build(again)
    faults += [
        f"{path.name} differs between two builds"
        for path in sorted(DIST.glob("kbproc-*"))
        if path.suffix in {".whl", ".gz"} and _sha256(path) != _sha256(again / path.name)
    ]
    shutil.rmtree(again)
    faults += rendered()
    bundle(DIST / f"kbproc-{__version__}.mcpb")
    (sdist,) = DIST.glob("kbproc-*.tar.gz")
    formula = _FORMULA.format(version=__version__, sha256=_sha256(sdist))
    (DIST / "kbproc.rb").write_text(formula, encoding="utf-8")
    faults += installed()
    for path in sorted(DIST.iterdir()):
        print(f"{_sha256(path)}  {path.name}")
    for fault in faults:
        print(f"fault: {fault}", file=sys.stderr)
    return 1 if faults else 0


def versions() -> Iterator[str]:
    """Yields a line for each file that states another version than the package does."""
    for name in ("clients/typescript/package.json", "server.json", "plugin/plugin.json"):
        if (
            other := json.loads((ROOT / name).read_text(encoding="utf-8"))["version"]
        ) != __version__:
            yield f"{name} has the version {other}, not {__version__}"
    project = tomllib.loads((ROOT / "clients/python/pyproject.toml").read_text(encoding="utf-8"))
    if (other := project["project"]["version"]) != __version__:
        yield f"clients/python/pyproject.toml has the version {other}, not {__version__}"


def notes() -> Iterator[str]:
    """Yields a line if the changelog has no section of this version, or one that names no day."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    head = re.search(rf"^## {re.escape(__version__)}(.*)$", text, re.M)
    if head is None:
        yield f"CHANGELOG.md has no section {__version__}"
    elif os.environ.get("KBPROC_RELEASE") and not re.search(r"\d{4}-\d\d-\d\d", head[1]):
        yield f"CHANGELOG.md names no day for {__version__}"


def build(folder: Path) -> None:
    """Builds sdist and wheel, with one time for all files of theirs."""
    shutil.rmtree(folder, ignore_errors=True)
    env = {**os.environ, "SOURCE_DATE_EPOCH": _EPOCH}
    words = ["-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL
    )


def rendered() -> list[str]:
    """Returns a line for each complaint of twine about metadata and description."""
    tool = ROOT / ".release"
    python = tool / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(tool)], check=True)
        words = ["-m", "pip", "install", "--quiet", "twine", "readme_renderer[md]"]
        subprocess.run([python, *words], check=True)
    files = map(str, DIST.glob("kbproc-*"))
    words = ["-m", "twine", "check", "--strict", *files]
    check = subprocess.run([python, *words], capture_output=True, text=True, check=False)
    return [] if check.returncode == 0 else check.stdout.splitlines()


def bundle(path: Path) -> None:
    """Writes the bundle of the desktop programs: a ZIP of packaging/mcpb."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted((ROOT / "packaging" / "mcpb").iterdir()):
            entry = zipfile.ZipInfo(file.name, (2026, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)


def installed() -> list[str]:
    """Returns a line for each Python that is here and on which the wheel does not work.

    The tests of the wheel install it into an empty environment and run it. They name each version
    that kbproc states and that is not here.
    """
    files = ("tests/repo/test_wheel.py", "tests/repo/test_licences.py")
    words = ["-m", "pytest", "-q", "-rs", *files]
    env = {**os.environ, "KBPROC_TEST_PROFILE": "long"}
    tests = subprocess.run([sys.executable, *words], cwd=ROOT, env=env, check=False)
    return [] if tests.returncode == 0 else ["the wheel does not work; see the tests above"]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
