"""Prints pip's constraints for the lower ends of the ranges in pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
# Programs that developers run; kbproc runs with any of them.
LEFT_OUT = {"mypy", "ruff", "hatchling", "pytest", "pytest-xdist"}
_RANGE = re.compile(r"([a-z0-9-]+)(?:\[\w+\])?>=([\d.]+)")


def lowest(project: dict[str, object]) -> list[str]:
    """Returns `name==version` of each requirement that has a lower end."""
    table = project["project"]
    if not isinstance(table, dict):
        raise SystemExit("pyproject.toml has no table [project]")
    lines = [*table["dependencies"], *table["optional-dependencies"]["meaning"]]
    matches = (_RANGE.match(line) for line in lines)
    return [f"{one[1]}=={one[2]}" for one in matches if one and one[1] not in LEFT_OUT]


if __name__ == "__main__":
    print("\n".join(lowest(tomllib.loads(PROJECT.read_text()))))
