"""Word documents of the older format (DOC, Word 97 to 2003): text, headings, tables and notes.

[MS-DOC] describes it. The text lies in pieces; two tables tell which characters were deleted or are
hidden, and which paragraphs are headings. As in DOCX, tracked changes are accepted.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import ole
from kbproc.engine.sources.parse.blocks import Block, Headings, Kind, Parsed, Scalar, clean_title
from kbproc.engine.sources.parse.titles import real_title

_WORD_97 = 0xC1  # the first version that is read
_ENCRYPTED, _TABLE_1 = 0x0100, 0x0200
_SAVE = "Save it as DOCX or PDF."
_PAGE = 512
_DELETED, _HIDDEN, _ROW_ENDS = 0x0800, 0x083C, 0x2417  # codes of properties
_ROW_END = 1 << 20  # greater than the number of any style
_HEADING_STYLES = range(1, 10)
_MOST_PIECES = 200_000
# A field is code, then the result that a reader sees: begin, separator, end.
_FIELD_BEGIN, _FIELD_RESULT, _FIELD_END = "\x13", "\x14", "\x15"
_CELL = "\x07"
_SIGNS = str.maketrans(
    {
        "\x0b": "\n",
        "\x0c": "\r",
        "\x0e": "\r",
        "\x1e": "-",
        "\x1f": "",
        "\xa0": " ",
        "\x02": "",
        "\x05": "",
        "\x01": "",
        "\x08": "",
        "\x03": "",
        "\x04": "",
    }
)


class _PieceOfWord(NamedTuple):
    """Text from character `start` on, which lies at byte `at` of the stream."""

    start: int
    text: str
    at: int
    width: int  # bytes of a character


class _Span(NamedTuple):
    """Bytes of the stream with a property."""

    start: int
    end: int
    value: int


class _Stories(NamedTuple):
    """The numbers of characters of a document's texts, in their order in the file."""

    main: int
    footnotes: int
    headers: int
    macros: int
    comments: int
    endnotes: int
    boxes: int
    header_boxes: int


def parse(data: bytes, name: str) -> Parsed:
    """Returns the paragraphs of a document, with headings as sections and tables as rows.

    Raises `operation.failed` for a document that is damaged, needs a password or is older than
    Word 97.
    """
    file = ole.opened(data, name, _SAVE)
    try:
        return _parsed(file, name)
    except (struct.error, IndexError, ole.OleError) as error:
        message = f"{name} is damaged or no Word document."
        raise KbprocError("operation.failed", message, hint=_SAVE) from error


def _parsed(file: ole.CompoundFile, name: str) -> Parsed:
    stream = file.read("WordDocument")
    mark, version = struct.unpack_from("<HH", stream)
    (flags,) = struct.unpack_from("<H", stream, 0x0A)
    if flags & _ENCRYPTED:
        raise KbprocError("operation.failed", f"{name} needs a password: save it without one.")
    if mark != 0xA5EC or version < _WORD_97:
        raise KbprocError(
            "operation.failed",
            f"{name} is older than Word 97.",
            hint=_SAVE,
        )
    table = file.read("1Table" if flags & _TABLE_1 else "0Table")
    stories = _Stories(*struct.unpack_from("<8i", stream, 0x4C))
    pieces = _pieces(stream, table)
    marked = _spans(stream, table, 0xFA, _marked)
    styles = _spans(stream, table, 0x102, _style)
    places = _Ranges(pieces)
    text, unread = _visible(pieces, places, marked)
    ends = [0]
    for count in stories:
        ends.append(ends[-1] + max(0, count))
    text = _without_codes(text)
    parts = [text[start:end] for start, end in pairwise(ends)]
    levels, rows = _paragraphs(places, styles)
    blocks = list(_blocks(parts[0], levels, rows))
    for story in (1, 5, 6):  # footnotes, endnotes, text boxes
        own_rows = {row - ends[story] for row in rows}
        blocks += _blocks(parts[story], {}, own_rows)
    unread["headers_and_footers"] = int(bool(_words(parts[2])))
    unread["comments"] = sum(bool(line.strip()) for line in "".join(parts[4]).split("\r"))
    unread["pictures"] = parts[0].count("\x01") + parts[0].count("\x08")
    facts = ole.summary(file)
    author = clean_title(facts.get("author"))
    metadata: dict[str, Scalar] = {"author": author} if author else {}
    first = next((block.section for block in blocks if block.section), None)
    return Parsed(
        title=real_title(facts.get("title")) or first,
        blocks=blocks,
        metadata=metadata,
        unread=unread,
    )


def _pieces(stream: bytes, table: bytes) -> list[_PieceOfWord]:
    start, size = struct.unpack_from("<II", stream, 0x01A2)
    clx = table[start : start + size]
    at = 0
    while at < len(clx) and clx[at] == 1:  # properties of pieces
        at += 3 + struct.unpack_from("<H", clx, at + 1)[0]
    if at >= len(clx) or clx[at] != 2:
        raise IndexError
    (length,) = struct.unpack_from("<I", clx, at + 1)
    plc = clx[at + 5 : at + 5 + length]
    count = min((len(plc) - 4) // 12, _MOST_PIECES)
    if count < 1:
        raise IndexError
    places = struct.unpack_from(f"<{count + 1}I", plc)
    if list(places) != sorted(places) or places[-1] > len(stream):
        raise IndexError  # pieces that share their bytes would be a bomb
    pieces = []
    for i in range(count):
        (place,) = struct.unpack_from("<I", plc, 4 * (count + 1) + 8 * i + 2)
        length = max(0, places[i + 1] - places[i])
        narrow = bool(place & 0x40000000)
        place &= 0x3FFFFFFF
        at, width = (place // 2, 1) if narrow else (place, 2)
        raw = stream[at : at + length * width]
        if narrow:
            text = raw.decode("cp1252", "replace")
        else:
            # One by one, because a decoder would join two halves of a character, and places count
            # the halves.
            text = "".join(map(chr, array("H", raw[: len(raw) // 2 * 2])))
        pieces.append(_PieceOfWord(places[i], text, at, width))
    return pieces


def _spans(
    stream: bytes, table: bytes, entry: int, read: Callable[[bytes, int, int], int]
) -> list[_Span]:
    """Returns the spans of characters or paragraphs that have a property."""
    start, size = struct.unpack_from("<II", stream, entry)
    plc = table[start : start + size]
    count = max(0, (len(plc) - 4) // 8)
    spans = []
    for i in range(count):
        (number,) = struct.unpack_from("<I", plc, 4 * (count + 1) + 4 * i)
        page = stream[(number & 0x3FFFFF) * _PAGE :][:_PAGE]
        if len(page) < _PAGE:
            continue
        runs = page[_PAGE - 1]
        if 4 * (runs + 1) > _PAGE:
            continue
        places = struct.unpack_from(f"<{runs + 1}I", page)
        for run in range(runs):
            value = read(page, runs, run)
            if value:
                spans.append(_Span(places[run], places[run + 1], value))
    return sorted(spans)


def _marked(page: bytes, runs: int, run: int) -> int:
    """Returns the property, deleted or hidden, of a run of characters; 0 for neither."""
    offset = page[4 * (runs + 1) + run] * 2
    if not offset:
        return 0
    data = page[offset + 1 : offset + 1 + page[offset]]
    codes = {code for code, value in _properties(data) if value & 1}
    return next((code for code in (_DELETED, _HIDDEN) if code in codes), 0)


def _style(page: bytes, runs: int, run: int) -> int:
    """Returns the number of a paragraph's style, or _ROW_END for the end of a table's row."""
    offset = page[4 * (runs + 1) + 13 * run] * 2
    if not offset or offset + 4 > _PAGE:
        return 0
    begin, size = offset + 1, 2 * page[offset] - 1
    if page[offset] == 0:
        begin, size = offset + 2, 2 * page[offset + 1]
    properties = page[begin + 2 : begin + size]
    if any(code == _ROW_ENDS and value & 1 for code, value in _properties(properties)):
        return _ROW_END
    return int.from_bytes(page[begin : begin + 2], "little")


def _properties(data: bytes) -> Iterator[tuple[int, int]]:
    """Yields the code of each property, and the first byte of its value."""
    at = 0
    while at + 2 < len(data):
        (code,) = struct.unpack_from("<H", data, at)
        kind = code >> 13
        yield code, data[at + 2]
        at += 2 + (data[at + 2] + 1 if kind == 6 else (1, 1, 2, 4, 2, 2, 0, 3)[kind])


class _Ranges:
    """Finds the characters that lie at bytes of the stream."""

    def __init__(self, pieces: list[_PieceOfWord]) -> None:
        self._pieces = sorted(pieces, key=lambda piece: piece.at)
        self._starts = [piece.at for piece in self._pieces]

    def ranges(self, span: _Span) -> Iterator[tuple[int, int]]:
        """Yields the ranges of characters within a span."""
        index = max(0, bisect_right(self._starts, span.start) - 1)
        while index < len(self._pieces) and self._starts[index] < span.end:
            piece = self._pieces[index]
            first = max(span.start, piece.at)
            last = min(span.end, piece.at + len(piece.text) * piece.width)
            if first < last:
                begin = piece.start + (first - piece.at) // piece.width
                yield begin, piece.start + (last - piece.at) // piece.width
            index += 1


def _visible(
    pieces: list[_PieceOfWord], places: _Ranges, marked: list[_Span]
) -> tuple[list[str], dict[str, int]]:
    """Returns the characters, "" for those that a reader does not see, and counts of those."""
    length = max((piece.start + len(piece.text) for piece in pieces), default=0)
    characters = [""] * length
    for piece in pieces:
        characters[piece.start : piece.start + len(piece.text)] = piece.text
    counts = {"deleted_passages": 0, "hidden_passages": 0}
    for span in marked:
        is_deleted = span.value == _DELETED
        for begin, stop in places.ranges(span):
            is_words = any(char.isalnum() for char in characters[begin:stop])
            counts["deleted_passages" if is_deleted else "hidden_passages"] += is_words
            for at in range(begin, stop):
                if is_deleted or characters[at] not in "\r\x07":
                    characters[at] = ""
    return characters, counts


def _paragraphs(places: _Ranges, styles: list[_Span]) -> tuple[dict[int, int], set[int]]:
    """Returns the level of each heading by the character that ends it, and the ends of rows."""
    levels: dict[int, int] = {}
    rows: set[int] = set()
    for span in styles:
        if span.value not in _HEADING_STYLES and span.value != _ROW_END:
            continue
        for _, stop in places.ranges(span):
            if span.value == _ROW_END:
                rows.add(stop - 1)
            else:
                levels[stop - 1] = span.value
    return levels, rows


def _blocks(characters: list[str], levels: dict[int, int], row_ends: set[int]) -> Iterator[Block]:
    """Yields the paragraphs, and a block for each run of a table's rows."""
    headings = Headings()
    rows: list[str] = []
    cells: list[str] = []
    words: list[str] = []
    for at, char in enumerate(characters):
        if at in row_ends:
            rows.append(" | ".join(cells))
            cells, words = [], []
        elif char == _CELL:
            cells.append(" ".join(_words(words).split()))
            words = []
        elif char in ("\r", "\x0c") and at + 1 < len(characters) and cells:
            words.append(" ")
        elif char in ("\r", "\x0c"):
            text, words = _words(words), []
            if rows and text:
                yield _block("\n".join(rows), headings, "table")
                rows = []
            if at in levels and text:
                headings.enter(levels[at], clean_title(text))
            if text:
                yield _block(text, headings, "prose")
        else:
            words.append(char)
    if cells:
        rows.append(" | ".join(cells))
    if rows:
        yield _block("\n".join(rows), headings, "table")
    if text := _words(words):
        yield _block(text, headings, "prose")


def _without_codes(characters: list[str]) -> list[str]:
    """Returns the characters with "" for the marks and the codes of fields."""
    visible = list(characters)
    fields: list[bool] = []  # for each open field, whether its code is not over yet
    codes = 0
    for at, char in enumerate(characters):
        if char == _FIELD_BEGIN:
            fields.append(True)
            codes += 1
        elif char == _FIELD_RESULT and fields:
            codes -= fields[-1]
            fields[-1] = False
        elif char == _FIELD_END and fields:
            codes -= fields.pop()
        if codes or char in (_FIELD_BEGIN, _FIELD_RESULT, _FIELD_END):
            visible[at] = ""
    return visible


def _words(characters: list[str]) -> str:
    return "".join(characters).translate(_SIGNS).strip()


def _block(text: str, headings: Headings, kind: Kind) -> Block:
    return Block(text=text, section=headings.section, kind=kind)
