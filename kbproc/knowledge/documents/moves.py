"""Finds the document that a new file continues: its file was renamed, moved, or is back.

The choice is among the documents of a knowledge base whose files are gone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import chain, takewhile
from pathlib import Path, PurePath
from posixpath import dirname, isdir

from kbproc.base import changes, paths
from kbproc.base.errors import KbprocError
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.engine.sources.blobs import digest


def holders(path: str) -> list[str]:
    """Returns the files that a file within others lies in, outermost first; [] for a plain file."""
    if paths.WITHIN not in path:  # because few files lie within others
        return []
    ends = [match.start() for match in re.finditer(re.escape(paths.WITHIN), path)]
    return [path[:end] for end in ends]


def is_held(path: str) -> bool:
    """Returns True for the path of a file within another, and not for one in a folder "a!"."""
    return any(not Path(f"{holder}!").is_dir() for holder in holders(path))


def is_gone(path: str) -> bool:
    """Returns True only if certainly neither the file nor a file that holds it exists."""
    return paths.is_gone(path) and not any(Path(holder).is_file() for holder in holders(path))


def vanished(file_paths: Iterable[str]) -> set[str]:
    """Returns the paths whose files are no longer there, while a folder above them is.

    The store may come from another machine, so a missing folder says nothing. Files on a network
    are left out, because looking at them may take for ever.
    """
    candidates = [path for path in dict.fromkeys(file_paths) if path.startswith("/")]
    remote = changes.remote_points() if candidates else ()
    gone_paths = [
        path
        for path in candidates
        if not any(Path(path).is_relative_to(point) for point in remote) and is_gone(path)
    ]
    folders = {path: _folders_near(path) for path in gone_paths}
    # Hits of one page often lie in few folders.
    standing = {folder for folder in set(chain(*folders.values())) if isdir(folder)}
    return {path for path, near in folders.items() if not standing.isdisjoint(near)}


def _folders_near(path: str) -> list[str]:
    """Returns the folder of the file, and the one above it, because folders are renamed, too."""
    folder = dirname(next(iter(holders(path)), path))
    return [near for near in (folder, dirname(folder)) if near != "/"]


def state_of_file(row: DocumentRow, stamps: Collection[str]) -> str | None:
    """Returns "changed", "gone" or "unreadable"; None for a file whose text the document has.

    `stamps`: of all documents of that file. A document whose source is not its file's bytes, such
    as a conversation, is compared by them. A file within another one changes with that.
    """
    path = str(row.path)
    if is_held(path):
        return "gone" if is_gone(path) else None
    try:
        size = Path(path).stat().st_size
        if row.stamp:
            return None if stamp_of(Path(path)) in stamps else "changed"
        is_same = size == row.size_bytes and digest(paths.read_file(Path(path), size)) == row.sha256
        return None if is_same else "changed"
    except FileNotFoundError:
        return "gone"
    except (OSError, KbprocError):
        return "unreadable"


def stamp_of(path: Path) -> str:
    """Returns the file's size and the time of its last change; "" if it can't be looked at."""
    try:
        status = path.stat()
    except OSError:
        return ""
    return f"{status.st_size}:{status.st_mtime_ns}"


def lies_below(path: str, starts: Iterable[Path]) -> bool:
    """Returns True if the file, or a file that holds it, lies in one of the folders or is named."""
    return any(
        Path(each).is_relative_to(start) for start in starts for each in (path, *holders(path))
    )


class FormerFiles:
    """Documents by the bytes of their files, each of which one new file may continue.

    A document whose file still exists is not offered: the same bytes elsewhere are another
    document then.
    """

    def __init__(self, live: Iterable[DocumentRow], pruned: Iterable[DocumentRow]) -> None:
        """`pruned`: documents that an ingest removed because their files were gone."""
        self._by_hash: dict[str, list[DocumentRow]] = {}
        self._pruned_at: dict[str, DocumentRow] = {}
        self.continued_ids: set[int] = set()  # ids of documents that a new file continues
        for row in (*live, *pruned):
            if row.sha256:
                self._by_hash.setdefault(row.sha256, []).append(row)
            if row.deleted_at is not None and row.path is not None:
                self._pruned_at[row.path] = row

    def take(self, path: str, sha256: str) -> DocumentRow | None:
        """Returns the document that the new file at `path` continues; None if there is none.

        A document that was removed from the same path comes first, whatever the bytes are now.
        Else it is one with the same bytes whose file is gone, of several the one with the most
        similar path.
        """
        row = self._pruned_at.get(path)
        if row is None or row.id in self.continued_ids:
            candidates = [
                candidate for candidate in self._by_hash.get(sha256, ()) if self._is_free(candidate)
            ]
            row = max(
                candidates,
                key=lambda candidate: (
                    _names_in_common(candidate.path, path),
                    candidate.deleted_at is None,
                    -candidate.id,
                ),
                default=None,
            )
        if row is not None:
            self.continued_ids.add(row.id)
        return row

    def _is_free(self, row: DocumentRow) -> bool:
        return row.id not in self.continued_ids and row.path is not None and is_gone(row.path)


def _names_in_common(former: str | None, path: str) -> int:
    """Returns how many names the two paths share, counted from their ends."""
    pairs = zip(
        reversed(PurePath(former or "").parts), reversed(PurePath(path).parts), strict=False
    )
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
