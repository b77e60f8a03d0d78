"""OpenDocument: texts (ODT) with headings as sections, and presentations (ODP) by slides."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from typing import Any

from kbproc.engine.sources.parse import packed
from kbproc.engine.sources.parse.blocks import Block, Headings, Parsed, Scalar, clean_title
from kbproc.engine.sources.parse.packed import attribute, children, first, local
from kbproc.engine.sources.parse.titles import real_title

# Elements that hold no text of the document → the kind that `unread` counts them by.
_LEFT_OUT = {
    "tracked-changes": "deleted_passages",
    "annotation": "comments",
    "object": "objects",
    "image": "pictures",
}
Count = Callable[[str, Any], None]
"""A function that gets the kind of an element that is skipped, and the element."""
# A repeated row or cell may claim any number; a table is as long as what it shows.
_MOST_REPEATED = 100


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of an ODT text. Raises as `packed.opened` does."""
    archive = packed.opened(data, name, "ODT")
    root = packed.xml(archive, "content.xml", name)
    reader = _OdfReader()
    body = first(root, "text")
    reader.read(body if body is not None else root)
    metadata, title = _properties(archive)
    return Parsed(
        title=title or reader.first_heading,
        blocks=reader.blocks,
        metadata=metadata,
        unread=reader.unread,
    )


def parse_slides(archive: zipfile.ZipFile, name: str) -> Parsed:
    """Returns the blocks of an ODP presentation; `page` is the number of the slide."""
    root = packed.xml(archive, "content.xml", name)
    pages = [each for each in root.iter() if local(each) == "page"]
    blocks: list[Block] = []
    unread: dict[str, int] = {}
    for number, page in enumerate(pages, 1):
        reader = _OdfReader()
        title = _slide_title(page) or attribute(page, "name") or f"Slide {number}"
        for shape in page:
            if local(shape) == "notes":
                words = _words(shape, reader.count)
                reader.blocks += [Block(text=f"Notes: {words}")] if words else []
            else:
                reader.read(shape)
        blocks += [
            Block(text=block.text, kind=block.kind, page=number, section=clean_title(title))
            for block in reader.blocks
        ]
        for kind, count in reader.unread.items():
            unread[kind] = unread.get(kind, 0) + count
    metadata, own_title = _properties(archive)
    first_title = own_title or (blocks[0].section if blocks else None)
    return Parsed(
        title=first_title, blocks=blocks, metadata=metadata, pages=len(pages), unread=unread
    )


def _slide_title(page: Any) -> str | None:
    for frame in children(page, "frame"):
        if attribute(frame, "class") == "title":
            return _words(frame, lambda kind, element: None) or None
    return None


def _properties(archive: zipfile.ZipFile) -> tuple[dict[str, Scalar], str | None]:
    root = packed.optional_xml(archive, "meta.xml")
    fields = {local(each): each.text for each in root.iter()} if root is not None else {}
    metadata: dict[str, Scalar] = {}
    author = clean_title(fields.get("initial-creator") or fields.get("creator"))
    if author:
        metadata["author"] = author
    if date := clean_title(fields.get("creation-date")):
        metadata["date"] = date
    return metadata, real_title(fields.get("title"))


class _OdfReader:
    """Collects blocks from an element on, and counts the elements that it skips."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.unread: dict[str, int] = {}
        self.first_heading: str | None = None
        self._headings = Headings()

    def read(self, root: Any) -> None:
        stack = [root]
        while stack:
            element = stack.pop()
            name = local(element)
            if name in _LEFT_OUT:
                self.count(_LEFT_OUT[name], element)
            elif name == "h":
                self._heading(element)
            elif name == "p":
                self._add(_paragraph(element, self.count))
            elif name == "table":
                self._add(_table(element, self.count), is_table=True)
            else:
                stack += reversed(element)

    def _heading(self, element: Any) -> None:
        text = clean_title(_paragraph(element, self.count))
        level = attribute(element, "outline-level") or "1"
        self._headings.enter(_number(level), text)
        self.first_heading = self.first_heading or text
        self._add(text or "")

    def _add(self, text: str, *, is_table: bool = False) -> None:
        if text.strip():
            section = self._headings.section
            self.blocks.append(
                Block(text=text, section=section, kind="table" if is_table else "prose")
            )

    def count(self, kind: str, element: Any) -> None:
        count = len(children(element, "changed-region")) if kind == "deleted_passages" else 1
        self.unread[kind] = self.unread.get(kind, 0) + count


def _number(written: str) -> int:
    return int(written) if written.isdecimal() and len(written) < 10 else 1


def _paragraph(element: Any, count: Count) -> str:
    """Returns a paragraph's text, its footnotes behind it; `count` gets the elements skipped."""
    parts: list[str] = []
    notes: list[str] = []
    stack: list[Any] = [element]
    while stack:
        each = stack.pop()
        if isinstance(each, str):
            parts.append(each)
            continue
        name = local(each)
        tail = each.tail if each is not element and each.tail else None
        if tail:
            stack.append(tail)
        if name in _LEFT_OUT:
            count(_LEFT_OUT[name], each)
        elif name == "note":
            body = first(each, "note-body")
            words = "" if body is None else _words(body, count)
            notes += [words] if words else []
        elif name == "s":
            number = attribute(each, "c") or "1"
            parts.append(" " * min(_number(number), _MOST_REPEATED))
        elif name in {"tab", "line-break"}:
            parts.append("\t" if name == "tab" else "\n")
        else:
            stack += [*reversed(each)]
            if each.text:
                stack.append(each.text)
    return "".join(parts) + "".join(f"\n[{note}]" for note in notes)


def _words(root: Any, count: Count) -> str:
    """Returns the paragraphs below an element on one line; `count` gets the elements skipped."""
    lines: list[str] = []
    stack = [root]
    while stack:
        element = stack.pop()
        name = local(element)
        if name in _LEFT_OUT:
            count(_LEFT_OUT[name], element)
        elif name in {"p", "h"}:
            lines.append(_paragraph(element, count))
        else:
            stack += reversed(element)
    return " ".join(" ".join(lines).split())


def _table(table: Any, count: Count) -> str:
    """Returns a line for each row; a table within a cell is part of its text."""
    lines = []
    for row in _rows(table):
        cells = []
        for cell in children(row, "table-cell", "covered-table-cell"):
            words = _words(cell, count)
            repeated = attribute(cell, "number-columns-repeated") or "1"
            cells += [words] * (min(_number(repeated), _MOST_REPEATED) if words else 1)
        lines.append(" | ".join(cells).rstrip(" |"))
    return "\n".join(line for line in lines if line)


def _rows(table: Any) -> Iterator[Any]:
    """Yields the rows of a table, those of its head and its groups included."""
    stack = [*reversed(table)]
    while stack:
        element = stack.pop()
        name = local(element)
        if name == "table-row":
            yield element
        elif name in {"table-header-rows", "table-rows", "table-row-group"}:
            stack += reversed(element)
