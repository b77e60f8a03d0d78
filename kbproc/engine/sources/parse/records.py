"""JSON and JSON Lines: a block for each record, with the pointer to it as section (RFC 6901).

JSON without records is read as it is written if a person could read it so, with its lines. Else,
where it stands on one line or its strings hold escapes, it is cut at the keys of its objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from kbproc.engine.sources.parse import code, json_values, trees
from kbproc.engine.sources.parse.blocks import Block, Parsed, clean_text
from kbproc.engine.sources.parse.text import decode

# A list of at least so many objects holds records; a shorter one is part of a setting.
_LEAST_RECORDS = 2
# Larger files are read as the text that they are, by lines.
MAX_BYTES = 32 << 20
_LONGEST_LINE = 500  # bytes of a line that a person reads
_DEEPEST = 8
# An object with more values than this is cut at its keys.
_LONG = 12


def parse(data: bytes, name: str) -> Parsed:
    """Returns a block for each record of the longest list of objects, and for what is beside it.

    A file that holds no such list, and no escapes or long lines, is read with its lines. Raises
    `input.unsupported_type` for bytes that are not text.
    """
    if len(data) > MAX_BYTES:
        return code.parse(data, name)
    try:
        value = json_values.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except RecursionError:
        return code.parse(data, name)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _json_lines(data, name) or code.parse(data, name)
    path, records = _records(value)
    if len(records) < _LEAST_RECORDS:
        if b"\\" in data or max(map(len, data.split(b"\n"))) > _LONGEST_LINE:
            whole = value if isinstance(value, dict | list) else [value]
            return Parsed(blocks=list(_parts(whole, "", 0)), metadata={"language": "json"})
        return trees.as_yaml(data, name)
    blocks = [
        Block(text=_text(record), section=f"{path}/{number}", kind="code")
        for number, record in enumerate(records)
    ]
    if isinstance(value, dict):
        rest = {key: each for key, each in value.items() if f"/{_escaped(key)}" != path}
        blocks[:0] = _parts(rest, "", 0) if rest else []
    return Parsed(blocks=blocks)


def _json_lines(data: bytes, name: str) -> Parsed | None:
    """Returns a block for each line that is a JSON value; None if a line is none."""
    decoded = decode(data, name)
    blocks = []
    for number, line in enumerate(clean_text(decoded.text).split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json_values.decode(line)
        except (msgspec.DecodeError, RecursionError):
            return None
        blocks.append(Block(text=_text(record), line=number, kind="code"))
    unread = {"replaced_bytes": decoded.replaced}
    return Parsed(blocks=blocks, unread=unread) if blocks else None


def _records(value: Any) -> tuple[str, list[dict[str, Any]]]:
    """Returns the pointer and the records of the longest list of objects, two levels deep."""
    lists = [("", value)] if isinstance(value, list) else []
    if isinstance(value, dict):
        lists = [(f"/{_escaped(key)}", each) for key, each in value.items()]
    candidates = [
        (path, each)
        for path, each in lists
        if isinstance(each, list) and each and all(isinstance(one, dict) for one in each)
    ]
    return max(candidates, key=lambda pair: len(pair[1]), default=("", []))


def _parts(value: Any, path: str, depth: int) -> Iterator[Block]:
    """Yields the blocks of a value: a long object or list of objects is cut at its members, and
    short members that follow each other stay together.
    """
    members = value.items() if isinstance(value, dict) else enumerate(value)
    short: list[tuple[Any, Any]] = []
    for key, member in members:
        if depth < _DEEPEST and _is_long(member):
            yield from _together(value, short, path)
            short = []
            yield from _parts(member, f"{path}/{_escaped(str(key))}", depth + 1)
        else:
            short.append((key, member))
    yield from _together(value, short, path)


def _together(holder: Any, members: list[tuple[Any, Any]], path: str) -> Iterator[Block]:
    if members:
        part = dict(members) if isinstance(holder, dict) else [member for _, member in members]
        yield Block(text=_text(part), section=path or None, kind="code")


def _is_long(value: Any) -> bool:
    """Returns True for an object or list that is read as many lines."""
    if not isinstance(value, dict | list):
        return False
    return next(islice(_leaves(value), _LONG, None), None) is not None


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _text(record: Any) -> str:
    """Returns a record as lines of "path: value", as a person would read it aloud."""
    lines = [f"{path}: {value}" if path else value for path, value in _leaves(record)]
    return "\n".join(lines)


def _leaves(record: Any) -> Iterator[tuple[str, str]]:
    stack: list[tuple[str, Any]] = [("", record)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, dict) and value:
            pairs = [(f"{path}.{key}" if path else str(key), each) for key, each in value.items()]
            stack += reversed(pairs)
        elif isinstance(value, list) and value and not _is_plain(value):
            stack += reversed([(f"{path}[{i}]", each) for i, each in enumerate(value)])
        elif isinstance(value, list) and value:
            yield path, ", ".join(map(_scalar, value))
        else:
            yield path, _scalar(value)


def _is_plain(values: list[Any]) -> bool:
    return not any(isinstance(value, dict | list) for value in values)


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
