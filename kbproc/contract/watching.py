"""Waits for changes of an implementation's files, so that it can be judged again."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_PAUSE_SECONDS = 0.3
_MOST = 2000  # files that are looked at


def changes(command: str, pause: Callable[[float], None] = time.sleep) -> Iterator[Path]:
    """Yields a file that has changed, each time one has; for ever.

    It looks at the files that the command names, and at those in their folders.
    """
    before = _stamps(command)
    while True:
        pause(_PAUSE_SECONDS)
        now = _stamps(command)
        changed = [path for path in {**before, **now} if before.get(path) != now.get(path)]
        before = now
        if changed:
            yield min(changed)


def _stamps(command: str) -> dict[Path, tuple[int, int]]:
    """Returns when each file was written, and how large it is."""
    named = [Path(word) for word in shlex.split(command) if Path(word).is_file()]
    files = [path for one in named for path in (one, *_beside(one))]
    stamps = {}
    for path in files[:_MOST]:
        try:
            status = path.stat()
        except OSError:
            continue
        stamps[path] = (status.st_mtime_ns, status.st_size)
    return stamps


def _beside(path: Path) -> Iterator[Path]:
    """Yields the files of the path's folder, unless that is a folder of programs."""
    if path.parent.name in {"bin", "sbin"}:
        return
    for one in sorted(path.parent.iterdir()):
        if one.is_file() and not one.name.startswith("."):
            yield one
