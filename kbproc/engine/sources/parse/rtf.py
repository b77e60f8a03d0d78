"""Rich Text Format: the text by striprtf, which follows Microsoft's specification 1.9.1."""

from __future__ import annotations

import re

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block, Parsed

_PICTURE = re.compile(rb"\\pict\b")
_OBJECT = re.compile(rb"\\object\b")


def parse(data: bytes, name: str) -> Parsed:
    """Returns the paragraphs of an RTF file; pictures and objects are counted.

    Raises `operation.failed` for a file that does not begin as RTF does.
    """
    from striprtf.striprtf import rtf_to_text

    if not data.lstrip().startswith(b"{\\rtf"):
        raise KbprocError("operation.failed", f"{name} is damaged or no RTF file.")
    text = rtf_to_text(data.decode("latin-1"), errors="replace")
    blocks = [Block(text=line) for line in text.split("\n") if line.strip()]
    unread = {"pictures": len(_PICTURE.findall(data)), "objects": len(_OBJECT.findall(data))}
    return Parsed(blocks=blocks, unread=unread)
