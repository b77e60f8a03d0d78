"""What a sync of notes would do, before it does it.

Owns: the removals that a person must approve, and a preview in lines.
Refuses to know: reading files, and writing records.
"""

from __future__ import annotations

from collections.abc import Iterable

from kbproc.agents.notefiles.folder import Unavailable
from kbproc.agents.notes.diff import Diff, held_back_warning
from kbproc.agents.notes.notebook import Notebook
from kbproc.base.wording import plural
from kbproc.events.document import DocDeleted
from kbproc.store.decision import Decision, Target


def removal(books: Iterable[Notebook]) -> Decision:
    """What a person must approve first: notes of agents of which more than half are gone."""
    diffs = [(book.agent, _diff_of(book)) for book in books]
    large = [
        (agent, diff)
        for agent, diff in diffs
        if isinstance(diff, Diff) and diff.removed and diff.bulk
    ]
    rows = [(agent, row) for agent, diff in large for row in diff.removed]
    return Decision(
        events=[DocDeleted(id=row.id) for _, row in rows],
        data=None,
        targets=[
            Target(
                kind="note", id=f"{agent}/{row.source_id}", name=row.title, revision=row.revision
            )
            for agent, row in rows
        ],
        changes=[held_back_warning(agent, diff) for agent, diff in large],
        bulk=bool(rows),
        destructive=bool(rows),
    )


def preview(books: Iterable[Notebook], *, restore: bool) -> list[str]:
    """What a sync of these folders would do, in lines."""
    lines: list[str] = []
    for book in books:
        diff = _diff_of(book)
        lines += [diff] if isinstance(diff, str) else _preview_of(book.agent, diff, restore=restore)
    return lines


def _diff_of(book: Notebook) -> Diff | str:
    """The diff, or why the folder can't be looked at."""
    try:
        return book.foresee_diff()
    except Unavailable as error:
        return f"{error.message} {error.hint}"


def _preview_of(agent: str, diff: Diff, *, restore: bool) -> list[str]:
    """A line for each change that a sync would make, and before them one that counts them."""
    gone = "restored" if restore else "removed"
    lines = [f"{found.action}: {agent}/{found.slug}" for found in diff.found]
    lines += [f"{gone}: {agent}/{row.source_id}" for row in diff.removed]
    lines += [f"skipped: {agent}: {file.reason}" for file in diff.skipped]
    if diff.unfinished:
        lines.append(f"{agent}: what an interrupted change has left over is recorded first")
    return [f"{agent}: {plural(len(lines), 'change')}, {diff.unchanged} unchanged", *lines]
