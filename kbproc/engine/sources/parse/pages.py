"""Reads a PDF page with pypdf: its text in reading order, and the reason if text is lacking."""

from __future__ import annotations

import re
from collections import Counter
from math import hypot
from typing import Any, NamedTuple

from kbproc.engine.sources.parse.blocks import clean_text
from kbproc.engine.sources.parse.columns import TextRun, gutter, reading_order
from kbproc.engine.sources.parse.fonts import Fonts, damages, is_lost_text, narrow_spaces

_LIGATURES = str.maketrans(
    {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st", "\xa0": " "}
)
_SHOWS = frozenset({b"Tj", b"TJ", b"'", b'"'})
_PAINTS = frozenset({b"f", b"F", b"f*", b"B", b"B*", b"b", b"b*", b"S", b"s", b"sh", b"Do"})
_PAINTS |= {b"INLINE IMAGE"}
# Operators that draw, or set how to draw; none of them places or shows text.
_DRAWS = (_PAINTS - {b"Do"}).union(
    b"m l c v y h re n W W* w J j M d ri i BMC BDC EMC MP DP".split(),
    b"g G rg RG k K cs CS sc SC scn SCN".split(),
)
_MAY_PAINT = re.compile(rb"(?<![\w/])(?:f\*?|F|B\*?|b\*?|S|s|sh|Do|BI)(?![\w*])")
_MAY_SHOW = re.compile(rb"T[jJ]|Do|['\"]")
# A page is a scan if one picture covers this share of it, and it has no more text than a
# scanner's stamp.
_COVERED, _STAMP = 0.7, 120
_TITLE_LINES, _TITLE_CHARACTERS = 4, 200
_LARGER = 1.15


class PageText(NamedTuple):
    """The text of a page.

    `largest` is the line in the largest type, if `with_title` was set. `lacks` is the kind of
    unread.py that says which text is missing.
    """

    text: str
    lacks: str | None = None
    largest: str | None = None


class _PrintedPiece(NamedTuple):
    """Text that pypdf passed in one call, its font, and its place: (page matrix, text matrix)."""

    text: str
    font: Any
    size: float
    place: tuple[Any, Any]


# An operator that shows text: its direction and place, the type's size, its operand.
_ShowOperation = tuple[tuple[float, float, float, float], float, Any]


class _Watcher:
    """Collects the pieces, operators and pictures that pypdf passes while it extracts text."""

    def __init__(self) -> None:
        self.pieces: list[_PrintedPiece] = []
        self.shows: list[_ShowOperation] = []
        self.pictures: list[tuple[str, float]] = []
        self._size = 12.0

    def text(self, text: str, page: Any, matrix: Any, font: Any, size: float) -> None:
        if text:
            self.pieces.append(_PrintedPiece(text, font, size, (page, matrix)))

    def operator(self, operator: bytes, operands: Any, page: Any, matrix: Any) -> None:
        if operator in _SHOWS:
            if operands:
                self.shows.append((_product(matrix, page), self._size, operands[-1]))
        elif operator == b"Tf":
            if len(operands) > 1 and isinstance(operands[1], (int, float)):
                self._size = abs(float(operands[1]))
        elif operator == b"Do" and operands and len(page) > 3:
            self.pictures.append((str(operands[0]), abs(page[0] * page[3] - page[1] * page[2])))


def read(page: Any, fonts: Fonts, *, with_title: bool = False) -> PageText:
    """Returns the text of a page. Raises the errors of pypdf for a damaged page."""
    from pypdf.generic import ContentStream, NameObject

    source = page.get("/Contents")
    if source is None:
        return PageText("")
    content = ContentStream(source.get_object(), page.pdf, "bytes")
    data = content.get_data()
    if not _MAY_SHOW.search(data):
        return PageText("", "pages_without_text" if _MAY_PAINT.search(data) else None)
    paints = _without_drawing(content)
    _pass_over_figures(page)
    contents, reference = NameObject("/Contents"), page.raw_get("/Contents")
    page[contents] = content  # so that pypdf does not parse it again
    try:
        return _read(page, fonts, with_title=with_title, paints=paints)
    finally:
        page[contents] = reference  # because the operators of all pages would take much memory


def _read(page: Any, fonts: Fonts, *, with_title: bool, paints: bool) -> PageText:
    watcher = _Watcher()
    narrow_spaces(page)
    text = page.extract_text(visitor_text=watcher.text, visitor_operand_before=watcher.operator)
    pieces = watcher.pieces
    unreadable = fonts.unreadable((piece.text, piece.font) for piece in pieces)
    lost = is_lost_text([piece.text for piece in pieces if id(piece.font) in unreadable])
    if lost:
        text = "".join(_readable(piece, unreadable) for piece in pieces)
    if _gutter(watcher.shows) is not None:
        text = _by_columns(page, unreadable if lost else set()) or text
    largest = _largest(pieces, unreadable) if with_title else None
    text = clean_text(text).translate(_LIGATURES)
    return PageText(text, _lacks(page, text, watcher, lost, paints=paints), largest)


def _without_drawing(content: Any) -> bool:
    """Removes operators that draw from a page's content; returns True if the page paints."""
    paints = False
    operations: list[Any] = []
    for operands, operator in content.operations:
        paints = paints or operator in _PAINTS
        if operator not in _DRAWS:
            operations.append((operands, operator))
    content.operations = operations
    return paints


def _pass_over_figures(page: Any) -> None:
    """Marks each form without text as a picture, so that pypdf does not parse it.

    With a visitor, pypdf would parse a form each time that it is drawn, and a diagram may draw the
    mark of a point a thousand times.
    """
    from pypdf.generic import NameObject

    holders, visited = [page], set[int]()
    while holders:
        try:
            objects = holders.pop()["/Resources"].get_object()["/XObject"].get_object()
            references = [objects.raw_get(name) for name in objects]
        except damages():
            continue
        for form in map(_object, references):
            if not isinstance(form, dict) or id(form) in visited:
                continue  # not a form: a reference may lead nowhere
            if form.get("/Subtype") != "/Form":
                continue
            visited.add(id(form))
            if _may_show_text(form):
                holders.append(form)
            else:
                form[NameObject("/Subtype")] = NameObject("/Image")


def _object(reference: Any) -> Any:
    """Returns the object that is referred to; None if there is none."""
    try:
        return reference.get_object()
    except damages():
        return None


def _may_show_text(form: Any) -> bool:
    try:
        return _MAY_SHOW.search(form.get_data()) is not None
    except damages():
        return True


def _characters(operand: Any) -> int:
    """Estimates the number of characters that an operator shows by the length of its strings.

    Zeros are not counted, because most codes of two bytes have one.
    """
    if isinstance(operand, str):
        return len(operand) - operand.count("\0")
    if isinstance(operand, bytes):
        return len(operand) - operand.count(0)
    if not isinstance(operand, list):
        return 0
    return sum(_characters(piece) for piece in operand if isinstance(piece, (str, bytes)))


def _readable(piece: _PrintedPiece, unreadable: set[int]) -> str:
    if id(piece.font) not in unreadable:
        return piece.text
    return "\n" if "\n" in piece.text else " "


def _product(matrix: Any, page: Any) -> tuple[float, float, float, float]:
    """Returns the direction of text with this matrix on the page, and its place."""
    return (
        matrix[0] * page[0] + matrix[1] * page[2],
        matrix[0] * page[1] + matrix[1] * page[3],
        matrix[4] * page[0] + matrix[5] * page[2] + page[4],
        matrix[4] * page[1] + matrix[5] * page[3] + page[5],
    )


def _run(
    place: tuple[float, float, float, float], size: float, count: int, text: str = ""
) -> TextRun:
    """Returns a run with its place along and across its own line, however the page is turned."""
    right, up, x, y = place
    scale = hypot(right, up) or 1.0
    along, across = (x * right + y * up) / scale, (y * right - x * up) / scale
    return TextRun(along, across, size * scale, count, text)


def _gutter(shows: list[_ShowOperation]) -> float | None:
    if not _may_have_columns(shows):
        return None
    runs: list[TextRun] = []
    before = None
    for place, size, operand in shows:
        count = _characters(operand)
        if place == before:
            # This operator continues the run of the last one.
            runs[-1] = runs[-1]._replace(characters=runs[-1].characters + count)
        else:
            runs.append(_run(place, size, count))
        before = place
    return gutter(runs)


def _may_have_columns(shows: list[_ShowOperation]) -> bool:
    """Returns False, at little cost, if text seldom begins at the same place twice."""
    places = Counter((round(x), right) for (right, up, x, _), _, _ in shows if not up)
    places.update((round(y), up) for (_, up, _, y), _, _ in shows if up)
    least = max(3, len(places) * 0.05)
    return sum(count >= least for count in places.values()) > 1


def _by_columns(page: Any, unreadable: set[int]) -> str | None:
    """Reads the page's text again with the place of each piece; returns None if there is none."""
    content = page.get("/Contents")
    if content is None:
        return None
    operations: list[Any] = []
    font: Any = None
    fonts: list[Any] = []
    for operands, operator in content.operations:
        if operator == b"Tf":
            font = operands
        elif operator == b"q":
            fonts.append(font)
        elif operator == b"Q" and fonts:
            font = fonts.pop()
        elif operator in _SHOWS and font is not None:
            # Choosing the font once more makes pypdf pass on the text that it has so far.
            operations.append((font, b"Tf"))
        operations.append((operands, operator))
    content.operations = operations
    watcher = _Watcher()
    page.extract_text(visitor_text=watcher.text)
    runs = []
    for piece in watcher.pieces:
        text = _readable(piece, unreadable)
        place = _product(piece.place[1], piece.place[0])
        runs.append(_run(place, piece.size, len(text.strip()), text))
    return reading_order(runs) or None


def _largest(pieces: list[_PrintedPiece], unreadable: set[int]) -> str | None:
    """Returns the line or lines in the largest type, if it is larger than that of most text."""
    lines: list[Counter[float]] = [Counter()]
    texts = [""]
    sizes: Counter[float] = Counter()
    for piece in pieces:
        right, up, _, _ = _product(piece.place[1], piece.place[0])
        text = piece.text
        if id(piece.font) in unreadable or abs(up) > 0.1 * abs(right):
            text = "\n" if text.endswith("\n") else " "
        size = round(abs(piece.size * hypot(right, up)), 1)
        for i, part in enumerate(text.split("\n")):
            if i:
                lines.append(Counter())
                texts.append("")
            texts[-1] += part
            lines[-1][size] += len(part.strip())
            sizes[size] += len(part.strip())
    usual = sizes.most_common(1)[0][0] if sizes else 0.0
    large = [line.most_common(1)[0][0] if line else 0.0 for line in lines]
    words = [i for i, text in enumerate(texts) if len(re.findall(r"[^\W\d_]", text)) >= 3]
    top = max((large[i] for i in words), default=0.0)
    if top < _LARGER * usual or not words:
        return None
    first = next(i for i in words if large[i] == top)
    last = first
    while (
        last + 1 < len(texts) and large[last + 1] > 0.97 * top and last - first < _TITLE_LINES - 1
    ):
        last += 1
    title = " ".join(" ".join(texts[first : last + 1]).split()).translate(_LIGATURES)
    return title if len(title) <= _TITLE_CHARACTERS else None


def _lacks(page: Any, text: str, watcher: _Watcher, lost: bool, *, paints: bool) -> str | None:
    if lost:
        return "pages_without_unicode"
    visible = len("".join(text.split()))
    if visible:
        scanned = visible <= _STAMP and _is_covered(page, watcher.pictures)
        return "pages_without_text" if scanned else None
    characters = sum(_characters(operand) for _, _, operand in watcher.shows)
    if characters >= 3 and not any(" " in piece.text for piece in watcher.pieces):
        return "pages_without_unicode"  # a font that maps its codes to nothing
    return "pages_without_text" if paints else None


def _is_covered(page: Any, drawn: list[tuple[str, float]]) -> bool:
    box = page.mediabox
    area = abs(float(box.width) * float(box.height))
    large = {name for name, covers in drawn if covers >= _COVERED * area}
    if not large:
        return False
    try:
        objects = page["/Resources"].get_object()["/XObject"].get_object()
        return any("/Width" in objects[name].get_object() for name in large)
    except damages():
        return False
