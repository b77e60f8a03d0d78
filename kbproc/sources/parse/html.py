"""HTML: the page's text in reading order, without its furniture.

Owns: charset from BOM or meta, what is dropped, headings to sections.
Refuses to know: CSS, scripts, the network.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

from kbproc.sources.parse.blocks import Block, Headings, Kind, Parsed, clean_text
from kbproc.sources.parse.text import Decoded, decode

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.I)
# The encodings that browsers take where a page says the name on the left
# (encoding.spec.whatwg.org, "names and labels").
_LABELS = {
    "ascii": "cp1252",
    "us-ascii": "cp1252",
    "iso-8859-1": "cp1252",
    "latin1": "cp1252",
    "iso-8859-9": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949",
    "tis-620": "cp874",
    "iso-8859-11": "cp874",
    "x-sjis": "cp932",
    "utf-16": "utf-8",
    "utf-16le": "utf-8",
    "utf-16be": "utf-8",
}


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


_NEVER = _names(
    "script style template noscript svg math iframe object canvas head select button datalist "
    "dialog audio video map"
)
_FURNITURE = frozenset({"nav", "footer", "menu"})
_BLOCKS = _names(
    "address article aside blockquote body center dd details dialog div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr html legend main menu nav ol p pre "
    "search section summary table ul"
)
_MAIN_CHARS = 200


def parse(data: bytes, name: str) -> Parsed:
    """Blocks of a page. Raises `input.unsupported_type` when the bytes are not text."""
    from selectolax.lexbor import LexborHTMLParser

    decoded = decode_page(data, name)
    unread = {"replaced_bytes": decoded.replaced}
    tree = LexborHTMLParser(clean_text(decoded.text))
    root = _main(tree)
    if root is None:
        return Parsed(blocks=[], unread=unread)
    reader = _Reader(_NEVER | _FURNITURE)
    reader.read(root)
    if not reader.blocks:
        reader = _Reader(_NEVER)
        reader.read(root)
    title = tree.css_first("title")
    words = title.text() if title and title.text().strip() else reader.first_heading
    return Parsed(title=words, blocks=reader.blocks, unread=unread)


def decode_page(data: bytes, name: str) -> Decoded:
    """Text in the encoding that its BOM or the page itself names, else as any text.

    Raises `input.unsupported_type` for bytes that are not text.
    """
    declared = _CHARSET.search(data[:4096])
    if declared and not data.startswith((codecs.BOM_UTF8, b"\xff\xfe", b"\xfe\xff")):
        label = declared[1].decode("ascii", "replace").lower()
        try:
            encoding = _LABELS.get(label, label)
            return Decoded(data.decode(encoding), encoding)
        except (LookupError, ValueError):
            pass
    return decode(data, name)


def _main(tree: LexborHTMLParser) -> LexborNode | None:
    """The part that the page itself calls its content, else all of it."""
    for found in tree.css("main, [role=main]"):
        if len(found.text().strip()) >= _MAIN_CHARS:
            return found
    return tree.body or tree.root


class _Reader:
    """Walks a tree without recursion: a page may nest deeper than Python's stack."""

    def __init__(self, dropped: frozenset[str]) -> None:
        self.blocks: list[Block] = []
        self.first_heading: str | None = None
        self._dropped = dropped
        self._headings = Headings()
        self._buffer: list[str] = []

    def read(self, root: LexborNode) -> None:
        stack: list[tuple[LexborNode, bool]] = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            tag = node.tag or ""
            if leaving:
                self._leave(tag)
            elif tag == "-text":
                self._buffer.append(re.sub(r"\s+", " ", node.text_content or ""))
            elif self._enter(node, tag):
                stack.append((node, True))
                stack.extend((child, False) for child in reversed(list(_children(node))))
        self._flush()

    def _enter(self, node: LexborNode, tag: str) -> bool:
        """Whether the node's children are still to be read."""
        if tag in self._dropped or tag.startswith(("-", "!")) or _hidden(node):
            return False
        if tag in _BLOCKS:
            self._flush()
        if tag in {"br", "tr"}:
            self._buffer.append("\n")
        elif tag == "li":
            self._buffer.append("\n- ")
        elif tag == "img":
            self._buffer.append(node.attributes.get("alt") or "")
        elif tag == "pre":
            self._add(node.text(), "code")
            return False
        elif tag == "table" and node.css_first("table table, h1, h2, h3, pre, p + p") is None:
            self._add(_rows(node), "table")
            return False
        elif _is_heading(tag):
            self._heading(int(tag[1]), " ".join(node.text().replace("¶", "").split()))
            return False
        return True

    def _leave(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._flush()
        elif tag in {"td", "th"}:
            self._buffer.append(" ")

    def _heading(self, level: int, words: str) -> None:
        self.first_heading = self.first_heading or words
        self._headings.enter(level, words)
        self._add(words, "prose")

    def _flush(self) -> None:
        text = "".join(self._buffer)
        self._buffer.clear()
        lines = (" ".join(line.split()) for line in text.split("\n"))
        self._add("\n".join(line for line in lines if line and line != "-"), "prose")

    def _add(self, text: str, kind: Kind) -> None:
        if text.strip():
            self.blocks.append(Block(text=text, section=self._headings.section, kind=kind))


def _children(node: LexborNode) -> list[LexborNode]:
    found, child = [], node.first_child
    while child is not None:
        found.append(child)
        child = child.next
    return found


def _hidden(node: LexborNode) -> bool:
    attributes = node.attributes
    return "hidden" in attributes or attributes.get("aria-hidden") == "true"


def _is_heading(tag: str) -> bool:
    return len(tag) == 2 and tag[0] == "h" and tag[1] in "123456"


def _rows(table: LexborNode) -> str:
    rows = (
        " | ".join(" ".join(cell.text(separator=" ").split()) for cell in row.css("td, th"))
        for row in table.css("tr")
    )
    caption = table.css_first("caption")
    head = [" ".join(caption.text().split())] if caption else []
    return "\n".join([*head, *(row for row in rows if row.strip(" |"))])
