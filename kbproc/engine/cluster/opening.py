"""Which log a store has.

Owns: the choice by the store's settings.
Refuses to know: how any of them works; the one that is not chosen is not imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbproc.base.errors import KbprocError
from kbproc.base.host import installs
from kbproc.log.file import FileLog
from kbproc.log.interface import Log
from kbproc.log.record import START, Position


def open_log(
    folder: Path,
    known: Position = START,
    *,
    marks: Path | None = None,
    settings: dict[str, Any] | None = None,
) -> Log:
    """`settings`: the store's table [log], if it has one. Raises store.* as FileLog.open does."""
    if not settings or settings.get("kind") == "file":
        return FileLog.open(folder, known, marks=marks)
    try:
        from kbproc.log.jetstream.log import JetStreamLog
    except ModuleNotFoundError as error:
        raise KbprocError(
            "store.incompatible",
            f"The store's log is on NATS, and {error.name} is not installed.",
            hint=f"Install it where kbproc is: {installs('cluster')}.",
        ) from error
    from kbproc.log.jetstream.settings import read

    chosen = read(settings)
    log = JetStreamLog.open(folder, known, marks=marks)
    try:
        log.join(chosen)
    except BaseException:
        log.close()
        raise
    return log
