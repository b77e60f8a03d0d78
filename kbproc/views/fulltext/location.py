"""The names in a document's path or address, as text to search in.

Owns: which names of a path or an address count.
Refuses to know: how words are indexed, and what they weigh.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

_FOLDERS = 2  # Most documents share the folders further up.


def located(path: str | None, url: str | None) -> tuple[str, str]:
    """The name of a document's file without its ending, and those of the folders around it."""
    whole = PurePosixPath(path.replace("\\", "/") if path else _path_of(url or ""))
    return whole.stem, " ".join(whole.parts[:-1][-_FOLDERS:])


def _path_of(url: str) -> str:
    try:
        return unquote(urlsplit(url).path)
    except ValueError:
        return ""
