"""A canvas of notes: its cards, the names of groups and of the lines between them.

Source: JSON Canvas 1.0, jsoncanvas.org.
"""

from __future__ import annotations

import msgspec

from kbproc.base.values import decoder
from kbproc.engine.sources.parse import markdown, records
from kbproc.engine.sources.parse.blocks import Block, Parsed


class _Card(msgspec.Struct):
    """A card of Markdown, a file, an address, or the frame of a group, whose label is its name."""

    type: str = ""
    text: str = ""
    label: str = ""
    file: str = ""
    url: str = ""


class _Arrow(msgspec.Struct):
    label: str = ""


class _Canvas(msgspec.Struct):
    nodes: list[_Card] = []
    edges: list[_Arrow] = []


_decode = decoder(_Canvas).decode


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of a canvas; a file that is none is read as JSON.

    Raises `input.unsupported_type` for bytes that are not text.
    """
    try:
        canvas = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return records.parse(data, name)
    page = Parsed(blocks=[])
    for number, card in enumerate(canvas.nodes, 1):
        section = f"card {number}"
        if card.text.strip():
            parsed = markdown.parse(card.text.encode("utf-8", "replace"), name)
            page.blocks += (
                msgspec.structs.replace(block, section=section, line=None)
                for block in parsed.blocks
            )
            page.tags += parsed.tags
            for kind, count in parsed.unread.items():
                page.unread[kind] = page.unread.get(kind, 0) + count
        words = card.label or card.file or card.url
        if words.strip():
            page.blocks.append(Block(text=words, section=section))
    labels = [arrow.label for arrow in canvas.edges if arrow.label.strip()]
    if labels:
        page.blocks.append(Block(text="\n".join(labels), section="lines between cards"))
    return page
