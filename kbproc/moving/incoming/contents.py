"""What an import file holds, and what became of it.

Owns: an import's params, its survey and its counts.
Refuses to know: how any of it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from kbproc.moving.portable import lines

Emit = Callable[[str, dict[str, Any]], None]
Report = Callable[[int, str], None]


class Imported(Struct, kw_only=True):
    """Counts of documents; `ids`: the first 1,000, from the id in the file to the one here.

    `links`: entries that are superseded from now on, as in the file. `agents_kept` and
    `notes_kept` were here with other content, and stayed so. `vectors`: those of the file's that
    this store's model need not make again. `folders_left`: agents that got
    the store's own folder, as nobody has approved the one that the file names.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    conflicts: int = 0
    kbs_created: int = 0
    ids: dict[str, int] = {}
    links: int = 0
    agents_created: int = 0
    agents_kept: int = 0
    notes_added: int = 0
    notes_unchanged: int = 0
    notes_kept: int = 0
    folders_left: int = 0
    vectors: int = 0
    sessions_added: int = 0
    sessions_unchanged: int = 0


class Import(Struct, frozen=True, kw_only=True):
    """An import's params: `kb` takes everything, `replace` makes new revisions.

    `folders`: agents get the notes folders that the file names, wherever these lie.
    """

    kb: str | None = None
    replace: bool = False
    folders: bool = False


class Contents(Struct, frozen=True, kw_only=True):
    """What a file holds, once every line of it has been found good.

    `links`: from an entry to what supersedes it, by their ids in the file. `notes`: how many
    each agent has. `vectors`: the model that made those that come along. `cited`: documents that
    answers refer to.
    """

    kbs: list[lines.Kb]
    agents: list[lines.Agent]
    links: dict[int, int]
    documents: int
    notes: dict[str, int]
    size: int
    vectors: lines.VectorsOf | None = None
    sessions: int = 0
    cited: frozenset[int] = frozenset()
