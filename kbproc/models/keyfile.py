"""The key of an endpoint, from the file that holds it.

Owns: which files may hold a key.
Refuses to know: which endpoint the key is for, and who names the file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from kbproc.base.errors import KbprocError

_MOST_BYTES = 10_000


def key_in(file: str, wrong: Callable[[str], KbprocError]) -> str:
    """Returns the key in a file.

    Raises what `wrong` makes of the reason: others may read the file, or it holds no key.
    """
    path = Path(os.path.expanduser(file))  # noqa: PTH111  never raises
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as stream:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode) or mode & 0o077:
                raise wrong(f"{path} is no file of mode 0600: others may read the key.")
            key = stream.read(_MOST_BYTES).decode().strip()
    except (OSError, ValueError):
        raise wrong(f"{path}, which should hold the key, can't be read.") from None
    if not key:
        raise wrong(f"{path} holds no key.")
    return key
