"""Reads what drawings show in DOCX, PPTX and XLSX: shapes, charts, diagrams, descriptions.

The numbers that a chart draws and the pictures themselves are not read, so both are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from kbproc.engine.sources.parse.ooxml import (
    Archive,
    PartLink,
    alternative,
    child,
    name_of,
    own_text,
)
from kbproc.engine.sources.parse.packed import attribute, local
from kbproc.engine.sources.parse.titles import real_title

_OBJECTS = frozenset(
    ("c:chart", "cx:chart", "dgm:relIds", "o:OLEObject", "w:control", "p:oleObj", "p:contentPart")
)
# They show a picture of themselves, or nothing that is text.
_OPAQUE = frozenset(("o:OLEObject", "w:control", "p:oleObj", "p:contentPart"))
_PICTURES = ("a:blip", "v:imagedata")
# The elements that name a drawing, and may describe it.
_NAMES = frozenset(("docPr", "cNvPr", "shape"))
# The words of a chart that stand in no paragraph: names of series and categories.
_CACHES = ("c:strCache", "c:multiLvlStrCache", "c:strLit", "cx:strDim", "cx:txData")
_TEXTS = ("a:p", "a:t")
_MADE_BY_PROGRAM = re.compile(
    r"(?<!\s)\s*(?:description automatically generated|ai-generated content).*", re.I
)


class Drawings:
    """Reads the drawings of an archive's parts; `unread` gets the counts."""

    def __init__(self, archive: Archive, unread: Counter[str]) -> None:
        self._archive = archive
        self._unread = unread
        self._part_texts: dict[str, list[str]] = {}  # because a part may be shown many times

    def texts(self, element: Any, links: Mapping[str, PartLink]) -> list[str]:
        """Returns the texts of a drawing; `links` are the relations of the part that it is in.

        The text boxes of Word are left out, because their paragraphs are those of a document.
        """
        parts = [(name_of(each), each) for each in (element, *_outside_boxes(element))]
        pictures = sum(name in _PICTURES for name, _ in parts)
        objects = [each for name, each in parts if name in _OBJECTS]
        texts = [attribute(each, "string") or "" for name, each in parts if name == "v:textpath"]
        texts += [line_of(each) for name, each in parts if name in _TEXTS]
        if objects:
            self._unread["objects"] += len(objects)
            texts += [text for each in objects for text in self._object_texts(each, links)]
        else:
            self._unread["pictures"] += pictures
        texts += [description(each) for _, each in parts if local(each) in _NAMES]
        return [text for text in texts if text.strip()]

    def _object_texts(self, element: Any, links: Mapping[str, PartLink]) -> list[str]:
        """Returns the distinct texts of a chart or diagram that is stored in another part."""
        key = attribute(element, "dm") or attribute(element, "id")
        link = links.get(key or "")
        if link is None or name_of(element) in _OPAQUE:
            return []
        return self.part_texts(link.target)

    def part_texts(self, target: str) -> list[str]:
        """Returns the distinct texts of a chart or diagram, and of the shapes drawn upon it."""
        if target not in self._part_texts:
            parts = [target]
            links = self._archive.links(target)
            parts += [link.target for link in links if link.kind == "chartUserShapes"]
            roots = [self._archive.optional(part) for part in parts]
            texts = [text for root in roots if root is not None for text in _words(root)]
            self._part_texts[target] = list(dict.fromkeys(filter(None, texts)))
        return self._part_texts[target]


def text_of(shape: Any) -> str:
    """Returns the paragraphs of a shape, a line each."""
    lines = (line_of(each) for each in shape.iter() if local(each) == "p")
    return "\n".join(line for line in lines if line.strip())


def line_of(paragraph: Any) -> str:
    """Returns the text of a paragraph of DrawingML; breaks and tabs become spaces."""
    return "".join(_runs(paragraph))


def _runs(paragraph: Any) -> Iterator[str]:
    for element in paragraph.iter():
        name = local(element)
        if name == "t":
            yield own_text(element)
        elif name in {"br", "tab"}:
            yield " "


def description(element: Any) -> str:
    """Returns the author's description of a drawing in brackets, or ""."""
    text = attribute(element, "descr") or attribute(element, "alt") or ""
    text = " ".join(_MADE_BY_PROGRAM.sub("", text).split())
    return f"[{text}]" if real_title(text) else ""


def _words(root: Any) -> Iterator[str]:
    """Yields the texts of a chart's or diagram's part."""
    stack = [root]
    while stack:
        element = stack.pop()
        name = name_of(element)
        if name in _TEXTS:
            yield line_of(element).strip()
        elif name in _CACHES:
            yield from (own_text(each).strip() for each in element.iter())
        else:
            literal = child(element, "c:v") if name == "c:tx" else None
            if literal is not None:
                yield own_text(literal).strip()
            stack += reversed(element)


def _outside_boxes(element: Any) -> Iterator[Any]:
    """Yields a drawing's descendants outside text boxes, and only one of several alternatives.

    Paragraphs are yielded without what they hold.
    """
    for each in alternative(element) if name_of(element) == "mc:AlternateContent" else element:
        if name_of(each) not in ("", "w:txbxContent"):
            yield each
            if name_of(each) != "a:p":
                yield from _outside_boxes(each)
