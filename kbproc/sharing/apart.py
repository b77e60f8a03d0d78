"""How a thin process finds the owner of its store, or starts one in a process of its own.

Owns: starting that process, its error where it could not have the store, and giving up on owners
that die again and again.
Refuses to know: what is in flight meanwhile (relay.py), and what the owner does (own.py). Light.

A thin process never opens the store: native code that crashes takes the owner, and the client only
waits for the next one.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from kbproc.base.errors import KbprocError
from kbproc.base.host import Host
from kbproc.settings.config import Config, environment
from kbproc.sharing import reach
from kbproc.sharing.reach import Check
from kbproc.sharing.takeover import Takeover
from kbproc.sharing.waiting import Waiting

_PAUSE = 0.01
_MOST_CRASHES = 5  # of owners one after the other: what is in flight may be what they die of
_SOON_SECONDS = 10.0  # an owner that lived longer did not die of its start


def log_of(config: Config) -> Path:
    """The file to which owners in processes of their own write what others write to stderr."""
    from hashlib import sha256

    name = sha256(os.fsencode(os.path.realpath(config.store))).hexdigest()[:24]
    return config.runtime / f"{name}.log"


class Apart(Takeover):
    """The way to the owner, for a process that never is it."""

    def __init__(self, config: Config, host: Host, model: dict[str, Any] | None) -> None:
        """`model`: of a store that is new."""
        super().__init__(config, host)
        self._config = config
        self._model = model
        self._child: _Child | None = None
        self._crashes = 0

    def waiting(self) -> Waiting:
        return _Patient(self._config.store)

    def reach_owner(self, check: Check) -> socket.socket:
        """A connection to the owner of now, which is started where there is none.

        `check` is called while that takes time; it may raise. Raises KbprocError if the store can't
        be had.
        """
        while True:
            connection = reach.connect(self._config.store)
            if connection is not None:
                return connection
            if self._child is None:
                self._child = _Child(self._config, self._model)
            elif self._child.has_ended():
                child, self._child = self._child, None
                self._judge(child)
                continue
            check()
            time.sleep(_PAUSE)

    def _judge(self, child: _Child) -> None:
        """Raises why the child could not have the store, or that owners die again and again."""
        if (error := child.error()) is not None:
            raise error
        if not child.code or time.monotonic() - child.began > _SOON_SECONDS:
            self._crashes = 0
            return
        self._crashes += 1
        if self._crashes >= _MOST_CRASHES:
            self._crashes = _MOST_CRASHES - 1  # the next request gets one more try
            raise KbprocError(
                "internal.error",
                f"The process that opens the store died {_MOST_CRASHES} times, the last time with "
                f"{child.code}.",
                hint=f"Its log is {log_of(self._config)}.",
            )


class _Patient(Waiting):
    """The process that is started waits for the owner before it, and says why it can't be one."""

    def for_owner(self) -> None:
        pass


class _Child:
    """The process that is to own the store: it has a session, an stdin and a stdout of its own."""

    def __init__(self, config: Config, model: dict[str, Any] | None) -> None:
        """Raises store.io."""
        self.began = time.monotonic()
        self.code = 0
        try:
            self._start(config, model)
        except OSError as error:
            raise KbprocError(
                "store.io", f"No process could be started for the store: {error.strerror}."
            ) from error

    def _start(self, config: Config, model: dict[str, Any] | None) -> None:
        import pickle  # only this process's own child reads it

        log = log_of(config)
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        stderr = os.open(log, flags, 0o600)
        given, giver = os.pipe()
        self._told, teller = os.pipe()
        argv = [sys.executable, "-P", "-m", "kbproc.sharing.own", str(config.store)]
        ends = [(os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate((given, teller, stderr))]
        try:
            self.pid = os.posix_spawn(sys.executable, argv, environment(), file_actions=ends)
        finally:
            for fd in (given, teller, stderr):
                os.close(fd)
        with os.fdopen(giver, "wb") as pipe:
            pickle.dump((config, model), pipe)

    def has_ended(self) -> bool:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.code = os.waitstatus_to_exitcode(status)
        return bool(pid)

    def error(self) -> KbprocError | None:
        """What the process said that it can't have the store for. Only once it has ended."""
        with os.fdopen(self._told, "rb") as pipe:
            said = pipe.read()
        return reach.refusal(msgspec.json.decode(said)) if said else None
