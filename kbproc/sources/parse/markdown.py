"""Markdown: headings become sections, fences become code, the rest stays as written.

Owns: CommonMark with tables, and YAML or TOML front matter.
Refuses to know: how Markdown looks when it is rendered.
"""

from __future__ import annotations

import datetime
import html
import re
from typing import TYPE_CHECKING, Any

from kbproc.sources.parse.blocks import Block, Headings, Kind, Parsed, Scalar, clean_text
from kbproc.sources.parse.text import decode

if TYPE_CHECKING:
    from markdown_it.token import Token

_FRONT = re.compile(r"\A(---|\+\+\+)[ \t]*\n(.*?)^(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", re.S | re.M)
_FRONT_CHARS = 1 << 16
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.S)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")


def parse(data: bytes, name: str) -> Parsed:
    """Blocks of a Markdown file. Raises `input.unsupported_type` when it is not text."""
    found = decode(data, name)
    text = clean_text(found.text)
    front, body = _front_matter(text)
    tokens = _tokens(body)
    title, shown_as_title = _title(front, tokens)
    above = text.count("\n", 0, len(text) - len(body))
    metadata = {k: v for k, v in front.items() if k not in _OWN and _is_scalar(v)}
    return Parsed(
        title=title,
        blocks=_blocks(tokens, body.split("\n"), shown_as_title, above),
        tags=_tags(front),
        metadata={key: _scalar(value) for key, value in metadata.items()},
        unread={"replaced_bytes": found.replaced},
    )


_OWN = frozenset({"title", "tags", "tag"})


def _front_matter(text: str) -> tuple[dict[str, Any], str]:
    """The header's mapping and what follows it; a header that does not parse is text."""
    found = _FRONT.match(text[:_FRONT_CHARS])
    if not found:
        return {}, text
    fields = _toml(found[2]) if found[1] == "+++" else _yaml(found[2])
    if not isinstance(fields, dict):
        return {}, text
    return {str(key): value for key, value in fields.items()}, text[found.end() :]


def _yaml(source: str) -> Any:
    import yaml

    try:
        return yaml.load(source, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _toml(source: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(source)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool | datetime.date)


def _scalar(value: Any) -> Scalar:
    if isinstance(value, datetime.date):
        return value.isoformat()
    # Integers are kept to 64 bits and floats to finite ones: JSON has no others.
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 63:
        return str(value)
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    return value  # type: ignore[no-any-return]


def _tags(front: dict[str, Any]) -> list[str]:
    tags = front.get("tags", front.get("tag"))
    if isinstance(tags, str):
        return [tag.strip().lstrip("#") for tag in re.split(r"[,;]|\s(?=#)", tags) if tag.strip()]
    if isinstance(tags, list):
        return [str(tag) for tag in tags if isinstance(tag, str | int)]
    return []


def _tokens(body: str) -> list[Token]:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("table").parse(body)


def _title(front: dict[str, Any], tokens: list[Token]) -> tuple[str | None, int]:
    """The title, and the index of the heading that says it and so is no section (or -1).

    Where several headings are of the first level, each is a section.
    """
    tops = [i for i, t in enumerate(tokens) if t.type == "heading_open" and t.tag == "h1"]
    given = front.get("title")
    given = given if isinstance(given, str) and given.strip() else None
    if not tops:
        return given, -1
    heading = _plain(tokens[tops[0] + 1])
    return given or heading, tops[0] if len(tops) == 1 else -1


def _plain(inline: Token) -> str:
    """A heading's words, without its markup."""
    parts = []
    for token in inline.children or []:
        if token.type in {"text", "code_inline", "image", "text_special"}:
            parts.append(token.content)
        elif token.type in {"softbreak", "hardbreak"}:
            parts.append(" ")
    return "".join(parts).strip()


def _blocks(tokens: list[Token], lines: list[str], shown_as_title: int, above: int) -> list[Block]:
    """`above`: how many lines stand before the first of `lines`."""
    headings, blocks = Headings(), []
    for i, token in enumerate(tokens):
        if token.level or token.map is None or token.nesting < 0:
            continue
        if token.type == "heading_open":
            level = int(token.tag[1])
            headings.enter(level, None if i == shown_as_title else _plain(tokens[i + 1]))
        text, kind = _text(token, tokens, i, lines)
        if text.strip():
            line = _line(token, token.map[0] + above + 1)
            blocks.append(Block(text=text, section=headings.section, kind=kind, line=line))
    return blocks


def _line(token: Token, first: int) -> int | None:
    """Where the block's text begins: within the fence; of HTML without its tags nobody knows."""
    if token.type == "html_block":
        return None
    return first + 1 if token.type == "fence" else first


def _text(token: Token, tokens: list[Token], i: int, lines: list[str]) -> tuple[str, Kind]:
    if token.type in {"fence", "code_block"}:
        return token.content, "code"
    if token.type == "heading_open":
        return f"{'#' * int(token.tag[1])} {tokens[i + 1].content}", "prose"
    if token.type == "hr":
        return "", "prose"
    start, end = token.map or (0, 0)
    raw = "\n".join(lines[start:end])
    if token.type == "html_block":
        return html.unescape(_TAG.sub("", _COMMENT.sub("", raw))).strip(), "prose"
    return raw, "table" if token.type == "table_open" else "prose"
