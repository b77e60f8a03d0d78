"""The archive of a Word document: its parts as XML, and short names for their elements.

Owns: how parts are found and parsed, the two sets of names that Office Open XML has.
Refuses to know: what the elements mean.
"""

from __future__ import annotations

import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

# The prefix in this package → the ends of its namespaces, transitional and strict, or its URIs.
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
    "urn:schemas-microsoft-com:office:office": "o",
    "urn:schemas-microsoft-com:vml": "v",
    "http://purl.org/dc/elements/1.1/": "dc",
}
BROKEN = (
    *(zipfile.BadZipFile, zlib.error, KeyError, EOFError, OSError),
    *(NotImplementedError, RuntimeError, ValueError),
)


class Link(NamedTuple):
    """A relation of one part to another: its kind is the last word of its type."""

    kind: str
    target: str


class DamagedPartError(Exception):
    """A part that is not there, or can't be unpacked or parsed."""


@lru_cache(maxsize=4096)
def short(tag: str) -> str:
    """ "w:p" for the tag of a paragraph; an unknown namespace gives "?:name"."""
    namespace, _, name = tag[1:].rpartition("}")
    return f"{_PREFIXES.get(namespace, '?')}:{name}" if namespace else name


def name_of(element: Any) -> str:
    """The short name of an element; "" for a comment, an entity or an instruction."""
    tag = element.tag
    return short(tag) if isinstance(tag, str) else ""


def attribute(element: Any, name: str) -> str | None:
    """The value of an attribute by its name alone, in whichever namespace it stands."""
    for key, value in element.attrib.items():
        if key.rpartition("}")[2] == name:
            return str(value)
    return None


def child(element: Any, *path: str) -> Any:
    """The first child of that short name, and on along the path; None where there is none."""
    for step in path:
        if element is None:
            return None
        element = next((each for each in element if name_of(each) == step), None)
    return element


def value(element: Any, *path: str) -> str | None:
    """The attribute `val` of the child at the path."""
    setting = child(element, *path)
    return None if setting is None else attribute(setting, "val")


def is_on(element: Any, *path: str) -> bool:
    """True if a switch such as <w:vanish/> is there and not turned off."""
    switch = child(element, *path)
    return switch is not None and (attribute(switch, "val") or "1") not in ("0", "false", "off")


def descendants(element: Any, *names: str) -> Iterator[Any]:
    return (each for each in element.iter() if name_of(each) in names)


class Archive:
    """The parts of a document. Raises DamagedPartError where one can't be read."""

    def __init__(self, opened: zipfile.ZipFile) -> None:
        self._zip = opened
        self._names = set(opened.namelist())
        main = [link.target for link in self.links("") if link.kind == "officeDocument"]
        self.main = main[0] if main else "word/document.xml"

    def xml(self, name: str) -> Any:
        """The root element of a part, with no entity resolved and nothing fetched."""
        from lxml import etree

        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
        try:
            return etree.fromstring(self._zip.read(name), parser)
        except etree.XMLSyntaxError as error:
            raise DamagedPartError(f"{name}: {error}") from error
        except BROKEN as error:
            reason = "there is no such part" if isinstance(error, KeyError) else str(error)
            raise DamagedPartError(f"{name}: {reason}") from error

    def optional(self, name: str | None) -> Any:
        """The root of a part, or None where it is missing or damaged."""
        if name is None or name not in self._names:
            return None
        try:
            return self.xml(name)
        except DamagedPartError:
            return None

    def links(self, part: str) -> list[Link]:
        return list(self.links_by_id(part).values())

    def links_by_id(self, part: str) -> dict[str, Link]:
        """The relations of a part, or of the whole archive for ""."""
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
                links[relation.get("Id", "")] = Link(kind, path)
        return links
