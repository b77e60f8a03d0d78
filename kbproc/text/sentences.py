"""Where a sentence ends.

Owns: the marks, line breaks and abbreviations that tell it.
Refuses to know: what sentences are wanted for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ABBREVIATIONS = ("etc.", "e.g.", "i.e.", "cf.", "vs.", "Dr.", "Mr.", "Mrs.", "Ms.", "Prof.", "No.")
_NONE = "".join(rf"(?<!\b{re.escape(short)})" for short in _ABBREVIATIONS)
_ENDS = re.compile(
    rf"(?<=[.!?…]){_NONE}[\"'”’)\]]*\s+|(?<=[。！？])|\n\s*\n|\n(?=\s*(?:[-*+•]|\d+[.)]|#)\s)"
)


def sentences(text: str) -> Iterator[str]:
    """In order; headings and the items of a list are sentences, too."""
    yield from _ENDS.split(text)
