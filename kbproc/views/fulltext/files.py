"""The full-text index's files, and whether they are what was written.

Owns: the checksum of `current.json`, that of the schema, and those that tantivy writes
at the end of its files and never looks at again.
Refuses to know: what is indexed.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

CURRENT = "current.json"
_PARTS = (".idx", ".pos", ".term", ".store", ".fast", ".fieldnorm")
_MAGIC = (1337).to_bytes(4, "little")


def damaged(folder: Path) -> list[str]:
    """Files of the index in use that are not what was written."""
    try:
        current = json.loads((folder / CURRENT).read_bytes())
        generation = folder / current["generation"]
        if not is_sealed(current):  # nor is one that the first version wrote
            return [CURRENT]
        if schema_sum(generation) != current["schema"]:
            return ["meta.json"]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError):
        return [CURRENT]
    return _damaged_parts(generation)


def sealed(current: dict[str, Any]) -> dict[str, Any]:
    """What `current.json` says, with a checksum of it."""
    return {**current, "check": _checksum(current)}


def is_sealed(current: dict[str, Any]) -> bool:
    said = {name: value for name, value in current.items() if name != "check"}
    return current.get("check") == _checksum(said)


def _checksum(said: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(said, sort_keys=True).encode())


def schema_sum(folder: Path) -> int:
    """Of the schema as the index in `folder` has it; raises OSError, ValueError, KeyError."""
    schema = json.loads((folder / "meta.json").read_bytes())["schema"]
    return zlib.crc32(json.dumps(schema, sort_keys=True).encode())


def _damaged_parts(folder: Path) -> list[str]:
    """The index's files, in `folder`, that are missing or fail their checksum.

    A file ends with a JSON footer that holds the crc32 of what comes before, the
    footer's length and a magic number, 4 bytes each.
    """
    try:
        meta = json.loads((folder / "meta.json").read_bytes())
        wanted = [name for segment in meta["segments"] for name in _names(segment)]
    except (OSError, ValueError, KeyError, TypeError):
        return ["meta.json"]
    versions = {name: _version(folder / name) for name in wanted}
    # One tantivy wrote them all: a footer that says something else has rotted.
    usual = Counter(filter(None, versions.values())).most_common(1)
    return [name for name in wanted if not usual or versions[name] != usual[0][0]]


def _names(segment: dict[str, object]) -> list[str]:
    stem = str(segment["segment_id"]).replace("-", "")
    deletes = segment.get("deletes")
    gone = [f"{stem}.{deletes['opstamp']}.del"] if isinstance(deletes, dict) else []
    return [stem + part for part in _PARTS] + gone


def _version(path: Path) -> str | None:
    """What a sound file's footer says beside its checksum; None if the file is not sound."""
    try:
        data = path.read_bytes()
        length = int.from_bytes(data[-8:-4], "little")
        body = memoryview(data)[: -8 - length]
        footer = json.loads(data[-8 - length : -8])
        if data[-4:] != _MAGIC or zlib.crc32(body) != footer.pop("crc"):
            return None
        return json.dumps(footer)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
