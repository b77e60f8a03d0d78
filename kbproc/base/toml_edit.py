"""Changes TOML in place: sets or removes a table or an element of an array of tables.

Every other line stays. `parse`, `change`, `append`, `drop` and `drop_empty` are those of json_edit,
so that a caller need not know the format.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_HEADER = re.compile(r"\s*\[(\[?)")
Path = tuple[str | int, ...]  # names of tables and numbers of an array's tables, from the outermost


class _TomlPart(Struct, frozen=True):
    """Lines that belong together: a header, a member, or one blank line or comment.

    `path`: of the table or the member; () for blank lines and comments.
    """

    text: str
    path: Path = ()
    is_header: bool = False


def parse(text: str) -> Any:
    """Returns the value. Raises ValueError."""
    return tomllib.loads(text)


def change(text: str, path: Path, value: Mapping[str, Any]) -> str:
    """Returns the text with this table at this path. Raises ValueError.

    Members that have their value already stay as they are written.
    """
    old = _at(parse(text), path)
    parts = list(_parts(text))
    header = next((n for n, part in enumerate(parts) if part.is_header and part.path == path), None)
    newline = _newline(text)
    if header is None or not isinstance(old, dict):
        before = text if old is None else drop(text, path)
        return f"{before}{_gap(before)}[{_dotted(path)}]{newline}{members(value, newline)}"
    new = {name: member for name, member in value.items() if old.get(name) != member}
    dropped = [(*path, name) for name in {**old, **new} if name in new or name not in value]
    head = parts[header].text
    head += "" if head.endswith("\n") else newline
    before = "".join(part.text for part in parts[:header])
    rest = [part for part in parts[header + 1 :] if not any(_lies_in(part, p) for p in dropped)]
    return before + head + members(new, newline) + "".join(part.text for part in rest)


def append(text: str, path: Path, value: Mapping[str, Any]) -> str:
    """Returns the text with this table as the last of the array of tables at this path.

    Raises ValueError if the result can't be read, as behind an array that is written as one value.
    """
    newline = _newline(text)
    after = f"{text}{_gap(text)}{_element(path, value, newline)}"
    parse(after)
    return after


def _element(path: Path, value: Mapping[str, Any], newline: str) -> str:
    """Returns the lines of one table of an array; lists of tables in it are arrays of their own."""
    below = {name: items for name, items in value.items() if _is_array(items)}
    own = {name: member for name, member in value.items() if name not in below}
    text = f"[[{_dotted(path)}]]{newline}{members(own, newline)}"
    for name, items in below.items():
        text += "".join(_element((*path, name), item, newline) for item in items)
    return text


def _is_array(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def drop(text: str, path: Path) -> str:
    """Returns the text without the table at this path and all in it, which must be there.

    A blank line before a header goes, too, and so do comments between its lines. Raises
    ValueError, also for a value that stands in one member with others.
    """
    parts = list(_parts(text))
    inside = {number for number, part in enumerate(parts) if _lies_in(part, path)}
    if not inside:
        why = "there is no" if _at(parse(text), path) is None else "others stand in one member with"
        raise ValueError(f"{why} {path[-1]}")
    remaining: list[str] = []
    for number, part in enumerate(parts):
        if number in inside:
            if part.is_header and remaining and not remaining[-1].strip():
                remaining.pop()
        elif part.path or not _is_between(parts, number, path):
            remaining.append(part.text)
    return "".join(remaining)


def _is_between(parts: list[_TomlPart], number: int, path: Path) -> bool:
    """Returns whether the members or headers before and after a part lie at this path."""
    nothing = _TomlPart("")
    before = next((part for part in reversed(parts[:number]) if part.path), nothing)
    behind = next((part for part in parts[number:] if part.path), nothing)
    return _lies_in(before, path) and _lies_in(behind, path)


def drop_empty(text: str, path: Path) -> str:
    """Returns the text without the table at this path, if it is empty. Raises ValueError."""
    return text if _at(parse(text), path) else drop(text, path)


def _at(value: Any, path: Path) -> Any:
    """Returns the value at the path; None without one."""
    for name in path:
        try:
            value = value[name]
        except (LookupError, TypeError):
            return None
    return value


def _lies_in(part: _TomlPart, path: Path) -> bool:
    return part.path[: len(path)] == path


def _parts(text: str) -> Iterator[_TomlPart]:
    """Yields the parts of a file. Raises ValueError."""
    lines = _LINE.findall(text)
    table: Path = ()
    latest: dict[Path, int] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip() or line.lstrip().startswith("#"):
            yield _TomlPart(line)
            at += 1
        elif (match := _HEADER.match(line)) is not None:
            table = _numbered(_path_of(tomllib.loads(line)), bool(match[1]), latest)
            yield _TomlPart(line, table, True)
            at += 1
        else:
            end, member = _member(lines, at)
            yield _TomlPart("".join(lines[at:end]), (*table, *_path_of(member)))
            at = end


def _numbered(names: Path, is_element: bool, latest: dict[Path, int]) -> Path:
    """Returns the path of a header's table, with the number that it has in each array of tables.

    `latest`: array → the number of its last table so far.
    """
    path: Path = ()
    for depth, name in enumerate(names, 1):
        path = (*path, name)
        if is_element and depth == len(names):
            latest[path] = latest.get(path, -1) + 1
        if path in latest:
            path = (*path, latest[path])
    return path


def _member(lines: list[str], at: int) -> tuple[int, dict[str, Any]]:
    """Returns the end of the member's lines, and its value. Raises ValueError."""
    for end in range(at + 1, len(lines) + 1):
        try:
            return end, tomllib.loads("".join(lines[at:end]))
        except tomllib.TOMLDecodeError:
            continue
    raise ValueError(f"line {at + 1} is no member")


def _path_of(table: Any) -> Path:
    """Returns the names from the outermost in; members of an inline table count as well."""
    names: list[str] = []
    while isinstance(table, dict | list) and len(table) == 1:
        if isinstance(table, dict):
            name, table = next(iter(table.items()))
            names.append(name)
        else:
            table = table[0]
    return tuple(names)


# ------------------------------------------------------------------------------ writing


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _gap(before: str) -> str:
    """Returns what ends the text and puts a blank line behind it."""
    newline = _newline(before)
    return "" if not before else newline if before.endswith("\n") else newline * 2


def _dotted(path: Sequence[str | int]) -> str:
    return ".".join(key(name) for name in path if isinstance(name, str))


def members(values: Mapping[str, Any], newline: str = "\n") -> str:
    """Returns lines `key = value`."""
    return "".join(f"{key(name)} = {value(member)}{newline}" for name, member in values.items())


def key(name: str) -> str:
    return name if _BARE.fullmatch(name) else value(name)


def value(member: Any) -> str:
    """Returns a member's value as TOML, on one line."""
    if isinstance(member, dict):
        return f"{{ {', '.join(f'{key(name)} = {value(item)}' for name, item in member.items())} }}"
    if isinstance(member, list):
        return f"[{', '.join(map(value, member))}]"
    return json.dumps(member, ensure_ascii=False).replace("\x7f", "\\u007f")
