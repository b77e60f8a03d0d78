"""Hash functions that are there without OpenSSL, which takes three milliseconds to load.

`hashlib` loads OpenSSL when it is imported, and most commands hash only records and short texts.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

try:
    from _blake2 import blake2b  # which is hashlib.blake2b

    if sys.version_info >= (3, 12):
        from _sha2 import sha256 as _short_sha256
    else:
        from _sha256 import sha256 as _short_sha256  # type: ignore[import-not-found]
except ImportError:  # an interpreter other than CPython
    from hashlib import blake2b
    from hashlib import sha256 as _short_sha256

if TYPE_CHECKING:
    from hashlib import _Hash

_SHORT = 1 << 10  # bytes, which take 3 µs

__all__ = ["blake2b", "sha256"]


def sha256(data: bytes | bytearray | memoryview = b"") -> _Hash:
    """Returns a new SHA-256 of the data, to which more may be added.

    OpenSSL hashes large data several times as fast, so it is loaded for what is not surely short;
    a server has it since its start, because some of its methods import it.
    """
    if 0 < len(data) < _SHORT:
        return _short_sha256(data)  # type: ignore[no-any-return]
    from hashlib import sha256 as openssl_sha256

    return openssl_sha256(data)
