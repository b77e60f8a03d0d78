"""A task's id, which says by itself what is to be done.

Owns: ids, from what they stand for and back, and which tasks were cancelled.
Refuses to know: how anything is done.

Nothing is kept for a task but what the log keeps of its write. Its id holds the request with its
token: asked once more, the request has the outcome that it had, or goes on where it was cut off. So
a task outlives the server, and what a purge erases from the store is in no file beside it. Only of
what was cancelled the log need not know; a small file in the runtime folder does.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import os
import zlib
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kbproc.base.durable import write_all
from kbproc.base.values import decoder

_SALT = 16  # bytes of a digest, and of what nobody can guess
_MOST_BYTES = 1 << 20


class Handle(Struct, frozen=True, array_like=True):
    """`began_ms`: since the epoch; `salt`: in hex; `params` hold the token."""

    tool: str
    method: str
    params: dict[str, Any]
    began_ms: int
    salt: str


_decode = decoder(Handle).decode


class Handles:
    """The ids of one client's tasks; `where`: the store, and as whom one writes there, which is
    known once the client has introduced itself.
    """

    def __init__(self, folder: Path, where: Callable[[], str]) -> None:
        """`folder`: of the small file. One that can't be written forgets what was cancelled."""
        self._folder = folder
        self._where = where

    @functools.cached_property
    def _key(self) -> bytes:
        return blake2b(self._where().encode()).digest()

    @property
    def _cancelled(self) -> Path:
        return self._folder / f"cancelled-{self._key[:8].hex()}"

    def id_of(self, handle: Handle) -> str:
        said = zlib.compress(msgspec.json.encode(handle), 9)
        return _text(self._digest(said) + said)

    def read(self, id: str) -> Handle | None:
        """None for what is no id of a task here."""
        try:
            given = base64.b64decode(id + "=" * (-len(id) % 4), b"-_", validate=True)
            said = given[_SALT:]
            # The same bytes written otherwise would not be known as cancelled.
            if self._digest(said) != given[:_SALT] or _text(given) != id:
                return None
            return _decode(zlib.decompressobj().decompress(said, _MOST_BYTES))
        except (binascii.Error, ValueError, zlib.error, msgspec.DecodeError):
            return None

    def _digest(self, said: bytes) -> bytes:
        return blake2b(said, digest_size=_SALT, key=self._key).digest()

    def cancel(self, id: str) -> None:
        """What was cancelled must not go on because somebody asks how it is."""
        with contextlib.suppress(OSError):
            self._cancelled.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(self._cancelled, flags, 0o600)
            try:
                write_all(fd, self._line(id))
            finally:
                os.close(fd)

    def is_cancelled(self, id: str) -> bool:
        try:
            return self._line(id) in self._cancelled.read_bytes().splitlines(keepends=True)
        except OSError:
            return False

    def _line(self, id: str) -> bytes:
        return blake2b(id.encode(), digest_size=_SALT).hexdigest().encode() + b"\n"


def _text(given: bytes) -> str:
    return base64.urlsafe_b64encode(given).decode().rstrip("=")
