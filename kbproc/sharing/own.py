"""The owner of a store in a process of its own: `python -m kbproc.sharing.own STORE`.

Owns: the order of starting and ending, and that it ends soon after its last client.
Refuses to know: who its clients are. apart.py starts it.
"""

from __future__ import annotations

import functools
import os
import select
import sys
import time
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.base.pipes import leave
from kbproc.base.threads import apart
from kbproc.settings.config import Config
from kbproc.sharing.listening import Listening, reach_or_listen
from kbproc.sharing.waiting import Waiting
from kbproc.wire.lines import Signals

GRACE_SECONDS = 1.5  # without a client
_LOOK_MS = 100


def main() -> int:
    """Owns the store until its clients have gone or a signal comes; returns the exit code.

    stdin holds the settings; stdout gets why the store can't be had.
    """
    import pickle  # what it reads is written by the parent

    os.setsid()  # what is typed for the client's terminal is not for this process
    os.umask(0o077)
    config, model = pickle.load(sys.stdin.buffer)  # noqa: S301
    os.chdir("/")
    signals = Signals()
    signals.install()
    parent = os.getppid()
    waiting = Waiting(config.store)

    def check() -> None:
        waiting.for_owner()
        if signals.pending is not None or os.getppid() != parent:
            leave(0)

    try:
        found = reach_or_listen(config, os.getpid(), check)
    except KbprocError as error:
        return _refuse(error)
    if not isinstance(found, Listening):  # another was faster, or the store is read-only
        return 0
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    return _own(config, model, found, signals)


def _refuse(error: KbprocError) -> int:
    from kbproc.wire.messages import error_data

    os.write(1, msgspec.json.encode(error_data(error)))
    return error.row.exit


def _own(
    config: Config, model: dict[str, Any] | None, listening: Listening, signals: Signals
) -> int:
    from kbproc.sharing.owner import Owner
    from kbproc.wire.logs import log_to_stderr

    host = Host()
    log_to_stderr(config.log_level, host)
    owner = Owner(config, host, model=model)
    opening = apart(functools.partial(owner.open, listening), "opening")
    woken = select.poll()
    woken.register(signals.woken, select.POLLIN)
    attended = time.monotonic()
    while signals.pending is None and time.monotonic() - attended < GRACE_SECONDS:
        woken.poll(_LOOK_MS)
        if owner.is_attended():
            attended = time.monotonic()
    if not opening.is_alive():
        owner.leave()
    return 0


if __name__ == "__main__":
    leave(main())
