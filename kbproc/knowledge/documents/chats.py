"""Finds the folders in which coding agents keep their session logs on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from kbproc.base.clients import LOGS, places_here
from kbproc.base.errors import KbprocError
from kbproc.base.paths import is_gone, open_regular
from kbproc.base.wording import plural

Client = Literal["claude-code", "codex", "gemini-cli", "opencode", "pi"]
CLIENTS: tuple[Client, ...] = get_args(Client)


# The first records of a log name the folder that its session ran in, or a hash of its path.
_HEAD_BYTES = 1 << 16
_FOLDER = re.compile(rb'"(?:cwd|directories)"\s*:\s*(?:\[\s*)?("(?:[^"\\]|\\.)*")')
_HASH = re.compile(rb'"projectHash"\s*:\s*"([0-9a-f]{64})"')


class ChatPlace(Struct, frozen=True):
    """A folder or file with session logs, and the client that writes there.

    `sessions`: the logs of one project; None for all logs of the place.
    """

    client: Client
    path: Path
    sessions: tuple[Path, ...] | None = None

    @property
    def starts(self) -> tuple[Path, ...]:
        """Returns the folders and files to read."""
        return (self.path,) if self.sessions is None else self.sessions

    def extent(self) -> tuple[int, int]:
        """Returns the number of files to read, and their bytes."""
        counts, sizes = zip(*map(_extent, self.starts), strict=True) if self.starts else ((), ())
        return sum(counts), sum(sizes)

    def in_words(self) -> str:
        """Returns the place with the number and size of its files."""
        count, size = self.extent()
        return f"{self.client}: {plural(count, 'file')}, {size / 1e6:,.1f} MB in {self.path}"


def places(
    clients: Iterable[Client], env: Mapping[str, str], project: Path | None = None
) -> list[ChatPlace]:
    """Returns the places of these clients, or of all, that exist.

    `project`: only sessions that ran in this folder or below it. opencode keeps the sessions of all
    projects in one file, so that it has none of a single project.

    Raises resource.not_found if there is none.
    """
    chosen = list(clients)
    at = places_here(env)
    candidates = [
        ChatPlace(name, LOGS[name].path(place, at))
        for name in chosen or CLIENTS
        for place in LOGS[name].logs
    ]
    existing = [place for place in candidates if not is_gone(place.path)]
    of_project = ""
    if project is not None:
        existing = [place for each in existing if (place := _of_project(each, project)).sessions]
        of_project = f" of {project}"
    if not existing:
        looked_at = ", ".join(str(place.path) for place in candidates)
        raise KbprocError(
            "resource.not_found",
            f"There are no session logs{of_project} in {looked_at}.",
            field="$.params.project" if of_project else "$.params.clients",
            hint="Name an export, or a folder of session logs, to doc.ingest instead.",
        )
    return existing


def _of_project(place: ChatPlace, project: Path) -> ChatPlace:
    """Returns the place with the logs of sessions that ran in the project, by path."""
    folders = {project, project.resolve()}
    hashes = {hashlib.sha256(str(folder).encode()).hexdigest() for folder in folders}

    def is_of_project(path: Path) -> bool:
        head = _head(path)
        if (match := _HASH.search(head)) and match[1].decode() in hashes:
            return True
        match = _FOLDER.search(head)
        written = _folder(match[1]) if match else Path("/")
        return any(w.is_relative_to(f) for w in (written, written.resolve()) for f in folders)

    logs = (path for path in _logs(place.path) if path.suffix != ".db")
    sessions = tuple(sorted(filter(is_of_project, logs)))
    return msgspec.structs.replace(place, sessions=sessions)


def _head(path: Path) -> bytes:
    """Returns the first bytes of a log; none of one that can't be read."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError:
        return b""


def _folder(written: bytes) -> Path:
    """Returns the folder that a JSON string names; the root for a string that is no text."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        return Path(msgspec.json.decode(written, type=str).replace("\0", ""))
    return Path("/")


def _logs(path: Path) -> Iterator[Path]:
    """Yields the JSON files below a folder; the path itself if it is a file."""
    if path.is_file():
        yield path
        return
    for folder, _, names in os.walk(path):
        yield from (Path(folder, name) for name in names if name.endswith((".jsonl", ".json")))


def _extent(path: Path) -> tuple[int, int]:
    """Returns the number of JSON files below a folder, or of a file, and their bytes."""
    sizes = [_size(file) for file in _logs(path)]
    return len(sizes), sum(sizes)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
