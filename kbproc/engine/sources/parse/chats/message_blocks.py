"""The texts of Slack's blocks, of which apps and bots make their messages."""

from __future__ import annotations

from collections.abc import Iterator

from kbproc.engine.sources.parse.chats.turns import Json, members, objects, word

_DEPTH = 12  # lists and quotes within a block
# Elements of a line, by their type → the members that name their target, and the mark before it.
_MARKED = {
    "user": ("user_id", "<@{}>"),
    "usergroup": ("usergroup_id", "<!subteam^{}>"),
    "channel": ("channel_id", "<#{}>"),
    "broadcast": ("range", "<!{}>"),
    "emoji": ("name", ":{}:"),
    "date": ("fallback", "{}"),
}
# Elements of rich text that are lines of their own.
_LINES = ("rich_text_section", "rich_text_list", "rich_text_quote", "rich_text_preformatted")


def texts_of_blocks(blocks: object) -> list[str]:
    """Returns the text of each block, in the marks of Slack's messages."""
    return ["\n".join(lines) for block in objects(blocks) if (lines := [*_lines(block, _DEPTH)])]


def _lines(block: Json, depth: int) -> Iterator[str]:
    """Yields the lines that a reader sees of a block and of the blocks in it."""
    kind = word(block, "type")
    if kind == "rich_text":
        yield from _rich_lines(block, depth)
        return
    for name in ("title", "text", "description", "alt_text", "label"):
        if text := _text(block.get(name)):
            yield text
    within = [block.get("accessory"), block.get("hero_image")]
    for name in ("fields", "elements"):
        value = block.get(name)
        within += value if isinstance(value, list) else []
    rows = block.get("rows")
    for row in rows if isinstance(rows, list) else []:
        cells = [" ".join(_lines(cell, depth - 1)) for cell in objects(row)] if depth else []
        if any(cells):
            yield " | ".join(cells)
    for each in objects(within):
        if depth:
            yield from _lines(each, depth - 1)


def _text(value: object) -> str:
    """Returns a text, which some members hold as a string and others as an object."""
    return value if isinstance(value, str) else word(members(value), "text")


def _rich_lines(block: Json, depth: int) -> Iterator[str]:
    elements = objects(block.get("elements"))
    if any(word(each, "type") in _LINES for each in elements):
        for each in elements:
            if depth:
                yield from _rich_lines(each, depth - 1)
    elif line := "".join(map(_element, elements)).strip():
        yield line


def _element(element: Json) -> str:
    kind = word(element, "type")
    if kind == "link":
        address, label = word(element, "url"), word(element, "text")
        return f"<{address}|{label}>" if label else f"<{address}>"
    if kind in _MARKED:
        member, mark = _MARKED[kind]
        return mark.format(word(element, member)) if word(element, member) else ""
    return _escaped(word(element, "text"))


def _escaped(text: str) -> str:
    """Returns a text with Slack's entities in place of the characters of its marks."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
