"""Where an agent's notes lie.

Owns: the default folder, which folders may be named, two agents that would share one, and making
a folder.
Refuses to know: what lies in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from kbproc.agents.notefiles import folder as notefolder
from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.store.state import SeenStore
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import AgentRow


def default_folder(store: SeenStore, slug: str) -> Path:
    return store.origin.resolve() / "notes" / slug


def notes_folder(store: SeenStore, row: AgentRow) -> Path:
    """Where the agent's notes lie: STORE/notes/SLUG unless it names another folder.

    The path had no symlink in it when it was named; one that it has now is not followed.
    """
    return default_folder(store, row.slug) if row.folder is None else Path(row.folder)


_FIELD = "$.params.notes_folder"


def named_folder(folder: str | None, *, cwd: Path, root: Path | None) -> Path | None:
    """Raises input.invalid_params, path.outside_root."""
    return None if folder is None else paths.locate(folder, cwd=cwd, root=root, field=_FIELD)


def folder_to_record(store: SeenStore, slug: str, folder: Path | None) -> str | None:
    """What the log says of `folder`, which is absolute and without links; None: the default.

    Raises input.invalid_params for the store's own files, resource.not_found where not
    even the folder above it exists.
    """
    own = store.origin.resolve()
    if folder is None or folder == own / "notes" / slug:
        return None
    if folder == own or folder.is_relative_to(own):
        raise KbprocError(
            "input.invalid_params",
            f"{paths.printable(folder)} lies among the store's own files.",
            field=_FIELD,
            hint=f"Leave it out for {paths.printable(own / 'notes' / slug)}.",
        )
    if paths.printable(folder) != str(folder):
        raise KbprocError(
            "input.invalid_params",
            f"The name {paths.printable(folder)} is not UTF-8.",
            field=_FIELD,
        )
    if folder.exists() and not folder.is_dir():
        raise KbprocError(
            "input.invalid_params",
            f"{folder} is no folder.",
            field=_FIELD,
            hint="Name a folder, or one that can be made.",
        )
    if not folder.parent.is_dir():
        raise KbprocError(
            "resource.not_found",
            f"There is no folder {folder.parent}.",
            field=_FIELD,
            hint="Make that folder first, or name another.",
        )
    return str(folder)


def check_folder(store: SeenStore, folder: Path, slug: str, others: Iterable[AgentRow]) -> None:
    """Raises resource.already_exists if another agent keeps its notes there.

    By name alone: a folder on a file system that hangs must hold up nobody else's. What
    is kept of a folder that was named has no links; the default one may have become one.
    """
    notes = store.origin.resolve() / "notes"
    real = os.path.realpath(folder) if folder == default_folder(store, slug) else str(folder)
    for other in others:
        if other.slug != slug and real == (other.folder or str(notes / other.slug)):
            raise _taken(folder, other.slug)


def _taken(folder: Path, by: str) -> KbprocError:
    return KbprocError(
        "resource.already_exists",
        f"{paths.printable(folder)} is the notes folder of {by}.",
        field=_FIELD,
        hint="Each agent needs a folder of its own: name another.",
    )


def other_owner(
    store: SeenStore, folder: Path, slug: str, others: Iterable[AgentRow]
) -> str | None:
    """The other agent that keeps its notes there, whatever the two call it."""
    for other in others:
        if other.slug != slug and _same(folder, notes_folder(store, other)):
            return other.slug
    return None


def _same(one: Path, other: Path) -> bool:
    """By name, or by what is there: a file system may tell no case, or show a folder twice."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return one.samefile(other)
    except OSError:
        return False


def make_folder(store: SeenStore, folder: Path) -> None:
    """For its user alone. Only within the store folders above it are made. Raises store.io."""
    try:
        notefolder.make(folder, above=folder.parent == default_folder(store, folder.name).parent)
    except OSError as error:
        raise KbprocError(
            "store.io",
            f"{paths.printable(folder)} could not be made: {error.strerror}.",
            field=_FIELD,
        ) from error


def making_folder(store: SeenStore, queries: Queries, row: AgentRow) -> Callable[[], None]:
    """What makes the agent's folder. Raises resource.already_exists if another agent has it."""
    folder = notes_folder(store, row)
    check_folder(store, folder, row.slug, queries.agents())
    return lambda: make_folder(store, folder)
