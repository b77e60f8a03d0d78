"""Changes a table of a TOML file in place: sets or removes it, and keeps every other line."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_HEADER = re.compile(r"\s*\[")
Path = tuple[str, ...]


class _TomlPart(Struct, frozen=True):
    """Lines that belong together: a header, a member, or one blank line or comment.

    `path`: the names of the table or the member; () for blank lines and comments.
    """

    text: str
    path: Path = ()
    is_header: bool = False


def put(text: str, path: Path, entry: Mapping[str, Any], owned: Sequence[str]) -> str:
    """Returns the text with this entry as the table at `path`.

    If the table has a header, only its members in `owned` change. Raises ValueError.
    """
    parts = list(_parts(text))
    newline = "\r\n" if "\r\n" in text else "\n"
    header = next((n for n, part in enumerate(parts) if part.is_header and part.path == path), None)
    if header is None:
        before = drop(text, path)
        gap = "" if not before else newline if before.endswith("\n") else newline * 2
        return f"{before}{gap}[{'.'.join(map(key, path))}]{newline}{_lines(entry, newline)}"
    names = [(*path, name) for name in owned]
    rest = [part for part in parts[header + 1 :] if not any(_lies_in(part, name) for name in names)]
    head = parts[header].text
    head += "" if head.endswith("\n") else newline
    members = {name: entry[name] for name in owned if name in entry}
    before = "".join(part.text for part in parts[:header])
    return before + head + _lines(members, newline) + "".join(part.text for part in rest)


def _lines(members: Mapping[str, Any], newline: str) -> str:
    return "".join(f"{key(name)} = {value(member)}{newline}" for name, member in members.items())


def drop(text: str, path: Path) -> str:
    """Returns the text without the table at `path` and all in it. Raises ValueError."""
    remaining: list[str] = []
    for part in _parts(text):
        if not _lies_in(part, path):
            remaining.append(part.text)
        elif part.path == path and part.is_header and remaining and not remaining[-1].strip():
            remaining.pop()  # removes the blank line before the table
    return "".join(remaining)


def _lies_in(part: _TomlPart, path: Path) -> bool:
    return part.path[: len(path)] == path


def _parts(text: str) -> Iterator[_TomlPart]:
    """Yields the parts of a file. Raises ValueError."""
    lines = _LINE.findall(text)
    table: Path = ()
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip() or line.lstrip().startswith("#"):
            yield _TomlPart(line)
            at += 1
        elif _HEADER.match(line):
            table = _path_of(tomllib.loads(line))
            yield _TomlPart(line, table, True)
            at += 1
        else:
            end, member = _member(lines, at)
            yield _TomlPart("".join(lines[at:end]), (*table, *_path_of(member)))
            at = end


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


def key(name: str) -> str:
    return name if _BARE.fullmatch(name) else value(name)


def value(member: Any) -> str:
    """Returns a member's value as TOML, on one line."""
    if isinstance(member, dict):
        return f"{{ {', '.join(f'{key(name)} = {value(item)}' for name, item in member.items())} }}"
    if isinstance(member, list):
        return f"[{', '.join(map(value, member))}]"
    return json.dumps(member, ensure_ascii=False).replace("\x7f", "\\u007f")
