"""The hash functions are hashlib's."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest

from kbproc.base import hashes


@pytest.mark.parametrize("data", [b"", b"abc", bytearray(b"x" * 100_000), memoryview(b"log")])
def test_the_functions_are_those_of_hashlib(data: bytes) -> None:
    assert hashes.sha256(data).digest() == hashlib.sha256(data).digest()
    assert (
        hashes.blake2b(data, digest_size=16).digest()
        == hashlib.blake2b(data, digest_size=16).digest()
    )
    parts = hashes.sha256()
    parts.update(data)
    assert parts.hexdigest() == hashlib.sha256(data).hexdigest()


def test_a_record_is_hashed_without_openssl() -> None:
    code = "import sys; from kbproc.base.hashes import blake2b; print('_hashlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
