"""Parses PDF: joins the lines of each page into paragraphs, without running heads."""

from __future__ import annotations

import io
import logging
import re
from collections import Counter
from statistics import quantiles
from typing import TYPE_CHECKING

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse.blocks import Block, Parsed, Scalar, clean_title
from kbproc.engine.sources.parse.fonts import Fonts
from kbproc.engine.sources.parse.forms import Annotations, embedded_files, is_dynamic_form
from kbproc.engine.sources.parse.ocr import Recogniser
from kbproc.engine.sources.parse.pages import PageText, read
from kbproc.engine.sources.parse.picture import recognised
from kbproc.engine.sources.parse.progress import Report, no_report
from kbproc.engine.sources.parse.titles import real_title

if TYPE_CHECKING:
    from pypdf import PdfReader

_ENDS = re.compile(r"[.!?:;。！？：；][\"'”’)\]」』]*$")
_STARTS = re.compile(
    r"(?:[•●▪◦‣∙·–—*-]|\(?\d{1,2}[.)]|\d+(?:\.\d+)*\.?\s+[A-Z]|[A-Z][.)]\s|\[\d+\]|\d(?=[A-Z][a-z]))\s*\S"
)
# Letters are listed in both cases, because with re.I, i also matches ı and İ.
_NUMBER = re.compile(
    r"\W*(?:(?i:page)\s*)?(\d{1,6}|[ivxlcIVXLC]{1,7})(?:\s*(?:(?i:of)|/)\s*\d+)?\W*$"
)
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
_CJK = re.compile("[\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef]")
_AT_AN_END = re.compile(r"^\W*(\d{1,9})(?!\d)\W+|(?<!\W)\W+(\d{1,9})\W*$", re.A)
# A running head stands on at least this share of the pages, in one of the outer lines.
_OUTER, _SHARE, _FEWEST = 2, 0.4, 4


def parse(data: bytes, name: str, report: Report = no_report, ocr_languages: str = "") -> Parsed:
    """Returns the blocks of a PDF with their pages, counted from 1.

    With `ocr_languages`, the text of pages that are pictures is recognised.

    Raises `operation.failed` if the file is encrypted, damaged or without text; the message says
    which.
    """
    from pypdf.errors import PyPdfError

    # pypdf logs each oddity that it works around, which would only fill the log.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = _open(data, name)
        recogniser = Recogniser(ocr_languages) if ocr_languages else None
        pages, lines, unread = _pages(reader, report, recogniser)
    except PyPdfError as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        message = f"{name} is damaged: {reason}."
        raise KbprocError("operation.failed", message) from error
    blocks = _with_fields(_blocks([page.text for page in pages]), lines)
    if not blocks:
        raise KbprocError("operation.failed", _nothing(name, len(pages), unread))
    metadata = _metadata(reader) | (recogniser.metadata if recogniser else {})
    title = metadata.pop("title", None)
    unread["embedded_files"] += embedded_files(reader)
    unread["objects"] += is_dynamic_form(reader)
    return Parsed(
        title=title if isinstance(title, str) else real_title(pages[0].largest),
        blocks=blocks,
        metadata=metadata,
        pages=len(pages),
        unread=dict(unread),
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


def _pages(
    reader: PdfReader, report: Report, recogniser: Recogniser | None
) -> tuple[list[PageText], list[list[str]], Counter[str]]:
    """Returns every page's text, every page's fields and notes, and the counts of unread parts.

    A damaged page does not lose the others. Raises the first page's error if all are damaged.
    """
    fonts, annotations = Fonts(), Annotations()
    unread: Counter[str] = Counter()
    pages, lines, first = list[PageText](), list[list[str]](), None
    count = len(reader.pages)
    for page in reader.pages:
        try:
            pages.append(read(page, fonts, with_title=not pages))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 a damaged page raises whatever pypdf ran into
            first = first or error
            pages.append(PageText("", "damaged_pages"))
        lines.append(annotations.lines(page))
        is_picture = pages[-1].lacks == "pages_without_text"
        if recogniser and is_picture and (text := recognised(page, recogniser)):
            pages[-1] = PageText(text)
        if lacks := pages[-1].lacks:
            unread[lacks] += 1
        report("page", len(pages), count)
    if first and unread["damaged_pages"] == len(pages):
        raise first
    return pages, lines, unread + annotations.unread


def _nothing(name: str, pages: int, unread: Counter[str]) -> str:
    if unread["damaged_pages"]:
        count = unread["damaged_pages"]
        return f"{name}: {count} of {pages} pages are damaged, the rest hold no text."
    if not pages:
        return f"{name} is damaged: it has no pages."
    where = "its one page" if pages == 1 else f"its {pages} pages"
    if unread["pages_without_unicode"]:
        reason = "its fonts do not say which letters they show; OCR can read it from pictures"
        return f"{name} holds no readable text on {where}: {reason} of the pages."
    return f"{name} holds no text on {where}: scanned text needs OCR first."


def _metadata(reader: PdfReader) -> dict[str, Scalar]:
    """Returns title and author if they can be read; a damaged /Info does not lose the text."""
    try:
        info = reader.metadata
        if info is None:
            return {}
        entries = {key: info.get(f"/{key.capitalize()}") for key in ("title", "author")}
        texts = {key: str(value) for key, value in entries.items() if value is not None}
    except Exception:  # noqa: BLE001 as above: whatever pypdf ran into
        return {}
    clean = {
        "title": real_title(texts.get("title")),
        "author": clean_title(texts.get("author")),
    }
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


def _with_fields(blocks: list[Block], lines: list[list[str]]) -> list[Block]:
    """Returns the blocks with each page's fields and notes behind the blocks of that page."""
    fields = [
        Block(text="\n".join(page_lines), page=number)
        for number, page_lines in enumerate(lines, 1)
        if page_lines
    ]
    # Sorting is stable, so that blocks on the same page keep their order.
    return sorted([*blocks, *fields], key=lambda block: block.page or 0) if fields else blocks


def _without_running_heads(pages: list[list[str]]) -> list[list[str]]:
    """Removes page numbers, and lines that stand at the top or bottom of many pages.

    A line that stands only once in the document stays, even if it looks like a head.
    """
    pages = [_trimmed(page) for page in pages]
    marks = {
        (number, i): _marks(page[i], number)
        for number, page in enumerate(pages)
        for i in _outer(page)
    }
    once_a_page = {
        (mark, number) for (number, _), line_marks in marks.items() for mark in line_marks
    }
    page_counts = Counter(mark for mark, _ in once_a_page)
    least = max(_FEWEST, _SHARE * len(pages))
    heads = {
        place
        for place, line_marks in marks.items()
        if any(page_counts[mark] >= least for mark in line_marks)
    }
    heads |= _page_numbers(pages)
    return [
        [line for i, line in enumerate(page) if (number, i) not in heads]
        for number, page in enumerate(pages)
    ]


def _page_numbers(pages: list[list[str]]) -> set[tuple[int, int]]:
    """Returns the first and last lines that are page numbers, which grow with the pages."""
    numbers = [
        (number, i, value - number)
        for number, page in enumerate(pages)
        if page
        for i in {0, len(page) - 1}
        if (value := _numbered(page[i])) is not None
    ]
    step_counts = Counter(step for _, _, step in numbers)
    return {(number, i) for number, i, step in numbers if step_counts[step] > 1}


def _numbered(line: str) -> int | None:
    """Returns the number of a line that is only a number: "- 12 -", "Page 3 of 9", "xiv"."""
    match = _NUMBER.match(line)
    if not match:
        return None
    digits = match[1].lower()
    if digits.isdecimal():
        return int(digits)
    values = [_ROMAN[letter] for letter in digits]
    following = [*values[1:], 0]
    return sum(
        -value if value < after else value for value, after in zip(values, following, strict=True)
    )


def _trimmed(page: list[str]) -> list[str]:
    text = "\n".join(page).strip("\n")
    return text.split("\n") if text.strip() else []


def _outer(page: list[str]) -> set[int]:
    n = len(page)
    return {i for i in range(n) if i < _OUTER or i >= n - _OUTER} if n > 2 * _OUTER else set()


def _marks(line: str, page: int) -> tuple[str | tuple[str, int], ...]:
    """Returns the marks by which a running head equals those of other pages.

    They are the line itself, and the line with a number that grows with the pages taken out.
    """
    text = " ".join(line[:200].split())
    number = _AT_AN_END.search(text)
    if number is None:
        return (text,)
    return text, (_AT_AN_END.sub(" # ", text), int(number[1] or number[2]) - page)


def _paragraphs(lines: list[str], words: frozenset[str]) -> list[str]:
    """Joins lines to paragraphs; a paragraph ends at a blank line or behind a short line."""
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


def _joined(line: str, next_line: str, words: frozenset[str]) -> str:
    """Joins two lines; a hyphen that only broke the line goes, a hyphen of the word stays.

    The spelling elsewhere in the document decides between the two.
    """
    if not next_line:
        return line
    if line.endswith("\xad"):
        return line[:-1] + next_line
    if line.endswith("-") and line[-2:-1].isalpha() and next_line[0].isalnum():
        head, tail = (
            re.split(r"\W", line[-40:-1])[-1],
            re.split(r"\W", next_line, maxsplit=1)[0],
        )
        joined, hyphenated = head + tail, f"{head}-{tail}"
        drop = joined in words or (next_line[0].islower() and hyphenated not in words)
        return line[:-1] + next_line if drop else line + next_line
    if _CJK.match(line[-1]) and _CJK.match(next_line):
        return line + next_line
    return f"{line} {next_line}"


def _runs_on(text: str, following: str) -> bool:
    """Returns True if a page's last paragraph goes on at the top of the next page."""
    return not _ENDS.search(text) and following[0].islower() and "\n" not in text[-80:]


def _first_sentence(text: str) -> tuple[str, str]:
    end = re.search(r"[.!?][\"'”’)\]]*\s+(?=[^a-z\s])", text)
    return (text[: end.end()].rstrip(), text[end.end() :]) if end else (text, "")
