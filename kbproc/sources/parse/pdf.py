"""PDF: the text of each page, put back into paragraphs.

Owns: what a page's lines mean: hyphens at their ends, paragraphs, running heads.
Refuses to know: pictures, layout, forms, attachments.
"""

from __future__ import annotations

import io
import logging
import re
from collections import Counter
from statistics import quantiles
from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError
from kbproc.sources.parse.blocks import Block, Parsed, Scalar, clean_text, clean_title

if TYPE_CHECKING:
    from pypdf import PdfReader

_LIGATURES = str.maketrans(
    {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st", "\xa0": " "}
)
_ENDS = re.compile(r"[.!?:;。！？：；][\"'”’)\]」』]*$")
_STARTS = re.compile(
    r"(?:[•●▪◦‣∙·–—*-]|\(?\d{1,2}[.)]|\d+(?:\.\d+)*\.?\s+[A-Z]|[A-Z][.)]\s|\[\d+\]|\d(?=[A-Z][a-z]))\s*\S"
)
_NUMBER = re.compile(r"\W*(?:page\s*)?[\divxlc]{1,6}(?:\s*(?:of|/)\s*\d+)?\W*$", re.I)
_CJK = re.compile("[\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef]")
# A running head stands on this share of the pages, in one of the outer lines.
_OUTER, _SHARE, _FEWEST = 2, 0.4, 4


def parse(data: bytes, name: str) -> Parsed:
    """Blocks with their pages, counted from 1.

    Raises `operation.failed` when the file is encrypted, damaged, or holds no
    text, and says which.
    """
    from pypdf.errors import PyPdfError

    # pypdf logs each oddity that it works around; nobody reads that here.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = _open(data, name)
        pages, damaged = _pages(reader)
    except PyPdfError as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        message = f"{name} is damaged: {reason}."
        raise KbprocError("operation.failed", message) from error
    blocks = _blocks(pages)
    if not blocks:
        raise KbprocError("operation.failed", _nothing(name, len(pages), damaged))
    metadata = _metadata(reader)
    title = metadata.pop("title", None)
    return Parsed(
        title=title if isinstance(title, str) else None,
        blocks=blocks,
        metadata=metadata,
        pages=len(pages),
        unread={"damaged_pages": len(damaged)},
    )


def _open(data: bytes, name: str) -> PdfReader:
    from pypdf import PasswordType, PdfReader

    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and reader.decrypt("") == PasswordType.NOT_DECRYPTED:
        raise KbprocError(
            "operation.failed",
            f"{name} is encrypted: it opens only with a password.",
            hint="Save a copy without a password, and ingest that.",
        )
    return reader


def _pages(reader: PdfReader) -> tuple[list[str], list[str]]:
    """The text of every page, and why some could not be read.

    One bad page does not lose the others. Raises the first reason if all are bad.
    """
    texts, unread, first = [], [], None
    for page in reader.pages:
        try:
            texts.append(clean_text(page.extract_text()).translate(_LIGATURES))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 a damaged page raises whatever pypdf ran into
            first = first or error
            texts.append("")
            unread.append(f"{type(error).__name__}: {error}")
    if first and len(unread) == len(texts):
        raise first
    return texts, unread


def _nothing(name: str, pages: int, unread: list[str]) -> str:
    if unread:
        return f"{name}: {len(unread)} of {pages} pages are damaged, the rest hold no text."
    if not pages:
        return f"{name} is damaged: it has no pages."
    where = "its one page" if pages == 1 else f"its {pages} pages"
    return f"{name} holds no text on {where}: pictures of text need OCR first."


def _metadata(reader: PdfReader) -> dict[str, Scalar]:
    """Title and author, where they can be read: a damaged /Info does not lose the text."""
    try:
        info = reader.metadata
        if info is None:
            return {}
        found = {key: info.get(f"/{key.capitalize()}") for key in ("title", "author")}
        clean = {key: clean_title(str(value)) for key, value in found.items() if value is not None}
    except Exception:  # noqa: BLE001 as above: whatever pypdf ran into
        return {}
    return {key: value for key, value in clean.items() if value and value.lower() != "untitled"}


def _blocks(pages: list[str]) -> list[Block]:
    lines = _without_running_heads([[line.rstrip() for line in p.split("\n")] for p in pages])
    words = frozenset(re.findall(r"\w+(?:-\w+)?", "\n".join(pages)))
    blocks: list[Block] = []
    for number, page in enumerate(lines, 1):
        paragraphs = _paragraphs(page, words)
        if blocks and paragraphs and _runs_on(blocks[-1].text, paragraphs[0]):
            rest, paragraphs[0] = _first_sentence(paragraphs[0])
            last = blocks[-1]
            text = _joined(last.text, rest, words)
            turns = (*last.turns, (len(text) - len(rest), number))
            blocks[-1] = Block(text=text, page=last.page, turns=turns)
        blocks += (Block(text=text, page=number) for text in paragraphs if text.strip())
    return blocks


def _without_running_heads(pages: list[list[str]]) -> list[list[str]]:
    """Pages without page numbers and the lines that stand atop or below most of them."""
    pages = [_trimmed(page) for page in pages]
    seen = Counter(key for page in pages for key in {_shape(page[i]) for i in _outer(page)})
    often = {key for key, n in seen.items() if n >= max(_FEWEST, _SHARE * len(pages))}
    kept = []
    for page in pages:
        gone = {i for i in _outer(page) if _shape(page[i]) in often}
        if len(pages) > 1:
            gone |= {i for i in (0, len(page) - 1) if page and _NUMBER.match(page[i])}
        kept.append([line for i, line in enumerate(page) if i not in gone])
    return kept


def _trimmed(page: list[str]) -> list[str]:
    text = "\n".join(page).strip("\n")
    return text.split("\n") if text.strip() else []


def _outer(page: list[str]) -> set[int]:
    n = len(page)
    return {i for i in range(n) if i < _OUTER or i >= n - _OUTER} if n > 2 * _OUTER else set()


def _shape(line: str) -> str:
    """The line but for a page number at its start or end."""
    return re.sub(r"^\W*\d+\W+|\W+\d+\W*$", " # ", " ".join(line[:200].split()))


def _paragraphs(lines: list[str], words: frozenset[str]) -> list[str]:
    """Lines joined to paragraphs: one ends at a blank line or a short last line."""
    lengths = [len(line) for line in lines if len(line) > 20]
    width = quantiles(lengths, n=4)[2] if len(lengths) > 1 else 80.0
    paragraphs: list[str] = []
    before = ""
    for line in (line.strip() for line in lines):
        if not line:
            before = ""
        elif not before or _breaks(before, line, width):
            paragraphs.append(line)
            before = line
        else:
            full = len(before) >= 0.7 * width or before.endswith("-") or line[0].islower()
            last = paragraphs[-1]
            paragraphs[-1] = _joined(last, line, words) if full else f"{last}\n{line}"
            before = line
    return paragraphs


def _breaks(before: str, line: str, width: float) -> bool:
    if _ENDS.search(before) and len(before) < 0.85 * width:
        return True
    return bool(_STARTS.match(line)) and not before.endswith("-")


def _joined(left: str, right: str, words: frozenset[str]) -> str:
    """Two lines as one: a hyphen that only broke the line goes, one of the word's stays.

    The document itself tells, by which of the two it writes within a line elsewhere.
    """
    if not right:
        return left
    if left.endswith("\xad"):
        return left[:-1] + right
    if left.endswith("-") and left[-2:-1].isalpha() and right[0].isalnum():
        head, tail = re.split(r"\W", left[-40:-1])[-1], re.split(r"\W", right, maxsplit=1)[0]
        whole, split = head + tail, f"{head}-{tail}"
        drop = whole in words or (right[0].islower() and split not in words)
        return left[:-1] + right if drop else left + right
    if _CJK.match(left[-1]) and _CJK.match(right):
        return left + right
    return f"{left} {right}"


def _runs_on(text: str, following: str) -> bool:
    """Whether a page's last paragraph goes on at the top of the next."""
    return not _ENDS.search(text) and following[0].islower() and "\n" not in text[-80:]


def _first_sentence(text: str) -> tuple[str, str]:
    end = re.search(r"[.!?][\"'”’)\]]*\s+(?=[^a-z\s])", text)
    return (text[: end.end()].rstrip(), text[end.end() :]) if end else (text, "")
