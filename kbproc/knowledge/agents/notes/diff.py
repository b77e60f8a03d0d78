"""Compares an agent's files with its notes in the log.

Files are added, changed, renamed or removed. New files and notes whose files are gone are paired
by the text that they share. Removing more than half of the notes needs a person's approval; the
notes that wait for it are remembered. The module also has the result of a sync.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from kbproc.base import durable
from kbproc.base.wording import plural
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.knowledge.agents.notes.files import Scan, Skipped, Unavailable

_MOST_LISTED = 100

Action = Literal["added", "changed", "renamed", "removed", "restored"]
_LEAST_LIKENESS = 0.5  # shared pieces, as a share of the longer text's; git has the same limit
_MOST_TIMES = 2  # the longer file has at most so many times the shorter one's bytes
_PIECE = 5  # characters: a piece of a text, in scripts without spaces as well
# Bytes of all pairs that are compared, which takes a second. If there are more, so many files
# have changed their names for another reason.
MOST_COMPARED = 4 << 20
Pieces = frozenset[str]


class _Pair(NamedTuple):
    id: int  # a note whose file is gone
    slug: str  # a new file


class FileChange(Struct, frozen=True):
    """A file whose text differs from the one that the log has for its note.

    `row`: the note as the log has it, under its old slug if it was renamed.
    """

    action: Action
    slug: str
    sha256: str
    row: DocumentRow | None = None


class StaleNoteFile(NamedTuple):
    """A note whose file is missing or, with `sha256`, holds a text that others have replaced."""

    row: DocumentRow
    slug: str
    sha256: str | None = None


class Diff(Struct, frozen=True, kw_only=True):
    """The differences between files and log.

    `note_count`: how many notes the log has. `removed`: the notes without a file. `unfinished`:
    hidden names, as in Scan. `was_held_back`: some notes without a file were held back before,
    whatever their share is by now. `stale_files`: files that other nodes' changes have not reached.
    """

    note_count: int
    changes: list[FileChange]
    removed: list[DocumentRow]
    unchanged: int
    skipped: list[Skipped]
    unfinished: frozenset[str] = frozenset()
    was_held_back: bool = False
    stale_files: list[StaleNoteFile] = []

    @property
    def bulk(self) -> bool:
        """True if more than half would be removed, which a person must approve."""
        return self.was_held_back or len(self.removed) * 2 > self.note_count


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
    """Counts of notes. `held_back`: without a file, but more than may go without approval.

    `in_folders`: Markdown files in sub-folders, which are no notes; null where the sub-folders hold
    too much to count.
    """

    agents: int = 0
    added: int = 0
    changed: int = 0
    renamed: int = 0
    removed: int = 0
    restored: int = 0
    unchanged: int = 0
    held_back: int = 0
    in_folders: int | None = 0
    changes: list[NoteChange] = []
    skipped: list[SkippedFile] = []
    warnings: list[str] = []

    def count(self, change: NoteChange) -> None:
        setattr(self, change.action, getattr(self, change.action) + 1)
        if len(self.changes) < _MOST_LISTED:
            self.changes.append(change)


class HeldBack:
    """Ids of notes without a file that are removed only with a person's approval.

    A file of the store has them, so that they still need it in another process, and when notes
    that were written since make them a smaller share. If that file can't be written or read, only
    the share at the next sync counts.
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
                durable.remove(self._path)
                return
            durable.make_folder(self._path.parent)
            durable.replace(self._path, msgspec.json.encode(sorted(self.ids)))


def compare(
    rows: Mapping[str, DocumentRow], scan: Scan, held_back_ids: Collection[int] = ()
) -> Diff:
    """Returns the differences between the notes `rows`, by slug, and their files.

    A note without a file and a new file with the same bytes are one note, renamed.
    """
    missing = {slug: rows[slug] for slug in sorted(scan.missing(rows))}
    by_text: dict[str, deque[str]] = {}
    for slug, row in missing.items():
        by_text.setdefault(row.sha256, deque()).append(slug)
    changes: list[FileChange] = []
    unchanged = 0
    for slug, file in sorted(scan.files.items()):
        note = rows.get(slug)
        if note is not None and note.sha256 == file.sha256:
            unchanged += 1
        elif note is not None:
            changes.append(FileChange("changed", slug, file.sha256, note))
        elif slugs := by_text.get(file.sha256):
            changes.append(FileChange("renamed", slug, file.sha256, missing.pop(slugs.popleft())))
        else:
            changes.append(FileChange("added", slug, file.sha256))
    return Diff(
        note_count=len(rows),
        changes=changes,
        removed=list(missing.values()),
        unchanged=unchanged,
        skipped=scan.skipped,
        unfinished=scan.unfinished,
        was_held_back=any(row.id in held_back_ids for row in missing.values()),
    )


def held_back_warning(agent: str, diff: Diff) -> str:
    return (
        f"{len(diff.removed)} of {plural(diff.note_count, 'note')} of {agent} have no file any "
        "more. Removing more than half needs a person's approval, for which note.sync asks; with "
        "restore it writes the files again instead."
    )


def folder_is_gone(folder: Path, agent: str, note_count: int) -> Unavailable:
    """Returns the error for a missing folder whose notes the log has."""
    error = Unavailable(folder, "missing", f"is gone, and the log has {plural(note_count, 'note')}")
    error.hint = (
        f"Put the folder back, as it may be missing from a backup; or write the notes of {agent} "
        "again from the log: note.sync with restore."
    )
    return error


def sum_of(parts: Iterable[Synced]) -> Synced:
    """Returns the results of several agents as one."""
    total = Synced()
    for part in parts:
        for name in Synced.__struct_fields__:
            one, other = getattr(total, name), getattr(part, name)
            value: Any = None if one is None or other is None else one + other
            setattr(total, name, value[:_MOST_LISTED] if isinstance(value, list) else value)
    return total


# ------------------------------------------------------------------ renames


def with_renames(
    diff: Diff,
    *,
    size_of: Callable[[str], int],
    old_text: Callable[[DocumentRow], str | None],
    new_text: Callable[[str], str | None],
) -> Diff:
    """Returns the diff with new files as renamed if they hold half or more of a missing note.

    The most similar pair comes first. `size_of` returns the bytes of a slug's file, `old_text` a
    note's text, `new_text` that of a slug's file; a text is None if it is gone.
    """
    sizes = {
        change.slug: size_of(change.slug) for change in diff.changes if change.action == "added"
    }
    rows = {row.id: row for row in diff.removed}
    pairs = _pairs(sizes, {row.id: row.size_bytes for row in diff.removed})
    if not pairs:
        return diff
    likenesses = _likenesses(
        pairs,
        old=lambda id: _pieces(old_text(rows[id])),
        new=lambda slug: _pieces(new_text(slug)),
    )
    notes: dict[str, DocumentRow] = {}
    for pair, likeness in sorted(likenesses.items(), key=lambda item: (-item[1], item[0])):
        if likeness >= _LEAST_LIKENESS and pair.slug not in notes and pair.id in rows:
            notes[pair.slug] = rows.pop(pair.id)
    changes = [
        FileChange("renamed", change.slug, change.sha256, notes[change.slug])
        if change.slug in notes
        else change
        for change in diff.changes
    ]
    return replace(diff, changes=changes, removed=list(rows.values()))


def _pairs(added: Mapping[str, int], removed: Mapping[int, int]) -> list[_Pair]:
    """Returns the pairs that may share half, by their sizes; none if that is too much to read.

    `added` and `removed`: bytes by slug and by id.
    """
    by_size = sorted((size, id) for id, size in removed.items())
    pairs: list[_Pair] = []
    remaining = MOST_COMPARED
    for slug, size in added.items():
        for other, id in by_size[bisect_left(by_size, (-(-size // _MOST_TIMES), 0)) :]:
            if other > _MOST_TIMES * size:
                break
            remaining -= size + other
            if remaining < 0:
                return []
            pairs.append(_Pair(id, slug))
    return pairs


def _likenesses(
    pairs: list[_Pair], *, old: Callable[[int], Pieces], new: Callable[[str], Pieces]
) -> dict[_Pair, float]:
    """Returns the likeness of each pair, from 0 to 1.

    The side with fewer texts stays in memory, the other side is read one text at a time, because
    the pieces of a text take some 70 times its bytes.
    """
    likenesses: dict[_Pair, float] = {}
    if len({pair.slug for pair in pairs}) <= len({pair.id for pair in pairs}):
        new = functools.cache(new)
        for id, group in itertools.groupby(sorted(pairs), lambda pair: pair.id):
            pieces = old(id)
            likenesses |= {pair: _likeness(pieces, new(pair.slug)) for pair in group}
    else:
        old = functools.cache(old)
        by_slug = sorted(pairs, key=lambda pair: pair.slug)
        for slug, group in itertools.groupby(by_slug, lambda pair: pair.slug):
            pieces = new(slug)
            likenesses |= {pair: _likeness(old(pair.id), pieces) for pair in group}
    return likenesses


def _pieces(text: str | None) -> Pieces:
    plain = " ".join((text or "").split())
    return frozenset(plain[at : at + _PIECE] for at in range(max(0, len(plain) - _PIECE + 1)))


def _likeness(one: Pieces, other: Pieces) -> float:
    return len(one & other) / max(1, len(one), len(other))
