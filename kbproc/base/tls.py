"""The certificates that this process trusts."""

from __future__ import annotations

import functools
from typing import Any

from kbproc.base.host import environment


def trusted(*, trust_env: bool = True) -> Any:
    """Returns the ssl.SSLContext for clients; they share it, because it loads certificates for
    20 ms. `trust_env`: SSL_CERT_FILE and SSL_CERT_DIR may name others.
    """
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR") if trust_env else ()
    variables = environment()
    return _context(*(variables.get(name) for name in names))


@functools.cache
def _context(*places: str | None) -> Any:
    import httpx

    return httpx.create_ssl_context(trust_env=any(places))
