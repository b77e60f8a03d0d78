"""Prints pip's constraints for the lower ends of the ranges in pyproject.toml.

With the argument `sqlite` it gives this Python's virtual environment the oldest SQLite that is
allowed, from Debian's archive: every process that it starts from then on uses that.
"""

from __future__ import annotations

import hashlib
import io
import platform
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import urllib.request
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
# Programs that developers run; kbproc runs with any of them.
LEFT_OUT = {"mypy", "ruff", "hatchling", "pytest", "pytest-xdist"}
_RANGE = re.compile(r"([a-z0-9-]+)(?:\[\w+\])?>=([\d.]+)")

SQLITE = "3.34.1"
_PACKAGE = "debian/pool/main/s/sqlite3/libsqlite3-0_3.34.1-3_{}.deb"
_ARCHIVES = ("http://deb.debian.org", "http://archive.debian.org")
_SHA256 = {
    "amd64": "a0b8d3acf4a0483048637637d269be93af48d5c16f6f139f53edd13384ad4686",
    "arm64": "1e33cd39dc4fff2a7edd7bb7e90a71e20fb528f6a581fe0287652e4dae77e0d0",
}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# The library is loaded first, so that the module finds it by its name. Lazily, because it lacks
# functions that the module has been built with, and that kbproc does not use.
_LOADER = """\
import ctypes, os, sys
flags = sys.getdlopenflags()
ctypes.CDLL({library!r})
sys.setdlopenflags(os.RTLD_LAZY)
try:
    import _sqlite3
finally:
    sys.setdlopenflags(flags)
"""


def lowest(project: dict[str, object]) -> list[str]:
    """Returns `name==version` of each requirement that has a lower end."""
    table = project["project"]
    if not isinstance(table, dict):
        raise SystemExit("pyproject.toml has no table [project]")
    extras = table["optional-dependencies"]
    lines = [*table["dependencies"], *extras["meaning"], *extras["graphs"]]
    matches = (_RANGE.match(line) for line in lines)
    return [f"{one[1]}=={one[2]}" for one in matches if one and one[1] not in LEFT_OUT]


def use_oldest_sqlite() -> str:
    """Installs SQLite into the virtual environment; returns what its Python uses then."""
    architecture = _ARCHITECTURES.get(platform.machine()) if sys.platform == "linux" else None
    if architecture is None:
        return f"There is no old SQLite for {platform.platform()}: {_version()} is used."
    packages = Path(sysconfig.get_path("purelib"))
    library = packages / "libsqlite3.so.0"
    if not library.exists():
        library.write_bytes(_library(_downloaded(architecture)))
    (packages / "_oldest_sqlite.py").write_text(_LOADER.format(library=str(library)))
    (packages / "_oldest_sqlite.pth").write_text("import _oldest_sqlite\n")
    if (version := _version()) != SQLITE:
        return f"This Python has an SQLite of its own that can't be replaced: {version} is used."
    return f"The tests run with SQLite {version}."


def _version() -> str:
    code = "import sqlite3; print(sqlite3.sqlite_version)"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _downloaded(architecture: str) -> bytes:
    """Returns Debian's package."""
    reasons = []
    for archive in _ARCHIVES:
        url = f"{archive}/{_PACKAGE.format(architecture)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310
                package: bytes = answer.read()
        except OSError as error:
            reasons.append(f"{url}: {error}")
            continue
        if hashlib.sha256(package).hexdigest() == _SHA256[architecture]:
            return package
        reasons.append(f"{url}: another file")
    raise SystemExit("\n".join(["SQLite could not be downloaded.", *reasons]))


def _library(package: bytes) -> bytes:
    """Returns the library that is in a Debian package, which is an `ar` archive of archives."""
    at = 8
    while at < len(package):
        name, size = package[at : at + 16].split(b" ")[0], int(package[at + 48 : at + 58])
        at += 60
        if name.startswith(b"data.tar"):
            with tarfile.open(fileobj=io.BytesIO(package[at : at + size])) as data:
                for member in data:
                    if ".so." in member.name and (file := data.extractfile(member)):
                        return file.read()
        at += size + size % 2
    raise SystemExit("Debian's package holds no library.")


if __name__ == "__main__":
    if sys.argv[1:] == ["sqlite"]:
        print(use_oldest_sqlite())
    else:
        print("\n".join(lowest(tomllib.loads(PROJECT.read_text()))))
