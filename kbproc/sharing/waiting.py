"""How long the owner of a store is waited for, and what is answered then.

Owns: whether the owner can answer at all, the time that a request gives it, and the errors
that name the owner and its state.
Refuses to know: sockets, and what was asked. Light: an attached process imports no more.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from kbproc.base.errors import KbprocError
from kbproc.log.lease import NOBODY, FileLease, locked

TICK_SECONDS = 0.25  # how often whoever waits looks whether it still should
STOPPED_SECONDS = 10.0  # for an owner that is stopped
ENDING_SECONDS = 30.0  # for one that has named its socket and does not listen: it is ending
SILENT_SECONDS = 2.0  # for one that has named none, which every kbproc does at once
GRACE_MS = 1000  # for the owner's own answer to a timeout, which says what has been done


def state_of(pid: int) -> str:
    """`running`, `stopped` or `gone`."""
    try:
        found = _state(pid)
    except OSError:
        return "gone"
    return "stopped" if found in {"T", "t"} else "running" if found else "gone"


def _state(pid: int) -> str:
    if sys.platform == "linux":
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    import subprocess  # no Linux process needs it

    asked = ["/bin/ps", "-o", "state=", "-p", str(pid)]
    said = subprocess.run(asked, check=False, capture_output=True, text=True).stdout
    return said.strip()[:1]


class Waiting:
    """One wait for the owner of a store, and for its answer."""

    def __init__(self, store: Path, timeout_ms: int | None = None) -> None:
        """`timeout_ms`: what a request gives the owner. None waits as long as it is alive."""
        self._store = store
        self._timeout_ms = timeout_ms
        self._began = time.monotonic()
        self._holder = NOBODY
        self._holder_since = self._began
        self._stopped_since: float | None = None

    def for_owner(self) -> None:
        """While a process holds the lease and does not listen.

        Raises store.locked once that process has had its time, operation.timeout.
        """
        holder, now = FileLease(self._store).holder(), time.monotonic()
        if holder != self._holder:  # each owner gets its time
            self._holder, self._holder_since = holder, now
        pid = int(holder.pid) if holder.pid.isdigit() else 0
        self.for_answer(pid)
        if now - self._holder_since > (ENDING_SECONDS if holder.address else SILENT_SECONDS):
            raise locked(self._store, holder.pid)

    def for_answer(self, pid: int) -> None:
        """While the owner, which is process `pid`, does not answer; 0 is an unknown one.

        Raises operation.timeout; store.locked for an owner that has been stopped for long.
        """
        now = time.monotonic()
        if self._timeout_ms is not None and now - self._began > (self._timeout_ms + GRACE_MS) / 1e3:
            raise silent(pid, self._timeout_ms)
        if not pid or state_of(pid) != "stopped":
            self._stopped_since = None
        elif self._stopped_since is None:
            self._stopped_since = now
        elif now - self._stopped_since > STOPPED_SECONDS:
            raise stopped(self._store, pid)


# A write that was sent to the owner has `detail.client_token`.
_AGAIN = "Then ask again, with detail.client_token if it is there: so a write is done once."


def _theirs(pid: int) -> str:
    """A process is stopped by a person, or by a debugger of theirs: no agent ends it unasked."""
    return (
        "That process is the user's to decide on. Agents: tell the user and ask. The user can let "
        f"it go on (kill -CONT {pid})"
    )


def stopped(store: Path, pid: int) -> KbprocError:
    return KbprocError(
        "store.locked",
        f"The store {store} is open in process {pid}, which is stopped.",
        hint=f"{_theirs(pid)} or end it (kill -KILL {pid}). {_AGAIN}",
        retry_after_ms=1000,
        detail={"pid": pid, "state": "stopped"},
    )


def silent(pid: int, timeout_ms: int) -> KbprocError:
    """Once the owner has not answered in the time that the request gave it."""
    owner = f"process {pid}" if pid else "the process"
    state = state_of(pid) if pid else "unknown"
    return KbprocError(
        "operation.timeout",
        f"No answer came in {timeout_ms} ms from {owner}, which has the store open"
        + (" and is stopped." if state == "stopped" else "."),
        field="$.params.timeout_ms",
        hint=(f"{_theirs(pid)}. " if state == "stopped" else "") + _AGAIN,
        detail={"pid": pid, "state": state} if pid else {"state": state},
    )
