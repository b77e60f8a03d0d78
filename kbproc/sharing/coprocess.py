"""`kbproc serve` in the process that owns the store: open it, serve stdin, end.

Owns: the order of starting and of ending.
Refuses to know: how a connection works (wire/), and the first line (serve.py).
"""

from __future__ import annotations

import functools
import threading

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.sharing.client import begin, connection_of
from kbproc.sharing.listening import Listening
from kbproc.sharing.owner import Owner
from kbproc.sharing.serving import Serving
from kbproc.wire.connection import serve_lines
from kbproc.wire.lines import Lines, Stop
from kbproc.wire.outbox import Outbox

_SIGNAL_SECONDS = 0.05


def run(
    serving: Serving,
    lines: Lines,
    outbox: Outbox,
    *,
    listening: Listening | KbprocError | None,
    host: Host,
) -> int:
    """Serves until stdin ends or a signal comes; returns the exit code.

    `listening`: the lease and the socket, None if the store is read-only, or why they could
    not be had.
    """
    hello = serving.hello(host)
    owner = Owner(serving.config, host, model=serving.model)
    # Not in this thread: DuckDB takes a signal that raises for the end of its query.
    opening = threading.Thread(target=functools.partial(owner.open, listening), daemon=True)
    opening.start()
    try:
        while opening.is_alive():
            opening.join(_SIGNAL_SECONDS)
            lines.signals.check()
        connection = connection_of(
            owner.service, hello, outbox, profiles=serving.config.profile_names
        )
        begin(owner.opened, connection)
        code = serve_lines(connection, lines)
    except Stop as stop:  # before the first request could be read
        code = stop.exit_code
    if not opening.is_alive():
        owner.close()
    outbox.close()
    return code
