"""Books: EPUB by the chapters of its spine, FictionBook (FB2) by its sections."""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import html, packed
from kbproc.engine.sources.parse.blocks import (
    PATH,
    Block,
    Headings,
    Parsed,
    Scalar,
    clean_title,
)
from kbproc.engine.sources.parse.packed import children, first, local
from kbproc.engine.sources.parse.unread import total

# A field of the package or the title page → the name of the metadata.
_FIELDS = {"creator": "author", "language": "language", "date": "date", "publisher": "publisher"}


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of a book; sections are its chapters and the headings within them.

    Raises `input.too_large` for a zip bomb, `operation.failed` for a file that is damaged, locked
    or no book.
    """
    if not data.startswith(b"PK"):
        return _fiction_book(data, name)
    archive = packed.opened(data, name, "EPUB")
    if "META-INF/encryption.xml" in archive.namelist() and _is_locked(archive):
        message = f"{name} is locked (DRM): no program but the seller's can read it."
        raise KbprocError("operation.failed", message)
    container = packed.xml(archive, "META-INF/container.xml", name)
    root_file = first(container, "rootfile")
    path = "" if root_file is None else root_file.get("full-path", "")
    package = packed.xml(archive, path, name)
    return _epub(archive, package, posixpath.dirname(path), name)


def _is_locked(archive: zipfile.ZipFile) -> bool:
    """Returns True if a chapter is encrypted; encrypted fonts do no harm."""
    root = packed.optional_xml(archive, "META-INF/encryption.xml")
    targets = [each.get("URI", "") for each in root.iter()] if root is not None else []
    return any(target.endswith((".xhtml", ".html", ".htm", ".xml")) for target in targets)


def _epub(archive: zipfile.ZipFile, package: Any, folder: str, name: str) -> Parsed:
    items = {
        item.get("id"): item for item in package.iter() if local(item) == "item" and item.get("id")
    }
    spine = first(package, "spine")
    order = [ref.get("idref") for ref in children(spine, "itemref")] if spine is not None else []
    blocks: list[Block] = []
    counts = []
    for number, item in enumerate((items[id] for id in order if id in items), 1):
        if "html" not in item.get("media-type", "") or "nav" in item.get("properties", "").split():
            continue
        part = posixpath.normpath(posixpath.join(folder, unquote(item.get("href", ""))))
        try:
            page = html.parse(archive.read(part), "chapter.xhtml")
        except (*packed.BROKEN, KbprocError):
            counts.append({"damaged_pages": 1})
            continue
        chapter = clean_title(page.title) or f"Chapter {number}"
        counts.append(page.unread)
        blocks += [_within(chapter, block) for block in page.blocks]
    pictures = sum("image" in item.get("media-type", "") for item in items.values())
    title, metadata = _about(package)
    unread = total([*counts, {"pictures": pictures}])
    return Parsed(title=title, blocks=blocks, metadata=metadata, unread=unread)


def _within(chapter: str, block: Block) -> Block:
    inner = block.section
    joined = chapter if not inner or inner == chapter else f"{chapter}{PATH}{inner}"
    section = inner if inner and inner.startswith(chapter) else joined
    return Block(text=block.text, section=section, kind=block.kind)


def _about(root: Any) -> tuple[str | None, dict[str, Scalar]]:
    title, metadata = None, dict[str, Scalar]()
    for element in root.iter():
        name, text = local(element), clean_title(element.text)
        if name == "title" and text:
            title = title or text
        elif name in _FIELDS and text:
            metadata.setdefault(_FIELDS[name], text)
        elif name in {"spine", "guide"}:
            break
    return title, metadata


def _fiction_book(data: bytes, name: str) -> Parsed:
    try:
        root = packed.parsed_xml(data)
    except ValueError as error:
        message = f"{name} is damaged or no book: {error}."
        raise KbprocError("operation.failed", message) from error
    about = first(root, "title-info")
    title = None if about is None else first(about, "book-title")
    author = None if about is None else first(about, "author")
    metadata: dict[str, Scalar] = {}
    if author is not None and (words := _words(author)):
        metadata["author"] = words
    blocks = [block for body in children(root, "body") for block in _sections(body)]
    pictures = sum(local(each) == "binary" for each in root)
    return Parsed(
        title=None if title is None else _words(title),
        blocks=blocks,
        metadata=metadata,
        unread={"pictures": pictures},
    )


def _sections(body: Any) -> Iterator[Block]:
    """Yields the paragraphs of a body, below the titles of the sections that they stand in."""
    headings = Headings()
    stack: list[tuple[Any, int]] = [(body, 0)]
    while stack:
        element, level = stack.pop()
        name = local(element)
        if name == "title":
            headings.enter(level, clean_title(_words(element)))
        if name in {"p", "subtitle", "v", "text-author", "title", "td", "th", "date"}:
            if text := _words(element):
                yield Block(text=text, section=headings.section)
        elif name not in {"binary", "image"}:
            deeper = level + (name == "section")
            if name == "section":
                headings.enter(deeper, None)
            stack += [(child, deeper) for child in reversed(element)]


def _words(element: Any) -> str:
    return " ".join(" ".join(element.itertext()).split())
