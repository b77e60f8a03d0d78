"""Reads spreadsheets of OpenDocument (ODS): cells as they are shown, comments, shapes and charts.

As in workbook.py, the cells are found by patterns. A cell that holds more than one plain paragraph
is read as a tree.
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from kbproc.base.errors import KbprocError
from kbproc.engine.sources.parse import odf, packed
from kbproc.engine.sources.parse.blocks import Block
from kbproc.engine.sources.parse.grid import Grid, Row, cell_name
from kbproc.engine.sources.parse.packed import entries_of, local

_CONTENT = "content.xml"
_NAMESPACE = re.compile(rb'xmlns:([\w.-]+)="([^"]*)"')
_TABLE, _TEXT, _STYLE = (
    b"urn:oasis:names:tc:opendocument:xmlns:%s:1.0" % name for name in (b"table", b"text", b"style")
)
# A repeated row or cell may claim any number; its text is repeated as often as a screen shows it.
_MOST_REPEATED = 100
# The values of a cell that has no paragraph to show.
_VALUES = (b"string-value", b"date-value", b"time-value", b"boolean-value", b"value")


# Nothing in the pattern goes back, which halves its time.
_CELL = rb"""<TABLE:(covered-)?+table-cell(?=[\s/>])([^>"]*+(?:"[^"]*+"[^>"]*+)*+)>
    (?:(?<!/>)(?:
        <TEXT:p(?:\s[^>]*+)?+>([^<]*+)</TEXT:p>\s*+</TABLE:(?:covered-)?+table-cell>
        |((?:[^<]++|<(?!/TABLE:(?:covered-)?+table-cell>))*+)
    ))?+"""


class OdsSheet(NamedTuple):
    """A sheet and where its table begins and ends in the content."""

    name: str
    is_hidden: bool
    begin: int
    end: int


class OdsBook:
    """An ODS archive; `unread` counts what its sheets hold and is not read.

    Raises `operation.failed` for a content that is no whole XML.
    """

    def __init__(self, opened: zipfile.ZipFile, name: str) -> None:
        self.unread: Counter[str] = Counter()
        self._skipped = odf.Skipped(opened, self.unread)
        self._content = packed.plain_xml(_read(opened, name))
        declared = _NAMESPACE.findall(self._content[: self._content.find(b"body") + 1])
        self._names = b" ".join(b'xmlns:%s="%s"' % pair for pair in dict(declared).items())
        prefixes = {uri: prefix for prefix, uri in declared}
        table, text, style = (prefixes.get(uri, b"?") for uri in (_TABLE, _TEXT, _STYLE))
        self._cell = re.compile(
            _CELL.replace(b"TABLE", re.escape(table)).replace(b"TEXT", re.escape(text)), re.X
        )
        self._row = re.compile(rb"<%s:table-row(?=[\s/>])([^<>]*)>" % re.escape(table))
        self._row_end = b"</%s:table-row>" % table
        self._edges = re.compile(rb"<(/?)%s:table(?=[\s/>])([^<>]*)>" % re.escape(table))
        self._shapes = re.compile(
            rb"<%(table)s:shapes>((?:[^<]++|<(?!/?%(table)s:shapes>))*+)</%(table)s:shapes>"
            % {b"table": re.escape(table)}
        )
        self._changes = re.compile(rb"<%s:(?:deletion|cell-content-change)[\s>]" % re.escape(table))
        hidden = re.compile(
            rb'<%(style)s:style\s(?:[^<>]*\s)?%(style)s:name="([^"]*)"[^<>]*><%(style)s:table-properties'
            rb'\s[^<>]*display="false"' % {b"style": re.escape(style)}
        )
        self._hidden_styles = set(hidden.findall(self._content))
        self.sheets = list(self._listed(name))
        start = self._edges.search(self._content)
        above = self._content[: start.start()] if start else b""
        self.unread["deleted_passages"] += len(self._changes.findall(above))
        self._beside: dict[OdsSheet, list[tuple[str, str]]] = {}

    def _listed(self, book: str) -> Iterator[OdsSheet]:
        """Yields the sheets; a table within a cell is no sheet."""
        depth = 0
        entries: dict[bytes, bytes] = {}
        begin = 0
        for match in self._edges.finditer(self._content):
            is_end = bool(match[1])
            if not is_end and match[2].endswith(b"/"):
                continue
            depth += -1 if is_end else 1
            if depth == 1 and not is_end:
                entries, begin = entries_of(match[2]), match.end()
            elif depth == 0:
                name = packed.unescaped(entries.get(b"name", b""))
                is_hidden = entries.get(b"style-name") in self._hidden_styles
                yield OdsSheet(name, is_hidden, begin, match.start())
        if depth:
            message = f"{book} is damaged at {_CONTENT}: a table has no end."
            raise KbprocError("operation.failed", message)

    def read(self, sheet: OdsSheet, grid: Grid) -> None:
        """Reads the cells of a sheet into the grid; counts formulas without a value."""
        beside = self._beside.setdefault(sheet, [])
        for shapes in self._shapes.findall(self._content, sheet.begin, sheet.end):
            for shape in self._tree(shapes):
                beside += [("", words) for words in [odf.words_of(shape, self._skipped)] if words]
        number = 0
        for part in self._content[sheet.begin : sheet.end].split(self._row_end):
            cells: Row = {}
            column = 0
            for covered, entries, plain, rich in self._cell.findall(part):
                if plain:
                    text = packed.unescaped(plain) if b"&" in plain else plain.decode()
                    text = " ".join(text.split())
                elif rich or b"value" in entries or b"formula" in entries:
                    text = self._rich(rich, cell_name(number, column), beside) if rich else ""
                    text = text or self._value(entries)
                else:
                    text = ""
                if text and covered:
                    self.unread["hidden_passages"] += 1
                elif text:
                    cells[column] = text
                if b"s-" not in entries:  # neither repeated nor spanned
                    column += 1
                    continue
                times = _number(entries, b"columns-repeated")
                for place in range(column + 1, column + min(times, _MOST_REPEATED) if text else 0):
                    cells[place] = text
                bottom = number + _number(entries, b"rows-spanned") - 1
                right = column + _number(entries, b"columns-spanned") - 1
                if text and (bottom, right) != (number, column):
                    grid.merged.append(((number, column), (bottom, right)))
                column += times
            number = self._add_row(grid, number, part, cells)

    def _add_row(self, grid: Grid, number: int, part: bytes, cells: Row) -> int:
        """Adds the last row of a part as often as it is repeated; returns the number of the next.

        Rows above it that are written as one element hold nothing.
        """
        for entries in self._row.findall(part[: part.find(b"-cell")]):
            times = _number(entries, b"rows-repeated")
            if entries.endswith(b"/"):
                number += times
            else:
                for one in range(number, number + min(times, _MOST_REPEATED)):
                    grid.add(one, dict(cells))
                number += times
        return number

    def beside(self, sheet: OdsSheet, label: str) -> Iterator[Block]:
        """Yields what stands beside the cells of a sheet that was read: comments and drawings."""
        for cell, text in self._beside.get(sheet, ()):
            yield Block(text=text, section=f"{label}, {cell}" if cell else label)

    def _tree(self, content: bytes) -> Any:
        """Returns an element that holds a part of the content."""
        return packed.parsed_xml(b"<x %s>%s</x>" % (self._names, content))

    def _rich(self, content: bytes, cell: str, beside: list[tuple[str, str]]) -> str:
        """Returns the text of a cell; its comments and drawings go beside it."""
        lines = []
        for element in self._tree(content):
            if local(element) == "annotation":
                beside.append((cell, _comment(element, self._skipped)))
                continue
            words = odf.words_of(element, self._skipped)
            if local(element) in ("p", "h"):
                lines.append(words)
            elif words:
                beside.append((cell, words))
        return " ".join(filter(None, lines))

    def _value(self, entries: bytes) -> str:
        """Returns the value of a cell without a paragraph; counts a formula that has none."""
        if b"value" not in entries and b"formula" not in entries:
            return ""
        named = entries_of(entries)
        value = next((named[name] for name in _VALUES if named.get(name)), b"")
        self.unread["formulas"] += b"formula" in named and b"value-type" not in named
        return " ".join(packed.unescaped(value).split())


def _read(opened: zipfile.ZipFile, name: str) -> bytes:
    try:
        return opened.read(_CONTENT)
    except packed.BROKEN as error:
        message = f"{name} is damaged at {_CONTENT}: {error}."
        raise KbprocError("operation.failed", message) from error


def _number(entries: bytes, name: bytes) -> int:
    """Returns the number that an attribute with this end of a name has; 1 without one."""
    if name not in entries:
        return 1
    match = re.search(name + rb"""=["'](\d{1,7})["']""", entries)
    return max(1, int(match[1])) if match else 1


def _comment(annotation: Any, skipped: odf.Skipped) -> str:
    author = next((each.text for each in annotation if local(each) == "creator"), None)
    lines = (odf.words_of(each, skipped) for each in annotation)
    words = " ".join(filter(None, lines))
    return f"Comment by {author}: {words}" if author else f"Comment: {words}"
