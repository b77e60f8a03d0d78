"""Looks at a folder and at this machine, and writes nothing."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from kbproc.base.clients import CLIENTS, Client, Places
from kbproc.base.errors import KbprocError
from kbproc.base.git import repository_of
from kbproc.base.paths import existing_folder, open_regular
from kbproc.base.settings import toml
from kbproc.engine.events.document import CONVERSATION
from kbproc.engine.models.interface import DEFAULT_MODEL
from kbproc.engine.sources.parse.formats import detection
from kbproc.engine.sources.walk import walk
from kbproc.knowledge.documents import chats
from kbproc.knowledge.documents.chats import ChatPlace

MOST_FILES = 20_000  # a larger folder is not counted to its end
_HEAD_BYTES = 4096


class FolderSight(Struct, frozen=True, kw_only=True):
    """A folder, and what `doc.ingest` reads of it.

    `files` and `bytes`: of the files whose type is read. `unread`: the others. `is_cut`: there are
    more than MOST_FILES, and the rest was not counted.
    """

    path: Path
    kind: str
    files: int = 0
    bytes: int = 0
    unread: int = 0
    is_cut: bool = False


class Sight(Struct, frozen=True, kw_only=True):
    """A folder, the clients of this machine, and the logs of sessions that ran in the folder."""

    folder: FolderSight
    clients: list[Client]
    chats: list[ChatPlace]


class ModelSight(Struct, frozen=True, kw_only=True):
    """The model of a store. `effects`: the steps of its installation, none for a model that is
    here or that no package carries.
    """

    name: str
    effects: list[str]
    megabytes: int = 0


def check_folder(folder: Path, home: Path) -> None:
    """Raises resource.not_found, and input.invalid_params for a folder that holds the home."""
    existing_folder(str(folder), field="FOLDER")
    if home.resolve().is_relative_to(folder.resolve()):
        what = "is your home folder" if folder.resolve() == home.resolve() else "holds your home"
        raise KbprocError(
            "input.invalid_params",
            f"{folder} {what}: too much would be read, and most of it is not meant.",
            field="FOLDER",
            hint="Name one folder of texts, such as a project or your notes: "
            "kbproc start ~/notes. More folders can follow.",
        )


def look(folder: Path, places: Places) -> Sight:
    """Returns what is here. `places`: those of the user, with the folder as the project."""
    return Sight(
        folder=_look_at(folder),
        clients=[client for client in CLIENTS if client.is_here(places)],
        chats=_chats_of(folder, places),
    )


def look_at_model(store: Path) -> ModelSight:
    """Returns the model that the store's settings name, else the default model."""
    from kbproc.engine.models import install, weights  # not above: help needs none of it

    file = toml.read(store / "store.toml")
    name = DEFAULT_MODEL if file is None else file.table.get("model", {}).get("name", DEFAULT_MODEL)
    if not install.is_known(name):
        return ModelSight(name=name, effects=[])
    return ModelSight(
        name=name, effects=install.effects(name), megabytes=weights.CARRIERS[name].megabytes
    )


def _look_at(folder: Path) -> FolderSight:
    files = total = unread = 0
    for path in walk(folder, root=None):
        if files + unread == MOST_FILES:
            break
        size = _size_if_read(path)
        files += size is not None
        unread += size is None
        total += size or 0
    is_cut = files + unread == MOST_FILES
    return FolderSight(
        path=folder, kind=_kind(folder), files=files, bytes=total, unread=unread, is_cut=is_cut
    )


def _size_if_read(path: Path) -> int | None:
    """Returns the size of a file whose type is read; None for others."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            kind = detection(path.name, file.read(_HEAD_BYTES)).type
            return None if kind in (None, CONVERSATION) else os.fstat(file.fileno()).st_size
    except OSError:
        return None


def _kind(folder: Path) -> str:
    if (folder / ".obsidian").is_dir():
        return "a vault of Obsidian"
    for place in (folder, *folder.parents):
        if repository_of(place) is not None:
            return "a git repository" if place == folder else f"in the git repository {place.name}"
    return "a folder"


def _chats_of(folder: Path, places: Places) -> list[ChatPlace]:
    try:
        return chats.places((), places.variables, folder)
    except KbprocError as error:
        if error.type != "resource.not_found":
            raise
        return []  # because no session ran here yet
