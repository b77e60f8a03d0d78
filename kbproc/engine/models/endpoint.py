"""What every answer of an endpoint is bounded by: its raw bytes, and the time of its silence.

Owns: reading a body as it was sent, and a deadline over all reads of one request.
Refuses to know: what is asked, and what an answer means.

httpx bounds each read, and so waits for ever for a server that sends `100 Continue`, comments or
single bytes now and then. It unpacks what a server has packed: three layers of gzip make a thousand
megabytes of a thousand bytes. So no packed answer is asked for, or taken.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

# Sent with every request.
HEADERS = {"Accept-Encoding": "identity"}
MOST_BYTES = 64 << 20

_of_thread = threading.local()


class Packed(Exception):
    """The answer is packed, though nobody has asked for that."""


class TooLong(Exception):
    """The answer has more than MOST_BYTES."""


class Silence:
    """The time that a server may go on without a word of the answer, in this thread."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.until = 0.0

    def heard(self) -> None:
        """A word has come, and the time begins anew."""
        self.until = time.monotonic() + self._seconds

    def __enter__(self) -> Silence:
        self.heard()
        _of_thread.silence = self
        return self

    def __exit__(self, *exc: object) -> None:
        _of_thread.silence = None


def raw(response: Any) -> Iterator[bytes]:
    """The body in parts, as it was sent. Raises Packed, TooLong, httpx.HTTPError."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding not in {"", "identity"}:
        raise Packed
    came = 0
    for part in response.iter_raw():
        came += len(part)
        if came > MOST_BYTES:
            raise TooLong
        yield part


def client(**options: Any) -> Any:
    """An httpx.Client whose reads end with the Silence of their thread."""
    import httpx

    made = httpx.Client(**options)
    transports = [made._transport, *made._mounts.values()]
    for transport in transports:
        pool = getattr(transport, "_pool", None)  # of no other name in the versions in use
        if pool is not None:
            pool._network_backend = _backend(pool._network_backend)
    return made


def _backend(inner: Any) -> Any:
    import httpcore

    class Stream(httpcore.NetworkStream):
        """Reads no longer than the thread's Silence lasts."""

        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
            silence = getattr(_of_thread, "silence", None)
            if silence is not None:
                left = silence.until - time.monotonic()
                if left <= 0:
                    raise httpcore.ReadTimeout("no word of the answer came")
                timeout = left if timeout is None else min(timeout, left)
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
