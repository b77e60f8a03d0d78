"""Remembers how many entries wait for an approval, in a small file beside the log.

`kbproc mcp` introduces itself before a store is open, and says the number then. The store's owner
writes the file in a quiet moment, so that it may be a little behind.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kbproc.engine.store.hook_log import FOLDER, folder_of, read_in, replace_in

_FILE = "in-review"
_MOST_BYTES = 20


def count(store: Path) -> int:
    """Returns the number; 0 where no file says it."""
    with contextlib.suppress(OSError, ValueError):
        folder = os.open(store / FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            return max(0, int(read_in(folder, _FILE, _MOST_BYTES) or b"0"))
        finally:
            os.close(folder)
    return 0


def note(store: Path, number: int) -> None:
    """Notes the number, unless the file says it already. Raises OSError."""
    if number == count(store):
        return
    folder = folder_of(store)
    try:
        replace_in(folder, _FILE, b"%d" % number)
    finally:
        os.close(folder)
