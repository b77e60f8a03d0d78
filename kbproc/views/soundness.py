"""Whether the views' files are what was written, all of them together.

Owns: asking every view, before any is opened and while they are open.
Refuses to know: what a view's files are, and how a damaged one is made again: its name
is all that whoever makes it needs.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from kbproc.views.catalog import blocks
from kbproc.views.fulltext import files
from kbproc.views.vectors import manifest


class View(Protocol):
    """What is asked of an open view."""

    @property
    def name(self) -> str: ...
    def damaged(self) -> list[str]: ...


def damaged_views(views: Iterable[View]) -> list[str]:
    """Names of the open views that are damaged. Reads all that they hold."""
    return [view.name for view in views if view.damaged()]


def damaged_files(views: Path) -> list[str]:
    """Names of the views whose files are damaged, while no process has them open.

    Among catalog, fulltext, vectors. A view that is not there is not damaged. Reads
    every byte: some 20 ms for 10,000 chunks.
    """
    found = {
        "catalog": blocks.damaged(views),
        "fulltext": files.damaged(views / "fulltext"),
        "vectors": manifest.damaged(views),
    }
    return [name for name, wrong in found.items() if wrong]


def drop_damaged(views: Path) -> list[str]:
    """Removes the views whose files are damaged, before they are opened; their names.

    The log makes them again. Raises OSError.
    """
    wrong = damaged_files(views)
    if "catalog" in wrong:
        blocks.drop(views)
    if "fulltext" in wrong:
        shutil.rmtree(views / "fulltext")
    if "vectors" in wrong:
        manifest.drop(views)
    return wrong
