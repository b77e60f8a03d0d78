"""Checks the full-text index's files.

`current.json` names the folder of the index in use and holds the checksum of its schema. Tantivy
writes checksums at the ends of its files, and does not check them itself.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from kbproc.base.durable import SoundFiles, crc_of

CURRENT = "current.json"
_PARTS = (".idx", ".pos", ".term", ".store", ".fast", ".fieldnorm")
_LONGEST_FOOTER = 1024
_MAGIC = (1337).to_bytes(4, "little")


def damaged(folder: Path, checked_files: SoundFiles) -> list[str]:
    """Returns the files of the index in use that differ from what was written."""
    try:
        current = msgspec.json.decode((folder / CURRENT).read_bytes())
        generation = folder / current["generation"]
        if not is_sealed(current):  # files of the first version have no seal and count as damaged
            return [CURRENT]
        if schema_sum(generation) != current["schema"]:
            return ["meta.json"]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError):
        return [CURRENT]
    return damaged_parts(generation, checked_files)


def schema_sum(folder: Path) -> int:
    """Returns the checksum of an index's schema. Raises OSError, ValueError, KeyError."""
    schema = msgspec.json.decode((folder / "meta.json").read_bytes())["schema"]
    return zlib.crc32(msgspec.json.encode(schema, order="sorted"))


# ------------------------------------------------------------------ the seal of a JSON object


def sealed(members: dict[str, Any]) -> dict[str, Any]:
    """Returns the object with its checksum as member `check`."""
    return {**members, "check": _checksum(members)}


def is_sealed(sealed_members: dict[str, Any]) -> bool:
    members = {name: value for name, value in sealed_members.items() if name != "check"}
    return sealed_members.get("check") == _checksum(members)


def _checksum(members: dict[str, Any]) -> int:
    return zlib.crc32(msgspec.json.encode(members, order="sorted"))


# ------------------------------------------------------------------ tantivy's footers


def damaged_parts(folder: Path, sound_files: SoundFiles) -> list[str]:
    """Returns the index's files in `folder` that are missing or fail their checksum.

    A file ends with a JSON footer that holds the crc32 of the bytes before it, the footer's length
    and a magic number, 4 bytes each.
    """
    try:
        names = _listed_files(folder)
        # Files that have not changed since the last look had the same version then.
        are_known = all(sound_files.knows(folder / name) for name in names)
        sound = [name for name in names if sound_files.is_sound(folder / name, _is_whole)]
        if are_known:
            return []
        # One version of tantivy wrote all of them, so a footer with another version is damaged.
        versions = {name: _version(folder / name) for name in sound}
        usual = Counter(filter(None, versions.values())).most_common(1)
        results = [name for name in names if not usual or versions.get(name) != usual[0][0]]
        # Commits and merges go on in an index in use; they remove files that meta.json no longer
        # lists, and never change one.
        still_listed = set(_listed_files(folder)) if results else set()
        for name in results:
            sound_files.doubt(folder / name)
    except (OSError, ValueError, KeyError, TypeError):
        return ["meta.json"]
    return [name for name in results if name in still_listed]


def _listed_files(folder: Path) -> list[str]:
    """Returns the names of the files that meta.json lists.

    Raises OSError, ValueError, KeyError, TypeError.
    """
    meta = msgspec.json.decode((folder / "meta.json").read_bytes())
    return [name for segment in meta["segments"] for name in _names(segment)]


def _names(segment: dict[str, object]) -> list[str]:
    stem = str(segment["segment_id"]).replace("-", "")
    deletes = segment.get("deletes")
    deletions = [f"{stem}.{deletes['opstamp']}.del"] if isinstance(deletes, dict) else []
    return [stem + part for part in _PARTS] + deletions


def _is_whole(path: Path) -> bool:
    result = _footer(path)
    if result is None:
        return False
    footer, length = result
    try:
        return bool(crc_of(path, without=length) == footer["crc"])
    except OSError:
        return False


def _version(path: Path) -> str | None:
    """Returns the footer without its checksum, as text."""
    result = _footer(path)
    return result and str({name: value for name, value in result[0].items() if name != "crc"})


def _footer(path: Path) -> tuple[dict[str, Any], int] | None:
    """Returns the footer and its size in bytes; None if there is none."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _LONGEST_FOOTER))
            end = stream.read()
        length = int.from_bytes(end[-8:-4], "little") + 8
        footer = msgspec.json.decode(end[-length:-8])
    except (OSError, ValueError):
        return None
    sound = end[-4:] == _MAGIC and isinstance(footer, dict) and "crc" in footer
    return (footer, length) if sound else None
