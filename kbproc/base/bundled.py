"""Finds files that come with kbproc: in a wheel inside the package, else beside the package."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def bundled(path: str) -> Path | None:
    """Returns a file that comes with kbproc, named as in the repository; None without one."""
    for root in (PACKAGE, PACKAGE.parent):
        if (file := root / path).is_file():
            return file
    return None
