"""Opens the log that several nodes share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbproc.base.errors import KbprocError
from kbproc.base.host import installs
from kbproc.engine.cluster.jetstream.settings import read
from kbproc.engine.log.record import START, Position

if TYPE_CHECKING:
    from kbproc.engine.cluster.jetstream.log import JetStreamLog


def open_shared(
    folder: Path,
    applied_position: Position = START,
    *,
    marks: Path | None = None,
    settings: dict[str, Any],
) -> JetStreamLog:
    """Opens this node's copy of the log in `folder`, and joins the stream that `settings` name.

    `applied_position` and `marks`: see FileLog.open. `settings`: the store's table [log]. Raises
    store.* as FileLog.open does.
    """
    try:
        from kbproc.engine.cluster.jetstream.log import JetStreamLog
    except ModuleNotFoundError as error:
        raise KbprocError(
            "store.incompatible",
            f"The store's log is on NATS, and {error.name} is not installed.",
            hint=f"Install it where kbproc is: {installs('cluster')}.",
        ) from error
    stream_settings = read(settings)
    log = JetStreamLog.open(folder, applied_position, marks=marks)
    try:
        log.join(stream_settings)
    except BaseException:
        log.close()
        raise
    return log
