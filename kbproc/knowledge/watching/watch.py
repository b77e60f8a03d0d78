"""A watched folder as methods return it, and the ingest that its rules stand for.

A folder is watched where a person has asked for it. The log says so on every machine that has a
copy of it, and may be written elsewhere; so the approvals of this user decide what is read here.
"""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from kbproc.base import changes, paths
from kbproc.base.changes import Identity
from kbproc.base.errors import KbprocError
from kbproc.base.settings.trust import ApprovedFolder, Trust
from kbproc.base.structs import common_members
from kbproc.engine.events.watch import FolderUnwatched, FolderWatched
from kbproc.engine.projections.catalog.rows import WatchRow
from kbproc.knowledge.documents.ingest import IngestWork

Prune = Literal["ask", "auto", "never"]
State = Literal["starting", "current", "reading", "missing", "failed", "idle", "elsewhere"]

MOST_FOLDERS = 32  # each takes two threads and one of the system's watchers


class Watch(Struct, kw_only=True, frozen=True):
    """A watched folder.

    `state`: `starting` until its files are compared for the first time, then `current`, or
    `reading` while changes are read; `missing`: what was approved is not there; `failed`: it could
    not be read, and is tried again; `warnings` say why;
    `idle`: no process watches it now; `elsewhere`: it is on another machine, or was not approved
    here. The members after it are there while a process watches it: `pending` files are to be read,
    `without_file` documents have lost their files, `held_back` of them wait for a person's
    approval, `failed` files could not be read. `synced_at`: when the documents last were in step.
    """

    path: str
    kb: str
    machine: str
    glob: str | None
    exclude: list[str]
    tags: list[str]
    prune: Prune
    all_files: bool
    max_file_bytes: int
    poll: bool
    added_at: str
    added_by: str
    state: State | UnsetType = UNSET
    files: int | UnsetType = UNSET
    pending: int | UnsetType = UNSET
    without_file: int | UnsetType = UNSET
    held_back: int | UnsetType = UNSET
    failed: int | UnsetType = UNSET
    synced_at: str | UnsetType | None = UNSET
    warnings: list[str] | UnsetType = UNSET


class WatchProgress(Struct, frozen=True, kw_only=True):
    """How far the process that watches a folder is; see Watch."""

    state: State
    files: int | UnsetType = UNSET
    pending: int | UnsetType = UNSET
    without_file: int | UnsetType = UNSET
    held_back: int | UnsetType = UNSET
    failed: int | UnsetType = UNSET
    synced_at: str | UnsetType | None = UNSET
    warnings: list[str] | UnsetType = UNSET


_of_row = common_members(Watch, WatchRow)
_of_progress = common_members(Watch, WatchProgress)
_rules_of = common_members(FolderWatched, WatchRow)


def watch_of(row: WatchRow, progress: WatchProgress | None = None) -> Watch:
    """Returns the folder for clients; without `progress`, as it was at an earlier position."""
    state = {} if progress is None else _of_progress(progress)
    return Watch(**_of_row(row), **state)


def event_of(row: WatchRow) -> FolderWatched:
    return FolderWatched(**_rules_of(row))


def work_of(row: WatchRow, runtime: Path | None) -> IngestWork:
    """Returns the ingest of the folder under its rules. It reads nothing outside of the folder,
    because a link that is made later was not approved.
    """
    folder = Path(row.path)
    return IngestWork(
        kb=row.kb,
        starts=[folder],
        root=None,
        named=frozenset([folder]),
        recursive=True,
        glob=row.glob,
        exclude=row.exclude,
        max_file_bytes=row.max_file_bytes,
        tags=row.tags,
        metadata={},
        prune=False,
        all_files=row.all_files,
        runtime=runtime,
    )


# -------------------------------------------------------------------------- approvals


def is_approved(trust: Trust, store: Path, row: WatchRow) -> bool:
    """Returns whether this user has asked for exactly this. Raises store.io."""
    return _approval(trust, store, row) is not None


def _approval(trust: Trust, store: Path, row: WatchRow) -> ApprovedFolder | None:
    return trust.watch_of(store, _place_of(row), _rules(event_of(row)))


def approve(trust: Trust, store: Path, event: FolderWatched) -> None:
    """Lets this user's processes read the folder, as it lies now. Raises store.io."""
    try:
        mount = changes.mount_at(Path(event.path))
    except OSError as error:
        raise KbprocError(
            "store.io", f"{event.path} can't be looked at: {error.strerror}."
        ) from error
    trust.add_watch(store, _place_of(event), _rules(event), mount)


class NotApproved(Exception):
    """A watched folder's path leads to something that no person has approved; `str` says why."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(f"{reason}; its documents stay as they are.{advice and ' '}{advice}")


def approved_folder(trust: Trust, store: Path, row: WatchRow) -> Identity:
    """Returns which folder lies at the approved path.

    Another folder in the same place counts as approved, because programs make folders anew; a
    link, and another mount, do not. Raises NotApproved, store.io, and OSError for a folder that
    can't be looked at.
    """
    folder = Path(row.path)
    try:
        fd = paths.open_unlinked(folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotApproved(str(error.strerror)) from error
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            is_there = error.errno == errno.ENOTDIR and folder.exists()
            what = "is no folder" if is_there else "is not there"
            raise NotApproved(f"{row.path} {what}") from error
        raise
    try:
        status = os.fstat(fd)
    finally:
        os.close(fd)
    approved = _approval(trust, store, row)
    if approved is None:
        raise NotApproved(f"{row.path} is no longer approved")
    if changes.mount_at(folder) != approved.mount:
        raise NotApproved(
            f"{row.path} lies in another file system than when it was added, because a disk was "
            "mounted or unmounted",
            f"To approve of it, add it again with its rules: kbproc watch add "
            f"{shlex.quote(row.path)} --kb {row.kb}",
        )
    return status.st_dev, status.st_ino


def withdraw(trust: Trust, store: Path, row: WatchRow) -> None:
    """Ends the approval. Raises store.io."""
    trust.drop_watch(store, _place_of(row))


def _place_of(watch: WatchRow | FolderWatched) -> str:
    return f"{watch.machine}\n{watch.path}"


def _rules(event: FolderWatched) -> dict[str, Any]:
    """Returns the rules that are not the defaults, so that a later version's new ones change
    nothing.
    """
    defaults = FolderWatched(machine="", path="", kb="")
    return {
        name: value
        for name, value in msgspec.structs.asdict(event).items()
        if value != getattr(defaults, name)
    }


# -------------------------------------------------------------------------- one of them


def require(rows: list[WatchRow], path: str, machine: str | None, here: str) -> WatchRow:
    """Returns the watched folder at `path`: that of `machine`, else of this one, else the only one.

    Raises resource.not_found, input.invalid_params.
    """
    named = [row for row in rows if row.path == path and machine in {None, row.machine}]
    own = [row for row in named if row.machine == here]
    if len(named) == 1 or own:
        return (own or named)[0]
    if named:
        machines = [row.machine for row in named]
        raise KbprocError(
            "input.invalid_params",
            f"{path} is watched on {' and '.join(machines)}.",
            field="$.params.machine",
            valid_values=machines,
            hint="Name the machine.",
        )
    raise KbprocError(
        "resource.not_found",
        f"{path} is not watched.",
        field="$.params.folder",
        valid_values=[row.path for row in rows][:10],
        hint="watch.list has the watched folders.",
    )


def end_of(row: WatchRow) -> FolderUnwatched:
    return FolderUnwatched(machine=row.machine, path=row.path, kb=row.kb)
