"""Parses HTML into the page's text in reading order, as a person sees it.

Menus and other furniture are left out and counted, and headings become sections.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Protocol

from kbproc.engine.sources.parse.blocks import Block, Headings, Kind, Parsed, clean_text
from kbproc.engine.sources.parse.nesting import tree_of
from kbproc.engine.sources.parse.page_encoding import decode_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selectolax.lexbor import LexborHTMLParser, LexborNode


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Elements without text for people; they are left out without a count.
_SILENT = _names(
    "script style head title desc link meta base area source track param col colgroup noembed "
    "noframes"
)
FURNITURE = _names("nav footer menu")
_OBJECTS = _names("svg iframe object embed canvas audio video")
_CHOICES = _names("select datalist")
# A browser shows these only without scripts, or when a script asks for it.
_UNSHOWN = _names("noscript template")
BLOCKS = _names(
    "address article aside blockquote body center dd details dialog div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr html legend main menu nav ol optgroup p "
    "pre search section summary table ul xmp"
)
# A person sees a gap around each of these.
BORDERS = BLOCKS | _names(
    "br caption li option td th tr tbody thead tfoot button input label textarea"
)
# All elements that may hold text, also those within a line. Any other tag is not HTML's.
ELEMENTS = BORDERS | _names(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd mark math nobr "
    "picture q rp rt ruby s samp script small source span strike strong style sub sup svg time tt "
    "u var wbr"
)
_AS_WRITTEN = _names("pre xmp")
# Attributes of components that are not HTML's own: these hold words for people. Other attributes
# hold some if they have two words in a row, unless they are for machines.
_CAPTIONS = _names(
    "title subtitle caption label heading header summary description name alt text content message "
    "question answer tooltip aria-label"
)
_FOR_MACHINES = _names(
    "class classname style d points viewbox transform srcset sizes rel allow sandbox items"
)
_WORDS = re.compile(r"[^\W\d_]{2}\s++[^\W\d_]{2}")
_READINGS = _names("rt rp rtc")
_ANNOTATIONS = _names("annotation annotation-xml")
_UNSEEN_INPUTS = _names("hidden password checkbox radio file image color range")
_BLOCK_DISPLAYS = _names("block flex grid table list-item flow-root table-row")
_NO_SIZE = re.compile(r"(?:0++|0*+\.0++)(?:[a-z]+|%)?")
_MAIN_CHARS = 200
_MOST_MAINS = 16
# Cells that span rows are repeated in each of them, within these limits.
_REPEATED_CHARS = 200
_REPEATED_CELLS = 20_000
_MOST_SPANNED = 1000
# Elements that one tag of XML may open and close; HTML would take all that follows for content.
_CLOSED_AT_ONCE = re.compile(r"<(script|style|title|textarea|iframe|noscript)\b([^<>]*)/>", re.I)
# The same of Confluence's pages, which are HTML with elements of their own.
_OF_CONFLUENCE = re.compile(r"<((?:ac|ri):[\w-]++|time)\b([^<>]*)/>", re.I)
# Elements that show an attribute, if there is no text in them.
_SHOWN = {
    "time": "datetime",
    "ri:page": "ri:content-title",
    "ri:blog-post": "ri:content-title",
    "ri:attachment": "ri:filename",
}


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of a page. Raises `input.unsupported_type` for bytes that are not text."""
    decoded = decode_page(data, name)
    text = clean_text(decoded.text)
    if name.lower().endswith(".xhtml") or text.startswith("<?xml"):
        text = _CLOSED_AT_ONCE.sub(r"<\1\2></\1>", text)
    if "<ac:" in text or "<ri:" in text:
        text = _OF_CONFLUENCE.sub(r"<\1\2></\1>", text)
    tree = tree_of(_with_character_data(text))
    body = tree.body or tree.root
    if body is None:
        return Parsed(blocks=[], unread={"replaced_bytes": decoded.replaced})
    root = _main(tree) or body
    page = PageView(without=FURNITURE)
    reader = BlockReader(page, Headings())
    reader.read(root)
    _count_around(page, root, body)
    if not reader.blocks:
        page = PageView()
        reader = BlockReader(page, Headings())
        reader.read(body)
    title = tree.css_first("head title")
    words = title.text() if title and title.text().strip() else reader.first_heading
    if not words:
        heading = body.css_first("h1")
        words = page.words(heading) if heading else None
    unread = {**page.unread, "replaced_bytes": decoded.replaced}
    return Parsed(title=words, blocks=reader.blocks, unread=unread)


def _with_character_data(text: str) -> str:
    """Returns the page with its CDATA sections as text, where HTML takes them for comments."""
    first, *sections = text.split("<![CDATA[")
    parts = [first]
    for section in sections:
        data, _, rest = section.partition("]]>")
        name = "pre" if "\n" in data else "span"
        parts += [f"<{name}>{escape(data, quote=False)}</{name}>", rest]
    return "".join(parts)


def captions(node: LexborNode) -> list[str]:
    """Returns the words for people in the attributes of a component that is not HTML's own."""
    values = {name.lower(): (value or "").strip("{} ") for name, value in node.attributes.items()}
    return [
        value
        for name, value in values.items()
        if (name in _CAPTIONS and any(map(str.isalnum, value)))
        or (name not in _FOR_MACHINES and not name.startswith("on") and _WORDS.search(value))
    ]


def _attribute_words(node: LexborNode, tag: str) -> str:
    """Returns the words of an attribute that is shown in place of text, with a gap around them."""
    if tag not in _SHOWN or holds_words(node):
        return ""
    return f" {node.attributes.get(_SHOWN[tag]) or ''} "


def _main(tree: LexborHTMLParser) -> LexborNode | None:
    """Returns the one part that the page marks as its content, if it holds enough text."""
    marked = tree.css("main, [role=main]")[:_MOST_MAINS]
    large = [node for node in marked if len(PageView().words(node)) >= _MAIN_CHARS]
    # Comparing with the first is enough, because a nested node comes after the one around it.
    if large and all(_is_within(node, large[0]) for node in large[1:]):
        return large[0]
    return None


def _is_within(node: LexborNode, outer: LexborNode) -> bool:
    parent: LexborNode | None = node
    while parent is not None and parent.mem_id != outer.mem_id:
        parent = parent.parent
    return parent is not None


def _count_around(page: PageView, root: LexborNode, body: LexborNode) -> None:
    """Counts the parts of `body` outside of `root` as furniture."""
    while root.mem_id != body.mem_id:
        parent = root.parent
        if parent is None:
            return
        for sibling in children(parent):
            if sibling.mem_id != root.mem_id and not page.leaves_out(sibling, sibling.tag or ""):
                page.count("page_furniture", holds_words(sibling))
        root = parent


class Visitor(Protocol):
    """An object that `PageView.visit` calls for each element and text that a person sees."""

    def enter(self, node: LexborNode, tag: str) -> bool:
        """Handles a node; returns True if its children are to be visited, too."""

    def leave(self, tag: str) -> None:
        """Handles the end of an element of this name, after its children."""


class PageView:
    """The parts of a tree that a person sees; `unread` counts by kind the parts left out."""

    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        self.unread: dict[str, int] = {}
        self.repeatable = _REPEATED_CELLS
        self._furniture = without

    def count(self, kind: str, number: int = 1) -> None:
        if number:
            self.unread[kind] = self.unread.get(kind, 0) + number

    def visit(self, root: LexborNode, visitor: Visitor) -> None:
        """Walks a tree, without recursion because a page may nest deeper than Python's stack."""
        stack: list[tuple[LexborNode, str | None]] = [(root, None)]
        while stack:
            node, leaving = stack.pop()
            if leaving is not None:
                visitor.leave(leaving)
                continue
            tag = node.tag or ""
            if tag != "-text":
                # `root` itself is always read, because some bodies are hidden until a script runs.
                if node is not root and self.leaves_out(node, tag):
                    continue
                if tag not in BORDERS and _is_shown_as_block(node):
                    tag = "div"
            if visitor.enter(node, tag) and tag != "-text":
                stack.append((node, tag))
                stack.extend((child, None) for child in reversed(list(children(node))))

    def words(self, root: LexborNode, without: frozenset[str] = frozenset()) -> str:
        """Returns the visible text of `root` in one line, without the elements in `without`."""
        collector = _VisibleWords(self, without)
        self.visit(root, collector)
        return " ".join("".join(collector.parts).split())

    def leaves_out(self, node: LexborNode, tag: str) -> bool:
        """Returns True if this element's text is left out, and counts it."""
        if tag in _SILENT or tag.startswith(("-", "!")):
            return tag != "-text"
        if tag in self._furniture:
            self.count("page_furniture", holds_words(node))
        elif tag in _OBJECTS:
            self.count("objects", _is_object(node, tag))
        elif tag in _CHOICES:
            self.count("form_choices", sum(holds_words(option) for option in node.css("option")))
        elif tag in _UNSHOWN:
            if tag == "template" and "shadowrootmode" in node.attributes:
                return False
            within = node.template_fragments()[:1] if tag == "template" else [node]
            self.count("hidden_passages", any(map(holds_words, within)))
        elif is_hidden(node, tag):
            # KaTeX writes the same formula as MathML, which is read.
            is_double = "katex-html" in (node.attributes.get("class") or "")
            self.count("hidden_passages", not is_double and holds_words(node))
        else:
            return False
        return True


def children(node: LexborNode) -> Iterator[LexborNode]:
    """Yields the children of a node; for a template with a shadow root, those that it shows."""
    child = node.first_child
    if child is None and node.tag == "template":
        child = next((part.first_child for part in node.template_fragments()[:1]), None)
    while child is not None:
        yield child
        child = child.next


def holds_words(root: LexborNode) -> bool:
    """Returns True if `root` holds a letter or a digit, hidden or not."""
    stack = [root]
    while stack:
        node = stack.pop()
        tag = node.tag or ""
        if tag == "-text":
            if any(map(str.isalnum, node.text_content or "")):
                return True
        elif tag not in _SILENT and not (tag.startswith(("-", "!"))):
            stack.extend(children(node))
    return False


def _is_object(node: LexborNode, tag: str) -> bool:
    """Returns True if a person sees more there than an icon: another file, or words."""
    attributes = node.attributes
    shows_other_file = tag in {"iframe", "object", "embed"}
    if shows_other_file and any(attributes.get(name) for name in ("src", "srcdoc", "data")):
        return True
    return holds_words(node)


def is_hidden(node: LexborNode, tag: str) -> bool:
    """Returns True if attributes or an inline style hide the element."""
    attributes = node.attributes
    if not attributes:
        return tag == "dialog"
    if "hidden" in attributes and (attributes["hidden"] or "").strip().lower() != "until-found":
        return True
    if (attributes.get("aria-hidden") or "").strip().lower() == "true":
        return True
    if tag == "dialog" and "open" not in attributes:
        return True
    return bool(attributes.get("style")) and _hides(node, style(attributes["style"] or ""))


def style(declarations: str) -> dict[str, str]:
    """Returns property → value of an inline style, in lower case; `!important` values win."""
    values: dict[str, str] = {}
    important: dict[str, str] = {}
    for declaration in re.sub(r"/\*.*?(?:\*/|\Z)", "", declarations, flags=re.S).split(";"):
        name, colon, value = declaration.lower().partition(":")
        value, mark, _ = value.partition("!")
        if colon:
            (important if mark else values)[name.strip()] = value.strip()
    return values | important


def _hides(node: LexborNode, values: dict[str, str]) -> bool:
    if values.get("display") == "none" or values.get("visibility") in {"hidden", "collapse"}:
        return True
    if values.get("content-visibility") == "hidden":
        return True
    if _NO_SIZE.fullmatch(values.get("font-size", "")):
        # Pages also use size 0 to close the gaps between elements with a size of their own.
        elements = (child for child in children(node) if child.tag != "-text")
        return not any(child.css_first("[style*=font]") for child in elements)
    if _NO_SIZE.fullmatch(values.get("opacity", "")):
        # An element with one of these is animated, and the animation ends by showing the text.
        return not values.keys() & {"transform", "transition", "animation", "will-change"}
    return False


def _is_shown_as_block(node: LexborNode) -> bool:
    attributes = node.attributes
    declared = attributes.get("style") if attributes else None
    return bool(declared) and style(declared or "").get("display") in _BLOCK_DISPLAYS


def _value(node: LexborNode) -> str:
    attributes = node.attributes
    unseen = (attributes.get("type") or "text").lower() in _UNSEEN_INPUTS
    return "" if unseen else attributes.get("value") or ""


def _ruby(page: PageView, ruby: LexborNode) -> str:
    """Returns the base text with its readings behind it: 漢字(かんじ)."""
    base = page.words(ruby, _READINGS)
    base = re.sub(r"(?<=[^\x00-\x7f]) (?=[^\x00-\x7f])", "", base)
    only_parentheses = frozenset({"rp"})
    # Hidden readings were counted with the base, and are passed over here.
    readings = (
        page.words(reading, only_parentheses)
        for reading in ruby.css("rt, rtc")
        if not (reading.parent and reading.parent.tag == "rtc")
        and not is_hidden(reading, reading.tag or "")
    )
    reading = "".join(readings)
    return f"{base}({reading})" if base and reading else base + reading


def _formula(page: PageView, math: LexborNode) -> str:
    """Returns the formula in TeX if the page has it, else its signs one after the other."""
    tex = math.css_first('annotation[encoding*="tex" i]')
    words = tex.text() if tex else math.attributes.get("alttext")
    return (words or "").strip() or page.words(math, _ANNOTATIONS)


class _VisibleWords:
    """A visitor that collects text in `parts`, with a space for each gap that a person sees."""

    def __init__(self, page: PageView, without: frozenset[str]) -> None:
        self.parts: list[str] = []
        self._page = page
        self._without = without

    def enter(self, node: LexborNode, tag: str) -> bool:
        if tag == "-text":
            self.parts.append(node.text_content or "")
        elif tag in self._without:
            return False
        elif tag in {"ruby", "math"} and not self._without & (_READINGS | _ANNOTATIONS):
            self.parts.append((_ruby if tag == "ruby" else _formula)(self._page, node))
            return False
        elif tag == "img":
            self.parts.append(_alternative(self._page, node))
        elif tag in BORDERS or "-" in tag:
            self.parts.append(" ")
            if tag == "input":
                self.parts.append(_value(node) + " ")
        elif tag in _SHOWN:
            self.parts.append(_attribute_words(node, tag))
        return True

    def leave(self, tag: str) -> None:
        if tag in BORDERS or "-" in tag:
            self.parts.append(" ")


def _alternative(page: PageView, image: LexborNode) -> str:
    """Returns a picture's `alt` text; counts a picture without `alt`.

    A picture with `alt=""` is not counted, because it only decorates.
    """
    attributes = image.attributes
    page.count("pictures", "alt" not in attributes)
    return attributes.get("alt") or ""


class _Preformatted:
    """A visitor that collects preformatted text, with the line breaks that a person sees."""

    def __init__(self, page: PageView) -> None:
        self._page = page
        self._parts: list[str] = []
        self._is_at_start = True

    def enter(self, node: LexborNode, tag: str) -> bool:
        if tag == "-text":
            self._add(node.text_content or "")
        elif tag == "img":
            self._add(_alternative(self._page, node))
        elif tag == "input":
            self._add(_value(node))
        elif tag == "br":
            self._add("\n")
        elif tag == "button":  # "Copy"
            return False
        elif tag in BLOCKS or tag in {"li", "tr"}:
            self._break()
        elif tag in {"td", "th"}:
            self._add("" if self._is_at_start else " ")
        return True

    def leave(self, tag: str) -> None:
        if tag in BLOCKS or tag in {"li", "tr"}:
            self._break()

    def _break(self) -> None:
        self._add("" if self._is_at_start else "\n")

    def _add(self, part: str) -> None:
        if part:
            self._parts.append(part)
            self._is_at_start = part.endswith("\n")

    def __str__(self) -> str:
        return "".join(self._parts)


class BlockReader:
    """A visitor that makes blocks of a tree. With `keeps_lines`, the source's line breaks stay."""

    def __init__(
        self,
        page: PageView,
        headings: Headings,
        *,
        keeps_lines: bool = False,
        h1_is_title: bool = False,
    ) -> None:
        self.blocks: list[Block] = []
        self.first_heading: str | None = None
        self._page = page
        self._headings = headings
        self._keeps_lines = keeps_lines
        self._space = re.compile(r"[^\S\n]+" if keeps_lines else r"\s+")
        self._h1_is_title = h1_is_title
        self._buffer: list[str] = []

    def read(self, root: LexborNode) -> None:
        self._page.visit(root, self)
        self._flush()

    def enter(self, node: LexborNode, tag: str) -> bool:
        """Reads a node; returns True if its children are to be read, too."""
        if tag == "-text":
            self._buffer.append(self._space.sub(" ", node.text_content or ""))
            return True
        if tag in BLOCKS:
            self._flush()
        if tag in _AS_WRITTEN:
            preformatted = _Preformatted(self._page)
            self._page.visit(node, preformatted)
            self._add(str(preformatted), "code")
        elif is_heading(tag):
            self._heading(node, int(tag[1]))
        elif tag == "table" and not _is_layout(node):
            self._add(_rows(self._page, node), "table")
        elif tag in {"ruby", "math"}:
            self._buffer.append((_ruby if tag == "ruby" else _formula)(self._page, node))
        else:
            self._inline(node, tag)
            return True
        return False

    def leave(self, tag: str) -> None:
        if tag in BLOCKS:
            self._flush()
        elif tag in BORDERS or "-" in tag:
            self._buffer.append(" ")

    def _inline(self, node: LexborNode, tag: str) -> None:
        if tag in {"br", "tr", "caption"}:
            self._buffer.append("\n")
        elif tag == "li":
            self._buffer.append("\n- ")
        elif tag == "img":
            self._buffer.append(_alternative(self._page, node))
        elif tag == "input":
            self._buffer.append(f" {_value(node)} ")
        elif tag in _SHOWN:
            self._buffer.append(_attribute_words(node, tag))
        elif self._keeps_lines and tag not in ELEMENTS:
            self._buffer.append("".join(f"\n{caption}\n" for caption in captions(node)))
        elif tag in BORDERS or "-" in tag:
            self._buffer.append(" ")

    def _heading(self, node: LexborNode, level: int) -> None:
        words = self._page.words(node).replace("¶", "").strip()
        name = heading_name(node, words)
        self.first_heading = self.first_heading or name
        self._headings.enter(level, None if level == 1 and self._h1_is_title else name)
        self._add(words, "prose")

    def _flush(self) -> None:
        text = "".join(self._buffer)
        self._buffer.clear()
        lines = (" ".join(line.split()) for line in text.split("\n"))
        self._add("\n".join(line for line in lines if line and line != "-"), "prose")

    def _add(self, text: str, kind: Kind) -> None:
        if text.strip():
            self.blocks.append(Block(text=text, section=self._headings.section, kind=kind))


def heading_name(heading: LexborNode, words: str) -> str:
    """Returns a heading's words, without a picture's alternative text if there are other words."""
    if heading.css_first("img") is None:
        return words
    return PageView().words(heading, frozenset({"img"})).replace("¶", "").strip() or words


def is_heading(tag: str) -> bool:
    return len(tag) == 2 and tag[0] == "h" and tag[1] in "123456"


def _is_layout(table: LexborNode) -> bool:
    """Returns True for a table that holds headings, paragraphs or tables and so is no data."""
    # The children are searched one by one, because the selector would also match `table` itself.
    selector = "table, h1, h2, h3, pre, p + p"
    return any(part.css_first(selector) for part in children(table) if part.tag != "-text")


def _rows(page: PageView, table: LexborNode) -> str:
    """Returns a table's text, one line for each row; a cell that spans rows stands in each."""
    lines: list[str] = []
    spanning: dict[int, tuple[int, str]] = {}
    for part in children(table):
        tag = part.tag or ""
        if tag == "-text" or page.leaves_out(part, tag):
            continue
        if tag == "caption":
            lines.append(page.words(part))
        elif tag in {"thead", "tbody", "tfoot"}:
            spanning.clear()
            for row in children(part):
                if not page.leaves_out(row, row.tag or "") and row.tag == "tr":
                    lines.append(" | ".join(_cells(page, row, spanning)))
    return "\n".join(line for line in lines if line.strip(" |"))


def _cells(page: PageView, row: LexborNode, spanning: dict[int, tuple[int, str]]) -> list[str]:
    """Returns the row's cells, with those that span it from rows above.

    `spanning` maps a column to the rows that remain and the text; it is updated for the next row.
    """
    cells: list[str] = []
    column = 0

    def add_spanning() -> None:
        nonlocal column
        while column in spanning:
            remaining, text = spanning.pop(column)
            cells.append(text)
            page.repeatable -= 1
            if remaining > 1 and page.repeatable > 0:
                later[column] = (remaining - 1, text)
            column += 1

    later: dict[int, tuple[int, str]] = {}
    for cell in children(row):
        if page.leaves_out(cell, cell.tag or "") or cell.tag not in {"td", "th"}:
            continue
        add_spanning()
        text = page.words(cell)
        cells.append(text)
        rows = _span(cell, "rowspan") or _MOST_SPANNED  # 0 means all rows that follow
        if rows > 1 and page.repeatable > 0:
            later[column] = (rows - 1, text if len(text) <= _REPEATED_CHARS else "")
        column += _span(cell, "colspan") or 1
    while spanning:
        column = min(spanning)
        add_spanning()
    spanning.update(later)
    return cells


def _span(cell: LexborNode, name: str) -> int:
    written = (cell.attributes.get(name) or "1").strip()
    number = int(written) if written.isascii() and written.isdigit() and len(written) < 6 else 1
    return min(number, _MOST_SPANNED)
