"""Finds the owner of a store: its socket, or the lease with which this process becomes the owner.

The wait for a process that holds the lease is limited, and its errors name that process's state.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kbproc.base import sockets
from kbproc.base.errors import KbprocError
from kbproc.base.processes import asked_of_ps, fields
from kbproc.engine.log.lease import NOBODY, FileLease, Lease, locked
from kbproc.engine.store.folder import check_links, check_settings, is_read_only, take_folder
from kbproc.surfaces.sharing.link import Check, peer

if TYPE_CHECKING:
    from kbproc.base.settings.config import Config

SOCKET = "kbproc.sock"
STOPPED_SECONDS = 10.0  # for an owner that is stopped
ENDING_SECONDS = 30.0  # for an ending owner, which has named its socket and does not listen
SILENT_SECONDS = 2.0  # for an owner that has named no socket, which takes no time
GRACE_SECONDS = 1.0  # for the owner's own answer to a timeout, which says what has been done
_PAUSE = 0.01
_BACKLOG = 512
LOOK_MS = 1000  # between two checks that the socket's file still exists
_LONGEST_PATH = 100  # bytes; the kernel takes 107


# ------------------------------------------------------------------------ reaching the owner


def reach_or_listen(config: Config, pid: int, check: Check) -> sockets.Socket | Listening | None:
    """Returns a connection to the owner, or the socket to listen at as the owner.

    Returns None if the store is read-only, because then every process opens it for itself.
    `check` and errors: see `_reach`. Raises store.corrupt and store.incompatible, so that a process
    which can't open the store, as another version may, doesn't listen.
    """
    reached = _reach(config.store, pid, check)
    if reached is None or isinstance(reached, sockets.Socket):
        return reached
    try:
        check_settings(config.store / "store.toml")
    except KbprocError:
        reached.release()
        raise
    return Listening(reached, config)


def connect(store: Path) -> sockets.Socket | None:
    """Returns a connection to the owner; None if no process listens.

    Raises store.locked if the owner is another user's, because it would refuse this process.
    """
    connection = next(filter(None, map(connect_to, _addresses(store))), None)
    if connection is not None and not _is_ours(connection):
        connection.close()
        raise KbprocError(
            "store.locked",
            f"The store {store} is open in a process of another user.",
            hint="Use the store as that user, or end that process first.",
        )
    return connection


def _addresses(store: Path) -> Iterator[Path]:
    """Yields the paths where the owner may listen; the lease names the second."""
    inside = store / SOCKET
    yield inside
    announced = FileLease(store).holder().address
    if announced is not None and announced != inside:
        yield announced


def _is_ours(connection: sockets.Socket) -> bool:
    """Returns true for an owner of the same user, and for one that has just ended."""
    try:
        return peer(connection).uid == os.getuid()
    except OSError:
        return True


def connect_to(path: Path) -> sockets.Socket | None:
    connection = sockets.unix()
    try:
        status = path.lstat()
        if not stat.S_ISSOCK(status.st_mode) or status.st_nlink > 1:  # a link of another store's
            raise FileNotFoundError
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    return connection


def _reach(store: Path, pid: int, check: Check) -> sockets.Socket | Lease | None:
    """Returns a connection to the owner, or the lease, with which this process is the owner.

    Returns None if the store is read-only, because then every process opens it for itself.
    While another process holds the lease and does not listen, `check` is called again and
    again, and may raise. Raises store.io.
    """
    while True:
        connection = connect(store)
        if connection is not None:
            return connection
        check_links(store)
        if is_read_only(store):
            return None
        try:
            return take_folder(store, pid)
        except KbprocError as error:
            if error.type != "store.locked":
                raise
        check()
        time.sleep(_PAUSE)


# ---------------------------------------------------------------------- waiting for the owner


def state_of(pid: int) -> str:
    """Returns `running`, `stopped` or `gone`."""
    try:
        letter = _state_letter(pid)
    except OSError:
        return "gone"
    return "stopped" if letter in {"T", "t"} else "running" if letter else "gone"


def _state_letter(pid: int) -> str:
    return fields(pid)[0] if sys.platform == "linux" else asked_of_ps(pid, "state")[:1]


class Waiting:
    """One wait for the owner of a store, and for its answer."""

    def __init__(self, store: Path, timeout_ms: int | None = None) -> None:
        """`timeout_ms`: the request's timeout; None waits as long as the owner lives."""
        self._store = store
        self._timeout_ms = timeout_ms
        self._began = time.monotonic()
        self._holder = NOBODY
        self._holder_since = self._began
        self._stopped_since: float | None = None

    def for_owner(self) -> None:
        """Checks the time while a process holds the lease and does not listen.

        Raises store.locked once that process has had its time, operation.timeout.
        """
        holder, now = FileLease(self._store).holder(), time.monotonic()
        if holder != self._holder:  # because each owner gets the full time
            self._holder, self._holder_since = holder, now
        pid = int(holder.pid) if holder.pid.isdigit() else 0
        self.for_answer(pid)
        if now - self._holder_since > (ENDING_SECONDS if holder.address else SILENT_SECONDS):
            raise locked(self._store, holder.pid)

    def for_answer(self, pid: int) -> None:
        """Checks the time while the owner, process `pid`, does not answer; 0 is an unknown one.

        Raises operation.timeout; store.locked for an owner that has been stopped for long.
        """
        now = time.monotonic()
        is_stopped = bool(pid) and state_of(pid) == "stopped"
        grace_s = 0.0 if is_stopped else GRACE_SECONDS
        if self._timeout_ms is not None and now - self._began > self._timeout_ms / 1000 + grace_s:
            raise silent(pid, self._timeout_ms)
        if not is_stopped:
            self._stopped_since = None
        elif self._stopped_since is None:
            self._stopped_since = now
        elif now - self._stopped_since > STOPPED_SECONDS:
            raise stopped(self._store, pid)


def _user_decides(pid: int) -> str:
    """Returns a hint for a stopped process, which a person or a debugger has stopped."""
    return (
        "That process is the user's to decide on. Agents: tell the user and ask. The user can let "
        f"it go on (kill -CONT {pid})"
    )


def stopped(store: Path, pid: int) -> KbprocError:
    return KbprocError(
        "store.locked",
        f"The store {store} is open in process {pid}, which is stopped.",
        hint=f"{_user_decides(pid)} or end it (kill -KILL {pid}).",
        ask_again=True,
        retry_after_ms=1000,
        detail={"pid": pid, "state": "stopped"},
    )


def silent(pid: int, timeout_ms: int) -> KbprocError:
    """Returns the error for an owner that has not answered in the request's time."""
    owner = f"process {pid}" if pid else "the process"
    state = state_of(pid) if pid else "unknown"
    return KbprocError(
        "operation.timeout",
        f"No answer came in {timeout_ms} ms from {owner}, which has the store open"
        + (" and is stopped." if state == "stopped" else "."),
        field="$.params.timeout_ms",
        hint=f"{_user_decides(pid)}." if state == "stopped" else "Give it a longer timeout_ms.",
        ask_again=True,
        detail={"pid": pid, "state": state} if pid else {"state": state},
    )


# ---------------------------------------------------------------- listening as the owner


class Listening:
    """The lease of a store, and the socket at which its owner listens."""

    def __init__(self, lease: Lease, config: Config) -> None:
        """Raises store.io where no socket can be made; then the lease is released."""
        self.lease = lease
        self._config = config
        self._watches_file = True  # false once a removed socket file stays removed
        self._changing = threading.Lock()  # because one thread accepts while another stops
        try:
            self._listen()
        except BaseException:
            lease.release()
            raise

    def _listen(self) -> None:
        """Opens the socket. Raises store.io; then nothing has changed."""
        bound, path = _bound(self._config)
        try:
            self.lease.announce(path)
        except OSError as error:
            bound.close()
            path.unlink(missing_ok=True)
            raise _no_socket(error) from error
        self._socket, self.path, self._inode = bound, path, _inode(path)

    def accept(self) -> sockets.Socket | None:
        """Returns the next process's connection; None if none came for a while. Raises OSError.

        A socket whose file was removed is made anew, so that processes can still attach.
        """
        if not self._has_connection():
            if self._watches_file and _inode(self.path) != self._inode:
                self._renew()
            return None
        return sockets.accepted(self._socket)

    def _has_connection(self) -> bool:
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLIN)
        except ValueError:  # because another thread has stopped it
            raise OSError(errno.EBADF, "the socket is closed") from None
        return bool(poll.poll(LOOK_MS))

    def _renew(self) -> None:
        import logging  # imported late, because it is rarely needed

        logger = logging.getLogger(__name__)
        with self._changing:
            if not self._watches_file:  # `stop` has removed the socket
                return
            removed = self._socket
            try:
                self.lease.check()  # because another store may be at this path by now
                self._listen()
            except KbprocError as error:
                logger.warning("the store's socket was removed: %s", error.message)
                self._watches_file = False
                return
            logger.warning("the store's socket was removed: it was made again")
            removed.close()

    def take_again(self, pid: int) -> None:
        """Takes the lease, which was released when the store could not be opened.

        Raises store.locked, store.io.
        """
        try:
            self.lease.take(pid)
            try:
                self.lease.announce(self.path)
            except OSError:
                self.lease.release()
                raise
        except OSError as error:
            raise KbprocError(
                "store.io", f"The store's lease could not be taken: {error.strerror}."
            ) from error

    def stop(self) -> None:
        """Closes the socket and removes its file, so that no more processes attach."""
        with self._changing:
            self._watches_file = False
            if _inode(self.path) == self._inode:  # because another store may be there
                self.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._socket.shutdown(sockets.SHUT_RDWR)
            self._socket.close()

    def close(self) -> None:
        """Stops and releases the lease; for a lease without a store, which would release it."""
        self.stop()
        self.lease.release()


def _inode(path: Path) -> int:
    """Returns the inode number of the file; 0 if there is none."""
    with contextlib.suppress(OSError):
        return path.lstat().st_ino
    return 0


def _bound(config: Config) -> tuple[sockets.Socket, Path]:
    """Returns a listening socket and its path. Raises store.io where none can be made."""
    problem = OSError()
    try:
        for path in _paths(config.store, config.runtime):
            try:
                return _bind(path), path
            except OSError as error:
                problem = error
    except OSError as error:
        problem = error
    raise _no_socket(problem) from problem


def _no_socket(error: OSError) -> KbprocError:
    return KbprocError("store.io", f"The store's socket could not be made: {error.strerror}.")


def _paths(store: Path, runtime: Path) -> Iterator[Path]:
    """Yields the socket's possible paths, the preferred one first.

    The socket is in the store, unless the path is too long or the file system has no sockets.
    Raises OSError and store.io when the second path can't be used.
    """
    path = store / SOCKET
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield path
    yield _other_path(store, runtime)


def _other_path(store: Path, runtime: Path) -> Path:
    from hashlib import sha256

    runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = runtime.stat()
    if status.st_uid != os.getuid():
        raise KbprocError("store.io", f"{runtime} belongs to another user.")
    runtime.chmod(0o700)
    name = sha256(os.fsencode(os.path.realpath(store))).hexdigest()[:24]
    return runtime / f"{name}.sock"


def _bind(path: Path) -> sockets.Socket:
    """Returns a socket that listens at the path. Raises OSError."""
    bound = sockets.unix()
    try:
        path.unlink(missing_ok=True)
        bound.bind(str(path))
        path.chmod(0o600)
        bound.listen(_BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound
