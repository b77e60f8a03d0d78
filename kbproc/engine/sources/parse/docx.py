"""DOCX: paragraphs and tables in order, headings as sections.

Owns: the limits that an archive must keep before it is opened, titles, sections.
Refuses to know: which of a document's elements are text, how lists count.
"""

from __future__ import annotations

import io
import zipfile
from typing import Any

from kbproc.base.errors import KbprocError
from kbproc.sources.parse.blocks import Block, Headings, Parsed, Scalar, clean_title
from kbproc.sources.parse.titles import real_title
from kbproc.sources.parse.word_archive import BROKEN, Archive, DamagedPartError, name_of
from kbproc.sources.parse.word_body import Body, Paragraph

MAX_UNPACKED = 256 << 20
MAX_RATIO = 200
MAX_FILES = 10_000
# Small archives may be packed tightly without doing harm.
_RATIO_FROM = 8 << 20
# Longer items are paragraphs of their own: the clauses of a contract.
_ITEM_CHARACTERS = 300


def parse(data: bytes, name: str) -> Parsed:
    """Blocks of a Word document.

    Raises `input.too_large` for a zip bomb, `operation.failed` for an archive
    that is damaged, encrypted or no Word document.
    """
    opened = _guarded(data, name)
    try:
        archive = Archive(opened)
        root = archive.xml(archive.main)
        if name_of(root) != "w:document":
            raise DamagedPartError(f"{archive.main} is no Word document")
    except DamagedPartError as error:
        reason = " ".join(str(error).split()).rstrip(".")
        message = f"{name} is damaged or no Word document: {reason}."
        raise KbprocError("operation.failed", message) from error
    body = Body(archive)
    title, blocks = _blocks(body, body.read(root))
    properties = _properties(archive)
    author = clean_title(properties.get("creator"))
    # python-docx's own template names itself as the author.
    metadata: dict[str, Scalar] = {"author": author} if author and author != "python-docx" else {}
    return Parsed(
        title=real_title(properties.get("title")) or title,
        blocks=blocks,
        metadata=metadata,
        unread=dict(body.unread),
    )


def _guarded(data: bytes, name: str) -> zipfile.ZipFile:
    """The archive, which keeps the limits. Raises as `parse` does."""
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        message = f"{name} is encrypted or an old .doc file: save it as DOCX without a password."
        raise KbprocError("operation.failed", message)
    try:
        opened = zipfile.ZipFile(io.BytesIO(data))
    except BROKEN as error:
        message = f"{name} is damaged: it is not a whole DOCX archive ({error})."
        raise KbprocError("operation.failed", message) from error
    files = opened.infolist()
    unpacked = sum(file.file_size for file in files)
    ratio = unpacked / max(1, len(data))
    if unpacked > MAX_UNPACKED or len(files) > MAX_FILES:
        message = f"{name} would unpack to {unpacked >> 20} MiB in {len(files)} files"
        raise KbprocError("input.too_large", f"{message}: more than a document needs.")
    if unpacked > _RATIO_FROM and ratio > MAX_RATIO:
        message = f"{name} would unpack to {ratio:.0f} times its size: this looks like a zip bomb."
        raise KbprocError("input.too_large", message)
    return opened


def _properties(archive: Archive) -> dict[str, str]:
    """The document's properties by name, those that hold text."""
    targets = [link.target for link in archive.links("") if link.kind == "core-properties"]
    root = archive.optional(next(iter(targets), "docProps/core.xml"))
    elements: Any = root if root is not None else ()
    return {name_of(each).rpartition(":")[2]: each.text for each in elements if each.text}


def _blocks(body: Body, paragraphs: list[Paragraph]) -> tuple[str | None, list[Block]]:
    """Title (style "Title", else the first heading) and blocks."""
    headings, blocks, title, first = Headings(), list[Block](), None, None
    items: list[str] = []

    def end_list() -> None:
        if items:
            blocks.append(Block(text="\n".join(items), section=headings.section))
            items.clear()

    for paragraph in paragraphs:
        text = paragraph.text
        if not text.strip():
            continue
        if paragraph.is_table:
            end_list()
            blocks.append(Block(text=text, section=headings.section, kind="table"))
            continue
        label = paragraph.label or _bullet(body, paragraph)
        labelled = f"{label} {text.lstrip()}" if label else text
        if paragraph.level is not None:
            end_list()
            headings.enter(paragraph.level, clean_title(labelled))
            first = first or clean_title(text)
        elif body.styles.is_title(paragraph.style):
            title = title or clean_title(text)
        elif label and len(labelled) <= _ITEM_CHARACTERS:
            items.append(labelled)
            continue
        end_list()
        blocks.append(Block(text=labelled, section=headings.section))
    end_list()
    return title or first, blocks


def _bullet(body: Body, paragraph: Paragraph) -> str:
    """A bullet for an item that only its style's name makes one."""
    name = body.styles.name(paragraph.style)
    is_item = name.startswith("List") and name != "List Paragraph"
    return "-" if is_item and paragraph.level is None else ""
