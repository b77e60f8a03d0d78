"""Reads the file by which a node proves to a server who it is."""

from __future__ import annotations

import base64
import binascii
import re
from functools import partial
from pathlib import Path
from typing import Any

_PART = re.compile(r"(?<!-)-++BEGIN (NATS USER JWT|USER NKEY SEED)-++\s++(\S++)\s++-++END \1-")
_LINE = re.compile(r"([^\s:]+):(\S+)\s*\Z")
_SEED = slice(2, 34)  # behind two bytes of the kind, before two of a checksum
_SHAPES = "a .creds file as nsc writes it, or one line NAME:PASSWORD"


def login(path: str) -> dict[str, Any]:
    """Returns the arguments with which a client of NATS logs in.

    The file is a .creds file, with a JWT and the seed of an Ed25519 key, or one line
    `NAME:PASSWORD`; of mode 0600. Raises OSError, which names the file.
    """
    file = Path(path).expanduser()
    if file.stat().st_mode & 0o077:
        raise OSError(f"others may read {path}: chmod 600 makes it yours")
    text = file.read_bytes().decode(errors="replace")
    if line := _LINE.match(text):
        return {"user": line[1], "password": line[2]}
    parts = dict(_PART.findall(text))
    try:
        sign = partial(_signature, _key(parts["USER NKEY SEED"]))
        jwt = parts["NATS USER JWT"].encode()
    except (KeyError, ValueError, binascii.Error) as error:
        raise OSError(f"{path} is no file of credentials: {_SHAPES}") from error
    return {"signature_cb": sign, "user_jwt_cb": lambda: jwt}


def _key(seed: str) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    padded = seed + "=" * (-len(seed) % 8)
    return Ed25519PrivateKey.from_private_bytes(base64.b32decode(padded)[_SEED])


def _signature(key: Any, nonce: str) -> bytes:
    return base64.b64encode(key.sign(nonce.encode()))
