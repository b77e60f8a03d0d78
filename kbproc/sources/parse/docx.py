"""DOCX: paragraphs and tables in order, headings as sections.

Owns: the limits that an archive must keep before it is opened.
Refuses to know: headers, footers, notes, pictures.
"""

from __future__ import annotations

import io
import re
import zipfile
from typing import TYPE_CHECKING, Any

from kbproc.base.errors import KbprocError
from kbproc.sources.parse.blocks import Block, Headings, Parsed, Scalar, clean_title

if TYPE_CHECKING:
    from docx.document import Document

MAX_UNPACKED = 256 << 20
MAX_RATIO = 200
MAX_FILES = 10_000
# Small archives may be packed tightly without doing harm.
_RATIO_FROM = 8 << 20
_HEADING = re.compile(r"heading ([1-9])$", re.I)


def parse(data: bytes, name: str) -> Parsed:
    """Blocks of a Word document.

    Raises `input.too_large` for a zip bomb, `operation.failed` for an archive
    that is damaged, encrypted or no Word document.
    """
    _guard(data, name)
    from docx import Document
    from docx.opc.exceptions import OpcError

    try:
        document = Document(io.BytesIO(data))
    except (OpcError, KeyError, ValueError, zipfile.BadZipFile) as error:
        reason = str(error).rstrip(".")
        message = f"{name} is damaged or no Word document: {reason}."
        raise KbprocError("operation.failed", message) from error
    properties = document.core_properties
    title, blocks = _read(document)
    return Parsed(
        title=clean_title(properties.title) or title,
        blocks=blocks,
        metadata=_metadata(properties),
    )


def _guard(data: bytes, name: str) -> None:
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        message = f"{name} is encrypted or an old .doc file: save it as DOCX without a password."
        raise KbprocError("operation.failed", message)
    try:
        files = zipfile.ZipFile(io.BytesIO(data)).infolist()
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        message = f"{name} is damaged: it is not a whole DOCX archive ({error})."
        raise KbprocError("operation.failed", message) from error
    unpacked = sum(file.file_size for file in files)
    ratio = unpacked / max(1, len(data))
    if unpacked > MAX_UNPACKED or len(files) > MAX_FILES:
        message = f"{name} would unpack to {unpacked >> 20} MiB in {len(files)} files"
        raise KbprocError("input.too_large", f"{message}: more than a document needs.")
    if unpacked > _RATIO_FROM and ratio > MAX_RATIO:
        message = f"{name} would unpack to {ratio:.0f} times its size: this looks like a zip bomb."
        raise KbprocError("input.too_large", message)


def _metadata(properties: Any) -> dict[str, Scalar]:
    author = clean_title(properties.author)
    # python-docx's own template names itself as the author.
    return {"author": author} if author and author != "python-docx" else {}


def _read(document: Document) -> tuple[str | None, list[Block]]:
    """Title (style "Title", else the first heading) and blocks."""
    styles = {style.style_id: style.name or "" for style in document.styles}
    headings, blocks, title, first = Headings(), list[Block](), None, None
    for item in document.iter_inner_content():
        if hasattr(item, "rows"):
            blocks.append(Block(text=_table(item._tbl), section=headings.section, kind="table"))
            continue
        text, style = item.text, styles.get(item._p.style or "", "")
        level = _HEADING.match(style)
        if level:
            headings.enter(int(level[1]), clean_title(text))
            first = first or text
        elif style == "Title":
            title = title or text
        if style.startswith("List") and text.strip():
            text = f"- {text}"
        blocks.append(Block(text=text, section=headings.section))
    return title or first, _lists_joined(blocks)


def _lists_joined(blocks: list[Block]) -> list[Block]:
    joined: list[Block] = []
    for block in blocks:
        last = joined[-1] if joined else None
        if last and block.text.startswith("- ") and last.text.startswith("- "):
            joined[-1] = Block(text=f"{last.text}\n{block.text}", section=last.section)
        else:
            joined.append(block)
    return joined


def _table(table: Any) -> str:
    """A row a line. Cells are read from the XML: python-docx's own are quadratic to list."""
    rows = []
    for row in table.tr_lst:
        cells = (
            " ".join("".join(p.itertext(_TEXT)) for p in cell.iter(_PARAGRAPH))
            for cell in row.tc_lst
        )
        rows.append(" | ".join(" ".join(cell.split()) for cell in cells))
    return "\n".join(row for row in rows if row.strip(" |"))


_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_TEXT, _PARAGRAPH = f"{_WORD}t", f"{_WORD}p"
