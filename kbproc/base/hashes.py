"""Hash functions that are there without OpenSSL, which takes three milliseconds to load.

`hashlib` loads OpenSSL when it is imported, and most commands hash nothing but log records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from _blake2 import blake2b  # which is hashlib.blake2b
except ImportError:  # an interpreter other than CPython
    from hashlib import blake2b

if TYPE_CHECKING:
    from hashlib import _Hash

__all__ = ["blake2b", "sha256"]


def sha256(data: bytes | bytearray | memoryview = b"") -> _Hash:
    """Returns a new SHA-256; the first call loads OpenSSL, whose code is several times as fast."""
    from hashlib import sha256 as openssl_sha256

    return openssl_sha256(data)
