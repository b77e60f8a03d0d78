"""Reads front matter: the fields at a Markdown file's head, as their author wrote them.

A head is in YAML (1.2's core schema), TOML or JSON. A head that its language refuses is read line
by line. The module also decides which fields are searched as text and which are metadata.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kbproc.base.values import MOST_ALIASES
from kbproc.engine.sources.parse.blocks import Block, Scalar, clean_title

if TYPE_CHECKING:
    from yaml.nodes import ScalarNode

_FENCED = re.compile(r"\A(---|\+\+\+)[ \t]*\n(.*?)^(?:\1|\.\.\.)[ \t]*(?:\n|\Z)", re.S | re.M)
_MOST_CHARS = 1 << 18
_DEEPEST = 6
_KEY_CHARS = 60
_TAGS = frozenset({"tag", "tags"})
_ALIASES = frozenset({"alias", "aliases"})
_DERIVED_FROM = "derived_from"
# Fields that are searched even if they hold a single word.
_SEARCHED = frozenset(
    {"alias", "aliases", "abstract", "description", "excerpt", "keyword", "keywords", "subtitle"}
    | {"summary", "to", "from", "cc", "bcc", "re", "subject", "sender", "recipient", "recipients"}
    | {"attendees", "participants"}
)
_INTEGER = re.compile(r"[-+]?[0-9]{1,20}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE, _FALSE = frozenset({"true", "True", "TRUE"}), frozenset({"false", "False", "FALSE"})


class Field(NamedTuple):
    """A field of a head.

    `value` is a text as it is written, a list or a mapping of such texts, or None. `scalar` is the
    value as metadata, unless it is a list or a mapping. `line` counts from 1 in the file.
    `is_whole` is False if a limit cut the value.
    """

    key: str
    value: Any
    scalar: Scalar
    line: int | None
    is_whole: bool = True

    @property
    def name(self) -> str:
        return self.key.strip().lower()


class FrontMatter(NamedTuple):
    """The contents of a head.

    `blocks` holds its text for search, `end` is the character at which the body begins.
    `is_refused` is True for a head that its language refused, and that was read line by line.
    """

    title: str | None
    tags: list[str]
    metadata: dict[str, Scalar]
    blocks: list[Block]
    unread_fields: int
    end: int
    fields: list[Field]
    is_refused: bool

    @property
    def aliases(self) -> list[str]:
        """Returns the further names that the head gives."""
        values = (field.value for field in self.fields if field.name in _ALIASES)
        lists = (value.split(",") if isinstance(value, str) else _leaves(value) for value in values)
        names = (clean_title(name) for names in lists for name in names)
        return list(dict.fromkeys(filter(None, names)))[:MOST_ALIASES]

    @property
    def derived_from(self) -> list[str]:
        """Returns what the head says that the text was made from."""
        values = (field.value for field in self.fields if field.name == _DERIVED_FROM)
        return list(dict.fromkeys(text for value in values for text in _leaves(value)))


# Such an integer is refused, because Python can't write out more than 4,300 digits.
_REST_OF_LINE = re.compile(r"[ \t]*(?:\n|\Z)")
_LONG_NUMBER = re.compile(r"0[xob][0-9a-fA-F_]{1000}")


class _RefusedError(Exception):
    """The head is not written in the language that its fence names."""


def read(text: str) -> FrontMatter | None:
    """Returns the head of `text`, whose only line break is \\n; None if it has no head."""
    head = text[:_MOST_CHARS]
    fenced = _FENCED.match(head)
    is_refused = False
    if fenced:
        parse, separator = (_toml, "=") if fenced[1] == "+++" else (_yaml, ":")
        end = fenced.end()
        try:
            fields = parse(fenced[2])
        except _RefusedError:
            fields, is_refused = _line_by_line(fenced[2], separator), True
    elif head.startswith("{"):
        fields, end = _json(head)
    else:
        return None
    return _front_matter(fields, end, is_refused) if fields is not None else None


def _title_of(fields: list[Field]) -> str | None:
    """Returns the title that a head states, as it is written."""
    titles = (f.value for f in fields if f.name == "title" and isinstance(f.value, str))
    return next((title for title in titles if title.strip()), None)


def _front_matter(fields: list[Field], end: int, is_refused: bool) -> FrontMatter:
    title = _title_of(fields)
    metadata: dict[str, Scalar] = {}
    lines: list[tuple[str, int | None]] = []
    tags: list[str] = []
    unread = 0
    for field in fields:
        unread += not field.is_whole
        if field.name == "title" and field.value == title:
            continue
        if field.name in _TAGS and isinstance(field.value, str | list):
            tags += _tags(field.value)
            continue
        text = _searched(field)
        if text:
            lines.append((f"{field.key}: {text}" if field.key else text, field.line))
        if field.key and field.name != "title" and not isinstance(field.value, list | dict):
            metadata[field.key] = field.scalar
        elif field.value and not text and field.is_whole:
            unread += 1
    return FrontMatter(title, tags, metadata, _blocks(lines), unread, end, fields, is_refused)


def all_text(front: FrontMatter) -> list[Block]:
    """Returns title and fields as blocks, for a document without any other text."""
    lines = []
    for field in front.fields:
        text = ", ".join(_leaves(field.value))
        if text:
            lines.append((text if field.name == "title" else f"{field.key}: {text}", field.line))
    return _blocks(lines)


def _blocks(lines: list[tuple[str, int | None]]) -> list[Block]:
    """Returns a block for each run of fields on consecutive lines of the file."""
    blocks: list[Block] = []
    following: int | None = None
    for text, line in lines:
        if blocks and line is not None and line == following:
            last = blocks[-1]
            blocks[-1] = Block(text=f"{last.text}\n{text}", line=last.line)
        else:
            blocks.append(Block(text=text, line=line))
        following = line + 1 if line is not None and "\n" not in text else None
    return blocks


def _searched(field: Field) -> str:
    """Returns the field's text if it is words to be searched, else ""."""
    value = field.value
    if isinstance(value, str):
        is_named = field.name in _SEARCHED or field.name == "title" or not field.key
        is_words = is_named or (isinstance(field.scalar, str) and _is_phrase(value))
        return value.strip() if is_words else ""
    leaves = list(_leaves(value))
    is_words = field.name in _SEARCHED or any(map(_holds_word, leaves))
    return ", ".join(leaves) if is_words else ""


def _is_phrase(value: str) -> bool:
    words = value.split()
    return len(words) > 1 and any(map(str.isalpha, value))


def _holds_word(value: str) -> bool:
    """Returns True for two letters side by side, or a letter that can be a word by itself."""
    return bool(re.search(r"[^\W\d_]{2}|[^\W\d_\x00-\x7f]", value)) and not _is_date(value)


def _is_date(value: str) -> bool:
    return bool(re.fullmatch(r"\d{4}-\d\d-\d\d([Tt ].*)?", value))


def _leaves(value: Any) -> Iterator[str]:
    """Yields the texts in a value; those of a mapping with their keys: "name: Ann"."""
    stack = [("", value)]
    while stack:
        key, item = stack.pop()
        if isinstance(item, dict):
            stack.extend((str(name)[:_KEY_CHARS], part) for name, part in reversed(item.items()))
        elif isinstance(item, list):
            stack.extend((key, part) for part in reversed(item))
        elif item is not None and str(item).strip():
            yield f"{key}: {item}".strip() if key else str(item).strip()


def _tags(value: str | list[Any]) -> list[str]:
    if isinstance(value, list):
        tags = list(_leaves(value))
    elif re.search(r"[,;]", value):
        tags = re.split(r"[,;]|\s(?=#)", value)
    else:
        tags = value.split()
    cleaned = (tag.strip().lstrip("#").strip() for tag in tags)
    return [tag for tag in cleaned if tag]


def core_scalar(written: str) -> Scalar:
    """Returns the value of a plain scalar by YAML 1.2's core schema.

    A number stays text if Python would write it in another way: 007, 1.10, 0x1F, 1e3.
    """
    if written in _NULLS:
        return None
    if written in _TRUE or written in _FALSE:
        return written in _TRUE
    number: int | float | None = None
    if _INTEGER.fullmatch(written):
        number = int(written)
    elif len(written) < 40 and _FLOAT.fullmatch(written):
        number = float(written)
    if number is None or str(number) != written or abs(number) >= 1 << 63:
        return written
    return number


# YAML


def _yaml(source: str) -> list[Field] | None:
    """Returns the fields of a mapping; None for comments alone. Raises _RefusedError."""
    import yaml

    try:
        root = yaml.compose(source, Loader=_loader())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _RefusedError from error
    if root is None:
        return None if source.strip() else []
    if not isinstance(root, yaml.MappingNode):
        raise _RefusedError
    values = _Values(source)
    return [values.field(key, value) for key, value in root.value]


@cache
def _loader() -> Any:
    """Returns a YAML loader that leaves each scalar as it is written, and makes no objects."""
    import yaml

    parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return type("CoreLoader", (parser,), {"yaml_implicit_resolvers": {}})


class _Values:
    """Turns YAML's nodes into Python's values, each text as it is written.

    It reads at most twice as much as is written, because aliases can turn a few lines into
    gigabytes.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._lines = source.split("\n")
        self._remaining = 2 * len(source) + 1000
        self._is_whole = True

    def field(self, key: Any, value: Any) -> Field:
        name = key.value if isinstance(key.value, str) else ""
        line = key.start_mark.line + 2
        self._is_whole = True
        if isinstance(value.value, list):
            return Field(name, self._value(value, 0), None, line, self._is_whole)
        written = self._within_limit(self._written(value))
        scalar = written if value.style else core_scalar(written)
        return Field(name, None if scalar is None else written, scalar, line, self._is_whole)

    def _value(self, node: Any, depth: int) -> Any:
        if depth > _DEEPEST or self._remaining <= 0:
            self._is_whole = False
            return None
        self._remaining -= 1
        if isinstance(node.value, str):
            return self._within_limit(self._written(node))
        if node.id == "sequence":
            return [self._value(item, depth + 1) for item in node.value[: self._remaining]]
        return {
            key.value if isinstance(key.value, str) else "": self._value(value, depth + 1)
            for key, value in node.value[: self._remaining]
        }

    def _within_limit(self, text: str) -> str:
        self._is_whole &= len(text) <= self._remaining
        text = text[: max(0, self._remaining)]
        self._remaining -= len(text)
        return text

    def _written(self, node: ScalarNode) -> str:
        """Returns a scalar's text; for a plain scalar, its line without a comment.

        "# the title" is a comment; "#5" and "#work" are not, because authors mean them as text.
        """
        start, end = node.start_mark, node.end_mark
        text = str(node.value)
        if node.style or start.line != end.line or end.line >= len(self._lines):
            return text
        line = self._lines[end.line]
        raw = line[start.column : end.column]
        anchor = re.match(r"&(\S+)", raw)
        if raw.startswith("!") or (anchor and f"*{anchor[1]}" not in self._source):
            text = raw  # "!important note" is no type, and "&co founders" no anchor
        tail = line[end.column :]
        if re.match(r"\s+#[^\s#]" if text else r"\s*#[^\s#]", tail):
            text += re.sub(r"\s#(?:\s.*)?\Z", "", tail).rstrip()
        return text.strip()


# Heads that YAML or TOML refuses

_KEY = {
    ":": re.compile(r"(\w[\w .()/-]{0,60}?|\"[^\"\n]{1,60}\"|'[^'\n]{1,60}')[ \t]*:(?!//)(.*)"),
    "=": re.compile(r"(\w[\w.-]{0,60}|\"[^\"\n]{1,60}\")[ \t]*=(.*)"),
}
_ITEM = re.compile(r"\s*[-*][ \t]+(.*)")
_CLOSER = {"[": "]", "{": "}"}
_BLOCK_SCALAR = re.compile(r"[>|][-+0-9]{0,2}")


class _FieldLines:
    """A field whose lines are being read; without a key, a line that is no field."""

    def __init__(self, key: str, text: str, line: int) -> None:
        self.key = key
        self.texts = [text]
        self.items: list[list[str]] = []
        self.line = line
        self.is_open = _is_open(text)

    def take(self, line: str) -> bool:
        """Adds `line`, which begins no field, if it belongs to this one; returns True then."""
        item = _ITEM.match(line)
        if not self.key:
            return False
        if item and not any(self.texts):
            self.items.append([item[1]])
        elif line[0].isspace() and self.items:
            self.items[-1].append(line.strip())
        elif line[0].isspace() or self.is_open:
            self.texts.append(line.strip())
            self.is_open = self.is_open and _CLOSER[self.texts[0][0]] not in line
        else:
            return False
        return True

    def field(self) -> Field:
        key, line = self.key, self.line
        if self.items:
            parts = (_unquoted(_uncommented(" ".join(item))) for item in self.items)
            return Field(key, [part for part in parts if part], None, line)
        if _BLOCK_SCALAR.fullmatch(self.texts[0]):
            text = ("\n" if self.texts[0][0] == "|" else " ").join(self.texts[1:])
            return Field(key, text, text, line)
        written = " ".join(self.texts).strip()
        if not key or self.is_open:
            written = f"{key}: {written}" if key else written
            return Field("", written, written, line)
        written = _uncommented(written)
        if len(written) > 1 and written[0] == "[" and written[-1] == "]":
            parts = (_unquoted(part.strip()) for part in written[1:-1].split(","))
            return Field(key, [part for part in parts if part], None, line)
        text = _unquoted(written)
        scalar = core_scalar(text) if text == written else text
        return Field(key, None if scalar is None else text, scalar, line)


def _line_by_line(source: str, separator: str) -> list[Field] | None:
    """Reads fields as `key: rest of the line`, with lists and indented lines below them.

    A line that belongs to no field becomes a field without a key, and so stays text. Returns None
    if the source is no head.
    """
    entries: list[_FieldLines] = []
    comments = 0
    for number, line in enumerate(source.split("\n"), 2):
        if not line.strip():
            continue
        # YAML forbids tabs as indentation, so a field behind a tab counts as not indented.
        match = _KEY[separator].match(line.lstrip("\t"))
        if match:
            entries.append(_FieldLines(_unquoted(match[1]), match[2].strip(), number))
        elif line.lstrip().startswith("#"):
            comments += 1
        elif not (entries and entries[-1].take(line)):
            entries.append(_FieldLines("", line.strip(), number))
    others = sum(not entry.key for entry in entries)
    if not entries or not entries[0].key or others * 2 > len(entries) or (others and comments):
        return None  # text between two horizontal lines, maybe with headings
    return [entry.field() for entry in entries]


def _is_open(written: str) -> bool:
    """Returns True if a list or a mapping begins in `written` and does not end."""
    return written[:1] in _CLOSER and _CLOSER[written[:1]] not in written


def _uncommented(written: str) -> str:
    return re.sub(r"(?:\A|\s)#(?:\s.*)?\Z", "", written, flags=re.S).strip()


def _unquoted(written: str) -> str:
    """Returns `written` without quotes, if they are around all of it."""
    quote = written[:1]
    inner = written[1:-1]
    if len(written) < 2 or quote not in {'"', "'"} or written[-1] != quote:
        return written
    if quote in inner.replace(f"\\{quote}", "").replace(quote * 2, ""):
        return written
    return inner.replace('\\"', '"') if quote == '"' else inner.replace("''", "'")


# TOML and JSON


def _toml(source: str) -> list[Field]:
    """Returns the fields of a table. Raises _RefusedError."""
    import tomllib

    if _LONG_NUMBER.search(source):
        raise _RefusedError
    try:
        fields = tomllib.loads(source, parse_float=_float)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise _RefusedError from error
    key_lines: dict[str, list[int]] = {}
    for number, line in enumerate(source.split("\n"), 2):
        match = re.match(r"\s*+\[{0,2}+\s*+[\"']?([\w-]+)", line)
        if match:
            key_lines.setdefault(match[1], []).append(number)
    return [_typed(key, value, _only(key_lines.get(key))) for key, value in fields.items()]


def _only(lines: list[int] | None) -> int | None:
    """Returns the line of a field; None if its name stands on several lines."""
    return lines[0] if lines and len(lines) == 1 else None


def _json(head: str) -> tuple[list[Field] | None, int]:
    """Returns the fields of the object at the start of a file, and where it ends."""
    try:
        fields, end = json.JSONDecoder(parse_float=_float).raw_decode(head)
    except (ValueError, RecursionError):
        return None, 0
    rest = _REST_OF_LINE.match(head, end)
    if not isinstance(fields, dict) or not fields or not rest:
        return None, 0
    lines = head[:end].split("\n")
    key_lines: dict[str, list[int]] = {}
    for number, line in enumerate(lines, 1):
        for key in re.findall(r'"([^"\\]+)"\s*:', line):
            key_lines.setdefault(key, []).append(number)
    typed = [_typed(key, value, _only(key_lines.get(key))) for key, value in fields.items()]
    return typed, rest.end()


def _float(written: str) -> float | str:
    return float(written) if str(float(written)) == written else written


def _typed(key: str, value: Any, line: int | None) -> Field:
    """Returns a field from a format that states the type of each value."""
    if isinstance(value, list | dict):
        return Field(key, value, None, line)
    if isinstance(value, datetime.date | datetime.time):
        value = value.isoformat()
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 63:
        value = str(value)
    if isinstance(value, float) and not abs(value) < float("inf"):
        value = str(value)
    text = None if value is None else str(value)
    return Field(key, text, value, line)
