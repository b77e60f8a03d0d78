"""Writes that a client asks for again because the server died, and that happen once.

Owns: the token of a write to which the client gave none, and which of them are answered.
Refuses to know: what is written.

A client that gets no answer because the server was killed starts it anew and asks again, with
nothing that tells the second request from another one of the same content. So a token is made of
who the client is (the parent process and when it began), what it asks for, and a number: the first
that it has no answer to. Which numbers are answered stands in a small file, a line each, written
once the answer is in the pipe. The token stands in the log, which outlives what a purge erases from
it: so the content is hashed under a secret key, which is in the runtime folder and in no backup.
A request that was in flight gets its own number again; the same
request, once answered, gets the next one, and is done again.

What this cannot hold: a client that was itself started anew, or that starts the server through a
program that dies with it, is another client; and a server that is killed in the microseconds
between the answer and its line takes the next request of the same content for the same. Against
both a token of the client's own (`clientToken`) holds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from kbproc.base.durable import boot, write_all, write_new

_SIZE = 16  # bytes of a digest
_KEY_BYTES = 32
_TIME = "timeout_ms"  # a write that was given up may be asked again with more time
_BEGAN = 19  # where /proc/PID/stat has the beginning, after the name

Ticket = tuple[str, int]  # digest of the content, number


def client_of(pid: int) -> str | None:
    """Which process that is, and no other that had or will have its number; None if unknown."""
    try:
        return f"{pid}-{_begin(pid)}-{boot()[:8]}"
    except (OSError, IndexError):
        return None


def _begin(pid: int) -> str:
    """Raises OSError, IndexError."""
    if sys.platform == "linux":
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        return stat.rpartition(")")[2].split()[_BEGAN]
    import subprocess  # no Linux process needs it

    asked = ["/bin/ps", "-o", "lstart=", "-p", str(pid)]
    said = subprocess.run(asked, check=False, capture_output=True, text=True).stdout
    if not said.strip():
        raise OSError(f"there is no process {pid}")
    return blake2b(said.encode(), digest_size=4).hexdigest()


class Once:
    """The numbers of one client. Whoever uses it from several threads brings a lock."""

    def __init__(self, folder: Path, client: str | None, where: Callable[[], str]) -> None:
        """`folder`: of the small files; `where`: the store, and as whom one writes there, which
        is known once the client has introduced itself.

        A client that is unknown, or a folder that can't be written, leaves each request its own
        token: then it happens once, and again if it is asked for again.
        """
        self._prefix = f"mcp-{os.urandom(8).hex()}"
        self._folder = folder
        self._client = client
        self._name_where = where
        self._where = self._key = b""
        self._answered: dict[str, set[int]] = {}
        self._open: set[Ticket] = set()
        self._fd = -1

    def _settle(self) -> None:
        """Reads the file when the first write comes."""
        self._where = self._name_where().encode()
        self._key = self._keyed(os.urandom(_KEY_BYTES))
        if self._client is None:
            return
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _forget_the_gone(self._folder)
            self._key = self._keyed(_secret(self._folder))
            name = blake2b(self._where, digest_size=8).hexdigest()
            path = self._folder / f"{self._client}-{name}"
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(path, flags, 0o600)
            self._read(path.read_bytes())
            self._prefix = f"mcp-{self._client}-{name}"

    def _keyed(self, secret: bytes) -> bytes:
        """The key for this store and actor."""
        return blake2b(self._where, key=secret).digest()

    def _read(self, data: bytes) -> None:
        for line in data.split(b"\n")[:-1]:
            with contextlib.suppress(ValueError):
                digest, number = line.decode("ascii").split(" ")
                self._answered.setdefault(digest, set()).add(int(number))

    def take(self, method: str, params: dict[str, Any]) -> Ticket:
        """The first number of this content that is neither answered nor in flight."""
        if not self._where:
            self._settle()
        asked = {name: value for name, value in params.items() if name != _TIME}
        said = msgspec.json.encode([method, asked], order="deterministic")
        digest = blake2b(said, digest_size=_SIZE, key=self._key).hexdigest()
        answered = self._answered.get(digest, set())
        number = 0
        while number in answered or (digest, number) in self._open:
            number += 1
        self._open.add((digest, number))
        return digest, number

    def token(self, ticket: Ticket) -> str:
        return f"{self._prefix}-{ticket[0]}-{ticket[1]}"

    def give_back(self, ticket: Ticket) -> None:
        """It was not answered, but put off: the same content means the same write."""
        self._open.discard(ticket)

    def answered(self, ticket: Ticket) -> None:
        """The answer is in the pipe."""
        self._open.discard(ticket)
        self._answered.setdefault(ticket[0], set()).add(ticket[1])
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                write_all(self._fd, f"{ticket[0]} {ticket[1]}\n".encode())


def _secret(folder: Path) -> bytes:
    """The secret key of a folder, which is made once. Raises OSError."""
    path = folder / "key"
    if not path.exists():
        made = folder / f"key-{os.urandom(8).hex()}"
        write_new(str(made), os.urandom(_KEY_BYTES))
        try:
            with contextlib.suppress(FileExistsError):  # another process was faster
                path.hardlink_to(made)
        finally:
            made.unlink()
    found = path.read_bytes()
    if len(found) != _KEY_BYTES:
        raise OSError(errno.EINVAL, "the key is damaged")
    return found


def _forget_the_gone(folder: Path) -> None:
    """Removes the files of clients that have ended."""
    for path in folder.iterdir():
        pid = path.name.partition("-")[0]
        if pid.isdigit() and not path.name.startswith(f"{client_of(int(pid))}-"):
            path.unlink(missing_ok=True)
