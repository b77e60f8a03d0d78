"""Counts what hooks and tools tell agents and what these do with it, in a file of the store.

The file is no part of the log: it exists only where a person has turned counting on, and it holds
ids and numbers. A purge removes the ids of what it erases.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from kbproc.base.hashes import blake2b
from kbproc.base.values import NOT_READABLE, Decoder, decoder
from kbproc.engine.store.hook_log import FOLDER, add_line, folder_of, read_in, replace_in

_FILE = "counts.ndjson"
PLACE = f"{FOLDER}/{_FILE}"
MOST_BYTES = 1 << 20
InjectionKind = Literal["session-start", "prompt", "tool"]


class Injection(Struct, frozen=True, kw_only=True, tag="injection", omit_defaults=True):
    """One answer of a hook. `tokens`: 0 for a silent one. `ids`: the documents that it quotes."""

    ts: str
    session: str | None
    kind: InjectionKind
    tokens: int = 0
    ids: list[int] = []


class Answers(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answers of a session's searches over MCP: how many `calls`, in how many of them texts
    were found, in how many `tokens`; `ids`: of the documents; `cited`, `opened`: those that the
    agent has cited or opened afterwards.
    """

    calls: int = 0
    answers: int = 0
    tokens: int = 0
    ids: list[int] = []
    cited: list[int] = []
    opened: list[int] = []


class Use(Struct, frozen=True, kw_only=True, tag="use", omit_defaults=True):
    """The documents that an agent has cited or opened in a session up to now, after a hook had
    quoted them; and the `answers` that tools gave it.
    """

    ts: str
    session: str | None
    cited: list[int] = []
    opened: list[int] = []
    answers: Answers = Answers()


Line = Injection | Use
_decode_line: Decoder[Line] = decoder(Line)  # type: ignore[arg-type]


def name_of(session: str | None) -> str | None:
    """Returns the name of a session in the file, which does not tell the client's own."""
    if session is None:
        return None
    return blake2b(session.encode("utf-8", "replace"), digest_size=6).hexdigest()


def add(store: Path, line: Line) -> None:
    """Adds a line; the older half of the file goes once it is full. Raises OSError."""
    add_line(store, _FILE, msgspec.json.encode(line) + b"\n", MOST_BYTES)


def lines_of(store: Path) -> list[Line]:
    """Returns the lines, oldest first; those that can't be read are left out. Raises OSError."""
    folder = folder_of(store)
    try:
        data = read_in(folder, _FILE, MOST_BYTES) or b""
    finally:
        os.close(folder)
    return _lines(data)


def _lines(data: bytes) -> list[Line]:
    lines: list[Line] = []
    for text in data.splitlines():
        with contextlib.suppress(*NOT_READABLE):
            lines.append(_decode_line.decode(text))
    return lines


def delete(store: Path) -> bool:
    """Deletes all counts; returns whether there were any. Raises OSError."""
    folder = folder_of(store)
    try:
        os.unlink(_FILE, dir_fd=folder)
    except FileNotFoundError:
        return False
    finally:
        os.close(folder)
    return True


def forget(store: Path, ids: Collection[int]) -> None:
    """Removes the ids of documents that are erased. Raises OSError."""
    if not ids or not (store / PLACE).exists():
        return
    erased = frozenset(ids)
    folder = folder_of(store)
    try:
        lines = [
            _without(line, erased) for line in _lines(read_in(folder, _FILE, MOST_BYTES) or b"")
        ]
        replace_in(folder, _FILE, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    finally:
        os.close(folder)


def _without(line: Line, ids: frozenset[int]) -> Line:
    if isinstance(line, Injection):
        return msgspec.structs.replace(line, ids=_others(line.ids, ids))
    answers = msgspec.structs.replace(
        line.answers,
        ids=_others(line.answers.ids, ids),
        cited=_others(line.answers.cited, ids),
        opened=_others(line.answers.opened, ids),
    )
    return msgspec.structs.replace(
        line, cited=_others(line.cited, ids), opened=_others(line.opened, ids), answers=answers
    )


def _others(ids: list[int], erased: frozenset[int]) -> list[int]:
    return [id for id in ids if id not in erased]
