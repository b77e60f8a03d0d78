"""The full-text index's files, and whether they are what was written.

Owns: the checksum of `current.json`, that of the schema, and those that tantivy writes
at the end of its files and never looks at again.
Refuses to know: what is indexed.
"""

from __future__ import annotations

import json
import os
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from kbproc.base.durable import Seen, crc_of

CURRENT = "current.json"
_PARTS = (".idx", ".pos", ".term", ".store", ".fast", ".fieldnorm")
_LONGEST_FOOTER = 1024
_MAGIC = (1337).to_bytes(4, "little")


def damaged(folder: Path, seen: Seen) -> list[str]:
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
    return _damaged_parts(generation, seen)


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


def _damaged_parts(folder: Path, seen: Seen) -> list[str]:
    """The index's files, in `folder`, that are missing or fail their checksum.

    A file ends with a JSON footer that holds the crc32 of what comes before, the
    footer's length and a magic number, 4 bytes each.
    """
    try:
        meta = json.loads((folder / "meta.json").read_bytes())
        wanted = [name for segment in meta["segments"] for name in _names(segment)]
    except (OSError, ValueError, KeyError, TypeError):
        return ["meta.json"]
    sound = [name for name in wanted if seen.is_sound(folder / name, _is_whole)]
    # One tantivy wrote them all: a footer that says something else has rotted.
    versions = {name: _version(folder / name) for name in sound}
    usual = Counter(filter(None, versions.values())).most_common(1)
    return [name for name in wanted if not usual or versions.get(name) != usual[0][0]]


def _names(segment: dict[str, object]) -> list[str]:
    stem = str(segment["segment_id"]).replace("-", "")
    deletes = segment.get("deletes")
    gone = [f"{stem}.{deletes['opstamp']}.del"] if isinstance(deletes, dict) else []
    return [stem + part for part in _PARTS] + gone


def _is_whole(path: Path) -> bool:
    found = _footer(path)
    if found is None:
        return False
    footer, length = found
    try:
        return bool(crc_of(path, without=length) == footer["crc"])
    except OSError:
        return False


def _version(path: Path) -> str | None:
    """What the footer says beside its checksum."""
    found = _footer(path)
    return found and json.dumps({name: said for name, said in found[0].items() if name != "crc"})


def _footer(path: Path) -> tuple[dict[str, Any], int] | None:
    """The footer, and the bytes that it takes; None where there is none."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _LONGEST_FOOTER))
            end = stream.read()
        length = int.from_bytes(end[-8:-4], "little") + 8
        footer = json.loads(end[-length:-8])
    except (OSError, ValueError):
        return None
    sound = end[-4:] == _MAGIC and isinstance(footer, dict) and "crc" in footer
    return (footer, length) if sound else None
