"""Whether the views' files are what was written, all of them together.

Owns: looking at the files of every view before any is opened.
Refuses to know: what a view's files are, and how one is made again: that takes only its name.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from kbproc.base.checksums import blocks
from kbproc.base.durable import Seen, is_synced
from kbproc.views.fulltext import files
from kbproc.views.vectors import manifest


def damaged_files(views: Path, seen: Seen | None = None) -> list[str]:
    """Names of the views whose files are damaged, while no process has them open.

    Among catalog, fulltext, vectors. A view that is not there is not damaged. Reads
    every byte but for what was `seen`: some 20 ms for 10,000 chunks.
    """
    seen = seen or Seen()
    found = {
        "catalog": [path.name for path in _catalogs(views) if not _is_whole(path, seen)],
        "fulltext": files.damaged(views / "fulltext", seen),
        "vectors": manifest.damaged(views, seen),
    }
    return [name for name, wrong in found.items() if wrong]


def _catalogs(views: Path) -> list[Path]:
    return list(views.glob("catalog*.duckdb"))


def _is_whole(catalog: Path, seen: Seen) -> bool:
    """One that may not have reached the disk is not."""
    return is_synced(catalog) and seen.is_sound(catalog, blocks.is_whole)


def were_closed(views: Path) -> bool:
    """Whether the catalog lies there as the last process left it that closed it."""
    seen = Seen(views)
    return any(seen.knows(path) for path in _catalogs(views))


def look(views: Path) -> list[str]:
    """Like `damaged_files`; reads what somebody has touched since it was last looked at."""
    seen = Seen(views)
    wrong = damaged_files(views, seen)
    seen.keep()
    return wrong


def drop_damaged(views: Path) -> list[str]:
    """Removes the views whose files are damaged, before they are opened; their names.

    The log makes them again. Raises OSError.
    """
    wrong = look(views)
    if "catalog" in wrong:
        for path in views.glob("catalog*.duckdb*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if "fulltext" in wrong:
        shutil.rmtree(views / "fulltext")
    if "vectors" in wrong:
        manifest.drop(views)
    return wrong
