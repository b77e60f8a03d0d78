"""Rich Text Format: the text by striprtf, which follows Microsoft's specification 1.9.1."""

from __future__ import annotations

import re

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block, Parsed

_PICTURE = re.compile(rb"\\pict\b")
_OBJECT = re.compile(rb"\\object\b")
_ESCAPE = re.compile(r"\\(?:u(-?\d{5,})|[^u])")


def parse(data: bytes, name: str) -> Parsed:
    """Returns the paragraphs of an RTF file; pictures and objects are counted.

    Raises `operation.failed` for a file that does not begin as RTF does.
    """
    from striprtf.striprtf import rtf_to_text

    if not data.lstrip().startswith(b"{\\rtf"):
        raise KbprocError("operation.failed", f"{name} is damaged or no RTF file.")
    text = rtf_to_text(_ESCAPE.sub(_in_range, data.decode("latin-1")), errors="replace")
    blocks = [Block(text=line) for line in text.split("\n") if line.strip()]
    unread = {"pictures": len(_PICTURE.findall(data)), "objects": len(_OBJECT.findall(data))}
    return Parsed(blocks=blocks, unread=unread)


def _in_range(escape: re.Match[str]) -> str:
    """Returns a control word; U+FFFD in place of a number that no character has."""
    number = escape[1]
    if number is None or (len(number) <= 7 and -0x8000 <= int(number) < 0x110000):
        return escape[0]
    return r"\u65533"
