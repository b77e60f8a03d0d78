"""Changes JSON with comments in place: sets or removes a member or an item of an array.

Every other byte stays. `parse`, `change`, `append`, `drop` and `drop_empty` are those of toml_edit,
so that a caller need not know the format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

_COMMENT = r"//[^\r\n]*|/\*.*?\*/"
_SPACE = re.compile(rf"(?:[ \t\r\n\ufeff]|{_COMMENT})*", re.DOTALL)
_REST_OF_LINE = re.compile(rf"(?:[ \t]|{_COMMENT})*", re.DOTALL)
_SCALAR = re.compile(r"-?\d[\d.eE+-]*|true|false|null")
_END_OF_LINE = re.compile(r"[ \t]*(\r?\n|\Z)")
_INDENT = re.compile(r"[ \t]*")
_decoder = json.JSONDecoder()
_UNIT = "  "
_DEEPEST = 500  # levels; Python's own parser ends near a thousand
Path = Sequence[str | int]  # names of members and indexes of items, from the outermost in


class JsonNode(Struct, kw_only=True):
    """A value and its place in the text. `members` of an object: name → place of the name, node.

    `items` of an array. `comma`: the place of a comma after the last member or item.
    """

    start: int
    end: int
    value: Any
    members: dict[str, tuple[int, JsonNode]] = {}
    items: list[JsonNode] = []
    comma: int | None = None

    @property
    def last(self) -> JsonNode | None:
        """Returns the last member's or item's node; None for an empty one."""
        nodes = [node for _, node in self.members.values()] or self.items
        return nodes[-1] if nodes else None

    @property
    def first_start(self) -> int:
        """Returns the place of the first member's name, or of the first item; there must be one."""
        return self.items[0].start if self.items else next(iter(self.members.values()))[0]


def parse(text: str) -> Any:
    """Returns the value, {} for a blank text. Raises ValueError.

    Comments and commas before a bracket are allowed.
    """
    return _document(_filled(text)).value


def _filled(text: str) -> str:
    return text if text.strip("\ufeff\r\n\t ") else "{}\n"


def _document(text: str) -> JsonNode:
    node = _value(text, _skip(text, 0), 0)
    if (end := _skip(text, node.end)) != len(text):
        raise _wrong("there is more than one value", text, end)
    return node


def _wrong(why: str, text: str, at: int) -> ValueError:
    return ValueError(f"line {text.count(chr(10), 0, at) + 1}: {why}")


def _skip(text: str, at: int) -> int:
    """Returns the place after white space and comments."""
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _value(text: str, at: int, depth: int) -> JsonNode:
    """Raises ValueError."""
    if depth > _DEEPEST:
        raise _wrong("it is nested too deeply", text, at)
    first = text[at : at + 1]
    if first == "{":
        return _object(text, at, depth)
    if first == "[":
        return _array(text, at, depth)
    if first == '"':
        value, end = _decoder.raw_decode(text, at)
        return JsonNode(start=at, end=end, value=value)
    if (match := _SCALAR.match(text, at)) is None:
        raise _wrong("a value is missing", text, at)
    return JsonNode(start=at, end=match.end(), value=json.loads(match[0]))


def _array(text: str, start: int, depth: int) -> JsonNode:
    array = JsonNode(start=start, end=start, value=[], items=[])
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]":
        node = _value(text, at, depth + 1)
        array.items.append(node)
        array.value.append(node.value)
        at, array.comma = _after(text, node.end, "]")
    array.end = at + 1
    return array


def _object(text: str, start: int, depth: int) -> JsonNode:
    node = JsonNode(start=start, end=start, value={}, members={})
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        if text[at : at + 1] != '"':
            raise _wrong("a name in double quotes is missing", text, at)
        name, end = _decoder.raw_decode(text, at)
        colon = _skip(text, end)
        if text[colon : colon + 1] != ":":
            raise _wrong("a colon is missing", text, colon)
        member = _value(text, _skip(text, colon + 1), depth + 1)
        node.members[name] = at, member
        node.value[name] = member.value
        at, node.comma = _after(text, member.end, "}")
    node.end = at + 1
    return node


def _after(text: str, end: int, closing: str) -> tuple[int, int | None]:
    """Returns the place of the next member or bracket, and of the comma before it."""
    comma = _skip(text, end)
    if text[comma : comma + 1] == ",":
        return _skip(text, comma + 1), comma
    if text[comma : comma + 1] != closing:
        raise _wrong(f"a comma or {closing} is missing", text, comma)
    return comma, None


# ------------------------------------------------------------------------------ changing


def put(text: str, path: Sequence[str], value: Any) -> str:
    """Returns the text with this value at this path; missing objects on the path are made.

    Raises ValueError for a text that can't be read, and for another value on the path.
    """
    text = _filled(text)
    node = _document(text)
    for depth, name in enumerate(path):
        if not isinstance(node.value, dict):
            raise ValueError(f"{'.'.join(path[:depth]) or 'the whole'} is no object")
        if name not in node.members:
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value}
            return _with_member(text, node, name, value)
        node = node.members[name][1]
    indent = _indent_at(text, node.start)
    return text[: node.start] + _written(text, value, indent) + text[node.end :]


def change(text: str, path: Sequence[str], value: Mapping[str, Any]) -> str:
    """Returns the text with this object at this path. Raises ValueError.

    Members that have their value already stay as they are written.
    """
    old = parse(text)
    for name in path:
        old = old.get(name) if isinstance(old, dict) else None
    if not isinstance(old, dict):
        return put(text, path, value)
    for name in old.keys() - value.keys():
        text = drop(text, (*path, name))
    for name, member in value.items():
        if name not in old or old[name] != member:
            text = put(text, (*path, name), member)
    return text


def append(text: str, path: Path, value: Any) -> str:
    """Returns the text with this value as the last item of the array at this path.

    A missing array is made, and missing objects on its path. Raises ValueError.
    """
    text = _filled(text)
    node = _document(text)
    for name in path:
        if isinstance(name, str) and name not in node.members:
            return put(text, [str(name) for name in path], [value])
        node = _child(node, name)
    if not isinstance(node.value, list):
        raise ValueError(f"{'.'.join(map(str, path))} is no array")
    return _with_last(text, node, "", value)


def _child(node: JsonNode, name: str | int) -> JsonNode:
    """Returns the member of that name, or the item of that index. Raises ValueError."""
    try:
        return node.items[name] if isinstance(name, int) else node.members[name][1]
    except LookupError:
        raise ValueError(f"there is no {name}") from None


def _with_member(text: str, node: JsonNode, name: str, value: Any) -> str:
    return _with_last(text, node, f"{json.dumps(name, ensure_ascii=False)}: ", value)


def _with_last(text: str, node: JsonNode, prefix: str, value: Any) -> str:
    """Returns the text with one more member or item at the end of an object or an array."""
    newline = "\r\n" if "\r\n" in text else "\n"
    at = node.start + 1
    comma = ""
    if node.last is not None:
        at = node.last.end if node.comma is None else node.comma + 1
        comma = "," if node.comma is None else ""
    if node.last is not None and "\n" not in text[node.start : node.end]:
        compact = json.dumps(value, ensure_ascii=False)
        return f"{text[:at]}{comma} {prefix}{compact}{text[at:]}"
    end = _REST_OF_LINE.match(text, at).end()  # type: ignore[union-attr]
    here = text[at:end].rstrip(" \t")  # a comment on the same line stays there
    outer = _indent_at(text, node.start)
    inner = outer + _unit(text) if node.last is None else _indent_at(text, node.first_start)
    line = f"{newline}{inner}{prefix}{_written(text, value, inner)}"
    line += "," if node.comma is not None else ""
    rest = text[end:]
    if not rest.startswith(("\n", "\r\n")):  # the bracket stands on the same line
        rest = f"{newline}{outer}{rest.lstrip()}"
    return f"{text[:at]}{comma}{here}{line}{rest}"


def _unit(text: str) -> str:
    """Returns one step of indentation, that of the outermost member."""
    node = _document(text)
    if isinstance(node.value, dict) and node.members:
        return _indent_at(text, next(iter(node.members.values()))[0]) or _UNIT
    return _UNIT


def _indent_at(text: str, at: int) -> str:
    start = text.rfind("\n", 0, at) + 1
    return _INDENT.match(text, start)[0]  # type: ignore[index]


def _written(text: str, value: Any, indent: str) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text)).split("\n")
    return f"{newline}{indent}".join(lines)


def drop(text: str, path: Path) -> str:
    """Returns the text without the member or the item at this path, which must be there.

    Its line goes, too, if the line holds nothing else. Raises ValueError.
    """
    parent = _document(text)
    for name in path[:-1]:
        parent = _child(parent, name)
    node = _child(parent, path[-1])
    if isinstance(name := path[-1], int):
        start, index, nodes = node.start, name, parent.items
    else:
        start, index = parent.members[name][0], list(parent.members).index(name)
        nodes = [member for _, member in parent.members.values()]
    end = node.end
    if (comma := _skip(text, end)) and text[comma : comma + 1] == ",":
        end = comma + 1
    elif index > 0:
        comma = _skip(text, nodes[index - 1].end)
        text = text[:comma] + text[comma + 1 :]
        start, end = start - 1, end - 1
    elif not (text[parent.start + 1 : start] + text[end : parent.end - 1]).strip():
        empty = text[parent.start] + text[parent.end - 1]
        return f"{text[: parent.start]}{empty}{text[parent.end :]}"
    return _without(text, start, end)


def drop_empty(text: str, path: Sequence[str]) -> str:
    """Returns the text without the object at this path, unless it holds a member or a comment.

    Raises ValueError.
    """
    node = _document(text)
    for name in path:
        node = node.members[name][1]
    return text if text[node.start + 1 : node.end - 1].strip() else drop(text, path)


def _without(text: str, start: int, end: int) -> str:
    begins_line = not text[text.rfind("\n", 0, start) + 1 : start].strip()
    rest = _END_OF_LINE.match(text, end)
    if rest is not None and begins_line:  # so that no blank line stays
        return text[: text.rfind("\n", 0, start) + 1] + text[rest.end() :]
    end += len(text[end:]) - len(text[end:].lstrip(" \t"))
    if text[end : end + 1] in {"}", "\r", "\n"}:
        start = len(text[:start].rstrip(" \t"))
    return text[:start] + text[end:]
