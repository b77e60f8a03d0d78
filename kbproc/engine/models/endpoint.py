"""Bounds every answer of an endpoint, in raw bytes and in the time of its silence.

httpx bounds each read alone, and so waits for ever for a server that sends `100 Continue`, comments
or single bytes now and then: here one deadline holds for all reads of a request. httpx also unpacks
bodies, and three layers of gzip make a thousand megabytes of a thousand bytes: requests ask for
unpacked answers, and packed ones are refused.

The key of an endpoint lies in a file that only its owner may read.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kbproc.base.errors import KbprocError
from kbproc.base.tls import trusted

# Sent with every request.
HEADERS = {"Accept-Encoding": "identity"}
MOST_BYTES = 64 << 20

_of_thread = threading.local()
_MOST_KEY_BYTES = 10_000


class PackedBody(Exception):
    """The answer is packed, although the request asked for an unpacked one."""


class BodyTooLong(Exception):
    """The answer has more than MOST_BYTES."""


class Silence:
    """A deadline in this thread: the server may send nothing of its answer for so long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.deadline = 0.0

    def restart(self) -> None:
        """Starts the time anew, because a part of the answer has come."""
        self.deadline = time.monotonic() + self._seconds

    def __enter__(self) -> Silence:
        self.restart()
        _of_thread.silence = self
        return self

    def __exit__(self, *exc: object) -> None:
        _of_thread.silence = None


def raw(response: Any) -> Iterator[bytes]:
    """Yields the body's parts as they were sent.

    Raises PackedBody, BodyTooLong, httpx.HTTPError.
    """
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding not in {"", "identity"}:
        raise PackedBody
    size = 0
    for part in response.iter_raw():
        size += len(part)
        if size > MOST_BYTES:
            raise BodyTooLong
        yield part


def client(**options: Any) -> Any:
    """Returns an httpx.Client whose reads end with the Silence of their thread."""
    import httpx

    new = httpx.Client(verify=trusted(), **options)
    transports = [new._transport, *new._mounts.values()]
    for transport in transports:
        pool = getattr(transport, "_pool", None)  # the same name in all versions in use
        if pool is not None:
            pool._network_backend = _backend(pool._network_backend)
    return new


def _backend(inner: Any) -> Any:
    import httpcore

    class Stream(httpcore.NetworkStream):
        """A stream whose reads end with the thread's Silence."""

        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
            silence = getattr(_of_thread, "silence", None)
            if silence is not None:
                remaining = silence.deadline - time.monotonic()
                if remaining <= 0:
                    raise httpcore.ReadTimeout("no word of the answer came")
                timeout = remaining if timeout is None else min(timeout, remaining)
            return bytes(self._inner.read(max_bytes, timeout))

        def write(self, buffer: bytes, timeout: float | None = None) -> None:
            self._inner.write(buffer, timeout)

        def close(self) -> None:
            with contextlib.suppress(OSError):
                self._inner.close()

        def start_tls(self, *words: Any, **named: Any) -> Any:
            return Stream(self._inner.start_tls(*words, **named))

        def get_extra_info(self, info: str) -> Any:
            return self._inner.get_extra_info(info)

    class Backend(httpcore.NetworkBackend):
        def connect_tcp(self, *words: Any, **named: Any) -> Any:
            return Stream(inner.connect_tcp(*words, **named))

        def connect_unix_socket(self, *words: Any, **named: Any) -> Any:
            return Stream(inner.connect_unix_socket(*words, **named))

        def sleep(self, seconds: float) -> None:
            inner.sleep(seconds)

    return Backend()


def key_in(file: str, wrong: Callable[[str], KbprocError]) -> str:
    """Returns the key in a file.

    Raises what `wrong` makes of the reason: others may read the file, or it holds no key.
    """
    path = Path(os.path.expanduser(file))  # noqa: PTH111  never raises
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as stream:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode) or mode & 0o077:
                raise wrong(f"{path} is no file of mode 0600: others may read the key.")
            key = stream.read(_MOST_KEY_BYTES).decode().strip()
    except (OSError, ValueError):
        raise wrong(f"{path}, which should hold the key, can't be read.") from None
    if not key:
        raise wrong(f"{path} holds no key.")
    return key
