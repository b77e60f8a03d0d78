"""Decides which HTTP requests are answered: by Host, Origin, cookie and key.

The page's address holds a token in its fragment, which no browser sends. The page exchanges it,
once, for a cookie and a key. Each request for data needs both: a browser sends the cookie to other
ports of this machine, too, but shows the key to this origin only; and a page of another origin can
neither read the key nor send it in a header.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Mapping

from msgspec import Struct

from kbproc.base.host import Host

KEY = "X-Kbproc-Key"
# A browser states them itself; a page can't forge them.
_FETCH_SITE = "Sec-Fetch-Site"
_OWN_SITES = frozenset({"same-origin", "none"})


class PageRefusal(Exception):
    """The request is not answered; `reason` is one sentence for the person."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Grant(Struct, frozen=True):
    """The cookie's value and the key of the headers, in exchange for the token."""

    cookie: str
    key: str


class Access:
    """The token, cookie and key of one `kbproc open`. Any thread may use it."""

    def __init__(self, host: Host, port: int) -> None:
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        self._cookie_name = f"kbproc-{port}"  # because cookies are shared by all ports
        self._token: str | None = _secret(host)
        self._grant = Grant(_secret(host), _secret(host))
        self._lock = threading.Lock()
        self.url = f"http://127.0.0.1:{port}/"
        self.address = f"{self.url}#token={self._token}"

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Refuses another name than the loopback's: a name of others may lead here."""
        if headers.get("Host", "") not in self._hosts:
            raise PageRefusal(421, "This page answers under its own address only.")

    def check_origin(self, headers: Mapping[str, str], *, required: bool) -> None:
        """Refuses requests that a page of another origin makes."""
        origin = headers.get("Origin")
        if origin is None:
            if required:
                raise PageRefusal(403, "The request names no origin.")
        elif origin != f"http://{headers.get('Host', '')}":
            raise PageRefusal(403, "The request comes from another page.")
        if headers.get(_FETCH_SITE, "same-origin") not in _OWN_SITES:
            raise PageRefusal(403, "The request comes from another page.")

    def exchange(self, token: str) -> Grant:
        """Returns cookie and key for the token, which is valid once."""
        with self._lock:
            if self._token is None or not _same(token, self._token):
                raise PageRefusal(
                    403,
                    "This address has been used, or is not whole. Start kbproc open again for a "
                    "new one.",
                )
            self._token = None
            return self._grant

    @property
    def is_taken(self) -> bool:
        """Returns true once a page has exchanged the token."""
        return self._token is None

    def set_cookie(self, grant: Grant) -> str:
        """Returns the value of the header that gives the browser the cookie."""
        return f"{self._cookie_name}={grant.cookie}; Path=/; HttpOnly; SameSite=Strict"

    def check_key(self, headers: Mapping[str, str]) -> None:
        """Refuses requests without this run's cookie and key."""
        cookie = _cookies(headers.get("Cookie", "")).get(self._cookie_name, "")
        has_both = _same(cookie, self._grant.cookie), _same(headers.get(KEY, ""), self._grant.key)
        if not all(has_both):
            raise PageRefusal(
                401, "Open the address that kbproc open prints; this window does not know it."
            )


def _secret(host: Host) -> str:
    """Returns 256 random bits in hexadecimal."""
    return host.salt() + host.salt()


def _same(ours: str, theirs: str) -> bool:
    return hmac.compare_digest(ours.encode(), theirs.encode())


def _cookies(header: str) -> dict[str, str]:
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return {name: value for name, _, value in pairs}
