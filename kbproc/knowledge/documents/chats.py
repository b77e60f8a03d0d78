"""Finds the folders in which coding agents keep their session logs on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct

from kbproc.base.clients import LOGS, places_here
from kbproc.base.errors import KbprocError
from kbproc.base.paths import is_gone
from kbproc.base.wording import plural

Client = Literal["claude-code", "codex", "gemini-cli", "opencode", "pi"]
CLIENTS: tuple[Client, ...] = get_args(Client)


class ChatPlace(Struct, frozen=True):
    """A folder or file with session logs, and the client that writes there."""

    client: Client
    path: Path

    def in_words(self) -> str:
        """Returns the place with the number and size of its files."""
        count, size = _extent(self.path)
        return f"{self.client}: {plural(count, 'file')}, {size / 1e6:,.1f} MB in {self.path}"


def places(clients: Iterable[Client], env: Mapping[str, str]) -> list[ChatPlace]:
    """Returns the places of these clients, or of all, that exist.

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
    if not existing:
        looked_at = ", ".join(str(place.path) for place in candidates)
        raise KbprocError(
            "resource.not_found",
            f"There are no session logs in {looked_at}.",
            field="$.params.clients",
            hint="Name an export, or a folder of session logs, to doc.ingest instead.",
        )
    return existing


def _extent(path: Path) -> tuple[int, int]:
    """Returns the number of JSON files below a folder, or of a file, and their bytes."""
    if path.is_file():
        return 1, path.stat().st_size
    count = size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            if name.endswith((".jsonl", ".json")):
                count += 1
                size += _size(Path(folder, name))
    return count, size


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
