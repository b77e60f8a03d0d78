"""Where the owner of a store listens.

Owns: the place of the socket, binding it under the lease, and announcing it there.
Refuses to know: who connects. Light: the socket is bound before anything heavy is
imported, so that other processes wait for the store instead of giving up.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from kbproc.base.errors import KbprocError
from kbproc.log.lease import Lease
from kbproc.settings.config import Config
from kbproc.sharing import reach
from kbproc.sharing.reach import Check

_BACKLOG = 512
_LOOK_MS = 1000  # how often the owner looks whether its socket is still there
_LONGEST_PATH = 100  # bytes; the kernel takes 107


class Listening:
    """The lease of a store, and the socket at which its owner listens."""

    def __init__(self, lease: Lease, config: Config) -> None:
        """Raises store.io where no socket can be had; then the lease is let go of."""
        self.lease = lease
        self._config = config
        self._looks = True  # whether the socket's file is still there
        self._changing = threading.Lock()  # of the socket: one thread accepts, another stops it
        try:
            self._listen()
        except BaseException:
            lease.release()
            raise

    def _listen(self) -> None:
        """Raises store.io; then all is as before."""
        bound, path = _bound(self._config)
        try:
            self.lease.announce(path)
        except OSError as error:
            bound.close()
            path.unlink(missing_ok=True)
            raise _no_socket(error) from error
        self._socket, self.path, self._inode = bound, path, _inode(path)

    def accept(self) -> socket.socket | None:
        """The next process that wants in; None if none came for a while. Raises OSError.

        A socket whose file was removed meanwhile is made anew, or nobody could come any more.
        """
        if not self._asked():
            if self._looks and _inode(self.path) != self._inode:
                self._renew()
            return None
        return self._socket.accept()[0]

    def _asked(self) -> bool:
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLIN)
        except ValueError:  # it was stopped meanwhile
            raise OSError(errno.EBADF, "the socket is closed") from None
        return bool(poll.poll(_LOOK_MS))

    def _renew(self) -> None:
        import logging  # where nobody removes anything, nothing waits for it

        logger = logging.getLogger(__name__)
        with self._changing:
            if not self._looks:  # it was stopped meanwhile, which removes the socket, too
                return
            removed = self._socket
            try:
                self.lease.check()  # in the place of a store that was moved another may lie
                self._listen()
            except KbprocError as error:
                logger.warning("the store's socket was removed: %s", error.message)
                self._looks = False
                return
            logger.warning("the store's socket was removed: it was made again")
            removed.close()

    def stop(self) -> None:
        """Lets nobody in any more."""
        with self._changing:
            self._looks = False
            if _inode(self.path) == self._inode:  # another store may lie there by now
                self.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def close(self) -> None:
        """Only where no store was opened under the lease, which a store closes itself."""
        self.stop()
        self.lease.release()


def _inode(path: Path) -> int:
    """0 where there is nothing."""
    with contextlib.suppress(OSError):
        return path.lstat().st_ino
    return 0


def reach_or_listen(config: Config, pid: int, check: Check) -> socket.socket | Listening | None:
    """A connection to the owner, or a place to listen as the owner.

    None: the store is read-only, and every process opens it for itself. `check` and errors:
    see `reach.reach`.
    """
    found = reach.reach(config.store, pid, check)
    return found if found is None or isinstance(found, socket.socket) else Listening(found, config)


def _bound(config: Config) -> tuple[socket.socket, Path]:
    """Raises store.io where no socket can be had."""
    wrong = OSError()
    try:
        for path in _paths(config.store, config.runtime):
            try:
                return _bind(path), path
            except OSError as error:
                wrong = error
    except OSError as error:
        wrong = error
    raise _no_socket(wrong) from wrong


def _no_socket(error: OSError) -> KbprocError:
    return KbprocError("store.io", f"The store's socket could not be made: {error.strerror}.")


def _paths(store: Path, runtime: Path) -> Iterator[Path]:
    """Where the socket may lie, the better place first.

    That is the store, unless its path is too long or its file system has no sockets.
    Raises OSError and store.io once it comes to another place.
    """
    path = store / reach.SOCKET
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield path
    yield _other_path(store, runtime)


def _other_path(store: Path, runtime: Path) -> Path:
    from hashlib import sha256

    runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = runtime.stat()
    if found.st_uid != os.getuid():
        raise KbprocError("store.io", f"{runtime} belongs to another user.")
    runtime.chmod(0o700)
    name = sha256(os.fsencode(os.path.realpath(store))).hexdigest()[:24]
    return runtime / f"{name}.sock"


def _bind(path: Path) -> socket.socket:
    """Raises OSError."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        bound.bind(str(path))
        path.chmod(0o600)
        bound.listen(_BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound
