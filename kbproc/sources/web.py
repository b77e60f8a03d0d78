"""One web page or file, fetched with care.

Owns: which addresses may be asked, redirects, limits of size and time.
Refuses to know: what the bytes become.

A name is resolved once, its addresses are judged, and the connection goes to
exactly the address that was judged: a second answer of the name server can't
lead to another machine.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from msgspec import Struct

from kbproc import __version__
from kbproc.base.errors import KbprocError
from kbproc.base.wording import plural
from kbproc.sources.parse.formats import detect

MAX_REDIRECTS = 5
_PASSING = {408, 425, 429}  # of the answers that blame the client
_TYPES = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "text/markdown": "markdown",
    "text/plain": "text",
    "application/pdf": "pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
}

Progress = Callable[[int, int | None], None]


class Page(Struct, frozen=True, kw_only=True):
    """`name`: the last part of the address, for messages and as a title of last resort."""

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
    progress: Progress = lambda current, total: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Page:
    """Raises network.blocked, network.failed, input.too_large, input.unsupported_type."""
    deadline = time.monotonic() + timeout_s
    for _ in range(MAX_REDIRECTS + 1):
        address = judge(url, allow_private=allow_private)
        found = _get(url, address, max_bytes, deadline, progress, cancelled)
        if isinstance(found, Page):
            return found
        url = _joined(url, found)
    raise _failed(url, f"it redirects more than {MAX_REDIRECTS} times", lasting=True)


def without_password(url: str) -> str:
    """The address as it may be shown: messages end up in logs.

    Of one that is malformed nothing before the last @ is shown.
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


def judge(url: str, *, allow_private: bool) -> str:
    """The address to connect to.

    Raises network.blocked if none of the name's may be asked, network.failed if it has none.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # its text may hold a password
        raise _blocked(url, "the address is malformed", _MALFORMED) from None
    if parts.scheme not in {"http", "https"}:
        raise _blocked(url, "only http and https addresses are fetched", _SCHEME)
    if not host:
        raise _blocked(url, "the address names no host", _MALFORMED)
    if parts.username or parts.password:
        raise _blocked(url, "addresses with a name or password are not fetched", _SIGNED_IN)
    try:
        found = socket.getaddrinfo(host, port or parts.scheme, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise _failed(url, f"the name {host} can't be resolved ({error})") from None
    addresses = [str(entry[4][0]) for entry in found]
    allowed = [a for a in addresses if allow_private or is_public(a)]
    if not allowed:
        behind = "" if host == addresses[0] else f" ({addresses[0]})"
        raise _blocked(url, f"{host} is a private or local address{behind}", _PRIVATE)
    return allowed[0]


def is_public(address: str) -> bool:
    ip = ipaddress.ip_address(address.split("%", maxsplit=1)[0])
    if isinstance(ip, ipaddress.IPv6Address):
        ip = _inner(ip) or ip
    return ip.is_global and not ip.is_multicast


# NAT64, and IPv4-compatible addresses: the last 32 bits are an IPv4 address.
_WRAPPING = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))


def _inner(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for."""
    if any(ip in network for network in _WRAPPING):
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour


_PRIVATE = "Only a client of kbproc serve --allow-private-addresses may ask private addresses."
_SCHEME = "Add files with doc.ingest; of the web, only http and https can be fetched."
_MALFORMED = "Write it like https://example.org/page, with a port from 1 to 65535 if any."
_SIGNED_IN = "Leave name and password out, or download the page and add the file with doc.ingest."


def _blocked(url: str, why: str, hint: str) -> KbprocError:
    return KbprocError(
        "network.blocked",
        f"{without_password(url)} is not fetched: {why}.",
        field="$.params.url",
        hint=hint,
    )


def _get(
    url: str,
    address: str,
    max_bytes: int,
    deadline: float,
    progress: Progress,
    cancelled: Callable[[], bool],
) -> Page | str:
    """The page, or where it has moved to."""
    import httpx

    parts = urlsplit(url)
    host = f"[{address}]" if ":" in address else address
    direct = parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host, fragment="")
    name = parts.hostname or ""
    headers = {
        "Host": f"{name}:{parts.port}" if parts.port else name,
        "User-Agent": f"kbproc/{__version__}",
        "Accept": "text/html,text/*;q=0.9,application/pdf;q=0.9,*/*;q=0.5",
    }
    left = max(deadline - time.monotonic(), 0.001)
    try:
        with (
            _Guard(deadline, cancelled) as guard,
            httpx.Client(trust_env=False, timeout=left) as client,
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
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        _check(url, deadline, cancelled)
        raise _failed(url, str(error) or type(error).__name__) from None


def _check(url: str, deadline: float, cancelled: Callable[[], bool]) -> None:
    if cancelled():
        raise KbprocError("operation.cancelled", "The client cancelled the request.")
    if time.monotonic() > deadline:
        raise _failed(url, "it took too long")


class _Guard:
    """Ends the connection at the deadline, or when the client cancels.

    A read has a timeout of its own, but a server that sends a byte now and then
    never meets it.
    """

    def __init__(self, deadline: float, cancelled: Callable[[], bool]) -> None:
        self._deadline = deadline
        self._cancelled = cancelled
        self._socket: socket.socket | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="fetch", daemon=True)

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """httpx tells of every step; TLS wraps the socket in another one."""
        if event in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:
            self._socket = info["return_value"].get_extra_info("socket")

    def _watch(self) -> None:
        while not self._done.wait(0.05):
            if time.monotonic() > self._deadline or self._cancelled():
                if self._socket is not None:
                    with contextlib.suppress(OSError):
                        self._socket.shutdown(socket.SHUT_RDWR)
                return

    def __enter__(self) -> _Guard:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()


def _body(
    url: str,
    response: Any,
    max_bytes: int,
    deadline: float,
    progress: Progress,
    cancelled: Callable[[], bool],
) -> bytes:
    declared = response.headers.get("content-length", "")
    packed = "content-encoding" in response.headers  # then the length is not that of the page
    total = int(declared) if declared.isdecimal() and not packed else None
    data = bytearray()
    for part in response.iter_bytes():
        data += part
        if len(data) > max_bytes:
            raise KbprocError(
                "input.too_large",
                f"{without_password(url)} has more than {plural(max_bytes, 'byte')}.",
                field="$.params.max_bytes",
                hint="Raise max_bytes if you trust the page.",
            )
        _check(url, deadline, cancelled)
        progress(len(data), total)
    _check(url, deadline, cancelled)  # a connection that was ended looks like a page's end
    return bytes(data)


def _page(url: str, data: bytes, content_type: str) -> Page:
    """The server's word decides, unless it says nothing: then the name and the bytes do."""
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
    return Page(url=url, data=data, type=doc_type, name=name)
