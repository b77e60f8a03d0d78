"""Checks the files of all views before any of them is opened.

The rows of the catalog have checksums, which each read verifies. So its file is read whole only if
somebody has changed it since a process closed it.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import msgspec

from kbproc.base.durable import Look, SoundFiles, last_look, look_at, replace
from kbproc.base.values import NOT_READABLE, decoder
from kbproc.engine.projections.catalog.files import WAL, beside, catalogs, remove_catalog
from kbproc.engine.projections.fulltext import files
from kbproc.engine.projections.vectors import manifest

_CLOSED = "catalog.closed"
_decode = decoder(tuple[str, Look]).decode


def damaged_files(views: Path, checked_files: SoundFiles | None = None) -> list[str]:
    """Returns the names of the damaged views, among catalog, fulltext and vectors.

    No process may have them open. A missing view is not damaged. Reads every byte of the files of
    indexes that `checked_files` does not know as sound.
    """
    checked_files = checked_files or SoundFiles()
    damaged_by_view = {
        "catalog": [path.name for path in catalogs(views) if not _is_sound(path)],
        "fulltext": files.damaged(views / "fulltext", checked_files),
        "vectors": manifest.damaged(views, checked_files),
    }
    return [name for name, files_of_view in damaged_by_view.items() if files_of_view]


def _is_sound(catalog: Path) -> bool:
    """Returns whether the file is as a process has left it, or whole.

    The file of a killed process has a WAL, and only each row that is read is checked.
    """
    from kbproc.engine.projections.catalog.catalog import is_sound

    return _has_wal(catalog) or _as_closed(catalog) or is_sound(catalog)


def _has_wal(catalog: Path) -> bool:
    return beside(catalog, WAL).exists()


def _as_closed(catalog: Path) -> bool:
    """Returns whether the file is unchanged since a process closed it."""
    try:
        name, look = _decode(catalog.with_name(_CLOSED).read_bytes())
    except (OSError, *NOT_READABLE):
        return False
    return name == catalog.name and look == look_at(catalog)


def were_closed(views: Path) -> bool:
    """Returns whether the catalog is unchanged since a process last closed it."""
    return any(_as_closed(path) and not _has_wal(path) for path in catalogs(views))


def note_closed(views: Path) -> None:
    """Notes that the catalog has just been closed, if it can be noted."""
    for path in catalogs(views):
        if not _has_wal(path) and not _as_closed(path) and (look := last_look(path)) is not None:
            with contextlib.suppress(OSError):
                data = msgspec.json.encode((path.name, look))
                replace(views / _CLOSED, data, name_is_durable=False)


def look(views: Path) -> list[str]:
    """Returns what `damaged_files` does; reads only files that changed since the last look."""
    checked_files = SoundFiles(views)
    damaged = damaged_files(views, checked_files)
    checked_files.keep()
    return damaged


def drop_damaged(views: Path) -> list[str]:
    """Removes the damaged views, which the log can build again, and returns their names.

    Runs before they are opened. Raises OSError.
    """
    damaged = look(views)
    if "catalog" in damaged:
        for path in catalogs(views):
            remove_catalog(path)
    if "fulltext" in damaged:
        shutil.rmtree(views / "fulltext")
    if "vectors" in damaged:
        manifest.drop(views)
    return damaged
