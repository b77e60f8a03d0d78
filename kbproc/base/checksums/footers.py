"""tantivy's files, and whether each is what was written.

Owns: the checksums that tantivy writes at the end of its files.
Refuses to know: what is indexed, and which index is in use.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from kbproc.base.durable import Seen, crc_of

_PARTS = (".idx", ".pos", ".term", ".store", ".fast", ".fieldnorm")
_LONGEST_FOOTER = 1024
_MAGIC = (1337).to_bytes(4, "little")


def damaged_parts(folder: Path, seen: Seen) -> list[str]:
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
