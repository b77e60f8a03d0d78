"""`kbproc serve` in the process that owns the store: open it, serve stdin, end.

Owns: the order of starting and of ending.
Refuses to know: how a connection works (wire/), and the first line (serve.py).
"""

from __future__ import annotations

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.base.threads import apart
from kbproc.sharing.client import begin, connection_of
from kbproc.sharing.listening import Listening
from kbproc.sharing.owner import Owner
from kbproc.sharing.serving import Serving
from kbproc.wire.connection import serve_lines
from kbproc.wire.lines import Lines
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
    connection = connection_of(owner.service, hello, outbox, profiles=serving.config.profile_names)

    def open_store() -> None:
        owner.open(listening)
        begin(owner.opened, connection)

    # Not in this thread: lines are read meanwhile, and DuckDB takes a signal that raises for
    # the end of its query.
    opening = apart(open_store, "opening")

    def wait_for_store() -> None:
        while opening.is_alive():
            opening.join(_SIGNAL_SECONDS)
            lines.signals.check()

    code = serve_lines(connection, lines, wait_for_store)
    if not opening.is_alive():
        owner.leave()
    outbox.close()
    return code
