"""Talks to the endpoint of a model: connects, posts, bounds the answer, and words its refusals.

Answers are bounded in raw bytes and in the time of their silence. httpx bounds each read alone, and
so waits for ever for a server that sends `100 Continue`, comments or single bytes now and then:
here one deadline holds for all reads of a request. httpx also unpacks bodies, and three layers of
gzip make a thousand megabytes of a thousand bytes: requests ask for unpacked answers, and packed
ones are refused.

The key of an endpoint lies in a file that only its owner may read.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kbproc.base.errors import KbprocError
from kbproc.base.tls import trusted

# Sent with every request.
HEADERS = {"Accept-Encoding": "identity"}
MOST_BYTES = 64 << 20

_of_thread = threading.local()
_MOST_KEY_BYTES = 10_000
_CONNECT_SECONDS = 10.0
_MOST_CONNECTIONS = 16  # kept open for further requests
_MOST_REASON_BYTES = 4096
# Words of a refusal that no waiting helps, although its status says so.
_USED_UP = "insufficient_quota"


class EndpointError(KbprocError):
    """A failure of an endpoint.

    `status`: the status of its answer, or 0. `reason`: the beginning of a refusal's text, for
    kbproc alone, because it may repeat the key or the texts.
    """

    status = 0
    reason = ""


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


class Wording(NamedTuple):
    """How errors name an endpoint and the settings that it has."""

    endpoint: str
    error: str  # the type of error
    url: str
    model: str
    key: str
    timeout: str
    too_long: str  # advice about texts that are longer than the model reads
    silence_error: str = "model.unavailable"
    silence: str = "did not answer within"


class Endpoint:
    """An endpoint with one connection pool, for any number of threads."""

    def __init__(
        self, url: str, path: str, *, api_key: str | None, timeout_s: float, wording: Wording
    ) -> None:
        """`path`: of the requests; `url` may end with it, and have a query. `timeout_s`: longest
        silence.
        """
        base, mark, query = url.partition("?")
        self.url = base.rstrip("/").removesuffix(path) + path + mark + query
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._wording = wording
        self._client: Any = None
        self._opening = threading.Lock()

    def prepare(self) -> None:
        """Loads httpx in advance, which takes a tenth of a second and stops other threads."""
        self._connect()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def post(self, body: dict[str, Any]) -> bytes:
        """Returns the whole answer, which must come within `timeout_s`; raises as `stream`."""
        with self.stream(body) as (response, _):
            return b"".join(raw(response))

    @contextlib.contextmanager
    def stream(self, body: dict[str, Any]) -> Iterator[tuple[Any, Silence]]:
        """Yields a response whose body has not been read, and the deadline of its parts.

        Raises the errors of the wording, also for what goes wrong while the body is read.
        """
        import httpx

        try:
            with (
                Silence(self._timeout_s) as silence,
                self._connect().stream("POST", self.url, json=body) as response,
            ):
                if response.status_code != httpx.codes.OK:
                    raise self._refusal(response)
                yield response, silence
        except PackedBody:
            raise self.unavailable(
                "sent a packed answer, which the request did not allow", lasting=True
            ) from None
        except BodyTooLong:
            raise self.unavailable(f"sent more than {MOST_BYTES >> 20} MiB", lasting=True) from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise self.unavailable("has no valid address", lasting=True) from None
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            # Without str(error), here and below, because an address may carry a password.
            raise self.unavailable(f"did not answer ({type(error).__name__})") from None
        except httpx.TimeoutException:
            raise self._silent() from None
        except httpx.HTTPError as error:
            raise self.unavailable(f"broke off ({type(error).__name__})") from None

    def unavailable(
        self,
        failure: str,
        *,
        hint: str | None = None,
        lasting: bool = False,
        retry_after_ms: int | None = None,
        **detail: Any,
    ) -> EndpointError:
        """Returns the error that says what the endpoint did; see KbprocError for `lasting`."""
        names = self._wording
        return EndpointError(
            names.error,
            f"The {names.endpoint} {failure}.",
            hint=hint or f"Check {names.url} and {names.model}, and that the server runs.",
            lasting=lasting,
            retry_after_ms=retry_after_ms,
            detail=detail,
        )

    def _silent(self) -> EndpointError:
        names = self._wording
        return EndpointError(
            names.silence_error,
            f"The {names.endpoint} {names.silence} {self._timeout_s:g} seconds.",
            hint=f"Ask again; where answers take long, raise {names.timeout}.",
        )

    def _refusal(self, response: Any) -> EndpointError:
        """Returns the error that a status other than 200 means; 408, 429 and 5xx may pass."""
        names, status = self._wording, response.status_code
        reason = _beginning(response)
        is_used_up = status == 429 and _USED_UP in reason
        hints = {
            400: f"Check {names.model}; {names.too_long}.",
            401: f"Check {names.key}: the endpoint does not accept it.",
            403: f"Check {names.key}: it may not use this model.",
            404: f"Check {names.url} and {names.model}: the endpoint knows no such thing.",
            413: f"{names.too_long[:1].upper()}{names.too_long[1:]}.",
            429: "The endpoint limits how often it is asked: wait, or raise the limit there.",
        }
        hint = hints.get(status, "Look into the endpoint's own log.")
        error = self.unavailable(
            f"answered {status}",
            hint="The account has used up its quota: raise it there." if is_used_up else hint,
            lasting=is_used_up or not (status in (408, 429) or status >= 500),
            retry_after_ms=wait_ms(response.headers),
            http_status=status,
        )
        error.status, error.reason = status, reason
        return error

    def _connect(self) -> Any:
        import httpx

        with self._opening:
            if self._client is None:
                key = _key_header(self.url, self._api_key) if self._api_key else {}
                seconds = min(self._timeout_s, _CONNECT_SECONDS)
                self._client = client(
                    headers={**HEADERS, **key},
                    timeout=httpx.Timeout(self._timeout_s, connect=seconds),
                    limits=httpx.Limits(
                        max_connections=None, max_keepalive_connections=_MOST_CONNECTIONS
                    ),
                )
        return self._client


def _key_header(url: str, key: str) -> dict[str, str]:
    """Returns the header that carries the key; Azure has one of its own."""
    is_azure = re.search(r"^https?://[^/]*\.azure\.com[:/]|[?&]api-version=", url) is not None
    return {"api-key": key} if is_azure else {"Authorization": f"Bearer {key}"}


def _beginning(response: Any) -> str:
    """Returns the beginning of a refusal's text; of one that breaks off or is packed, nothing."""
    import httpx

    data = b""
    with contextlib.suppress(httpx.HTTPError, PackedBody, BodyTooLong):
        for part in raw(response):
            data += part
            if len(data) >= _MOST_REASON_BYTES:
                break
    return data[:_MOST_REASON_BYTES].decode("utf-8", "replace")


def wait_ms(headers: Mapping[str, str]) -> int | None:
    """Returns the wait in Retry-After: seconds, or a date by the clock of the header Date.

    OpenAI and Azure send milliseconds, too.
    """
    exact = headers.get("retry-after-ms", "")
    if exact.isdecimal() and len(exact) < 11:
        return int(exact)
    value = headers.get("retry-after", "")
    if value.isdecimal() and len(value) < 8:
        return int(value) * 1000
    from email.utils import parsedate_to_datetime  # imported here, because it is slow to import

    try:
        until, now = (parsedate_to_datetime(date) for date in (value, headers.get("date", "")))
        return max(0, round((until - now).total_seconds() * 1000))
    except (ValueError, TypeError, OverflowError):
        return None


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
