"""Reads the text of a Word document as Word shows it with all changes accepted.

Some elements are text, some only wrap it, and others are left out and counted as unread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from kbproc.engine.sources.parse.drawing import Drawings
from kbproc.engine.sources.parse.ooxml import (
    Archive,
    alternative,
    child,
    chosen,
    descendants,
    is_on,
    name_of,
    own_text,
    value,
)
from kbproc.engine.sources.parse.packed import attribute
from kbproc.engine.sources.parse.word_styles import Lists, Styles, in_format

_DELETED = frozenset({"w:del", "w:moveFrom", "w14:conflictDel"})
# Settings, and the text of deletions and of fields' instructions.
_SILENT = frozenset(
    (
        *("w:pPr", "w:rPr", "w:tblPr", "w:tblGrid", "w:trPr", "w:tcPr", "w:sectPr", "w:sdtPr"),
        *("w:sdtEndPr", "w:instrText", "w:delText", "w:delInstrText"),
        *("w:customXmlPr", "w:smartTagPr", "w:fldData", "w:numberingChange"),
        *("w:softHyphen",),
    )
)
_CHARACTERS = {"w:tab": "\t", "w:ptab": "\t", "w:br": "\n", "w:cr": "\n", "w:noBreakHyphen": "-"}
_SIGNS = {"m:den": "/", "m:sup": "^", "m:sub": "_", "m:rad": "√"}
_DROPPED = ("drop", "margin")
_SYMBOLS = dict(
    zip(
        range(0x41, 0x5B),
        "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ",
        strict=True,
    )
)
_SYMBOLS |= dict(zip(range(0x61, 0x7B), "αβχδεφγηιϕκλμνοπθρστυϖωξψζ", strict=True))
_SYMBOLS |= dict(
    zip(
        bytes.fromhex("a2a3a5abacadaeafb0b1b3b4b6b7b8b9babbc5c6c7c8cecfd0d1d2d3d4d5d6d7dedcf2e5"),
        "′≤∞↔←↑→↓°±≥×∂•÷≠≡≈⊕∅∩∪∈∉∠∇®©™∏√⋅⇒⇐∫∑",
        strict=True,
    )
)
_WINGDINGS = dict(
    zip(
        bytes.fromhex("fcfbfefda86f6e6ca7d876e0dfe1e2f0"),
        "✓✗☑☒◻☐■●▪➢❖→←↑↓⇨",
        strict=True,
    )
)


class Paragraph(msgspec.Struct):
    """A paragraph or, with `is_table`, a table; `label` is its number, or "-" for a bullet."""

    text: str
    label: str = ""
    style: str | None = None
    level: int | None = None
    is_table: bool = False


class Body:
    """Reads the paragraphs of a document; `unread` counts by kind the content left out."""

    def __init__(self, archive: Archive) -> None:
        self.unread: Counter[str] = Counter()
        self._drawings = Drawings(archive, self.unread)
        self._archive = archive
        self._links = archive.links_by_id(archive.main)
        self.styles = Styles(self._part("styles"))
        self._lists = Lists(self._part("numbering"), self.styles)
        self._notes = {
            "w:footnoteReference": _by_id(self._part("footnotes")),
            "w:endnoteReference": _by_id(self._part("endnotes")),
        }
        self._note_counts: Counter[str] = Counter()
        comments = self._part("comments")
        if comments is not None:
            self.unread["comments"] = sum(_has_text(each) for each in comments)
        margins = [
            link.target for link in self._links.values() if link.kind in ("header", "footer")
        ]
        roots = [archive.optional(target) for target in dict.fromkeys(margins)]
        self.unread["headers_and_footers"] = sum(
            root is not None and _has_text(root) for root in roots
        )

    def read(self, root: Any) -> list[Paragraph]:
        """Returns the paragraphs and tables of the main part, in order."""
        return _Story(self, root).paragraphs(root)

    def _part(self, kind: str) -> Any:
        targets = (link.target for link in self._links.values() if link.kind == kind)
        return self._archive.optional(next(targets, None))

    def label(self, properties: Any) -> str:
        return self._lists.label(properties) if properties is not None else ""

    def note(self, reference: Any) -> list[str]:
        """Returns a footnote's or endnote's text, with the number that Word gives it."""
        kind = name_of(reference)
        note = self._notes[kind].pop(attribute(reference, "id") or "", None)
        if note is None:
            return []
        self._note_counts[kind] += 1
        style = "lowerRoman" if kind == "w:endnoteReference" else "decimal"
        texts = [each.text for each in _Story(self, note).paragraphs(note)]
        text = "\n".join(part.strip() for part in texts if part.strip())
        return [f"[{in_format(self._note_counts[kind], style)}] {text}"] if text else []

    def drawing(self, element: Any) -> str:
        """Returns the text of a drawing outside its text boxes; see `Drawings.texts`."""
        return " ".join(self._drawings.texts(element, self._links))


class _Story:
    """Reads the text of one part.

    It has a state, because fields and joined paragraphs may reach over several paragraphs.
    """

    def __init__(self, body: Body, root: Any) -> None:
        self._body = body
        self._field_ends = _matched_fields(root)
        self._in_code: list[bool] = []
        self._joined: list[str] = []
        self._is_hidden = False

    def paragraphs(self, container: Any) -> list[Paragraph]:
        return [paragraph for element in container for paragraph in self._block(element)]

    def _block(self, element: Any) -> Iterator[Paragraph]:
        name = name_of(element)
        if name == "w:p":
            yield from self._paragraph(element)
        elif name == "w:tbl":
            yield from self._table(element)
        elif name in ("w:altChunk", "w:subDoc"):
            self._body.unread["objects"] += 1
        elif name == "mc:AlternateContent":
            for each in alternative(element):
                yield from self._block(each)
        elif name in ("m:oMath", "m:oMathPara", "w:r"):
            behind: list[Paragraph] = []
            yield Paragraph(text=self._inline(element, behind, hidden=False))
            yield from behind
        elif name and name not in _SILENT | _DELETED:
            for each in element:
                yield from self._block(each)

    def _paragraph(self, element: Any) -> Iterator[Paragraph]:
        properties = child(element, "w:pPr")
        style = value(properties, "w:pStyle")
        behind: list[Paragraph] = []
        self._is_hidden = False
        hidden = self._body.styles.is_hidden(style)
        text = "".join(self._inline(each, behind, hidden) for each in element)
        mark = child(properties, "w:rPr")
        deleted = child(mark, "w:del") is not None or child(mark, "w:moveFrom") is not None
        frame = child(properties, "w:framePr")
        dropped = frame is not None and attribute(frame, "dropCap") in _DROPPED
        follows = element.getnext() is not None and name_of(element.getnext()) == "w:p"
        self._joined.append(text)
        if not ((deleted or dropped) and follows):
            text = "".join(self._joined)
            self._joined = []
            # A paragraph of which nothing is visible does not use up a number.
            is_blank = not text.strip() and (deleted or hidden or is_on(mark, "w:vanish"))
            label = "" if is_blank else self._body.label(properties)
            level = self._body.styles.level(properties)
            yield Paragraph(text=text, label=label, style=style, level=level)
        yield from behind

    def _inline(self, element: Any, behind: list[Paragraph], hidden: bool) -> str:
        """Returns the text of an element in a paragraph; adds notes and text boxes to `behind`."""
        name = name_of(element)
        if not name or name in _SILENT or name in _DELETED:
            return ""
        if name == "w:r":
            hidden = self._hides(element, hidden)
        if name == "w:fldChar":
            return self._field(element)
        if any(self._in_code):
            return "".join(self._inline(each, behind, hidden) for each in element)
        if name in ("w:t", "m:t"):
            return self._shown(own_text(element), hidden)
        if name in _CHARACTERS:
            return self._shown(_CHARACTERS[name], hidden)
        if name == "w:sym":
            return self._shown(_symbol(element), hidden)
        if name in ("w:footnoteReference", "w:endnoteReference"):
            behind += (Paragraph(text=text) for text in self._body.note(element))
            return ""
        if name in ("w:drawing", "w:pict", "w:object"):
            return self._drawing(element, behind)
        text = "".join(self._inline(each, behind, hidden) for each in _children(element, name))
        return _in_signs(element, name, text) if text else text

    def _hides(self, run: Any, hidden: bool) -> bool:
        properties = child(run, "w:rPr")
        if properties is None:
            return hidden
        if child(properties, "w:vanish") is not None:
            return is_on(properties, "w:vanish")
        return hidden or self._body.styles.is_hidden(value(properties, "w:rStyle"))

    def _shown(self, text: str, hidden: bool) -> str:
        if hidden and text.strip() and not self._is_hidden:
            self._body.unread["hidden_passages"] += 1
        if text.strip():
            self._is_hidden = hidden
        return "" if hidden else text

    def _field(self, element: Any) -> str:
        """Tracks a field's begin, result and end; returns the text that a form's field shows."""
        kind = attribute(element, "fldCharType")
        if kind == "begin" and element in self._field_ends:
            self._in_code.append(True)
            outer = any(self._in_code[:-1])
            return "" if outer else _form_field(child(element, "w:ffData"))
        if kind == "separate" and self._in_code:
            self._in_code[-1] = False
        elif kind == "end" and self._in_code and element in self._field_ends:
            self._in_code.pop()
        return ""

    def _drawing(self, element: Any, behind: list[Paragraph]) -> str:
        for box in _outermost(element, "w:txbxContent"):
            outer = self._joined, self._is_hidden
            self._joined = []
            behind += self.paragraphs(box)
            self._joined, self._is_hidden = outer
        return self._body.drawing(element)

    def _table(self, table: Any) -> Iterator[Paragraph]:
        """Yields a table with a line for each row; breaks within a cell become spaces."""
        rows = []
        for row in _within(table, "w:tr"):
            properties = child(row, "w:trPr")
            if child(properties, "w:del") is not None:
                continue
            cells = [self._cell(cell) for cell in _within(row, "w:tc")]
            if is_on(properties, "w:hidden"):
                self._body.unread["hidden_passages"] += 1
            else:
                rows.append(" | ".join(cells))
        yield Paragraph(text="\n".join(row for row in rows if row.strip(" |")), is_table=True)

    def _cell(self, cell: Any) -> str:
        if child(cell, "w:tcPr", "w:cellDel") is not None:
            return ""
        texts = (
            f"{each.label} {each.text}" if each.label and each.text.strip() else each.text
            for each in self.paragraphs(cell)
        )
        return " ".join(" ".join(texts).split())


def _matched_fields(root: Any) -> set[Any]:
    """Returns the first and last marks of fields that have both.

    A field without an end is left out, so that it hides no text. Marks in text that is not read
    are ignored, because a field may end in a deletion.
    """
    marks: set[Any] = set()
    open_marks: list[Any] = []
    for mark in descendants(root, "w:fldChar"):
        kind = attribute(mark, "fldCharType")
        if kind not in ("begin", "end") or any(map(_is_passed_over, mark.iterancestors())):
            continue
        if kind == "begin":
            open_marks.append(mark)
        elif open_marks:
            marks |= {open_marks.pop(), mark}
    return marks


def _is_passed_over(element: Any) -> bool:
    """Returns True if the element's text is not read: it is deleted, or the unused alternative."""
    name = name_of(element)
    if name in ("mc:Choice", "mc:Fallback"):
        return element is not chosen(element.getparent())
    return name in _DELETED or (name == "w:tr" and child(element, "w:trPr", "w:del") is not None)


def _outermost(element: Any, name: str) -> Iterator[Any]:
    """Yields the descendants of a name that lie in no other of them, nor in a fallback."""
    for each in alternative(element) if name_of(element) == "mc:AlternateContent" else element:
        if name_of(each) == name:
            yield each
        else:
            yield from _outermost(each, name)


def _within(element: Any, name: str) -> Iterator[Any]:
    """Yields a table's rows or a row's cells, also those inside of controls and insertions."""
    for each in element:
        if name_of(each) == name:
            yield each
        elif name_of(each) and name_of(each) not in _SILENT | _DELETED | {"w:tbl", "w:p"}:
            yield from _within(each, name)


def _by_id(root: Any) -> dict[str, Any]:
    return {
        attribute(note, "id") or "": note
        for note in (root if root is not None else ())
        if name_of(note) in ("w:footnote", "w:endnote")
        and attribute(note, "type") in (None, "normal")
    }


def _has_text(element: Any) -> bool:
    return any(own_text(each).strip() for each in descendants(element, "w:t"))


def _children(element: Any, name: str) -> Any:
    if name == "mc:AlternateContent":
        return alternative(element)
    if name == "w:ruby":  # the file has the reading before the word, the text has it behind
        return sorted(element, key=lambda each: name_of(each) == "w:rt")
    return element


def _in_signs(element: Any, name: str, text: str) -> str:
    """Returns the text with the signs that belong to a part of an equation or a reading."""
    if name == "w:rt":
        return f"({text})"
    if name == "m:d":
        signs = child(element, "m:dPr")
        begin, end = value(signs, "m:begChr"), value(signs, "m:endChr")
        return f"{'(' if begin is None else begin}{text}{')' if end is None else end}"
    if name == "m:nary":
        return (value(element, "m:naryPr", "m:chr") or "∫") + text
    return _SIGNS.get(name, "") + text


def _symbol(element: Any) -> str:
    """Returns the character of a symbol font, in Unicode if that has it."""
    try:
        code = int(attribute(element, "char") or "", 16)
    except ValueError:
        return ""
    font = (attribute(element, "font") or "").lower()
    if not 0 <= code < 0x110000 or 0xD800 <= code < 0xE000:
        return ""
    if 0xF000 <= code <= 0xF0FF:
        code -= 0xF000
    if font == "symbol":
        return _SYMBOLS.get(code, chr(code))
    if font.startswith(("wingdings", "webdings")):
        return _WINGDINGS.get(code, "•")
    return chr(code)


def _form_field(data: Any) -> str:
    """Returns the mark of a check box or the entry of a list; "" for fields with a result."""
    box = child(data, "w:checkBox")
    if box is not None:
        switch = "w:checked" if child(box, "w:checked") is not None else "w:default"
        return "☒" if is_on(box, switch) else "☐"
    choices = child(data, "w:ddList")
    if choices is None:
        return ""
    entries = [attribute(each, "val") or "" for each in choices if name_of(each) == "w:listEntry"]
    picked = value(choices, "w:result") or value(choices, "w:default") or "0"
    is_index = picked.isdecimal() and len(picked) < 5
    return entries[int(picked)] if is_index and int(picked) < len(entries) else ""
