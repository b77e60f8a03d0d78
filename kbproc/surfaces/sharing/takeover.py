"""Brings an attached client to the store's next owner: this process, or one that it starts.

`python -m kbproc.surfaces.sharing.takeover STORE` is an owner in a process of its own. A client
that never opens the store starts it, so that native code that crashes ends only the owner, and the
client waits for the next one. That owner ends once the process that started it and its last client
have gone.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.base import sockets
from kbproc.base.durable import write_all
from kbproc.base.errors import KbprocError
from kbproc.base.host import Host, environment
from kbproc.base.pipes import leave
from kbproc.base.workers import Backoff
from kbproc.engine.store.folder import refusal
from kbproc.surfaces.sharing import link, reach
from kbproc.surfaces.sharing.link import Check, Gone, Hello
from kbproc.surfaces.sharing.reach import Listening, Waiting, reach_or_listen
from kbproc.surfaces.wire.lines import Signals

if TYPE_CHECKING:
    from kbproc.base.settings.config import Config
    from kbproc.surfaces.sharing.owner import Owner
    from kbproc.surfaces.wire.connection import Connection
    from kbproc.surfaces.wire.outbox import Outbox

_PAUSE = 0.01
_LONGEST_PAUSE = 1.0  # between processes that end without owning the store
MOST_CRASHES = 5  # one after the other
SOON_SECONDS = 10.0  # an owner that lived longer did not die of its start
LOG_BYTES = 1 << 20  # a longer log begins anew with the next owner
_LOOK_MS = 100
_MODULE = "kbproc.surfaces.sharing.takeover"


class Takeover:
    """A way to the next owner of the store, which may be this process."""

    def __init__(self, config: Config, host: Host) -> None:
        self._config = config
        self._host = host
        self._owner: Owner | None = None
        self._refusal: tuple[str, Connection] | None = None

    def waiting(self) -> Waiting:
        """Returns a wait for the owner that begins now."""
        return Waiting(self._config.store)

    def reach_owner(self, check: Check) -> sockets.Socket:
        """Returns a connection to the current owner, this process if the lease is free.

        `check` is called while a process holds the lease and does not listen; it may raise.
        Raises Gone if that owner ends at once; KbprocError if the store can't be opened.
        """
        reached = reach_or_listen(self._config, self._host.pid(), check)
        if reached is None:  # the store has become read-only since this process attached
            raise refusal(self._config.store)
        if isinstance(reached, sockets.Socket):
            return reached
        self._owner = self._open(reached)
        connection = reach.connect_to(reached.path)
        if connection is None:
            raise Gone
        return connection

    def _open(self, listening: Listening) -> Owner:
        from kbproc.surfaces.sharing.owner import Owner
        from kbproc.surfaces.wire.logs import log_to_stderr

        log_to_stderr(self._config.log_level, self._host)
        owner = Owner(self._config, self._host, listening)
        owner.open()
        return owner

    def without_store(self, error: KbprocError, hello: Hello, outbox: Outbox) -> Connection:
        """Returns a connection that answers with the error every request that needs the store."""
        if self._refusal is None or self._refusal[0] != error.message:
            from kbproc.surfaces.sharing.owner import Owner

            owner = Owner(self._config, self._host, error)
            owner.open()
            connection = owner.connection(hello, outbox)
            owner.begin(connection)
            self._refusal = error.message, connection
        return self._refusal[1]

    def close(self) -> None:
        """Ends this process's ownership, if it became the owner."""
        if self._owner is not None:
            self._owner.leave()


# -------------------------------------------------------- an owner in a process of its own


class OwnerStarter(Takeover):
    """A way to the owner for a process that never opens the store: it starts the owner.

    Owners that die again and again end in an error.
    """

    def __init__(self, config: Config, host: Host, model: dict[str, Any] | None) -> None:
        """`model`: the model of a new store."""
        super().__init__(config, host)
        self._model = model
        self._child: _OwnerProcess | None = None
        self._former: list[_OwnerProcess] = []  # former owners that are still ending
        self._crashes = 0
        self._backoff = Backoff(_PAUSE, _LONGEST_PAUSE)  # before the next process is started
        self._next_start = 0.0

    def waiting(self) -> Waiting:
        return _ChildWaiting(self._config.store)

    def reach_owner(self, check: Check) -> sockets.Socket:
        """Returns a connection to the current owner, which is started where there is none.

        `check` is called while that takes time; it may raise. Raises KbprocError if the store can't
        be opened, or the process that shall own it is stopped for long.
        """
        while True:
            connection = reach.connect(self._config.store)
            if connection is not None:
                self._backoff.reset()
                if self._child is not None and link.peer_pid(connection) == self._child.pid:
                    self._child.has_owned = True
                return connection
            if self._child is not None and self._child.has_owned:
                self._former.append(self._child)
                self._child = None
            self._reap()
            if self._child is None:
                if time.monotonic() >= self._next_start:
                    self._child = _OwnerProcess(self._config, self._model)
            elif self._child.has_ended():
                child, self._child = self._child, None
                self._judge(child)
                continue
            else:
                self._child.waiting.for_answer(self._child.pid)
            check()
            time.sleep(_PAUSE)

    def _reap(self) -> None:
        """Judges former owners that have ended.

        The next process waits for the lease of a former owner that still runs, as for any other
        owner's, and names it in an error if that takes too long.
        """
        for child in [child for child in self._former if child.has_ended()]:
            self._former.remove(child)
            self._judge(child)

    def _judge(self, child: _OwnerProcess) -> None:
        """Raises the child's error, or an error if owners die again and again."""
        if (error := child.error()) is not None:
            raise error
        # Another process may have become the owner and will listen; retries get rarer.
        self._next_start = time.monotonic() + self._backoff.failed()
        if not child.code:  # a signal ended it, or another process is the owner
            self._crashes = 0 if child.has_owned else self._crashes
            return
        if time.monotonic() - child.began > SOON_SECONDS:
            self._crashes = 0
        self._crashes += 1
        if self._crashes >= MOST_CRASHES:
            self._crashes = MOST_CRASHES - 1  # the next request gets one more try
            raise KbprocError(
                "internal.error",
                f"The process that opens the store died {MOST_CRASHES} times, the last time with "
                f"{child.code}.",
                hint=f"Its log is {log_of(self._config)}.",
            )


class _ChildWaiting(Waiting):
    """A wait without a limit for the owner; the child waits for the last owner, and reports."""

    def for_owner(self) -> None:
        pass


class _OwnerProcess:
    """A process that shall own the store, with its own session, stdin and stdout."""

    def __init__(self, config: Config, model: dict[str, Any] | None) -> None:
        """Starts the process. Raises store.io."""
        self.began = time.monotonic()
        self.code = 0
        self.has_owned = False
        self._has_ended = False
        self.waiting = Waiting(config.store)  # raises if it is stopped before it listens
        try:
            self._start(config, model)
        except OSError as error:
            raise KbprocError(
                "store.io", f"No process could be started for the store: {error.strerror}."
            ) from error

    def _start(self, config: Config, model: dict[str, Any] | None) -> None:
        import pickle  # safe, because only the child reads it

        log = log_of(config)
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.ExitStack() as both, contextlib.ExitStack() as theirs:
            stderr = _closed_by(theirs, _log(log))
            # The writer stays open: its end tells the child that this process has gone.
            settings, self._settings = os.pipe()
            _closed_by(theirs, settings)
            _closed_by(both, self._settings)
            self._error_pipe, error_writer = os.pipe()
            _closed_by(both, self._error_pipe)
            _closed_by(theirs, error_writer)
            argv = [sys.executable, "-P", "-m", _MODULE, str(config.store)]
            files = (settings, error_writer, stderr)
            actions = [(os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate(files)]
            self.pid = os.posix_spawn(sys.executable, argv, environment(), file_actions=actions)
            theirs.close()
            with contextlib.suppress(BrokenPipeError):  # `error` says why
                write_all(self._settings, pickle.dumps((config, model)))
            both.pop_all()

    def has_ended(self) -> bool:
        if not self._has_ended:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
                self._has_ended = True
        return self._has_ended

    def error(self) -> KbprocError | None:
        """Returns why the process could not open the store. Call it once the process has ended."""
        os.close(self._settings)
        with os.fdopen(self._error_pipe, "rb") as pipe:
            data = pipe.read()
        return link.refusal(msgspec.json.decode(data)) if data else None


def _closed_by(stack: contextlib.ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd


def _log(path: Path) -> int:
    """Opens the log for appending; its owner empties a long one. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


def log_of(config: Config) -> Path:
    """Returns the file that holds the stderr of owners in processes of their own."""
    from hashlib import sha256

    name = sha256(os.fsencode(os.path.realpath(config.store))).hexdigest()[:24]
    return config.runtime / f"{name}.log"


def main() -> int:
    """Owns the store until its clients have gone or a signal comes; returns the exit code.

    stdin holds the settings and ends with the parent; stdout gets the error if the store can't be
    opened.
    """
    import pickle  # safe, because the parent writes its input

    _close_inherited()
    os.setsid()  # so that Ctrl-C in the client's terminal does not end this process
    os.umask(0o077)
    config, model = pickle.load(sys.stdin.buffer)  # noqa: S301
    os.chdir("/")
    signals = Signals()
    signals.install()
    parent = os.dup(0)
    parent_gone = select.poll()
    parent_gone.register(parent, 0)
    waiting = Waiting(config.store)

    def check() -> None:
        waiting.for_owner()
        if signals.pending is not None or parent_gone.poll(0):
            leave(0)

    try:
        reached = reach_or_listen(config, os.getpid(), check)
    except KbprocError as error:
        return _refuse(error)
    if reached is None:  # the store has become read-only since the client attached
        return _refuse(refusal(config.store))
    if not isinstance(reached, Listening):  # another process became the owner first
        return 0
    _empty_long_log()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    return _own(config, model, reached, signals, parent)


def _close_inherited() -> None:
    """Closes the client's descriptors, because the reader of a pipe waits for its last writer."""
    for name in os.listdir("/dev/fd"):  # noqa: PTH208  because names suffice
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the descriptor that listed the folder
                os.close(int(name))


def _empty_long_log() -> None:
    """Empties the log at stderr if it is longer than LOG_BYTES.

    Called only under the lease, because until then a live owner may write there.
    """
    with contextlib.suppress(OSError):
        if os.fstat(2).st_size > LOG_BYTES:
            os.ftruncate(2, 0)


def _refuse(error: KbprocError) -> int:
    from kbproc.surfaces.wire.messages import error_data

    os.write(1, msgspec.json.encode(error_data(error)))
    return error.row.exit


def _own(
    config: Config,
    model: dict[str, Any] | None,
    listening: Listening,
    signals: Signals,
    parent: int,
) -> int:
    """`parent`: the descriptor that hangs up when the process that started this one has gone."""
    from kbproc.base.threads import apart
    from kbproc.surfaces.sharing.owner import Owner
    from kbproc.surfaces.wire.logs import log_to_stderr

    host = Host()
    log_to_stderr(config.log_level, host)
    owner = Owner(config, host, listening, model=model)
    opening = apart(owner.open, "opening")
    changes = select.poll()
    changes.register(signals.woken, select.POLLIN)
    changes.register(parent, 0)
    is_orphan = False
    while signals.pending is None and not (is_orphan and not owner.is_attended()):
        if any(fd == parent for fd, _ in changes.poll(_LOOK_MS)):
            changes.unregister(parent)  # because it would end each later wait at once
            is_orphan = True
    if not opening.is_alive():
        owner.leave()
    return 0


if __name__ == "__main__":
    leave(main())
