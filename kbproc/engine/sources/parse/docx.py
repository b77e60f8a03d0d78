"""Parses DOCX: paragraphs and tables in order, headings as sections.

An archive is checked against limits before any of it is unpacked.
"""

from __future__ import annotations

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import packed
from kbproc.engine.sources.parse.blocks import Block, Headings, Parsed, Scalar, clean_title
from kbproc.engine.sources.parse.ooxml import Archive, DamagedPartError, name_of
from kbproc.engine.sources.parse.titles import real_title
from kbproc.engine.sources.parse.word_body import Body, Paragraph

# Longer items of a list become blocks of their own, such as the clauses of a contract.
_ITEM_CHARACTERS = 300


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of a Word document.

    Raises `input.too_large` for a zip bomb, `operation.failed` for an archive
    that is damaged, encrypted or no Word document.
    """
    opened = packed.opened(data, name, "DOCX")
    try:
        archive = Archive(opened, "word/document.xml")
        root = archive.xml(archive.main)
        if name_of(root) != "w:document":
            raise DamagedPartError(f"{archive.main} is no Word document")
    except DamagedPartError as error:
        reason = " ".join(str(error).split()).rstrip(".")
        message = f"{name} is damaged or no Word document: {reason}."
        raise KbprocError("operation.failed", message) from error
    body = Body(archive)
    title, blocks = _blocks(body, body.read(root))
    properties = archive.properties()
    author = clean_title(properties.get("creator"))
    # python-docx's own template names itself as the author.
    metadata: dict[str, Scalar] = {"author": author} if author and author != "python-docx" else {}
    return Parsed(
        title=real_title(properties.get("title")) or title,
        blocks=blocks,
        metadata=metadata,
        unread=dict(body.unread),
    )


def _blocks(body: Body, paragraphs: list[Paragraph]) -> tuple[str | None, list[Block]]:
    """Returns the title (style "Title", else the first heading) and the blocks."""
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
    """Returns a bullet for a paragraph that only its style's name makes an item of a list."""
    name = body.styles.name(paragraph.style)
    is_item = name.startswith("List") and name != "List Paragraph"
    return "-" if is_item and paragraph.level is None else ""
