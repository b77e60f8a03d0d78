"""The full-text index's files, and whether they are what was written.

Owns: which of them tells of the others, and the checksum of the schema.
Refuses to know: what is indexed.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from kbproc.base.checksums.footers import damaged_parts
from kbproc.base.checksums.sealed import is_sealed
from kbproc.base.durable import Seen

CURRENT = "current.json"


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
    return damaged_parts(generation, seen)


def schema_sum(folder: Path) -> int:
    """Of the schema as the index in `folder` has it; raises OSError, ValueError, KeyError."""
    schema = json.loads((folder / "meta.json").read_bytes())["schema"]
    return zlib.crc32(json.dumps(schema, sort_keys=True).encode())
