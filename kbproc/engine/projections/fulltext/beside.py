"""Has a process of its own write into the full-text index, so that the owner's need not.

Finding the words of chunks takes half as long as everything else that a large write does in Python,
whose lock lets one thread work at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from msgspec import Struct

from kbproc.base.frames import frame
from kbproc.base.sandbox import Child, patience_for
from kbproc.engine.projections.catalog.rows import IndexRow

_WORKER = "kbproc.engine.projections.fulltext.worker"
_ROWS = 200  # a part has so many at most
_PATIENCE_S = 60.0  # for a part or the commit, each of which takes milliseconds


class Part(Struct, frozen=True, array_like=True):
    """A part of a change: the documents whose chunks go, and chunks that come.

    Without any, it asks for a commit.
    """

    removed_ids: list[int] = []
    rows: list[IndexRow] = []

    def __bool__(self) -> bool:
        return bool(self.removed_ids or self.rows)


class IndexProcess(Child):
    """The process that has the index of `folder` open for writing, as no other may.

    `stage` and `commit` raise EOFError or OSError once it has ended or hangs; then `end` remains.
    Linux ends it with the thread that starts it.
    """

    def __init__(self, folder: Path) -> None:
        """Raises OSError if it can't be started."""
        super().__init__(_WORKER, str(os.getpid()), str(folder.absolute()), environment={})

    def stage(self, removed_ids: Iterable[int], rows: Iterable[IndexRow]) -> None:
        rows = iter(rows)
        part = Part(list(removed_ids), list(islice(rows, _ROWS)))
        while part:
            self.send(frame(part), patience_for(_PATIENCE_S))
            part = Part(rows=list(islice(rows, _ROWS)))

    def commit(self) -> None:
        self.send(frame(Part()), patience_for(_PATIENCE_S))
        self.receive_frame(patience_for(_PATIENCE_S))
