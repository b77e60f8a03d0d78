"""Slides: PPTX, PPT and ODP, a page each, with its title, text, tables and the speaker's notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import odf, packed, powerpoint_97
from kbproc.engine.sources.parse.blocks import Block, Kind, Parsed, clean_title
from kbproc.engine.sources.parse.drawing import Drawings, text_of
from kbproc.engine.sources.parse.kinds import OLE
from kbproc.engine.sources.parse.ooxml import (
    Archive,
    DamagedPartError,
    PartLink,
    alternative,
    name_of,
)
from kbproc.engine.sources.parse.packed import children, first, local
from kbproc.engine.sources.parse.titles import real_title

# The name of the stream that holds the slides of the older format.
_OLDER = "PowerPoint Document".encode("utf-16-le")
_TITLES = frozenset({"title", "ctrTitle"})
# Placeholders that every slide repeats: its number, date, header and footer.
_FURNITURE = frozenset({"sldNum", "dt", "ftr", "hdr"})
_DRAWN = frozenset({"sp", "pic", "graphicFrame", "contentPart"})


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
        self._unread: Counter[str] = Counter()
        self._layouts: set[str] = set()
        self._drawings = Drawings(archive, self._unread)

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
            unread=dict(+self._unread),
        )

    def _slide(self, part: str | None, number: int) -> Iterator[Block]:
        root = self._archive.optional(part)
        if part is None or root is None:
            self._unread["damaged_pages"] += 1
            return
        elements = list(_shown(root))
        heading = next(
            (
                shape
                for shape in elements
                if local(shape) == "sp" and _placeholder(shape) in _TITLES
            ),
            None,
        )
        named = None if heading is None else clean_title(text_of(heading))
        section = named or f"Slide {number}"
        section = f"{section} (hidden)" if root.get("show") == "0" else section
        if named:
            yield Block(text=named, page=number, section=section)
        links = self._archive.links_by_id(part)
        for element in elements:
            if element is heading and named:
                continue
            text, kind = self._read(element, links)
            if _placeholder(element) in _FURNITURE:
                self._unread["headers_and_footers"] += bool(text.strip())
            elif text.strip():
                yield Block(text=text, page=number, section=section, kind=kind)
        yield from self._notes(part, number, section)

    def _read(self, element: Any, links: Mapping[str, PartLink]) -> tuple[str, Kind]:
        """Returns what a shape, a picture or a frame shows, with the description of it."""
        table = first(element, "tbl") if local(element) == "graphicFrame" else None
        if table is not None:
            return _table(table), "table"
        return "\n".join(self._drawings.texts(element, links)), "prose"

    def _notes(self, part: str, number: int, section: str) -> Iterator[Block]:
        """Yields the speaker's notes of a slide; counts its comments and its layout's texts."""
        for link in self._archive.links(part):
            if link.kind == "comments":
                comments = self._archive.optional(link.target)
                listed = [] if comments is None else children(comments, "cm")
                self._unread["comments"] += max(1, len(listed))
            elif link.kind == "slideLayout":
                self._count_layout(link.target)
            root = self._archive.optional(link.target) if link.kind == "notesSlide" else None
            for shape in _shown(root) if root is not None else ():
                if local(shape) == "sp" and _placeholder(shape) == "body" and text_of(shape):
                    yield Block(text=f"Notes: {text_of(shape)}", page=number, section=section)

    def _count_layout(self, part: str) -> None:
        """Counts the texts that a layout and its master show on their slides, once each."""
        if part in self._layouts:
            return
        self._layouts.add(part)
        root = self._archive.optional(part)
        for shape in _shown(root) if root is not None else ():
            is_text = local(shape) == "sp" and _placeholder(shape) is None and text_of(shape)
            self._unread["headers_and_footers"] += bool(is_text)
        for link in self._archive.links(part):
            if link.kind == "slideMaster":
                self._count_layout(link.target)


def _shown(root: Any) -> Iterator[Any]:
    """Yields the shapes, pictures and frames of a slide; one of several alternatives."""
    stack = [root]
    while stack:
        element = stack.pop()
        if local(element) in _DRAWN:
            yield element
        elif name_of(element) == "mc:AlternateContent":
            stack += reversed(alternative(element))
        else:
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


def _table(table: Any) -> str:
    rows = (
        " | ".join(" ".join(text_of(cell).split()) for cell in children(row, "tc"))
        for row in children(table, "tr")
    )
    return "\n".join(rows)
