"""A small JSON object with a checksum of itself.

Owns: making and checking it. Refuses to know: what the object says.
"""

from __future__ import annotations

import json
import zlib
from typing import Any


def sealed(current: dict[str, Any]) -> dict[str, Any]:
    """What it says, with a checksum of that."""
    return {**current, "check": _checksum(current)}


def is_sealed(current: dict[str, Any]) -> bool:
    said = {name: value for name, value in current.items() if name != "check"}
    return current.get("check") == _checksum(said)


def _checksum(said: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(said, sort_keys=True).encode())
