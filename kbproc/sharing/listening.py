"""Where the owner of a store listens.

Owns: the place of the socket, binding it under the lease, and announcing it there.
Refuses to know: who connects. Light: the socket is bound before anything heavy is
imported, so that other processes wait for the store instead of giving up.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from kbproc.base.errors import KbprocError
from kbproc.log.lease import Lease
from kbproc.settings.config import Config
from kbproc.sharing import reach

_BACKLOG = 512
_LONGEST_PATH = 100  # bytes; the kernel takes 107


class Listening(Struct, frozen=True, kw_only=True):
    """The lease of a store, and the socket at which its owner listens."""

    lease: Lease
    socket: socket.socket
    path: Path

    def close(self) -> None:
        """Only where no store was opened under the lease, which a store closes itself."""
        self.path.unlink(missing_ok=True)
        self.socket.close()
        self.lease.release()


def reach_or_listen(config: Config, pid: int) -> socket.socket | Listening | None:
    """A connection to the owner, or a place to listen as the owner.

    None: the store is read-only, and every process opens it for itself.
    Raises store.io; store.locked if a process holds the lease for long and does not listen.
    """
    found = reach.reach(config.store, pid)
    return found if found is None or isinstance(found, socket.socket) else _listen(config, found)


def _listen(config: Config, lease: Lease) -> Listening:
    try:
        bound, path = _bound(config)
    except BaseException:
        lease.release()
        raise
    lease.announce(path)
    return Listening(lease=lease, socket=bound, path=path)


def _bound(config: Config) -> tuple[socket.socket, Path]:
    """Raises store.io where no socket can be had."""
    wrong: OSError | None = None
    try:
        for path in _paths(config.store, config.runtime):
            try:
                return _bind(path), path
            except OSError as error:
                wrong = error
    except OSError as error:
        wrong = error
    why = "" if wrong is None else wrong.strerror
    raise KbprocError("store.io", f"The store's socket could not be made: {why}.")


def _paths(store: Path, runtime: Path) -> Iterator[Path]:
    """Where the socket may lie, the better place first.

    That is the store, unless its path is too long or its file system has no sockets.
    Raises OSError and store.io once it comes to another place.
    """
    path = store / "kbproc.sock"
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
