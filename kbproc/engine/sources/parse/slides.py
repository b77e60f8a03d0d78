"""Slides: PPTX, PPT and ODP, a page each, with its title, text, tables and the speaker's notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import odf, packed, powerpoint_97
from kbproc.engine.sources.parse.blocks import Block, Kind, Parsed, clean_title
from kbproc.engine.sources.parse.kinds import OLE
from kbproc.engine.sources.parse.ooxml import Archive, DamagedPartError
from kbproc.engine.sources.parse.packed import children, first, local
from kbproc.engine.sources.parse.titles import real_title

# The name of the stream that holds the slides of the older format.
_OLDER = "PowerPoint Document".encode("utf-16-le")
_TITLES = frozenset({"title", "ctrTitle"})
# Placeholders that every slide repeats: its number, date, header and footer.
_FURNITURE = frozenset({"sldNum", "dt", "ftr", "hdr"})
_OBJECTS = {"pic": "pictures", "oleObj": "objects", "chart": "objects", "relIds": "objects"}


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of a presentation; `page` is the number of the slide.

    Raises `input.too_large` for a zip bomb, `operation.failed` for an archive that is damaged,
    encrypted or no presentation.
    """
    if data.startswith(OLE) and _OLDER in data:
        return powerpoint_97.parse(data, name)
    archive = packed.opened(data, name, "PPTX")
    if "content.xml" in archive.namelist():
        return odf.parse_slides(archive, name)
    try:
        return _Presentation(Archive(archive, "ppt/presentation.xml")).parsed()
    except DamagedPartError as error:
        message = f"{name} is damaged or no presentation: {error}."
        raise KbprocError("operation.failed", message) from error


class _Presentation:
    """A PPTX archive; `unread` counts what its slides hold besides text."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._unread: dict[str, int] = {}

    def parsed(self) -> Parsed:
        targets = self._archive.links_by_id(self._archive.main)
        ids = _slide_ids(self._archive.xml(self._archive.main))
        blocks: list[Block] = []
        title = None
        for number, id in enumerate(ids, 1):
            slide = list(self._slide(targets[id].target if id in targets else None, number))
            title = title or (slide[0].section if slide else None)
            blocks += slide
        properties = self._archive.properties()
        author = clean_title(properties.get("creator"))
        return Parsed(
            title=real_title(properties.get("title")) or title,
            blocks=blocks,
            metadata={"author": author} if author else {},
            pages=len(ids),
            unread=self._unread,
        )

    def _slide(self, part: str | None, number: int) -> Iterator[Block]:
        root = self._archive.optional(part)
        if part is None or root is None:
            self._count("damaged_pages")
            return
        elements = list(_shown(root))
        shapes = [shape for shape in elements if local(shape) in {"sp", "graphicFrame"}]
        heading = next((shape for shape in shapes if _placeholder(shape) in _TITLES), None)
        named = None if heading is None else clean_title(_text(heading))
        section = named or f"Slide {number}"
        section = f"{section} (hidden)" if root.get("show") == "0" else section
        if named:
            yield Block(text=named, page=number, section=section)
        for shape in shapes:
            if shape is heading and named:
                continue
            table = first(shape, "tbl")
            text = _text(shape) if table is None else _table(table)
            if _placeholder(shape) in _FURNITURE:
                self._count("headers_and_footers", times=bool(text.strip()))
            elif text.strip():
                kind: Kind = "prose" if table is None else "table"
                yield Block(text=text, page=number, section=section, kind=kind)
        for element in elements:
            if left_out := _OBJECTS.get(local(element)):
                self._count(left_out)
        yield from self._notes(part, number, section)

    def _notes(self, part: str, number: int, section: str) -> Iterator[Block]:
        """Yields the speaker's notes of a slide, and counts its comments."""
        for link in self._archive.links(part):
            if link.kind == "comments":
                self._count("comments")
            root = self._archive.optional(link.target) if link.kind == "notesSlide" else None
            for shape in _shown(root) if root is not None else ():
                if local(shape) == "sp" and _placeholder(shape) == "body" and _text(shape):
                    yield Block(text=f"Notes: {_text(shape)}", page=number, section=section)

    def _count(self, kind: str, times: int = 1) -> None:
        if times:
            self._unread[kind] = self._unread.get(kind, 0) + times


def _shown(root: Any) -> Iterator[Any]:
    """Yields the elements below the root, without the older form of an alternative content."""
    stack = [root]
    while stack:
        element = stack.pop()
        if local(element) != "Fallback":
            yield element
            stack += reversed(element)


def _slide_ids(main: Any) -> list[str]:
    """Returns the ids of the relations that lead to the slides, in order."""
    listed = first(main, "sldIdLst")
    slides = [] if listed is None else children(listed, "sldId")
    # A slide's own `id` has no namespace.
    return [
        value for slide in slides for name, value in slide.attrib.items() if name.endswith("}id")
    ]


def _placeholder(shape: Any) -> str | None:
    """Returns the role of a shape in its slide's layout ("title", "body"), None without one."""
    mark = first(shape, "ph")
    return None if mark is None else mark.get("type", "body")


def _text(shape: Any) -> str:
    """Returns the paragraphs of a shape, a line each."""
    lines = ("".join(_runs(each)) for each in shape.iter() if local(each) == "p")
    return "\n".join(line for line in lines if line.strip())


def _runs(paragraph: Any) -> Iterator[str]:
    for element in paragraph.iter():
        name = local(element)
        if name == "t":
            yield element.text or ""
        elif name in {"br", "tab"}:
            yield " "


def _table(table: Any) -> str:
    rows = (
        " | ".join(" ".join(_text(cell).split()) for cell in children(row, "tc"))
        for row in children(table, "tr")
    )
    return "\n".join(rows)
