"""Finds the document that a new file continues: its file was renamed, moved, or is back.

The choice is among the documents of a knowledge base whose files are gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path, PurePath

from kbproc.base import paths
from kbproc.engine.projections.catalog.rows import DocumentRow
from kbproc.engine.sources.parse.formats import WITHIN


def holders(path: str) -> list[str]:
    """Returns the files that a file within others lies in, outermost first; [] for a plain file."""
    ends = [match.start() for match in re.finditer(re.escape(WITHIN), path)]
    return [path[:end] for end in ends]


def is_held(path: str) -> bool:
    """Returns True for the path of a file within another, and not for one in a folder "a!"."""
    return any(not Path(f"{holder}!").is_dir() for holder in holders(path))


def is_gone(path: str) -> bool:
    """Returns True only if certainly neither the file nor a file that holds it exists."""
    return paths.is_gone(Path(path)) and not any(Path(holder).is_file() for holder in holders(path))


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
