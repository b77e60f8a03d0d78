"""How an agent's files differ from what the log says of its notes.

Owns: what is added, changed, renamed and removed; how much may be removed without a person's
approval, and remembering what may not; the result of a sync.
Refuses to know: reading files, and writing records (sync.py).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from kbproc.agents.notefiles.folder import Scan, Skipped, Unavailable
from kbproc.base.wording import plural
from kbproc.views.catalog.rows import DocumentRow

_MOST_LISTED = 100

Action = Literal["added", "changed", "renamed", "removed", "restored"]


class FileChange(Struct, frozen=True):
    """A file whose text is not the one that the log has for its note.

    `row`: the note as the log has it, under its old slug if it was renamed.
    """

    action: Action
    slug: str
    sha256: str
    row: DocumentRow | None = None


class Behind(NamedTuple):
    """A note whose file is missing or, with `sha256`, holds what others have changed since."""

    row: DocumentRow
    slug: str
    sha256: str | None = None


class Diff(Struct, frozen=True, kw_only=True):
    """`known`: how many notes the log has; `removed`: those of them that have no file.

    `unfinished`: hidden names, as in Scan. `held`: some notes without a file were held back
    before, whatever their share is by now. `behind`: what other nodes have written since.
    """

    known: int
    found: list[FileChange]
    removed: list[DocumentRow]
    unchanged: int
    skipped: list[Skipped]
    unfinished: frozenset[str] = frozenset()
    held: bool = False
    behind: list[Behind] = []

    @property
    def bulk(self) -> bool:
        """Whether more than half would be removed, which a person must approve."""
        return self.held or len(self.removed) * 2 > self.known


class NoteChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`was`: the slug before."""

    agent: str
    slug: str
    action: Action
    was: str | None = None


class SkippedFile(Struct, frozen=True, kw_only=True):
    agent: str
    file: str
    reason: str


class Synced(Struct, kw_only=True):
    """Counts of notes. `held_back`: without a file, but more than may go without approval."""

    agents: int = 0
    added: int = 0
    changed: int = 0
    renamed: int = 0
    removed: int = 0
    restored: int = 0
    unchanged: int = 0
    held_back: int = 0
    changes: list[NoteChange] = []
    skipped: list[SkippedFile] = []
    warnings: list[str] = []

    def count(self, change: NoteChange) -> None:
        setattr(self, change.action, getattr(self, change.action) + 1)
        if len(self.changes) < _MOST_LISTED:
            self.changes.append(change)


class HeldBack:
    """Ids of notes without a file that are removed only with a person's approval.

    They are kept in a file of the store: neither another process nor notes that are written
    until then make them a smaller share. If that file can't be written or read, only the share
    at the next look counts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.ids: frozenset[int] = frozenset()
        with contextlib.suppress(OSError, msgspec.DecodeError):
            self.ids = msgspec.json.decode(path.read_bytes(), type=frozenset[int])

    def keep(self, ids: Iterable[int]) -> None:
        before, self.ids = self.ids, frozenset(ids)
        if self.ids == before:
            return
        with contextlib.suppress(OSError):
            if not self.ids:
                self._path.unlink(missing_ok=True)
                return
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            self._path.write_bytes(msgspec.json.encode(sorted(self.ids)))


def compare(known: Mapping[str, DocumentRow], scan: Scan, held: Collection[int] = ()) -> Diff:
    """A note whose file is gone and a new file with the same bytes are one note, renamed."""
    gone = {slug: known[slug] for slug in sorted(scan.missing(known))}
    by_text: dict[str, deque[str]] = {}
    for slug, row in gone.items():
        by_text.setdefault(row.sha256, deque()).append(slug)
    found: list[FileChange] = []
    unchanged = 0
    for slug, seen in sorted(scan.files.items()):
        logged = known.get(slug)
        if logged is not None and logged.sha256 == seen.sha256:
            unchanged += 1
        elif logged is not None:
            found.append(FileChange("changed", slug, seen.sha256, logged))
        elif before := by_text.get(seen.sha256):
            found.append(FileChange("renamed", slug, seen.sha256, gone.pop(before.popleft())))
        else:
            found.append(FileChange("added", slug, seen.sha256))
    return Diff(
        known=len(known),
        found=found,
        removed=list(gone.values()),
        unchanged=unchanged,
        skipped=scan.skipped,
        unfinished=scan.unfinished,
        held=any(row.id in held for row in gone.values()),
    )


def held_back_warning(agent: str, diff: Diff) -> str:
    return (
        f"{len(diff.removed)} of {plural(diff.known, 'note')} of {agent} have no file any more; "
        "more than half is removed only with a person's approval: note.sync asks for it, and "
        "with restore it writes the files again."
    )


def folder_is_gone(folder: Path, agent: str, known: int) -> Unavailable:
    """For a folder that is gone although the log has notes of it."""
    error = Unavailable(folder, "missing", f"is gone, and the log has {plural(known, 'note')}")
    error.hint = (
        f"Put the folder back, as it may be missing from a backup; or write the notes of {agent} "
        "again from the log: note.sync with restore."
    )
    return error


def sum_of(parts: Iterable[Synced]) -> Synced:
    """The results of several agents as one."""
    whole = Synced()
    for part in parts:
        for name in Synced.__struct_fields__:
            value: Any = getattr(whole, name) + getattr(part, name)
            setattr(whole, name, value[:_MOST_LISTED] if isinstance(value, list) else value)
    return whole
