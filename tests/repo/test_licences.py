"""docs/install.md lists what kbproc depends on, each with the licence that its package states."""

from __future__ import annotations

import importlib.metadata
import os
import re
import tomllib

from tests.kit.talk import REPO

PAGE = REPO / "docs" / "install.md"
_BEGIN, _END = "<!-- generated: licences -->", "<!-- end of licences -->"
_EXTRAS = ("meaning", "export", "cluster")
_SHORT = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
}


def requirements() -> dict[str, str]:
    """Returns package → the extra that installs it; empty for packages of every installation."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    lists = {"": project["dependencies"]}
    lists |= {extra: project["optional-dependencies"][extra] for extra in _EXTRAS}
    extras = {}
    for extra, lines in lists.items():
        for line in lines:
            match = re.match(r"[\w.-]+", line)
            assert match, line
            extras.setdefault(match[0], extra)
    return extras


def licence(package: str) -> str | None:
    """Returns the stated licence, or None if the package is not installed or states none."""
    try:
        metadata = importlib.metadata.metadata(package)
    except importlib.metadata.PackageNotFoundError:
        return None
    stated = metadata.get("License-Expression")
    if stated:
        return stated
    kinds = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier", [])]
    named = [_SHORT[kind] for kind in kinds if kind in _SHORT]
    first = (metadata.get("License") or "").partition("\n")[0].strip()
    return (named or [_SHORT.get(first, first)])[0] or None


def test_each_dependency_stands_with_its_licence() -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(_BEGIN)
    block, _, after = rest.partition(_END)
    licences = dict(re.findall(r"^\| `([\w.-]+)` \| [^|]* \| ([^|]*) \|$", block, re.M))
    rows = [
        f"| `{name}` | {extra or 'always'} | {licence(name) or licences.get(name, '')} |"
        for name, extra in requirements().items()
    ]
    table = "\n".join(["", "| package | comes with | licence |", "| --- | --- | --- |", *rows, ""])
    if os.environ.get("KBPROC_UPDATE_DOCS") == "1":
        PAGE.write_text(f"{before}{_BEGIN}{table}{_END}{after}", encoding="utf-8")
        return
    assert block == table, "KBPROC_UPDATE_DOCS=1 writes it"
    assert not [row for row in rows if "|  |" in row], "a licence is missing"
