"""Parses Markdown (CommonMark with tables): headings become sections, fences become code.

Entities, escapes and HTML's tags are read as a reader sees them, and so is what Obsidian and other
editors of linked notes add: tags in the text, comments, links with names. The rest stays as it is.
"""

from __future__ import annotations

import html
import re
from functools import cache, cached_property
from html.entities import html5
from typing import TYPE_CHECKING, Any

import msgspec

from kbproc.engine.sources.parse import front_matter
from kbproc.engine.sources.parse.blocks import Block, Headings, Kind, Parsed, clean_text
from kbproc.engine.sources.parse.html import (
    BORDERS,
    ELEMENTS,
    BlockReader,
    PageView,
    heading_name,
    is_hidden,
)
from kbproc.engine.sources.parse.nesting import tree_of
from kbproc.engine.sources.parse.text import decode

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from selectolax.lexbor import LexborNode

# Outside a table, HTML's parser ignores the tags of a table's parts, and would join their texts.
_TABLE_PARTS = re.compile(r"<(table\b|(?:t[rdh]|tbody|thead|tfoot|caption|colgroup)\b)", re.I)
# Markdown's comments are definitions of links that lead nowhere: [//]: # (a comment).
_NOWHERE = frozenset({"", "#"})
_LINES_AHEAD = 40
# HTML's parser takes these for comments, but authors mean them as text: <?php …?>, <![CDATA[…]]>.
_INSTRUCTION = re.compile(r"<(?=\?|!(?!--))")
_ONLY_TAGS = re.compile(r"(?:\s++|<[^<>]*+>)*+")
_SAYS_MORE = re.compile(r"<(?:[a-z][^\s<>]*+\s|(?:img|iframe|object|embed)\b)", re.I)
# A component's attribute in JSX: title={"Two words"}.
_JSX_STRING = re.compile(r"=\{\s?([\"'`])([^\"'`{}<>]*)\1\s?\}")


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of a Markdown file. Raises `input.unsupported_type` if it is not text.

    A file that is blank, or holds comments only, has no blocks and nothing unread.
    """
    decoded = decode(data, name)
    text = clean_text(decoded.text)
    head = front_matter.read(text)
    body = text[head.end :] if head else text
    document = _MarkdownText(body, above=text.count("\n", 0, len(text) - len(body)))
    blocks = document.blocks()
    if head:
        blocks = [*head.blocks, *blocks] if blocks else front_matter.all_text(head)
    return Parsed(
        title=(head and head.title) or document.title,
        blocks=blocks,
        tags=[*(head.tags if head else []), *document.page.tags],
        metadata=head.metadata if head else {},
        aliases=head.aliases if head else [],
        derived_from=head.derived_from if head else [],
        unread={
            **document.page.unread,
            "fields": head.unread_fields if head else 0,
            "refused_heads": int(head.is_refused) if head else 0,
            "replaced_bytes": decoded.replaced,
        },
    )


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # Inline markup is off, because text stays as written; headings alone are parsed for it.
    parser = MarkdownIt("commonmark", {"inline_definitions": True})
    return parser.enable("table").disable("inline")


def _plain(source: str, env: dict[str, Any]) -> str:
    children: list[Token] = []
    _parser().inline.parse(source, _parser(), env, children)
    parts = []
    for token in children:
        if token.type in {"text", "code_inline", "image", "text_special"}:
            parts.append(token.content)
        elif token.type in {"softbreak", "hardbreak"}:
            parts.append(" ")
        elif token.type == "html_inline":
            tag = re.match(r"</?([A-Za-z][A-Za-z0-9]*)", token.content)
            parts.append(" " if tag and tag[1].lower() in BORDERS else "")
    return " ".join("".join(parts).split())


class _MarkdownPart(msgspec.Struct):
    """A block of Markdown: lines `start` to before `end`, its first token, and its inner tokens.

    `spans` holds the lines of each block of HTML that it joins.
    """

    token: Token
    start: int
    end: int
    inner: list[Token] = []
    spans: list[tuple[int, int]] = []
    name: str = ""
    tree: LexborNode | None = None

    @property
    def type(self) -> str:
        return self.token.type


class _NoteView(PageView):
    """The parts of a Markdown text that a person sees; `tags`: those that stand in the text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []


class _MarkdownText:
    """A Markdown text below its front matter; `above` is the number of lines above it."""

    def __init__(self, body: str, above: int) -> None:
        self.page = _NoteView()
        self.title: str | None = None
        self._lines = self._without_remarks(body.split("\n"))
        self._above = above
        self._env: dict[str, Any] = {}
        self._parts = _parts(_parser().parse("\n".join(self._lines), self._env))
        titles: list[str] = []
        for part in self._parts:
            if part.type == "heading_open":
                part.name = _plain(part.inner[0].content, self._env)
                titles += [part.name] if part.token.tag == "h1" else []
            elif part.type == "html_block":
                part.tree = _tree(self._html_source(part))
                titles += _top_headings(part.tree)
        self.title = next(filter(None, titles), None)
        # If there are several headings of the first level, each is a section.
        self._h1_is_title = len(titles) == 1

    def blocks(self) -> list[Block]:
        headings = Headings()
        blocks: list[Block] = []
        hidden = self._hidden_parts()
        for number, part in enumerate(self._parts):
            if number in hidden:
                continue
            if part.tree is not None:
                blocks += self._html(part, part.tree, headings)
                continue
            line = part.start + self._above + 1
            if part.type == "heading_open":
                level = int(part.token.tag[1])
                headings.enter(level, None if level == 1 and self._h1_is_title else part.name)
            text, kind = self._text(part)
            line += part.type == "fence" and not _caption(part)
            if text.strip():
                blocks.append(Block(text=text, section=headings.section, kind=kind, line=line))
        return blocks

    def _without_remarks(self, lines: list[str]) -> list[str]:
        """Empties the lines between two lines of "%%", which only the writer sees."""
        begin, fence = -1, ""
        marks = [n for n, line in enumerate(lines) if _REMARK_LINE.match(line)]
        for number in marks:
            mark = lines[number].strip()
            if begin >= 0:
                if mark == "%%":
                    self.page.count("comments")
                    lines[begin : number + 1] = [""] * (number + 1 - begin)
                    begin = -1
            elif mark == "%%" and not fence:
                begin = number
            elif mark != "%%":
                fence = "" if fence and mark.startswith(fence) else fence or mark[:3]
        return lines

    def _raw(self, part: _MarkdownPart) -> str:
        return "\n".join(self._lines[part.start : part.end])

    def _hidden_parts(self) -> set[int]:
        """Returns the parts between the two tags of a hidden element in blocks of HTML."""
        hidden: set[int] = set()
        opened: tuple[int, str] | None = None
        for number, part in enumerate(self._parts):
            if part.type != "html_block" or (part.tree is None and opened is None):
                continue
            source = self._raw(part)
            if opened and re.search(rf"</{re.escape(opened[1])}\s*>", source, re.I):
                between = range(opened[0] + 1, number)
                self.page.count("hidden_passages", bool(between))
                hidden |= {*between}
                opened = None
            name = _left_open(part.tree, source) if part.tree and not opened else None
            opened = (number, name) if name else opened
        return hidden

    def _html_source(self, part: _MarkdownPart) -> str:
        pieces: list[str] = []
        tables = 0
        for start, end in part.spans:
            piece = "\n".join(self._lines[start:end])
            first = _TABLE_PARTS.search(piece)
            if first and first[1].lower() != "table" and tables <= 0:
                piece = f"<table>{piece}</table>"
            tables += len(re.findall(r"<table\b", piece, re.I)) - piece.lower().count("</table")
            pieces.append(piece)
        return _JSX_STRING.sub(r'="\2"', "\n".join(pieces))

    def _text(self, part: _MarkdownPart) -> tuple[str, Kind]:
        if part.type == "fence":
            caption = _caption(part)
            return f"{caption}\n{part.token.content}" if caption else part.token.content, "code"
        if part.type == "code_block":
            return part.token.content, "code"
        if part.type == "table_open":
            return self._table(part.start, part.end), "table"
        if part.type in _CONTAINERS:
            return self._container(part), "prose"
        if part.type == "heading_open":
            content = Prose(part.inner[0].content, self.page).text()
            return f"{'#' * int(part.token.tag[1])} {content}", "prose"
        if part.type in {"hr", "html_block"}:
            return "", "prose"
        return Prose(self._raw(part), self.page).text(), "prose"

    def _table(self, start: int, end: int) -> str:
        # Line by line, because code does not go on in the next row. Bars are escaped even in code.
        lines = (line.replace("\\|", "|") for line in self._lines[start:end])
        return "\n".join(Prose(line, self.page).text() for line in lines)

    def _container(self, part: _MarkdownPart) -> str:
        """Returns the text of a list or a quotation; code in it stays as it is written."""
        pieces: list[str] = []
        at = part.start
        for token in part.inner:
            if token.type not in _LEAVES or token.map is None or token.map[0] < at:
                continue
            start, end = token.map[0], min(token.map[1], part.end)
            pieces += (Prose(line, self.page).text() for line in self._lines[at:start])
            if token.type == "table_open":
                pieces.append(self._table(start, end))
            else:
                raw = "\n".join(self._lines[start:end])
                is_code = token.type in {"fence", "code_block"}
                pieces.append(raw if is_code else Prose(raw, self.page).text())
            at = max(start, end)
        pieces += (Prose(line, self.page).text() for line in self._lines[at : part.end])
        return "\n".join(pieces)

    def _html(self, part: _MarkdownPart, tree: LexborNode, headings: Headings) -> list[Block]:
        reader = BlockReader(self.page, headings, keeps_lines=True, h1_is_title=self._h1_is_title)
        reader.read(tree)
        finder = _LineFinder(self._lines[part.start : part.end])
        located = ((block, finder.line_of(block.text)) for block in reader.blocks)
        first = part.start + self._above + 1
        return [
            block if line is None else msgspec.structs.replace(block, line=first + line)
            for block, line in located
        ]


_CONTAINERS = frozenset({"bullet_list_open", "ordered_list_open", "blockquote_open"})
_LEAVES = frozenset({"inline", "fence", "code_block", "html_block", "table_open"})


def _parts(tokens: list[Token]) -> list[_MarkdownPart]:
    parts: list[_MarkdownPart] = []
    for token in tokens:
        if token.level or token.nesting < 0:
            if parts and token.nesting >= 0:
                parts[-1].inner.append(token)
            continue
        if token.map is None or (token.type == "definition" and token.meta["url"] in _NOWHERE):
            continue
        start, end = token.map
        last = parts[-1] if parts else None
        if last and last.type == token.type == "html_block":
            last.end = end  # because one element may go on in the next block
            last.spans.append((start, end))
        elif last and last.type == token.type == "definition" and last.end == start:
            last.end = end
        else:
            parts.append(_MarkdownPart(token, start, end, spans=[(start, end)]))
    return parts


def _caption(part: _MarkdownPart) -> str:
    """Returns the words behind a fence if there are more than the language: `js title="app.js"`."""
    info = part.token.info.strip()
    return info if len(info.split()) > 1 else ""


def _tree(source: str) -> LexborNode | None:
    """Parses HTML within Markdown into a tree; returns None if it holds nothing but tags."""
    source = _INSTRUCTION.sub("&lt;", source)
    if _ONLY_TAGS.fullmatch(source) and not _SAYS_MORE.search(source):
        return None
    return tree_of(f"<body>{source}").body


def _left_open(tree: LexborNode, source: str) -> str | None:
    """Returns the name of a hidden element that begins in this HTML and does not end there."""
    node = tree.last_child
    while node is not None:
        if node.tag == "-text":
            node = node.prev
            continue
        tag = node.tag or ""
        if tag in ELEMENTS and is_hidden(node, tag):
            begins = len(re.findall(rf"<{tag}\b", source, re.I))
            return tag if begins > len(re.findall(rf"</{tag}\b", source, re.I)) else None
        node = node.last_child
    return None


def _top_headings(tree: LexborNode | None) -> list[str]:
    if tree is None or not (headings := tree.css("h1")):
        return []
    names = (heading_name(heading, PageView().words(heading)) for heading in headings)
    return [name for name in names if name]


class _LineFinder:
    """Finds the lines of HTML from which a text was read."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = [_squeezed(html.unescape(_TAG.sub(r"\1", line))) for line in lines]
        self._at = self._column = 0  # the end of the last text

    def line_of(self, text: str) -> int | None:
        """Returns the line at which the text begins, if each of its lines is on one of the source.

        Callers pass texts in the order of the source, so each is searched behind the last one.
        """
        parts = [_squeezed(line) for line in text.split("\n")]
        for at in range(self._at, min(len(self._lines), self._at + _LINES_AHEAD)):
            following = self._lines[at : at + len(parts)]
            start = following[0].find(parts[0], self._column if at == self._at else 0)
            goes_on = len(following) == len(parts) and all(
                map(str.__contains__, following[1:], parts[1:])
            )
            if start >= 0 and goes_on:
                last = following[-1].index(parts[-1], start if len(parts) == 1 else 0)
                self._at, self._column = at + len(parts) - 1, last + len(parts[-1])
                return at
        return None


_TAG = re.compile(r"<(?>[^<>]*?\balt=\"([^\"<>]*)\"|)[^<>]*>")


def _squeezed(line: str) -> str:
    """Returns the line without blanks and without the signs of cells and items."""
    return re.sub(r"[\s|-]+", "", line)


_REMARK_LINE = re.compile(r"\s{0,3}(?:%%\s*$|```|~~~)")
_INLINE = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~]|(?=\n))"
    r"|(?P<ticks>`+)"
    r"|(?P<math>\$\$[^$]+\$\$|\$(?![\s$])[^$\n]*(?<![\s\\])\$(?!\d))"
    r"|&(?P<entity>\#[0-9]{1,7}|\#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
    r"|(?P<autolink><[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*>)"
    r"|(?P<comment><!--)"
    r"|(?<!\w)(?P<remark>%%)"
    r"|\[\[(?P<target>[^\[\]|\n]+)\\?\|(?P<name>[^\[\]|\n]+)\]\]"
    r"|(?P<anchor>[ \t]\^[A-Za-z0-9-]{3,}(?=\n|\Z))"
    r"|(?<!\S)\#(?P<label>[^\W\d_][\w/-]*)"
    # A quoted "<" is not allowed, so that each "<" ends the tag before it and this stays linear.
    r"|<(?P<tag>/?[A-Za-z][A-Za-z0-9-]*)(?P<attributes>(?:\s(?:[^<>\"']|\"[^\"<]*\"|'[^'<]*')*+)?+)/?>"
)
_MARKUP = re.compile(r"[\\&<#]|%%|\[\[| \^")
_COLOUR = re.compile(r"[0-9a-fA-F]{3,8}")
_MOST_BLANKS = 16  # between a reference's name and its target
_TO_SPACES = str.maketrans(dict.fromkeys("\n\r\x0b\x0c\x85\xa0\u2028\u2029", " "))
_FORMULAS = {"[": "\\]", "(": "\\)"}
_FORMULA_CHARS = 2000
_COMMAND = re.compile(r"\\[A-Za-z]{2}")
_MAY_HIDE = re.compile(r"hidden|style", re.I)


class Prose:
    """A stretch of Markdown outside blocks of code, as a reader sees its characters.

    Entities and escapes are decoded, and comments and HTML's tags left out. Links, emphasis and
    code stay as they are written; a link between notes has its name before its target. Line
    breaks are those of the source.
    """

    def __init__(self, source: str, page: _NoteView) -> None:
        self._source = source
        self._page = page
        self._links: list[bool] = []
        self._last: dict[str, int] = {}

    def text(self) -> str:
        if not _MARKUP.search(self._source):
            return self._source
        parts: list[str] = []
        at = 0
        while match := _INLINE.search(self._source, at):
            parts.append(self._source[at : match.start()])
            text, at = self._replaced(match)
            parts.append(text)
        parts.append(self._source[at:])
        return "".join(parts)

    def _replaced(self, match: re.Match[str]) -> tuple[str, int]:
        """Returns the text that a reader sees for `match`, and where in the source it ends."""
        kind = match.lastgroup
        if kind == "escaped":
            end = self._formula_end(match)
            return (
                (self._source[match.start() : end], end) if end else (match["escaped"], match.end())
            )
        if kind == "ticks":
            end = self._code_end(match["ticks"], match.end())
            return self._source[match.start() : end], end
        if kind == "entity":
            return _character(match["entity"]), match.end()
        if kind == "comment":
            end = self._end_of("-->", match.end() - 2)
            return self._skipped(match.start(), end) if end else (match[0], match.end())
        if kind in {"tag", "attributes"}:
            return self._tag(match)
        if kind == "remark":
            return self._remark(match)
        if kind == "name":
            return f"{match['name']} [[{match['target']}]]", match.end()
        if kind == "anchor":  # the id of a paragraph, by which others quote it
            return "", match.end()
        if kind == "label" and self._is_tag(match):
            self._page.tags.append(match["label"])
        return match[0], match.end()

    def _is_tag(self, match: re.Match[str]) -> bool:
        """Returns false for a colour and for the target of a reference, "[name]: #place"."""
        before = self._source[max(match.start() - _MOST_BLANKS, 0) : match.start()]
        return not _COLOUR.fullmatch(match["label"]) and not before.rstrip().endswith("]:")

    def _remark(self, match: re.Match[str]) -> tuple[str, int]:
        """Returns "" for a comment between two "%%", and where it ends.

        A text about formats, such as "%%d" or "100%%", has none.
        """
        end = self._end_of("%%", match.end())
        is_format = self._source[end : end + 1].isalnum() or self._source[end - 3].isdigit()
        if not end or is_format:
            return match[0], match.end()
        self._page.count("comments")
        return self._skipped(match.start(), end)

    def _formula_end(self, match: re.Match[str]) -> int:
        """Returns the end of the TeX formula that `match` opens as \\[ or \\(, or 0."""
        if match["escaped"] not in _FORMULAS:
            return 0
        closer = _FORMULAS[match["escaped"]]
        at = self._source.find(closer, match.end(), match.end() + _FORMULA_CHARS)
        if at < 0 or not _COMMAND.search(self._source, match.end(), at):
            return 0
        return at + len(closer)

    @cached_property
    def _runs(self) -> dict[int, list[int]]:
        """Maps the length of a run of backticks to where such runs begin, the first one last."""
        runs: dict[int, list[int]] = {}
        for run in re.finditer("`+", self._source):
            runs.setdefault(len(run[0]), []).append(run.start())
        return {length: starts[::-1] for length, starts in runs.items()}

    def _code_end(self, ticks: str, start: int) -> int:
        """Returns the end of the code that these ticks open; `start` if nothing closes it."""
        starts = self._runs.get(len(ticks), [])
        while starts and starts[-1] < start:
            starts.pop()
        return starts[-1] + len(ticks) if starts else start

    def _end_of(self, mark: str, start: int) -> int:
        """Returns the end of the next `mark`, or 0."""
        # The last mark's place is stored, so that a text without one is searched only once.
        if mark not in self._last:
            self._last[mark] = self._source.rfind(mark)
        if self._last[mark] < start:
            return 0
        return self._source.index(mark, start) + len(mark)

    def _skipped(self, start: int, end: int) -> tuple[str, int]:
        return "\n" * self._source.count("\n", start, end), end

    def _tag(self, match: re.Match[str]) -> tuple[str, int]:
        written, start, end = match[0], match.start(), match.end()
        name = match["tag"].lower().lstrip("/")
        is_closing = written[1] == "/"
        tag = match["tag"].lstrip("/")
        # A component such as <Listing caption="…"> is not HTML's, even if HTML has that name.
        is_component = tag[0].isupper() and tag[1:].islower()
        if name not in ELEMENTS or is_component:
            return written, end
        if name == "a":
            return self._link(written, is_closing), end
        attributes = match["attributes"]
        closing = 0
        is_whole = name in _TAKEN_WHOLE or (
            bool(_MAY_HIDE.search(attributes)) and self._is_hidden(written)
        )
        if is_whole and not is_closing:
            closing = self._end_of(f"</{match['tag']}>", end)
        if closing:
            return self._element(name, start, closing), closing
        breaks = "\n" * written.count("\n")
        if name == "img":
            return self._words(written) + breaks, end
        if name not in BORDERS or breaks:
            return breaks, end
        is_apart = (
            self._source[start - 1 : start].isspace() or self._source[end : end + 1].isspace()
        )
        return "" if is_apart else " ", end

    def _link(self, written: str, is_closing: bool) -> str:
        """Returns a link's tag as it is written, as Markdown's links stay; "" for an anchor."""
        if is_closing:
            return written if self._links and self._links.pop() else ""
        self._links.append("href" in written)
        return written if self._links[-1] else ""

    def _element(self, name: str, start: int, end: int) -> str:
        """Returns the text of an element that is read at once: hidden ones, and _TAKEN_WHOLE."""
        source = self._source[start:end]
        if name in {"script", "style"}:
            return self._skipped(start, end)[0]
        return self._words(source) + "\n" * source.count("\n")

    def _is_hidden(self, opening_tag: str) -> bool:
        body = _tree(opening_tag)
        node = body.first_child if body else None
        return node is not None and is_hidden(node, node.tag or "")

    def _words(self, source: str) -> str:
        body = _tree(source)
        return self._page.words(body) if body else ""


_TAKEN_WHOLE = frozenset({"ruby", "math", "script", "style", "svg"})


def _character(name: str) -> str:
    if name.startswith("#"):
        return html.unescape(f"&{name};").translate(_TO_SPACES)
    return html5.get(f"{name};", f"&{name};").translate(_TO_SPACES)
