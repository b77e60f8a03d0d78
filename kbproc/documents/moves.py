"""Which document a new file goes on with, where it was renamed, moved, or deleted and is back.

Owns: the choice among the documents of a knowledge base whose files are gone.
Refuses to know: how files are read, and what is written (ingest.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path, PurePath

from kbproc.base import paths
from kbproc.views.catalog.rows import DocumentRow


class FormerFiles:
    """Documents by the bytes of their files, for new files to go on with; each only once.

    A document stays whose file still exists: equal bytes elsewhere are another document then.
    """

    def __init__(self, live: Iterable[DocumentRow], pruned: Iterable[DocumentRow]) -> None:
        """`pruned`: documents that an ingest removed because their files were gone."""
        self._by_hash: dict[str, list[DocumentRow]] = {}
        self._pruned_at: dict[str, DocumentRow] = {}
        self.taken: set[int] = set()  # ids of documents with which a new file goes on
        for row in (*live, *pruned):
            if row.sha256:
                self._by_hash.setdefault(row.sha256, []).append(row)
            if row.deleted_at is not None and row.path is not None:
                self._pruned_at[row.path] = row

    def take(self, path: str, sha256: str) -> DocumentRow | None:
        """The document that the new file at `path` goes on with.

        First the one that was removed from the same path, whatever its bytes are now; else one
        with the same bytes whose file is gone, of several the one with the most similar path.
        """
        row = self._pruned_at.get(path)
        if row is None or row.id in self.taken:
            candidates = [one for one in self._by_hash.get(sha256, ()) if self._is_free(one)]
            row = max(
                candidates,
                key=lambda one: (_names_in_common(one.path, path), one.deleted_at is None, -one.id),
                default=None,
            )
        if row is not None:
            self.taken.add(row.id)
        return row

    def _is_free(self, row: DocumentRow) -> bool:
        return row.id not in self.taken and row.path is not None and paths.is_gone(Path(row.path))


def _names_in_common(former: str | None, path: str) -> int:
    """How many names the two paths share, counted from their ends."""
    pairs = zip(
        reversed(PurePath(former or "").parts), reversed(PurePath(path).parts), strict=False
    )
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
