"""Fetches one web page or file, within limits of size and time.

A host's name is resolved once, and the connection goes to the very address that was judged. So a
name server that answers differently the second time can't lead to another machine. Each redirect
is judged anew, and bodies are unpacked here, so that a small body can't become a huge one.
"""

from __future__ import annotations

import contextlib
import math
import re
import socket
import time
import zlib
from collections.abc import Callable, Collection
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from msgspec import Struct

from kbproc import __version__
from kbproc.base.errors import KbprocError
from kbproc.base.threads import start_thread
from kbproc.base.tls import trusted
from kbproc.base.wording import plural
from kbproc.base.workers import Worker
from kbproc.engine.sources.addresses import is_public
from kbproc.engine.sources.parse.formats import detect

MAX_REDIRECTS = 5
_LOOK_S = 0.05
_PASSING = {408, 425, 429}  # client errors (4xx) after which a later try may succeed
_OFFICE = "application/vnd.openxmlformats-officedocument"
_OPEN_DOCUMENT = "application/vnd.oasis.opendocument"
_TYPES = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "text/markdown": "markdown",
    "text/plain": "text",
    "text/csv": "table",
    "text/tab-separated-values": "table",
    "message/rfc822": "mail",
    "application/pdf": "pdf",
    "application/rtf": "rtf",
    "text/rtf": "rtf",
    "application/epub+zip": "book",
    "application/x-ipynb+json": "notebook",
    "application/vnd.ms-excel": "sheet",
    f"{_OFFICE}.wordprocessingml.document": "docx",
    f"{_OFFICE}.spreadsheetml.sheet": "sheet",
    f"{_OFFICE}.presentationml.presentation": "slides",
    f"{_OPEN_DOCUMENT}.text": "odt",
    f"{_OPEN_DOCUMENT}.spreadsheet": "sheet",
    f"{_OPEN_DOCUMENT}.presentation": "slides",
}

Progress = Callable[[int, int | None], None]


class FetchedPage(Struct, frozen=True, kw_only=True):
    """A page or file from the web.

    `name` is the last part of the URL's path; messages show it, and it is the title of a page
    without one.
    """

    url: str
    data: bytes
    type: str
    name: str


def fetch_url(
    url: str,
    *,
    max_bytes: int,
    timeout_s: float,
    allow_private: bool,
    approved: Collection[str] = (),
    progress: Progress = lambda current, total: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> FetchedPage:
    """Fetches a page and follows its redirects.

    `approved` lists private addresses that are allowed although `allow_private` is false. Raises
    network.blocked, network.failed, input.too_large, input.unsupported_type, operation.cancelled.
    """
    deadline = time.monotonic() + timeout_s
    for redirects in range(MAX_REDIRECTS + 1):
        address = judge(
            url,
            allow_private=allow_private,
            approved=approved,
            is_redirect=redirects > 0,
            deadline=deadline,
            cancelled=cancelled,
        )
        response = _get(url, address, max_bytes, deadline, progress, cancelled)
        if isinstance(response, FetchedPage):
            return response
        url = _joined(url, response)
    raise _failed(url, f"it redirects more than {MAX_REDIRECTS} times", lasting=True)


def without_password(url: str) -> str:
    """Returns the URL without user name and password, because messages end up in logs.

    A malformed URL loses everything between its scheme and its last @.
    """
    try:
        parts = urlsplit(url)
        plain = parts.netloc != "" and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        plain = False
    if plain or "@" not in url:
        return url
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", url)
    return (scheme.group() if scheme else "") + url.rpartition("@")[2]


def _failed(url: str, why: str, *, lasting: bool = False, **detail: Any) -> KbprocError:
    return KbprocError(
        "network.failed",
        f"{without_password(url)} could not be fetched: {why}.",
        hint="Check the address: asking again will not help." if lasting else None,
        field="$.params.url",
        detail=detail,
        lasting=lasting,
    )


def _joined(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError:
        where = without_password(location)
        raise _failed(url, f"it redirects to {where!r}", lasting=True) from None


def judge(
    url: str,
    *,
    allow_private: bool,
    approved: Collection[str] = (),
    is_redirect: bool = False,
    deadline: float = math.inf,
    cancelled: Callable[[], bool] = lambda: False,
) -> str:
    """Returns the address to connect to. `deadline` is in seconds of the monotonic clock.

    Raises network.blocked if none of the host's addresses is allowed, network.failed if it has
    none, operation.cancelled.
    """
    host, port = _host_of(url)
    addresses = _addresses(url, host, port, deadline, cancelled)
    allowed = [a for a in addresses if allow_private or a in approved or is_public(a)]
    if not allowed:
        behind = "" if host == addresses[0] else f" ({addresses[0]})"
        why = f"{host} is a private or local address{behind}"
        redirected = {"redirected": True} if is_redirect else {}
        raise _blocked(url, why, _PRIVATE, address=addresses[0], **redirected)
    return allowed[0]


def _host_of(url: str) -> tuple[str, int | str]:
    """Returns the host's name, and its port or, without one, the scheme."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # the error's text may hold a password
        raise _blocked(url, "the address is malformed", _MALFORMED) from None
    if parts.scheme not in {"http", "https"}:
        raise _blocked(url, "only http and https addresses are fetched", _SCHEME)
    if not host:
        raise _blocked(url, "the address names no host", _MALFORMED)
    if parts.username or parts.password:
        raise _blocked(url, "addresses with a name or password are not fetched", _SIGNED_IN)
    return host, port or parts.scheme


def _addresses(
    url: str, host: str, port: int | str, deadline: float, cancelled: Callable[[], bool]
) -> list[str]:
    """Returns all addresses of a host, from a thread because the call can't be interrupted.

    Raises network.failed, operation.cancelled.
    """
    addresses: list[str] = []
    failed: list[Exception] = []

    def ask() -> None:
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses.extend(str(entry[4][0]) for entry in entries)
        except (OSError, UnicodeError) as error:
            failed.append(error)

    asking = start_thread(ask, "resolve")
    while asking.is_alive():
        asking.join(0.05)
        if asking.is_alive():
            _check(url, deadline, cancelled)
    if failed:
        raise _failed(url, f"the name {host} can't be resolved ({failed[0]})")
    return addresses


_PRIVATE = (
    "Private addresses are fetched only where a person has given --allow-private-addresses to "
    "kbproc doc fetch, kbproc serve or kbproc mcp."
)
_SCHEME = "Add files with doc.ingest; of the web, only http and https can be fetched."
_MALFORMED = "Write it like https://example.org/page, with a port from 1 to 65535 if any."
_SIGNED_IN = "Leave name and password out, or download the page and add the file with doc.ingest."


def _blocked(url: str, why: str, hint: str, **detail: Any) -> KbprocError:
    return KbprocError(
        "network.blocked",
        f"{without_password(url)} is not fetched: {why}.",
        field="$.params.url",
        hint=hint,
        detail=detail,
    )


def _get(
    url: str,
    address: str,
    max_bytes: int,
    deadline: float,
    progress: Progress,
    cancelled: Callable[[], bool],
) -> FetchedPage | str:
    """Returns the page, or the URL that the server redirects to."""
    import httpx

    parts = urlsplit(url)
    direct = parts._replace(netloc=_netloc(address, parts.port), fragment="")
    name = (parts.hostname or "").encode("idna").decode()  # the form in which it was resolved
    headers = {
        "Host": _netloc(name, parts.port),
        "User-Agent": f"kbproc/{__version__}",
        "Accept-Encoding": "gzip, deflate",
        "Accept": "text/html,text/*;q=0.9,application/pdf;q=0.9,*/*;q=0.5",
    }
    remaining_s = max(deadline - time.monotonic(), 0.001)
    try:
        with (
            _Guard(deadline, cancelled) as guard,
            httpx.Client(
                trust_env=False, verify=trusted(trust_env=False), timeout=remaining_s
            ) as client,
            client.stream(
                "GET",
                direct.geturl(),
                headers=headers,
                extensions={"sni_hostname": name, "trace": guard.trace},
            ) as response,
        ):
            if response.has_redirect_location:
                return str(response.headers["location"])
            if response.status_code != 200:
                status = response.status_code
                raise _failed(
                    url,
                    f"the server answered {status}",
                    lasting=status < 500 and status not in _PASSING,
                    status=status,
                )
            data = _body(url, response, max_bytes, deadline, progress, cancelled)
            return _page(url, data, response.headers.get("content-type", ""))
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError, zlib.error) as error:
        _check(url, deadline, cancelled)
        raise _failed(url, str(error) or type(error).__name__) from None


def _netloc(host: str, port: int | None) -> str:
    """Returns host and port as a URL holds them (RFC 3986)."""
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if port else host


def _check(url: str, deadline: float, cancelled: Callable[[], bool]) -> None:
    if cancelled():
        raise KbprocError("operation.cancelled", "The client cancelled the request.")
    if time.monotonic() > deadline:
        raise _failed(url, "it took too long")


class _Guard:
    """A thread that ends the connection at the deadline, or when the client cancels.

    It is needed because a read's own timeout never passes while the server sends a byte now and
    then. It also ends a connection that is made after the deadline.
    """

    def __init__(self, deadline: float, cancelled: Callable[[], bool]) -> None:
        self._deadline = deadline
        self._cancelled = cancelled
        self._socket: socket.socket | None = None
        self._worker = Worker("fetch", self._watch)

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """Stores the connection's socket. httpx calls it at each step; TLS wraps the first one."""
        if event in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:
            self._socket = info["return_value"].get_extra_info("socket")

    def _watch(self, is_woken: bool) -> float:
        over = time.monotonic() > self._deadline or self._cancelled()
        if over and self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        return _LOOK_S

    def __enter__(self) -> _Guard:
        self._worker.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._worker.close()


def _body(
    url: str,
    response: Any,
    max_bytes: int,
    deadline: float,
    progress: Progress,
    cancelled: Callable[[], bool],
) -> bytes:
    """Returns the unpacked body. Raises input.too_large as soon as it exceeds `max_bytes`."""
    unpack = _unpacking(url, response.headers.get("content-encoding", ""))
    declared = response.headers.get("content-length", "")
    total = int(declared) if declared.isdecimal() and unpack is None else None
    data, received = bytearray(), 0
    for part in response.iter_raw():
        received += len(part)
        data += part if unpack is None else unpack.decompress(part, max_bytes + 1 - len(data))
        # A packed body has a header and a checksum, so it may be larger than the unpacked one.
        if len(data) > max_bytes or received > max_bytes + _PACKING:
            raise _too_large(url, max_bytes)
        _check(url, deadline, cancelled)
        progress(len(data), total)
    # The guard may have closed the connection, which looks like the end of the body.
    _check(url, deadline, cancelled)
    if unpack is not None and (not unpack.eof or unpack.unused_data):
        raise _failed(url, "its packed body does not end where it should")
    return bytes(data)


_PACKING = 1 << 16  # bytes
_UNPACKED = (
    "Only one layer of gzip or deflate can be unpacked. Download the page, and add the file with "
    "doc.ingest."
)


def _unpacking(url: str, encoding: str) -> Any:
    """Returns a decompressor for the body; None if the body is not packed.

    Raises input.unsupported_type for a second layer, because each layer multiplies the size by up
    to 1,000.
    """
    names = [name.strip().lower() for name in encoding.split(",")]
    layers = [name for name in names if name not in {"", "identity"}]
    if not layers:
        return None
    if len(layers) > 1 or layers[0] not in {"gzip", "x-gzip", "deflate"}:
        raise KbprocError(
            "input.unsupported_type",
            f"{without_password(url)} is packed as {encoding[:100]!r}, which is not unpacked.",
            field="$.params.url",
            hint=_UNPACKED,
        )
    return zlib.decompressobj(zlib.MAX_WBITS | 32)  # detects gzip or zlib


def _too_large(url: str, max_bytes: int) -> KbprocError:
    return KbprocError(
        "input.too_large",
        f"{without_password(url)} has more than {plural(max_bytes, 'byte')}.",
        field="$.params.max_bytes",
        hint="Raise max_bytes if you trust the page.",
    )


def _page(url: str, data: bytes, content_type: str) -> FetchedPage:
    """Returns the page, typed by the server's content type or else by its name and bytes."""
    kind = content_type.split(";", maxsplit=1)[0].strip().lower()
    name = unquote(PurePosixPath(urlsplit(url).path).name) or urlsplit(url).hostname or url
    doc_type = _TYPES.get(kind)
    if doc_type in {None, "text"}:
        doc_type = detect(name, data[:4096]) or doc_type
    if doc_type is None:
        raise KbprocError(
            "input.unsupported_type",
            f"{without_password(url)} is {kind or 'of no known type'}, which no parser reads.",
            field="$.params.url",
        )
    return FetchedPage(url=url, data=data, type=doc_type, name=name)
