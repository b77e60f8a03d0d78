"""Remembers which files agents have edited lately, in a small file of the store's hooks.

A hook notes each edit; an entry that an agent stores soon after is about some of these files. The
file is no part of the log: without it an entry lacks these sources.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from kbproc.base.values import NOT_READABLE, decoder
from kbproc.engine.store.hook_log import FOLDER, folder_of, read_in, replace_in

_FILE = "edited.json"
_MOST_FILES = 200
_MOST_BYTES = 1 << 20
_LATELY_MS = 4 * 3_600_000

_decode = decoder(dict[str, int]).decode


def note(store: Path, path: str, now_ms: int) -> None:
    """Notes that a file is edited now. Raises OSError."""
    folder = folder_of(store)
    try:
        edits = _edits(folder)
        edits.pop(path, None)
        recent = [*edits.items(), (path, now_ms)][-_MOST_FILES:]
        replace_in(folder, _FILE, msgspec.json.encode(dict(recent)))
    finally:
        os.close(folder)


def lately(store: Path, now_ms: int) -> list[str]:
    """Returns the files that were edited in the last hours, the latest first."""
    with contextlib.suppress(OSError):
        folder = os.open(store / FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            edits = _edits(folder)
        finally:
            os.close(folder)
        return [path for path, at in reversed(edits.items()) if 0 <= now_ms - at < _LATELY_MS]
    return []


def _edits(folder: int) -> dict[str, int]:
    data = read_in(folder, _FILE, _MOST_BYTES)
    try:
        return {} if data is None else _decode(data)
    except NOT_READABLE:
        return {}
