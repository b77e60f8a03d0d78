"""Checks an agent: its knowledge bases, scopes, quotas, notes folder and note files.

A finding says which of them is missing or can't be used.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from kbproc.base import paths
from kbproc.base.errors import Finding
from kbproc.base.wording import plural
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import AgentRow, DocumentRow
from kbproc.engine.store.state import SeenStore
from kbproc.knowledge.agents.folder import notes_folder, other_owner
from kbproc.knowledge.agents.notes import files as notefiles
from kbproc.knowledge.agents.quotas import quotas_of

_NEARLY = 0.9  # the share of a quota from which on it is nearly full
_MOST_NAMED = 10


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
    """Yields the findings on one agent, for which it reads the files of the notes folder.

    `scopes`: the names of all scopes that exist. `used`: how much of each quota is used, without
    quotas that the caller may not see. `notes`: the caller may see notes. `alone`: other agents
    are hidden from the caller.
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
    slugs = queries.kb_slugs()
    if row.kbs is None:
        return _passed("knowledge bases", f"all ({len(slugs)})")
    missing = [slug for slug in row.kbs if slug not in slugs]
    if missing:
        return Finding(
            name="knowledge bases",
            status="warn",
            message=f"missing: {_few(missing)}",
            hint="Create them with kb.create, or take them out with agent.update.",
        )
    return _passed("knowledge bases", _few(row.kbs) or "none: it sees its notes only")


def _scopes(row: AgentRow, existing_scopes: Collection[str]) -> Finding:
    if row.scopes is None:
        return _passed("scopes", "everything that its process may see")
    unknown = [scope for scope in row.scopes if scope not in existing_scopes]
    if unknown:
        return Finding(
            name="scopes",
            status="warn",
            message=f"unknown to this version: {_few(unknown)}",
            hint="Another version of kbproc may know them; otherwise choose others with "
            "agent.update.",
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
    degree = "over the quota" if used > limit else "full" if used == limit else "nearly full"
    return Finding(
        name=name,
        status="warn",
        message=f"{message}: {degree}",
        hint="Delete some, or raise the quota with agent.update.",
    )


def _folder(store: SeenStore, row: AgentRow, folder: Path, others: Sequence[AgentRow]) -> Finding:
    path = paths.printable(folder)
    other_agent = other_owner(store, folder, row.slug, others)
    if other_agent is not None:
        return _failed(
            f"{path} is also the notes folder of {other_agent}", "Choose another with agent.update."
        )
    if not os.path.lexists(folder):
        return _failed(f"{path} does not exist", "Restore it, or create an empty one.")
    real = Path(os.path.realpath(folder))
    if real != folder:
        hint = "If that is intended, set that folder with agent.update."
        message = f"{path} leads to {paths.printable(real)}, and no symlink is followed"
        return _failed(message, hint)
    if not folder.is_dir():
        return _failed(f"{path} is no folder", "Move away what is there and make a folder.")
    if not os.access(folder, os.R_OK | os.X_OK):
        return _failed(f"{path} can't be read", "Change its permissions.")
    if not os.access(folder, os.W_OK):
        return _warned("notes folder", f"{path} can't be written to", "Change its permissions.")
    return _passed("notes folder", path)


def _files(folder: Path, notes: Sequence[DocumentRow]) -> Iterator[Finding]:
    try:
        scan = notefiles.scan(folder)
    except notefiles.Unavailable as error:
        yield _warned("notes", error.message, error.hint)
        return
    recorded_digests = {str(note.source_id): note.sha256 for note in notes}
    digests = {slug: file.sha256 for slug, file in scan.files.items()}
    changed = {
        "new": sorted(digests.keys() - recorded_digests),
        "changed": sorted(
            s for s in digests.keys() & recorded_digests if digests[s] != recorded_digests[s]
        ),
        "gone": sorted(scan.missing(recorded_digests)),
    }
    differences = [f"{word}: {_few(slugs)}" for word, slugs in changed.items() if slugs]
    if scan.unfinished:
        differences.append("an interrupted write has to be finished")
    if differences:
        yield _warned("notes", "; ".join(differences), "Run note.sync.")
    else:
        many = plural(len(recorded_digests), "note matches its file", "notes match their files")
        yield _passed("notes", many)
    if scan.skipped:
        reasons = " ".join(skipped.reason for skipped in scan.skipped[:_MOST_NAMED])
        more = len(scan.skipped) - _MOST_NAMED
        sentence = f" And {more} more." if more > 0 else ""
        yield _warned(
            "skipped files", reasons + sentence, "The text of skipped files is in no note."
        )


def _passed(name: str, message: str) -> Finding:
    return Finding(name=name, status="pass", message=message)


def _warned(name: str, message: str, hint: str | None) -> Finding:
    return Finding(name=name, status="warn", message=message, hint=hint)


def _failed(message: str, hint: str) -> Finding:
    return Finding(name="notes folder", status="fail", message=message, hint=hint)


def _few(names: Sequence[str]) -> str:
    """Returns the first ten names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
