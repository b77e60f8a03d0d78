"""Reads workbooks of Office Open XML (XLSX, XLSM): cells as a sheet shows them, and what is beside.

The cells are found by patterns, because a tree of a large sheet takes three times as long and
twenty times the memory of its file. A library that gives the range from the first to the last cell
needs gigabytes for two cells that lie far apart.
"""

from __future__ import annotations

import datetime
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

from kbproc.engine.sources.parse.blocks import Block
from kbproc.engine.sources.parse.drawing import Drawings
from kbproc.engine.sources.parse.grid import Grid, Range, Row, cell_name, free
from kbproc.engine.sources.parse.number_format import BUILT_IN, in_format, plain
from kbproc.engine.sources.parse.ooxml import Archive, PartLink, alternative, name_of, own_text
from kbproc.engine.sources.parse.packed import (
    BROKEN,
    children,
    entries_of,
    first,
    local,
    plain_xml,
    unescaped,
)

_BOOK = "xl/workbook.xml"
# Built-in formats of dates and times whose look depends on the language.
_LOCAL_DATES = frozenset((14, 22, *range(27, 37), *range(50, 59)))
_ELAPSED = re.compile(r"\[(?:h+|m+|s+)\]", re.I)
# Characters of a format that are no codes: quoted ones, spaces, fillings, colours, currencies.
_NO_CODES = re.compile(r'"[^"]*"|\\.|_.|\*.|\[[^\[\]]*\]|General', re.I | re.S)
_DATE_CODES = re.compile("[dmyhs]", re.I)
_EPOCH = datetime.datetime(1899, 12, 30)
_DAYS_TO_1904 = 1462
_DAY_MS = 86_400_000
_LONGEST_INTEGER = 15  # digits; a longer number is shown as a float
_MOST_CACHED = 50_000
_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")
_RICH = re.compile(
    rb"<(?:\w+:)?(?:rPh\b(?:[^<]++|<(?!/?(?:\w+:)?rPh\b))*+</(?:\w+:)?rPh>|t(?:\s[^<>]*)?>([^<]*))"
)
_CELL_NAME = re.compile(rb"([A-Z]{1,3})(\d{1,7})")


class SheetPart(NamedTuple):
    """A sheet as the workbook lists it; `size` is that of its part, unpacked."""

    name: str
    state: str
    link: PartLink | None
    size: int


class Workbook:
    """An XLSX archive; `unread` counts what its sheets hold and is not read.

    Raises DamagedPartError if it names no sheets.
    """

    def __init__(self, opened: zipfile.ZipFile) -> None:
        self._zip = opened
        self._archive = Archive(opened, _BOOK)
        self.unread: Counter[str] = Counter()
        self._drawings = Drawings(self._archive, self.unread)
        book = self._archive.xml(self._archive.main)
        links = self._archive.links_by_id(self._archive.main)
        settings = first(book, "workbookPr")
        is_1904 = settings is not None and settings.get("date1904") in ("1", "true")
        by_kind = {link.kind: link.target for link in links.values()}
        self._numbers = _Numbers(self._archive.optional(by_kind.get("styles")), is_1904=is_1904)
        self._strings = _strings(self._content(by_kind.get("sharedStrings")))
        self._people = _people(self._archive.optional(by_kind.get("person")))
        self.sheets = list(self._listed(book, links))
        self._hints: dict[str, list[tuple[str, str]]] = {}

    def _listed(self, book: Any, links: dict[str, PartLink]) -> Iterator[SheetPart]:
        sizes = {info.filename: info.file_size for info in self._zip.infolist()}
        for sheet in book.iter():
            if local(sheet) == "sheet":
                link = links.get(_relation(sheet))
                size = sizes.get(link.target, 0) if link else 0
                yield SheetPart(sheet.get("name", ""), sheet.get("state", "visible"), link, size)

    def _content(self, part: str | None) -> bytes:
        """Returns the bytes of a part in UTF-8, with its text in no other form; b"" for none."""
        if part is None:
            return b""
        try:
            data = self._zip.read(part)
        except BROKEN:
            return b""
        return plain_xml(data)

    def read(self, sheet: SheetPart, grid: Grid) -> None:
        """Reads the cells of a sheet into the grid; counts formulas without a value."""
        if sheet.link is None:
            self.unread["damaged_pages"] += 1
            return
        content = self._content(sheet.link.target)
        if not content.rstrip().endswith(b"worksheet>"):
            self.unread["damaged_pages"] += 1
        begin, end = _bounds(content)
        self._cells(content[begin:end], grid)
        if b"f>" in content or b"<f" in content:
            # A formula whose result is an empty text has a value: an empty one.
            self.unread["formulas"] += sum(
                b'"str"' not in entries for entries in _NO_VALUE.findall(content, begin, end)
            )
        tail = content[end:]
        self._hints[sheet.link.target] = list(_hints(tail))
        grid.merged += _merged(tail)
        self._count_settings(tail)

    def _cells(self, content: bytes, grid: Grid) -> None:
        """Reads the rows of a sheet; this loop takes half of the time of a workbook."""
        prefix = _prefix(content)
        find = _cell_pattern(prefix).findall
        columns: dict[bytes, int] = {}
        readers = _Readers(self._strings, self._numbers)
        number = -1
        for part in content.split(b"</%srow>" % prefix):
            number = _row_number(part, number)
            column = -1
            cells: Row = {}
            for letters, looks, value, inline in find(part):
                entries = looks
                if not letters:
                    name, entries = _named(entries)
                    column = _column(name) if name else column + 1
                elif letters in columns:
                    column = columns[letters]
                else:
                    column = columns[letters] = _column(letters)
                if inline:
                    text = _inline_text(inline)
                elif value:
                    text = readers[entries](value)
                else:
                    continue
                if text:
                    cells[column if column not in cells else free(cells, column)] = text
            grid.add(number, cells)

    def _count_settings(self, tail: bytes) -> None:
        """Counts what a sheet prints in its margins, its embedded objects, and lists of choices."""
        margins = {_HEAD_CODE.sub(b"", text).strip() for text in _HEADS.findall(tail)}
        self.unread["headers_and_footers"] += len(margins - {b""})
        shapes = {entries_of(each).get(b"shapeId", b"") for each in _OBJECTS.findall(tail)}
        self.unread["objects"] += len(shapes)
        for choices in _CHOICES.findall(tail):
            self.unread["form_choices"] += choices.count(b",") + 1

    def beside(self, sheet: SheetPart, label: str) -> Iterator[Block]:
        """Yields what stands beside the cells: comments, hints of cells, shapes, charts, pictures.

        `label` names the sheet.
        """
        if sheet.link is None:
            return
        links = self._archive.links(sheet.link.target)
        texts = self._comments(links)
        for cell, hint in self._hints.get(sheet.link.target, ()):
            texts.setdefault(cell, []).append(hint)
        for cell, lines in texts.items():
            yield Block(text="\n".join(lines), section=f"{label}, {cell}")
        for link in links:
            if link.kind == "drawing":
                yield from self._drawn(link.target, label)
            elif link.kind == "vmlDrawing":
                yield from self._controls(link.target, label)

    def _comments(self, links: list[PartLink]) -> dict[str, list[str]]:
        """Returns the comments of a sheet by their cells; of threads, not what old readers see."""
        threads: dict[str, list[str]] = {}
        comments: dict[str, list[str]] = {}
        for link in links:
            root = self._archive.optional(link.target) if "omment" in link.kind else None
            if root is None:
                self.unread["comments"] += link.kind in ("comments", "threadedComment")
                continue
            authors = [own_text(each).strip() for each in root.iter() if local(each) == "author"]
            for each in root.iter():
                cell = each.get("ref") or ""
                if local(each) == "threadedComment":
                    author = self._people.get(each.get("personId") or "", "")
                    words = "".join(own_text(one) for one in children(each, "text"))
                    threads.setdefault(cell, []).append(_comment(author, words))
                elif local(each) == "comment":
                    number = each.get("authorId") or ""
                    is_listed = number.isdecimal() and int(number) < len(authors)
                    author = authors[int(number)] if is_listed else ""
                    comments.setdefault(cell, []).append(_comment(author, _rich_text(each)))
        return {**comments, **threads}

    def _drawn(self, part: str, label: str) -> Iterator[Block]:
        """Yields the texts of each drawing on a sheet, cited by the cell at its corner."""
        root = self._archive.optional(part)
        if root is None:
            self.unread["objects"] += 1
            return
        links = self._archive.links_by_id(part)
        for anchor in _anchors(root):
            if texts := self._drawings.texts(anchor, links):
                corner = _corner(anchor)
                section = f"{label}, {corner}" if corner else label
                yield Block(text="\n".join(texts), section=section)

    def _controls(self, part: str, label: str) -> Iterator[Block]:
        """Yields the texts of buttons and other controls; a comment's box holds no text."""
        root = self._archive.optional(part)
        if root is None:
            # Excel writes <br> into such a part, which then is no XML.
            self.unread["objects"] += bool(_CONTROL.search(self._content(part)))
            return
        for shape in (each for each in root.iter() if local(each) == "shape"):
            data = first(shape, "ClientData")
            box = first(shape, "textbox")
            if box is None or data is None or data.get("ObjectType") == "Note":
                continue
            if words := " ".join(" ".join(box.itertext()).split()):
                yield Block(text=words, section=label)


class _Readers(dict[bytes, Callable[[bytes], str]]):
    """Readers of values: those of cells with the same attributes share one, by these attributes."""

    def __init__(self, strings: dict[bytes, str], numbers: _Numbers) -> None:
        super().__init__()
        self._strings = strings
        self._numbers = numbers

    def __missing__(self, entries: bytes) -> Callable[[bytes], str]:
        named = entries_of(entries)
        kind, style = named.get(b"t", b"n"), named.get(b"s", b"0")
        reader: Callable[[bytes], str] = _OTHERS.get(kind, _one_line)
        if kind == b"s":
            reader = partial(_shared, self._strings)
        elif kind == b"n":
            reader = self._numbers.reader(int(style) if style.isdigit() else 0)
        self[entries] = reader
        return reader


def _shared(strings: dict[bytes, str], value: bytes) -> str:
    return strings.get(value, "")


class _Numbers:
    """Shows numbers in the formats of a workbook's cell styles."""

    def __init__(self, styles: Any, *, is_1904: bool) -> None:
        self._codes = _format_codes(styles)
        self._is_1904 = is_1904

    def reader(self, style: int) -> Callable[[bytes], str]:
        """Returns what shows numbers in a style; words that are no number stay as they are."""
        code = self._codes.get(style)
        return _as_it_is if code is None else lru_cache(_MOST_CACHED)(partial(self._shown, code))

    def _shown(self, code: str, value: bytes) -> str:
        try:
            number = float(value)
        except ValueError:
            return _one_line(value)
        reading: object = number
        is_elapsed = bool(_ELAPSED.search(code))
        if is_elapsed or _DATE_CODES.search(_NO_CODES.sub("", code)):
            reading = _moment(number, is_elapsed=is_elapsed, is_1904=self._is_1904)
        text = in_format(reading, code)
        return plain(reading) if text is None else text


def _as_it_is(value: bytes) -> str:
    """Returns a number as a cell without a format shows it; words that are none as they are."""
    if value.isdigit() and len(value) <= _LONGEST_INTEGER:
        return value.decode()
    try:
        number = float(value)
    except ValueError:
        return _one_line(value)
    return repr(number) if number % 1 else plain(number)


def _moment(number: float, *, is_elapsed: bool, is_1904: bool) -> object:
    """Returns the date, the time or the duration of a serial number, or the number itself."""
    days = number
    if is_1904 and not is_elapsed:
        days += _DAYS_TO_1904
    elif 1 <= number < 60 and not is_elapsed:
        days += 1  # because Excel has a 29th of February 1900
    try:
        since = datetime.timedelta(milliseconds=round(days * _DAY_MS))
        if is_elapsed:
            return since
        moment = _EPOCH + since
    except (OverflowError, ValueError):
        return number
    if number < 0:
        return number
    if days < 1:
        return moment.time()
    return moment.date() if moment.time() == datetime.time() else moment


def _format_codes(styles: Any) -> dict[int, str]:
    """Returns the code of each cell style that shows a number in another way than as it is.

    "[$-F800]" stands for a date that is shown as the reader's language has it.
    """
    if styles is None:
        return {}
    codes = {**dict.fromkeys(_LOCAL_DATES, "[$-F800]d"), 47: "mm:ss.0", **BUILT_IN}
    for element in styles.iter():
        if local(element) == "numFmt" and (element.get("numFmtId") or "").isdecimal():
            codes[int(element.get("numFmtId"))] = element.get("formatCode", "")
    cell_styles = next((each for each in styles.iter() if local(each) == "cellXfs"), ())
    ids = [each.get("numFmtId", "") for each in cell_styles if local(each) == "xf"]
    return {
        style: codes[int(id)]
        for style, id in enumerate(ids)
        if id.isdecimal() and codes.get(int(id), "General").lower() not in ("general", "@", "")
    }


# ------------------------------------------------------------------ patterns


@lru_cache(maxsize=8)
def _cell_pattern(prefix: bytes) -> re.Pattern[bytes]:
    """Returns the pattern of the cells of a sheet whose elements have this prefix.

    Its groups are a cell's column, its other attributes, its value and its inline text. It is
    written for the order that all writers keep: the name first, a formula before its value. Nothing
    in it goes back, which halves its time.
    """
    pattern = rb"""<Pc(?=[\s/>])(?:\ r="([A-Z]{1,3}+)\d{1,7}+")?+([^>]*+)>
        \s*+(?:<Pf(?=[\s/>])[^>]*+>(?:(?<!/>)[^<]*+</Pf>)?+)?+
        \s*+(?:<Pv(?=[\s>])[^>]*+>([^<]*+)</Pv>
            |<Pis>((?:[^<]++|<(?!/Pis>|Pc[\s/>]))*+)</Pis>)?+"""
    return re.compile(pattern.replace(b"P", prefix), re.X)


@lru_cache(maxsize=8)
def _string_pattern(prefix: bytes) -> re.Pattern[bytes]:
    pattern = rb"""<Psi\s*+(?:/>|>(?:<Pt(?:\s[^>]*+)?+>([^<]*+)</Pt></Psi>
        |((?:[^<]++|<(?!/Psi>|Psi[\s/>]))*+)</Psi>))"""
    return re.compile(pattern.replace(b"P", prefix), re.X)


_PREFIX = re.compile(rb"<(?:(\w+):)?(?:sheetData|sst)[\s/>]")
_SHEET_DATA = re.compile(rb"<(?:\w+:)?sheetData[\s/>]")
_ROW = re.compile(rb"<(?:\w+:)?row(?=[\s/>])([^<>]*)>")
_ROW_OF_CELL = re.compile(rb"""<(?:\w+:)?c\s[^<>]*?\br=["'][A-Z]{1,3}(\d{1,7})["']""")
_NO_VALUE = re.compile(
    rb"<(?:\w+:)?c(?=[\s>])([^<>]*)>\s*<(?:\w+:)?f(?=[\s/>])[^<>]*>(?:(?<!/>)[^<]*</(?:\w+:)?f>)?"
    rb"\s*(?:<(?:\w+:)?v\s*(?:/>|></(?:\w+:)?v>)\s*)?</"
)
_MERGED = re.compile(rb'<(?:\w+:)?mergeCell\s+ref="([A-Z]{1,3})(\d{1,7}):([A-Z]{1,3})(\d{1,7})"')
_HEADS = re.compile(rb"<(?:\w+:)?(?:odd|even|first)(?:Header|Footer)>([^<]+)<")
# Codes of a margin: fonts, colours, positions, and the page's own numbers.
_HEAD_CODE = re.compile(rb'&amp;(?:(?:"|&quot;).*?(?:"|&quot;)|\d+|K[0-9A-F]{6}|[A-Za-z])')
_OBJECTS = re.compile(rb"<(?:\w+:)?(?:oleObject|control)\s([^<>]*)>")
_CHOICES = re.compile(rb"<(?:\w+:)?formula1>(?:\"|&quot;)([^<]*?)(?:\"|&quot;)</")
_VALIDATION = re.compile(rb"<(?:\w+:)?dataValidation\s([^<>]*)>")
_CONTROL = re.compile(rb'ObjectType="(?!Note")')


def _prefix(content: bytes) -> bytes:
    match = _PREFIX.search(content)
    return match[1] + b":" if match and match[1] else b""


def _bounds(content: bytes) -> tuple[int, int]:
    """Returns where the cells of a sheet begin and end."""
    match = _SHEET_DATA.search(content)
    if match is None:
        return 0, 0
    if content[match.end() - 1 : match.end() + 1] == b"/>":
        return match.end(), match.end()
    end = content.rfind(b"sheetData>", match.end())
    return match.start(), len(content) if end < 0 else end


def _named(entries: bytes) -> tuple[bytes, bytes]:
    """Returns the letters of a cell's column, b"" for none, and its attributes without its name."""
    if b"r" not in entries:
        return b"", entries
    named = entries_of(entries)
    match = _CELL_NAME.fullmatch(named.pop(b"r", b""))
    rest = b" ".join(b'%s="%s"' % pair for pair in named.items())
    return (match[1] if match else b""), rest


def _row_number(part: bytes, before: int) -> int:
    """Returns the number of the row that ends a part of a sheet, from 0."""
    if match := _ROW_OF_CELL.search(part):
        return int(match[1]) - 1
    for entries in _ROW.findall(part):
        name = entries_of(entries).get(b"r", b"")
        before = int(name) - 1 if name.isdigit() else before + 1
    return before


def _column(letters: bytes) -> int:
    """ "B" → 1"""
    column = 0
    for letter in letters:
        column = column * 26 + letter - ord("A") + 1
    return column - 1


def _merged(tail: bytes) -> list[Range]:
    return [
        ((int(top) - 1, _column(begin)), (int(bottom) - 1, _column(end)))
        for begin, top, end, bottom in _MERGED.findall(tail)
    ]


def _hints(tail: bytes) -> Iterator[tuple[str, str]]:
    """Yields the hints that cells show when they are selected, with the cells."""
    for tag in _VALIDATION.findall(tail):
        entries = entries_of(tag)
        parts = (_words(entries.get(name, b"")) for name in (b"promptTitle", b"prompt"))
        if words := ": ".join(filter(None, parts)):
            cells = _words(entries.get(b"sqref", b"")).split()
            yield cells[0] if cells else "A1", f"Hint: {words}"


# ------------------------------------------------------------------ texts


def _words(data: bytes) -> str:
    """Returns the text of some XML without elements, and without the escapes of workbooks."""
    text = unescaped(data)
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text) if "_x" in text else text


def _strings(content: bytes) -> dict[bytes, str]:
    """Returns the texts that cells refer to, each on one line, by their numbers in digits."""
    pattern = _string_pattern(_prefix(content))
    return {
        b"%d" % number: " ".join(_words(plain or _rich_bytes(rich)).split())
        for number, (plain, rich) in enumerate(pattern.findall(content))
    }


def _rich_bytes(content: bytes) -> bytes:
    """Returns the text of rich text without its readings."""
    return b"".join(match[1] or b"" for match in _RICH.finditer(content))


def _rich_text(element: Any) -> str:
    stack, parts = [element], []
    while stack:
        each = stack.pop()
        if local(each) == "t":
            parts.append(own_text(each))
        elif local(each) != "rPh":
            stack += reversed(each)
    return "".join(parts)


def _inline_text(content: bytes) -> str:
    return _one_line(_rich_bytes(content))


def _one_line(value: bytes) -> str:
    return " ".join(_words(value).split())


def _date(value: bytes) -> str:
    return _one_line(value).replace("T", " ").removesuffix(" 00:00:00")


def _switch(value: bytes) -> str:
    return "FALSE" if value == b"0" else "TRUE"


# How the values of cells that are no numbers are read, by the types of the cells.
_OTHERS = {b"b": _switch, b"d": _date}


def _comment(author: str, words: str) -> str:
    return f"Comment by {author}: {words.strip()}" if author else f"Comment: {words.strip()}"


def _people(root: Any) -> dict[str, str]:
    """Returns the names of those who comment, by id."""
    return {
        each.get("id", ""): each.get("displayName", "")
        for each in (root if root is not None else ())
        if local(each) == "person"
    }


def _relation(sheet: Any) -> str:
    """Returns the id of the relation to a sheet's part; its own ids have other names."""
    named = (value for key, value in sheet.attrib.items() if key.endswith("}id"))
    return next(named, "")


def _anchors(root: Any) -> Iterator[Any]:
    """Yields the places at which a sheet's drawings are, with one of several alternatives."""
    for each in root:
        if name_of(each) == "mc:AlternateContent":
            yield from alternative(each)
        elif isinstance(each.tag, str):
            yield each


def _corner(anchor: Any) -> str | None:
    """Returns the name of the cell at a drawing's upper left corner; None without one."""
    place = next(iter(children(anchor, "from")), None)
    numbers = (
        [own_text(each) for name in ("row", "col") for each in children(place, name)]
        if (place is not None)
        else []
    )
    if len(numbers) != 2 or not all(each.isdecimal() and len(each) < 8 for each in numbers):
        return None
    return cell_name(int(numbers[0]), int(numbers[1]))
