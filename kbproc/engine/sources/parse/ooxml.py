"""Opens the parts of an Office Open XML document, and gives their elements short names.

Office Open XML has two sets of namespaces, transitional and strict; the short names hide that.
"""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from kbproc.engine.sources.parse.packed import BROKEN, attribute, parsed_xml

# Namespace, transitional or strict → its prefix in this package.
_PREFIXES = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main": "w",
    "http://purl.oclc.org/ooxml/wordprocessingml/main": "w",
    "http://schemas.openxmlformats.org/officeDocument/2006/math": "m",
    "http://purl.oclc.org/ooxml/officeDocument/math": "m",
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships": "r",
    "http://purl.oclc.org/ooxml/officeDocument/relationships": "r",
    "http://schemas.openxmlformats.org/drawingml/2006/main": "a",
    "http://purl.oclc.org/ooxml/drawingml/main": "a",
    "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing": "wp",
    "http://purl.oclc.org/ooxml/drawingml/wordprocessingDrawing": "wp",
    "http://schemas.openxmlformats.org/drawingml/2006/chart": "c",
    "http://purl.oclc.org/ooxml/drawingml/chart": "c",
    "http://schemas.openxmlformats.org/drawingml/2006/diagram": "dgm",
    "http://purl.oclc.org/ooxml/drawingml/diagram": "dgm",
    "http://schemas.openxmlformats.org/markup-compatibility/2006": "mc",
    "http://schemas.microsoft.com/office/word/2010/wordml": "w14",
    "http://schemas.openxmlformats.org/presentationml/2006/main": "p",
    "http://purl.oclc.org/ooxml/presentationml/main": "p",
    "http://schemas.microsoft.com/office/drawing/2014/chartex": "cx",
    "urn:schemas-microsoft-com:office:office": "o",
    "urn:schemas-microsoft-com:vml": "v",
    "http://purl.org/dc/elements/1.1/": "dc",
}


class PartLink(NamedTuple):
    """A relation of one part to another; its kind is the last word of its type."""

    kind: str
    target: str


class DamagedPartError(Exception):
    """A part is missing, or can't be unpacked or parsed."""


@lru_cache(maxsize=4096)
def short(tag: str) -> str:
    """Returns the short name of a tag, "w:p" for a paragraph; "?:name" for other namespaces."""
    namespace, _, name = tag.rpartition("}")
    return f"{_PREFIXES.get(namespace[1:], '?')}:{name}" if namespace else name


def name_of(element: Any) -> str:
    """Returns the short name of an element; "" for a comment, an entity or an instruction."""
    tag = element.tag
    return short(tag) if isinstance(tag, str) else ""


def child(element: Any, *path: str) -> Any:
    """Returns the element at the end of a path of short names, taking first children, or None."""
    for step in path:
        if element is None:
            return None
        element = next((each for each in element if name_of(each) == step), None)
    return element


def value(element: Any, *path: str) -> str | None:
    """Returns the attribute `val` of the child at the path, or None."""
    setting = child(element, *path)
    return None if setting is None else attribute(setting, "val")


def is_on(element: Any, *path: str) -> bool:
    """Returns True if a switch such as <w:vanish/> is there and not turned off."""
    switch = child(element, *path)
    return switch is not None and (attribute(switch, "val") or "1") not in ("0", "false", "off")


def descendants(element: Any, *names: str) -> Iterator[Any]:
    return (each for each in element.iter() if name_of(each) in names)


def alternative(element: Any) -> Any:
    """Returns the children of the alternative that is read."""
    choice = chosen(element)
    return () if choice is None else choice


def chosen(element: Any) -> Any:
    """Returns the first choice that has children, else the fallback; None if neither has any."""
    choices = [each for each in element if name_of(each) in ("mc:Choice", "mc:Fallback")]
    return next((each for each in choices if len(each)), None)


def own_text(element: Any) -> str:
    """Returns the text of an element that holds only text, without its comments and entities."""
    text = element.text or "" if name_of(element) else ""
    return text + "".join(each.tail or "" for each in element) if len(element) else text


class Archive:
    """The parts of a DOCX or PPTX. Methods raise DamagedPartError if a part can't be read."""

    def __init__(self, opened: zipfile.ZipFile, main: str) -> None:
        """`main`: the document's own part, if no relation of the archive names it."""
        self._zip = opened
        self._names = set(opened.namelist())
        named = (link.target for link in self.links("") if link.kind == "officeDocument")
        self.main = next(named, main)

    def xml(self, name: str) -> Any:
        """Returns the root element of a part; entities stay unresolved, and nothing is fetched."""
        try:
            return parsed_xml(self._zip.read(name))
        except BROKEN as error:
            reason = "there is no such part" if isinstance(error, KeyError) else str(error)
            raise DamagedPartError(f"{name}: {reason}") from error

    def optional(self, name: str | None) -> Any:
        """Returns the root of a part; None if it is missing or damaged."""
        if name is None or name not in self._names:
            return None
        try:
            return self.xml(name)
        except DamagedPartError:
            return None

    def properties(self) -> dict[str, str]:
        """Returns the document's properties that hold text, by name."""
        targets = (link.target for link in self.links("") if link.kind == "core-properties")
        root = self.optional(next(targets, "docProps/core.xml"))
        elements: Any = root if root is not None else ()
        return {name_of(each).rpartition(":")[2]: each.text for each in elements if each.text}

    def links(self, part: str) -> list[PartLink]:
        return list(self.links_by_id(part).values())

    def links_by_id(self, part: str) -> dict[str, PartLink]:
        """Returns the relations of a part, or of the whole archive for ""."""
        folder, name = posixpath.split(part)
        root = self.optional(posixpath.join(folder, "_rels", f"{name}.rels"))
        links = {}
        for relation in root if root is not None else ():
            if name_of(relation).rpartition(":")[2] != "Relationship":
                continue
            target = relation.get("Target", "")
            if relation.get("TargetMode") != "External" and target:
                path = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
                kind = relation.get("Type", "").rpartition("/")[2]
                links[relation.get("Id", "")] = PartLink(kind, path)
        return links
