"""YAML, TOML and XML: a block for each record, with the path to it as section.

YAML and TOML stay as they are written, comments included, and their lines are cited. The parser
reads events and builds no values, so an alias that stands for much text stays an alias. Escapes in
quoted strings are read as the characters that they stand for. The records of XML are read as
"name: value"; no entity is resolved.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kbproc.base.paths import suffix_of
from kbproc.engine.sources.parse import code
from kbproc.engine.sources.parse.blocks import Block, Parsed, clean_text
from kbproc.engine.sources.parse.code import LANGUAGES
from kbproc.engine.sources.parse.escapes import unescaped
from kbproc.engine.sources.parse.packed import local, parsed_xml
from kbproc.engine.sources.parse.text import decode

# Larger files are read as the text that they are, by lines.
_MOST_BYTES = {".toml": 4 << 20, ".xml": 16 << 20}
_MOST_BYTES_OF_YAML = 2 << 20
_DEEPEST = 8
_LEAST_RECORDS = 2
# A mapping of more lines than this one is cut at its keys.
_LONG = 12
_TOML_HEAD = re.compile(r"\s*+\[(\[)?([^\[\]#]++)\]?\]\s*+(?:#.*)?$")
_TOML_KEY = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([\w-]+))\s*(?:\.|$)""")
_TOML_QUOTES = re.compile(r'"""|\'\'\'')


class _TreePlace(NamedTuple):
    """The line, from 0, at which the value with this path begins."""

    line: int
    path: str


def parse(data: bytes, name: str) -> Parsed:
    """Returns the blocks of a file; one that is damaged or holds no records is read as code.

    Raises `input.unsupported_type` for bytes that are not text.
    """
    suffix = suffix_of(name)
    if suffix not in _MOST_BYTES:
        return as_yaml(data, name)
    if len(data) > _MOST_BYTES[suffix]:
        return code.parse(data, name)
    if suffix == ".xml":
        return _xml(data) or code.parse(data, name)
    return _with_places(data, name, _toml)


def as_yaml(data: bytes, name: str) -> Parsed:
    """Returns the blocks of YAML, or of JSON in lines, which YAML reads too; see `parse`."""
    if len(data) > _MOST_BYTES_OF_YAML:
        return code.parse(data, name)
    return _with_places(data, name, _yaml)


def _with_places(data: bytes, name: str, places_of: Callable[[str], list[_TreePlace]]) -> Parsed:
    decoded = decode(data, name)
    places = places_of(clean_text(decoded.text))
    if not places:
        return code.parse(data, name)
    suffix = suffix_of(name)
    lines = clean_text(unescaped(decoded.text, suffix)).split("\n")
    return Parsed(
        blocks=list(_blocks(lines, places)),
        metadata={"language": LANGUAGES[suffix]},
        unread={"replaced_bytes": decoded.replaced},
    )


def _blocks(lines: list[str], places: list[_TreePlace]) -> Iterator[Block]:
    """Yields the lines from each place to the next; comments right above a value belong to it."""
    starts = []
    for place in places:
        line = place.line
        while line > 0 and lines[line - 1].lstrip().startswith("#"):
            line -= 1
        starts.append(line)
    for number, start in enumerate([0, *starts]):
        end = starts[number] if number < len(starts) else len(lines)
        path = places[number - 1].path if number else None
        text = "\n".join(lines[start:end])
        if text.strip():
            yield Block(text=text, section=path, kind="code", line=start + 1)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1").replace("\n", " ")


# ------------------------------------------------------------------ YAML


class _TreeNode:
    """A mapping, a sequence or a scalar with its lines, from 0; scalars have no children."""

    __slots__ = ("children", "end", "is_mapping", "start")

    def __init__(self, start: int, *, is_mapping: bool = False) -> None:
        self.start, self.end, self.is_mapping = start, start, is_mapping
        self.children: list[tuple[str, int, _TreeNode]] = []  # key, its line, value


def _yaml(text: str) -> list[_TreePlace]:
    """Returns the places of the records; none for a file that YAML refuses."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        documents = list(_documents(yaml.parse(text, Loader=loader)))
    except (yaml.YAMLError, ValueError, RecursionError):
        return []
    places: list[_TreePlace] = []
    for number, document in enumerate(documents):
        root = f"/{number}" if len(documents) > 1 else ""
        if root:
            places.append(_TreePlace(document.start, root))
        places += _cuts(document, root, 0)
    return _in_order(places)


def _documents(events: Iterator[Any]) -> Iterator[_TreeNode]:
    """Yields the tree of each document, without its scalars' values."""
    stack: list[tuple[_TreeNode, list[tuple[str, int]]]] = []
    for event in events:
        name = type(event).__name__
        if name in ("MappingEndEvent", "SequenceEndEvent"):
            node, _ = stack.pop()
            node.end = event.end_mark.line
            if not stack:
                yield node
            continue
        if name not in ("MappingStartEvent", "SequenceStartEvent", "ScalarEvent", "AliasEvent"):
            continue
        line = event.start_mark.line
        node = _TreeNode(line, is_mapping=name == "MappingStartEvent")
        node.end = event.end_mark.line
        if stack:
            outer, keys = stack[-1]
            if not outer.is_mapping:
                outer.children.append((str(len(outer.children)), line, node))
            elif keys:
                key, key_line = keys.pop()
                outer.children.append((key, key_line, node))
            else:
                keys.append((str(getattr(event, "value", ""))[:100], line))
        if name in ("MappingStartEvent", "SequenceStartEvent"):
            stack.append((node, []))


def _cuts(node: _TreeNode, path: str, depth: int) -> Iterator[_TreePlace]:
    """Yields the places at which a value is cut: at a list's records, at a long mapping's keys."""
    children = [child for _, _, child in node.children]
    records = not node.is_mapping and sum(child.is_mapping for child in children) >= _LEAST_RECORDS
    if depth >= _DEEPEST or not (records or (node.is_mapping and node.end - node.start > _LONG)):
        return
    for key, line, child in node.children:
        own = f"{path}/{_escaped(key)}"
        yield _TreePlace(line, own)
        if child.children:
            yield from _cuts(child, own, depth + 1)


def _in_order(places: list[_TreePlace]) -> list[_TreePlace]:
    """Returns the places with growing lines; of several on one line, the deepest."""
    by_line = {place.line: place for place in places}
    return [by_line[line] for line in sorted(by_line)]


# ------------------------------------------------------------------ TOML


def _toml(text: str) -> list[_TreePlace]:
    """Returns the places of the tables; none for a file that TOML refuses."""
    try:
        tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError):
        return []
    places: list[_TreePlace] = []
    counts: Counter[str] = Counter()
    quote = ""
    depth = 0
    for number, line in enumerate(text.split("\n")):
        if not quote and depth == 0 and (head := _TOML_HEAD.match(line)):
            path = _toml_path(head[2].strip(), counts)
            if head[1]:
                counts[path] += 1
                path = f"{path}/{counts[path] - 1}"
            places.append(_TreePlace(number, path))
            continue
        for mark in _TOML_QUOTES.findall(line):
            quote = "" if mark == quote else quote or mark
        if not quote:
            depth = max(0, depth + line.count("[") - line.count("]"))
    return places


def _toml_path(head: str, counts: Counter[str]) -> str:
    """Returns the path of a table; in a list of tables it is that of the last one."""
    path = ""
    at = 0
    while at < len(head) and (key := _TOML_KEY.match(head, at)):
        path += f"/{_escaped(next(each for each in key.groups() if each is not None))}"
        at = key.end()
        if counts[path] and at < len(head):
            path += f"/{counts[path] - 1}"
    return path


# ------------------------------------------------------------------ XML


def _xml(data: bytes) -> Parsed | None:
    """Returns a block for each element of the longest row of equal ones, and for the rest."""
    try:
        root = parsed_xml(data)
    except ValueError:
        return None
    holder, name = _records(root)
    if holder is None:
        return None
    path = _path(holder)
    blocks: list[Block] = []
    comments = 0
    count = 0
    for child in holder:
        if local(child) == name:
            count += 1
            lines, omitted = _leaves(child)
            blocks.append(
                Block(text="\n".join(lines), section=f"{path}/{name}[{count}]", kind="code")
            )
            comments += omitted
    rest, omitted = _leaves(root, skip=holder, name=name)
    if rest:
        blocks.insert(0, Block(text="\n".join(rest), kind="code"))
    return Parsed(
        blocks=blocks,
        metadata={"language": "xml"},
        unread={"comments": comments + omitted},
    )


def _records(root: Any) -> tuple[Any, str]:
    """Returns the element that holds the most equal children, and their name; None for none.

    Elements with text between them are prose, and no records.
    """
    best: tuple[int, Any, str] = (_LEAST_RECORDS - 1, None, "")
    for holder in (root, *root):
        names = Counter(local(child) for child in holder if local(child))
        for name, count in names.most_common(1):
            is_prose = any((child.tail or "").strip() for child in holder)
            holds_more = any(len(child) or child.attrib for child in holder if local(child) == name)
            if count > best[0] and holds_more and not is_prose:
                best = (count, holder, name)
    return best[1], best[2]


def _path(element: Any) -> str:
    names = [local(element)]
    while (element := element.getparent()) is not None:
        names.append(local(element))
    return "/" + "/".join(reversed(names))


def _leaves(root: Any, skip: Any = None, name: str = "") -> tuple[list[str], int]:
    """Returns an element's texts and attributes as lines, and the number of its comments."""
    lines: list[str] = []
    comments = 0
    stack: list[tuple[Any, str, int]] = [(root, "", 0)]
    while stack:
        element, path, depth = stack.pop()
        if not isinstance(element.tag, str):
            is_comment = "Comment" in str(element.tag)
            comments += is_comment
            if not is_comment and (element.text or "").startswith("&"):
                lines.append(f"{path}: {element.text}" if path else element.text)
            lines += _line(path, element.tail) if depth else []
            continue
        lines += [f"{path}@{local_name(key)}: {value}" for key, value in element.attrib.items()]
        lines += _line(path, element.text)
        for child in reversed(element):
            if element is skip and local(child) == name:
                continue
            below = f"{path}.{local(child)}" if path else local(child)
            if isinstance(child.tag, str) and (child.tail or "").strip():
                stack.append((_LineTail(child.tail), path, 1))
            stack.append((child, below if local(child) else path, depth + 1))
    return lines, comments


class _LineTail:
    """The text behind an element, in the order in which it is read."""

    tag = None
    text = None

    def __init__(self, tail: str) -> None:
        self.tail = tail


def local_name(key: str) -> str:
    """Returns the name of an attribute without its namespace."""
    return key.rpartition("}")[2]


def _line(path: str, text: str | None) -> list[str]:
    words = " ".join((text or "").split())
    if not words:
        return []
    return [f"{path}: {words}" if path else words]
