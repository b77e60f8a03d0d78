"""What is wrong with an agent: what its description names and is not there, or not usable.

Owns: the findings on its knowledge bases, scopes, quotas, notes folder and note files.
Refuses to know: how any of it is mended. The hint of each finding says what a person can do.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from kbproc.agents.folder import notes_folder, other_owner
from kbproc.agents.notefiles import folder as notefolder
from kbproc.agents.quotas import quotas_of
from kbproc.base import paths
from kbproc.base.wording import plural
from kbproc.store.state import SeenStore
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import AgentRow, DocumentRow

_NEARLY = 0.9  # of a quota
_MOST_NAMED = 10

Status = Literal["pass", "warn", "fail"]


class Finding(Struct, kw_only=True, frozen=True):
    name: str
    status: Status
    message: str
    hint: str | None = None


def examine(
    store: SeenStore,
    queries: Queries,
    row: AgentRow,
    *,
    scopes: Collection[str],
    used: dict[str, int],
    notes: bool,
    alone: bool,
) -> Iterator[Finding]:
    """The findings on one agent. The files of its notes folder are read for it.

    `scopes`: the names of all scopes that exist. `used`: how much of each quota is used; quotas
    that the caller may not see are left out. `notes`: whether the caller may see notes. `alone`:
    whether other agents are hidden from the caller.
    """
    yield _kbs(queries, row)
    yield _scopes(row, scopes)
    yield from (_quota(name, limit, used[name]) for name, limit in _limits(row) if name in used)
    others = [] if alone else queries.agents()
    folder = notes_folder(store, row)
    yield _folder(store, row, folder, others)
    if notes:
        yield from _files(folder, queries.notes(row.slug))


def _kbs(queries: Queries, row: AgentRow) -> Finding:
    known = queries.kb_slugs()
    if row.kbs is None:
        return _passed("knowledge bases", f"all: {len(known)}")
    gone = [slug for slug in row.kbs if slug not in known]
    if gone:
        return Finding(
            name="knowledge bases",
            status="warn",
            message=f"not there: {_few(gone)}",
            hint="Create them with kb.create, or take them out with agent.update.",
        )
    return _passed("knowledge bases", _few(row.kbs) or "none: it sees its notes only")


def _scopes(row: AgentRow, known: Collection[str]) -> Finding:
    if row.scopes is None:
        return _passed("scopes", "all that its process is given")
    odd = [scope for scope in row.scopes if scope not in known]
    if odd:
        return Finding(
            name="scopes",
            status="warn",
            message=f"unknown here: {_few(odd)}",
            hint="Another version of kbproc may know them; else name others with agent.update.",
        )
    if not row.scopes:
        return Finding(
            name="scopes",
            status="warn",
            message="none: it may do nothing",
            hint="Give it some with agent.update.",
        )
    return _passed("scopes", _few(row.scopes))


def _limits(row: AgentRow) -> list[tuple[str, int]]:
    return sorted(quotas_of(row).items())


def _quota(name: str, limit: int, used: int) -> Finding:
    message = f"{used} of {limit} used"
    if used < limit * _NEARLY:
        return _passed(name, message)
    more = "over the quota" if used > limit else "full" if used == limit else "nearly full"
    return Finding(
        name=name,
        status="warn",
        message=f"{message}: {more}",
        hint="Make room, or raise the quota with agent.update.",
    )


def _folder(store: SeenStore, row: AgentRow, folder: Path, others: Sequence[AgentRow]) -> Finding:
    where = paths.printable(folder)
    taken = other_owner(store, folder, row.slug, others)
    if taken is not None:
        return _failed(
            f"{where} is the notes folder of {taken}, too", "Name another: agent.update."
        )
    if not os.path.lexists(folder):
        return _failed(f"{where} does not exist", "Bring it back, or make an empty one.")
    real = Path(os.path.realpath(folder))
    if real != folder:
        hint = "If that is meant, name that folder with agent.update."
        led = f"{where} leads to {paths.printable(real)}, and no symlink is followed"
        return _failed(led, hint)
    if not folder.is_dir():
        return _failed(f"{where} is no folder", "Move away what is there and make a folder.")
    if not os.access(folder, os.R_OK | os.X_OK):
        return _failed(f"{where} can't be read", "Change its permissions.")
    if not os.access(folder, os.W_OK):
        return _warned("notes folder", f"{where} can't be written to", "Change its permissions.")
    return _passed("notes folder", where)


def _files(folder: Path, known: Sequence[DocumentRow]) -> Iterator[Finding]:
    try:
        found = notefolder.scan(folder)
    except notefolder.Unavailable as error:
        yield _warned("notes", error.message, error.hint)
        return
    recorded = {str(note.source_id): note.sha256 for note in known}
    seen = {slug: file.sha256 for slug, file in found.files.items()}
    changed = {
        "new": sorted(seen.keys() - recorded),
        "changed": sorted(s for s in seen.keys() & recorded if seen[s] != recorded[s]),
        "gone": sorted(found.missing(recorded)),
    }
    told = [f"{word}: {_few(slugs)}" for word, slugs in changed.items() if slugs]
    if found.unfinished:
        told.append("a write that was cut off is to be finished")
    if told:
        yield _warned("notes", "; ".join(told), "Run note.sync.")
    else:
        yield _passed("notes", f"{plural(len(recorded), 'note')}, as their files are")
    if found.skipped:
        reasons = " ".join(skipped.reason for skipped in found.skipped[:_MOST_NAMED])
        more = len(found.skipped) - _MOST_NAMED
        more_told = f" And {more} more." if more > 0 else ""
        yield _warned("skipped files", reasons + more_told, "What is skipped is in no note.")


def _passed(name: str, message: str) -> Finding:
    return Finding(name=name, status="pass", message=message)


def _warned(name: str, message: str, hint: str | None) -> Finding:
    return Finding(name=name, status="warn", message=message, hint=hint)


def _failed(message: str, hint: str) -> Finding:
    return Finding(name="notes folder", status="fail", message=message, hint=hint)


def _few(names: Sequence[str]) -> str:
    """The first ten."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
