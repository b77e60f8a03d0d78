"""Resolves Word's styles and lists: a paragraph's level, its number, and whether it is hidden."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from kbproc.engine.sources.parse.ooxml import child, is_on, name_of, value
from kbproc.engine.sources.parse.packed import attribute

_DEEPEST = 20
_LEVELS = 9
# Word writes English names for its own styles; other programs may translate them.
_HEADING = re.compile(
    r"(?:heading|überschrift|titre|título|encabezado|titolo|kop|rubrik|overskrift|nagłówek"
    r"|nadpis|заголовок|başlık|otsikko|címsor|見出し|标题|標題|제목)\s*([1-9])$",
    re.I,
)
_TITLES = frozenset(
    (
        *("title", "titel", "titre", "título", "titolo", "название", "rubrik", "tittel", "tytuł"),
        *("název", "表題", "标题", "標題", "제목"),
    )
)
_PLACE = re.compile(r"%([1-9])")
_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l")),
    *((40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)


class Styles:
    """The styles of a document, by id."""

    def __init__(self, root: Any) -> None:
        self._styles: dict[str, Any] = {}
        self._default: str | None = None
        for style in root if root is not None else ():
            if name_of(style) != "w:style":
                continue
            key = attribute(style, "styleId") or ""
            self._styles.setdefault(key, style)
            is_default = attribute(style, "default") in ("1", "true", "on")
            if is_default and attribute(style, "type") == "paragraph":
                self._default = self._default or key
        self._chains: dict[str | None, list[tuple[str, Any]]] = {}

    def chain(self, key: str | None) -> list[tuple[str, Any]]:
        """Returns the style with this id, and the styles that it inherits from."""
        if key not in self._chains:
            chain: list[tuple[str, Any]] = []
            style_id = key if key in self._styles else self._default
            visited: set[str] = set()
            while style_id in self._styles and style_id not in visited and len(chain) < _DEEPEST:
                visited.add(style_id)
                style = self._styles[style_id]
                chain.append((style_id, style))
                style_id = value(style, "w:basedOn")
            self._chains[key] = chain
        return self._chains[key]

    def name(self, key: str | None) -> str:
        chain = self.chain(key)
        return (value(chain[0][1], "w:name") or "") if chain else ""

    def is_title(self, key: str | None) -> bool:
        return any(
            (value(style, "w:name") or "").strip().lower() in _TITLES
            for _, style in self.chain(key)
        )

    def level(self, properties: Any) -> int | None:
        """Returns the level of a heading, from 1; None for other paragraphs."""
        level = value(properties, "w:outlineLvl")
        if level is None:
            for _, style in self.chain(value(properties, "w:pStyle")):
                level = value(style, "w:pPr", "w:outlineLvl")
                if level is not None:
                    break
                heading = _HEADING.match((value(style, "w:name") or "").strip())
                if heading:
                    return int(heading[1])
        number = _number(level)
        return number + 1 if number is not None and 0 <= number < _LEVELS else None

    def is_hidden(self, key: str | None) -> bool:
        """Returns True if the style hides its text; `key` None stands for no style."""
        if key not in self._styles:
            return False
        for _, style in self.chain(key):
            if child(style, "w:rPr", "w:vanish") is not None:
                return is_on(style, "w:rPr", "w:vanish")
        return False

    def list_of(self, properties: Any) -> tuple[str, int | None, list[str]] | None:
        """Returns a paragraph's list: its id, its level, and the styles that may name the level."""
        level = _number(value(properties, "w:numPr", "w:ilvl"))
        key = value(properties, "w:numPr", "w:numId")
        if key is not None:
            return key, level, []
        chain = self.chain(value(properties, "w:pStyle"))
        for _, style in chain:
            if level is None:
                level = _number(value(style, "w:pPr", "w:numPr", "w:ilvl"))
            key = value(style, "w:pPr", "w:numPr", "w:numId")
            if key is not None:
                return key, level, [style_id for style_id, _ in chain]
        return None

    def linked_list(self, key: str) -> str | None:
        """Returns the id of the list that a list's style names."""
        style = self._styles.get(key)
        return None if style is None else value(style, "w:pPr", "w:numPr", "w:numId")


class _ListLevel(NamedTuple):
    start: int
    format: str
    text: str
    restart: int | None
    style: str | None
    is_legal: bool


class Lists:
    """The numbered lists of a document, and the current number of each."""

    def __init__(self, root: Any, styles: Styles) -> None:
        self._styles = styles
        self._kinds: dict[str, dict[int, _ListLevel]] = {}
        self._links: dict[str, str] = {}
        self._lists: dict[str, Any] = {}
        self._counts: dict[str, list[int | None]] = {}
        self._changed: dict[str, dict[int, _ListLevel]] = {}
        self._started: set[tuple[str, int]] = set()
        for element in root if root is not None else ():
            if name_of(element) == "w:abstractNum":
                key = attribute(element, "abstractNumId") or ""
                self._kinds[key] = _levels(element)
                link = value(element, "w:numStyleLink")
                if link:
                    self._links[key] = link
            elif name_of(element) == "w:num":
                self._lists[attribute(element, "numId") or ""] = element

    def label(self, properties: Any) -> str:
        """Returns the number before this paragraph: "2.1", "(a)", "-" for a bullet, or ""."""
        membership = self._styles.list_of(properties)
        if membership is None:
            return ""
        key, level, styles = membership
        kind = self._kind(key)
        if kind is None:
            return ""
        levels = self._with_changes(key, self._kinds.get(kind, {}))
        by_style = {each.style: number for number, each in levels.items()}
        level = next((by_style[style] for style in styles if style in by_style), level)
        level = level or 0
        if level not in levels:
            return ""
        if levels[level].format == "bullet":
            return "-"
        counts = self._count(key, kind, level, levels)
        return _written(levels, level, counts)

    def _kind(self, key: str) -> str | None:
        for _ in range(_DEEPEST):
            entry = self._lists.get(key)
            kind = None if entry is None else value(entry, "w:abstractNumId")
            if kind is None or kind not in self._links:
                return kind
            key = self._styles.linked_list(self._links[kind]) or ""
        return None

    def _with_changes(self, key: str, levels: dict[int, _ListLevel]) -> dict[int, _ListLevel]:
        if key not in self._changed:
            self._changed[key] = levels | {
                number: _level(element)
                for change in self._lists[key]
                if name_of(change) == "w:lvlOverride"
                and (element := child(change, "w:lvl")) is not None
                if (number := _number(attribute(change, "ilvl"))) is not None
                and 0 <= number < _LEVELS
            }
        return self._changed[key]

    def _count(
        self, key: str, kind: str, level: int, levels: dict[int, _ListLevel]
    ) -> list[int | None]:
        counts = self._counts.setdefault(kind, [None] * _LEVELS)
        first = None if (key, level) in self._started else self._first(key, level)
        before = counts[level]
        if first is not None:
            counts[level] = first
        else:
            counts[level] = levels[level].start if before is None else before + 1
        self._started.add((key, level))
        for other, settings in levels.items():
            if other < level and counts[other] is None:
                counts[other] = settings.start
            elif other > level and (settings.restart is None or 0 < level + 1 <= settings.restart):
                counts[other] = None
        return counts

    def _first(self, key: str, level: int) -> int | None:
        """Returns the number with which this list starts the level again, or None."""
        for change in self._lists[key]:
            if name_of(change) == "w:lvlOverride" and attribute(change, "ilvl") == str(level):
                return _number(value(change, "w:startOverride"))
        return None


def _levels(abstract: Any) -> dict[int, _ListLevel]:
    levels = {}
    for element in abstract:
        if name_of(element) == "w:lvl":
            number = _number(attribute(element, "ilvl"))
            if number is not None and 0 <= number < _LEVELS:
                levels[number] = _level(element)
    return levels


def _level(element: Any) -> _ListLevel:
    start = _number(value(element, "w:start"))
    return _ListLevel(
        start=0 if start is None else start,
        format=value(element, "w:numFmt") or "decimal",
        text=value(element, "w:lvlText") or "",
        restart=_number(value(element, "w:lvlRestart")),
        style=value(element, "w:pStyle"),
        is_legal=is_on(element, "w:isLgl"),
    )


def _written(levels: dict[int, _ListLevel], level: int, counts: list[int | None]) -> str:
    def number(match: re.Match[str]) -> str:
        at = int(match[1]) - 1
        count = counts[at]
        if count is None or at not in levels:
            return ""
        legal = levels[level].is_legal and at != level
        return in_format(count, "decimal" if legal else levels[at].format)

    return _PLACE.sub(number, levels[level].text).strip()


def in_format(count: int, format: str) -> str:
    """Writes a number as Word does: in_format(4, "upperRoman") → "IV"; unknown formats: decimal."""
    if format == "none":
        return ""
    if format in ("lowerLetter", "upperLetter") and 0 < count < 1000:
        letter = chr(ord("a") + (count - 1) % 26) * ((count - 1) // 26 + 1)
        return letter if format == "lowerLetter" else letter.upper()
    if format in ("lowerRoman", "upperRoman") and 0 < count < 10_000:
        roman = ""
        for size, letters in _ROMAN:
            roman += letters * (count // size)
            count %= size
        return roman if format == "lowerRoman" else roman.upper()
    if format == "decimalZero":
        return f"{count:02}"
    if format == "ordinal":
        tens = 10 < count % 100 < 14
        return f"{count}{'th' if tens else {1: 'st', 2: 'nd', 3: 'rd'}.get(count % 10, 'th')}"
    return str(count)


def _number(text: str | None) -> int | None:
    try:
        number = int(text or "")
    except ValueError:
        return None
    return number if abs(number) < 1 << 31 else None
