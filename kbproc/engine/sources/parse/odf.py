"""OpenDocument: texts (ODT) with headings as sections, and presentations (ODP) by slides."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Iterator
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
# An author's description of a drawing; a field that shows a document's title has such a name, too.
_DESCRIPTIONS = ("title", "desc")
_SVG = "svg-compatible"
# A repeated row or cell may claim any number; a table is as long as what it shows.
_MOST_REPEATED = 100


class Skipped:
    """Counts the elements that hold no text of the document, and reads what they show beside it.

    That is the text of a chart or a formula, and an author's description of a picture.
    """

    def __init__(self, archive: zipfile.ZipFile | None, unread: Counter[str]) -> None:
        self._archive = archive
        self._unread = unread

    def holds(self, element: Any) -> bool:
        """Returns True for an element that `words` is to be called for."""
        name = local(element)
        return name in _LEFT_OUT or (name in _DESCRIPTIONS and _SVG in element.tag)

    def words(self, element: Any) -> str:
        """Counts an element, and returns what it shows, or ""."""
        kind = _LEFT_OUT.get(local(element))
        if kind is None:
            words = " ".join((element.text or "").split())
            return f"[{words}]" if real_title(words) else ""
        regions = len(children(element, "changed-region"))
        self._unread[kind] += regions if kind == "deleted_passages" else 1
        return self._object(attribute(element, "href") or "") if kind == "objects" else ""

    def _object(self, path: str) -> str:
        """Returns the distinct texts of an embedded object; a chart's numbers stay out."""
        part = f"{path.removeprefix('./').rstrip('/')}/content.xml"
        root = packed.optional_xml(self._archive, part) if self._archive and path else None
        if root is None:
            return ""
        if local(root) == "math":
            return " ".join(_symbols(root))
        texts = (words_of(each, self) for each in _paragraphs(root))
        return " ".join(dict.fromkeys(text for text in texts if text))


def _symbols(root: Any) -> Iterator[str]:
    """Yields the numbers, names and signs of a formula."""
    stack = [root]
    while stack:
        element = stack.pop()
        if local(element) in ("mi", "mn", "mo", "mtext", "ms"):
            yield "".join(element.itertext()).strip()
        elif local(element) != "annotation":
            stack += reversed(element)


def _paragraphs(root: Any) -> Iterator[Any]:
    """Yields the paragraphs of an embedded object that stand in no cell with a number."""
    stack = [root]
    while stack:
        element = stack.pop()
        if local(element) in ("p", "h"):
            yield element
        elif attribute(element, "value-type") in (None, "string"):
            stack += reversed(element)


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of an ODT text. Raises as `packed.opened` does."""
    archive = packed.opened(data, name, "ODT")
    root = packed.xml(archive, "content.xml", name)
    unread: Counter[str] = Counter()
    reader = _OdfReader(Skipped(archive, unread))
    body = first(root, "text")
    reader.read(body if body is not None else root)
    unread["headers_and_footers"] += _margins(packed.optional_xml(archive, "styles.xml"))
    metadata, title = _properties(archive)
    return Parsed(
        title=title or reader.first_heading,
        blocks=reader.blocks,
        metadata=metadata,
        unread=dict(+unread),
    )


def _margins(styles: Any) -> int:
    """Returns the number of headers and footers that hold text."""
    names = ("header", "footer", "header-left", "footer-left", "header-first", "footer-first")
    margins = (each for each in styles.iter() if local(each) in names) if styles is not None else ()
    nothing = Skipped(None, Counter())
    return sum(bool(words_of(each, nothing)) for each in margins)


def parse_slides(archive: zipfile.ZipFile, name: str) -> Parsed:
    """Returns the blocks of an ODP presentation; `page` is the number of the slide."""
    root = packed.xml(archive, "content.xml", name)
    pages = [each for each in root.iter() if local(each) == "page"]
    blocks: list[Block] = []
    unread: Counter[str] = Counter()
    skipped = Skipped(archive, unread)
    for number, page in enumerate(pages, 1):
        reader = _OdfReader(skipped)
        title = _slide_title(page) or attribute(page, "name") or f"Slide {number}"
        for shape in page:
            if local(shape) == "notes":
                words = words_of(shape, skipped)
                reader.blocks += [Block(text=f"Notes: {words}")] if words else []
            else:
                reader.read(shape)
        blocks += [
            Block(text=block.text, kind=block.kind, page=number, section=clean_title(title))
            for block in reader.blocks
        ]
    metadata, own_title = _properties(archive)
    first_title = own_title or (blocks[0].section if blocks else None)
    return Parsed(
        title=first_title,
        blocks=blocks,
        metadata=metadata,
        pages=len(pages),
        unread=dict(+unread),
    )


def _slide_title(page: Any) -> str | None:
    for frame in children(page, "frame"):
        if attribute(frame, "class") == "title":
            return words_of(frame, Skipped(None, Counter())) or None
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
    """Collects blocks from an element on."""

    def __init__(self, skipped: Skipped) -> None:
        self.blocks: list[Block] = []
        self._skipped = skipped
        self.first_heading: str | None = None
        self._headings = Headings()

    def read(self, root: Any) -> None:
        stack = [root]
        while stack:
            element = stack.pop()
            name = local(element)
            if self._skipped.holds(element):
                self._add(self._skipped.words(element))
            elif name == "h":
                self._heading(element)
            elif name == "p":
                self._add(_paragraph(element, self._skipped))
            elif name == "table":
                self._add(_table(element, self._skipped), is_table=True)
            else:
                stack += reversed(element)

    def _heading(self, element: Any) -> None:
        text = clean_title(_paragraph(element, self._skipped))
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


def _number(written: str) -> int:
    return int(written) if written.isdecimal() and len(written) < 10 else 1


def _paragraph(element: Any, skipped: Skipped) -> str:
    """Returns a paragraph's text, its footnotes behind it."""
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
        if skipped.holds(each):
            parts.append(skipped.words(each))
        elif name == "note":
            body = first(each, "note-body")
            words = "" if body is None else words_of(body, skipped)
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


def words_of(root: Any, skipped: Skipped) -> str:
    """Returns the paragraphs below an element on one line."""
    lines: list[str] = []
    stack = [root]
    while stack:
        element = stack.pop()
        name = local(element)
        if skipped.holds(element):
            lines.append(skipped.words(element))
        elif name in {"p", "h"}:
            lines.append(_paragraph(element, skipped))
        else:
            stack += reversed(element)
    return " ".join(" ".join(lines).split())


def _table(table: Any, skipped: Skipped) -> str:
    """Returns a line for each row; a table within a cell is part of its text."""
    lines = []
    for row in _rows(table):
        cells = []
        for cell in children(row, "table-cell", "covered-table-cell"):
            words = words_of(cell, skipped)
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
