"""Finds, checks and makes the folder of an agent's notes.

The default one lies in the store. No two agents may share a folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import AgentRow
from kbproc.engine.store.state import SeenStore
from kbproc.knowledge.agents.notes import files as notefiles


def default_folder(store: SeenStore, slug: str) -> Path:
    return store.origin.resolve() / "notes" / slug


def notes_folder(store: SeenStore, row: AgentRow) -> Path:
    """Returns the folder of the agent's notes: STORE/notes/SLUG unless it names another.

    The path had no symlink in it when it was named; one that it has now is not followed.
    """
    return default_folder(store, row.slug) if row.folder is None else Path(row.folder)


_FIELD = "$.params.notes_folder"


def named_folder(folder: str | None, *, cwd: Path, root: Path | None) -> Path | None:
    """Returns the folder that a request names. Raises input.invalid_params, path.outside_root."""
    return None if folder is None else paths.locate(folder, cwd=cwd, root=root, field=_FIELD)


def folder_to_record(store: SeenStore, slug: str, folder: Path | None) -> str | None:
    """Returns the path to record for `folder`; None for the default folder.

    `folder` is absolute and without symlinks. Raises input.invalid_params for the store's own
    files, resource.not_found if not even the folder above it exists.
    """
    store_folder = store.origin.resolve()
    if folder is None or folder == store_folder / "notes" / slug:
        return None
    if folder == store_folder or folder.is_relative_to(store_folder):
        raise KbprocError(
            "input.invalid_params",
            f"{paths.printable(folder)} lies among the store's own files.",
            field=_FIELD,
            hint=f"Leave it out for {paths.printable(store_folder / 'notes' / slug)}.",
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
    """Raises resource.already_exists if another agent has its notes there.

    Only names are compared, because a folder on a file system that hangs must not block other
    agents. A recorded path has no symlinks; the default folder may have become one.
    """
    notes = store.origin.resolve() / "notes"
    real = os.path.realpath(folder) if folder == default_folder(store, slug) else str(folder)
    for other in others:
        if other.slug != slug and real == (other.folder or str(notes / other.slug)):
            raise _already_exists(folder, other.slug)


def _already_exists(folder: Path, agent: str) -> KbprocError:
    return KbprocError(
        "resource.already_exists",
        f"{paths.printable(folder)} is the notes folder of {agent}.",
        field=_FIELD,
        hint="Each agent needs a folder of its own: name another.",
    )


def other_owner(
    store: SeenStore, folder: Path, slug: str, others: Iterable[AgentRow]
) -> str | None:
    """Returns the other agent that has its notes in that folder, under whatever path."""
    for other in others:
        if other.slug != slug and _is_same_folder(folder, notes_folder(store, other)):
            return other.slug
    return None


def _is_same_folder(one: Path, other: Path) -> bool:
    """Returns True if both paths lead to one folder.

    The folders are compared too, because a file system may ignore case, or show a folder twice.
    """
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return one.samefile(other)
    except OSError:
        return False


def make_folder(store: SeenStore, folder: Path) -> None:
    """Makes the folder, for its user alone; within the store, also those above it.

    Raises store.io.
    """
    try:
        notefiles.make(folder, above=folder.parent == default_folder(store, folder.name).parent)
    except OSError as error:
        raise KbprocError(
            "store.io",
            f"{paths.printable(folder)} could not be made: {error.strerror}.",
            field=_FIELD,
        ) from error


def making_folder(store: SeenStore, queries: Queries, row: AgentRow) -> Callable[[], None]:
    """Returns the function that makes the agent's folder.

    Raises resource.already_exists if another agent has it.
    """
    folder = notes_folder(store, row)
    check_folder(store, folder, row.slug, queries.agents())
    return lambda: make_folder(store, folder)
