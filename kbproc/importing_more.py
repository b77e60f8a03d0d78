"""What comes in beside documents: agents, links of entries, notes.

Owns: which agents are made and where their notes lie here, which entries are superseded
from now on, and the files that notes become.
Refuses to know: documents (importing.py), and how a note's file is recorded
(notesync.py): the next sync of its folder does that.

What is here stays: an agent of the same slug, an entry's link that somebody has made
or undone since, a note's file that holds something else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import msgspec

from kbproc import agents as living
from kbproc import events as ev
from kbproc import files, noteedit, portable
from kbproc.chains import Chains
from kbproc.commit import Decision, Here, LongWrite
from kbproc.errors import KbprocError

if TYPE_CHECKING:
    from kbproc.importing import Contents, Import, Imported
    from kbproc.importing_known import Outcome
    from kbproc.store import Store
    from kbproc.views.queries import AgentRow

_BATCH_LINKS = 1000
_MOST_CHANGES = 100
_FIELD = "$.params.path"
_LINKED = {"entry.superseded", "entry.revived"}

Emit = Callable[[str, dict[str, Any]], None]


# --------------------------------------------------------------------------- agents


class Agents(NamedTuple):
    created: int
    kept: int


def housed(
    store: Store, coming: Sequence[portable.Agent], *, root: Path | None, emit: Emit
) -> list[portable.Agent]:
    """With the folders that they may have here; the default, and a warning, for any other.

    Looks at the folders: not for the writers' lane.
    """
    with store.reading() as snapshot:
        here = {row.slug: row for row in snapshot.queries.agents()}
    taken: dict[str, str] = {}
    found = []
    for line in coming:
        there = here.get(line.slug)
        try:
            if line.folder is not None and not (there and there.folder == line.folder):
                folder = _placed(store, line, root, list(here.values()), taken)
                line = msgspec.structs.replace(line, folder=folder)  # noqa: PLW2901
        except KbprocError as error:
            line = msgspec.structs.replace(line, folder=None)  # noqa: PLW2901
            if there is None:
                told = f"The agent {line.slug} gets the store's own folder: {error.message}"
                emit("warning", {"message": told})
        if line.folder is not None:
            taken.setdefault(line.folder, line.slug)
        found.append(line)
    return found


def _placed(
    store: Store,
    line: portable.Agent,
    root: Path | None,
    others: Sequence[AgentRow],
    taken: dict[str, str],
) -> str | None:
    """As agent.create would have it, and raises what that raises."""
    named = files.locate(str(line.folder), cwd=Path("/"), root=root, field=_FIELD)
    folder = living.placed(store, line.slug, named)
    living.check_folder(store, named, line.slug, others)
    if folder in taken:
        raise KbprocError(
            "resource.already_exists",
            f"{folder} is the notes folder of {taken[folder]}, before it in the file.",
        )
    return folder


def agents(here: Here, contents: Contents, work: Import) -> Decision:
    """Those that are not here; none if everything goes into one knowledge base."""
    coming = [] if work.kb is not None else contents.agents
    rows = {line.slug: here.queries.agent(line.slug) for line in coming}
    folders = {one.folder: one.slug for one in here.queries.agents()}
    events: list[ev.Event] = []
    kept = 0
    for line in coming:
        row, event = rows[line.slug], _written(line, rows[line.slug], folders)
        if row is None or row.deleted_at is not None:
            events.append(event)
            folders[event.folder] = line.slug
        else:
            kept += event != living.event_of(row)
    return Decision(events=events, data=Agents(created=len(events), kept=kept))


def _written(
    line: portable.Agent, row: AgentRow | None, folders: dict[str | None, str]
) -> ev.AgentWritten:
    """A folder that another agent has is left to that one."""
    is_taken = line.folder is not None and folders.get(line.folder, line.slug) != line.slug
    return ev.AgentWritten(
        slug=line.slug,
        revision=row.revision + 1 if row else 1,
        description=line.description,
        kbs=line.kbs,
        folder=None if is_taken else line.folder,
        scopes=line.scopes,
        quotas=line.quotas.given(),
        instructions=line.instructions,
    )


# ---------------------------------------------------------------------------- links


class Links:
    """Which entry is superseded by which, as their ids here become known."""

    def __init__(self, wanted: dict[int, int]) -> None:
        self._wanted = wanted
        self._concerned = {*wanted, *wanted.values()}
        self._ids: dict[int, int] = {}
        self._were_here: set[int] = set()

    def note(self, old: int, outcome: Outcome) -> None:
        if old in self._concerned and outcome.id is not None:
            self._ids[old] = outcome.id
            if outcome.action == "unchanged":
                self._were_here.add(outcome.id)

    def write(self, write: LongWrite, check: Callable[..., None]) -> int:
        """Some at a time; returns how many were made."""
        ids, made = self._ids, 0
        pairs = ((ids[old], ids[by]) for old, by in self._wanted.items() if {old, by} <= ids.keys())
        while batch := dict(islice(pairs, _BATCH_LINKS)):
            check()
            made += write.item(lambda here, batch=batch: self._decide(here, batch))  # type: ignore[misc]
        return made

    def _decide(self, here: Here, batch: dict[int, int]) -> Decision:
        chains = Chains(here.queries, {*batch, *batch.values()})
        chains.relink({
            id: by
            for id, by in batch.items()
            if chains.is_live(id) and chains.is_live(by) and id != by
            and chains.by(id) is None and self._is_new(here, id)
        })  # fmt: skip
        return Decision(events=chains.events(), data=len(chains.changed))

    def _is_new(self, here: Here, id: int) -> bool:
        """Whoever was here before may have been linked otherwise by somebody since."""
        if id not in self._were_here:
            return True
        return not any(row.type in _LINKED for row in here.queries.events_of_document(id))


# ---------------------------------------------------------------------------- notes


def write_notes(
    store: Store, file: BinaryIO, result: Imported, emit: Emit, check: Callable[[], None]
) -> None:
    """Their files; those that are there with other content are left, and told."""
    with store.reading() as snapshot:
        rows = {row.slug: row for row in snapshot.queries.agents()}
    for _, line, _ in portable.read(file):
        if isinstance(line, portable.Note):
            check()
            if row := rows.get(line.agent):
                _write_note(store, row, line, result, emit)


def _write_note(
    store: Store, row: AgentRow, line: portable.Note, result: Imported, emit: Emit
) -> None:
    folder = living.notes_folder(store, row)
    there = (folder / f"{line.slug}.md").exists()
    try:
        living.make_folder(store, folder)
        noteedit.write(folder, line.slug, line.text.encode(), None)
    except KbprocError as error:
        result.notes_kept += 1
        emit("warning", {"message": f"The note {line.agent}/{line.slug}: {error.message}"})
    else:
        result.notes_unchanged += there
        result.notes_added += not there


# ----------------------------------------------------------------------------- plan


def planned(contents: Contents, work: Import, here: Here) -> list[str]:
    """Lines of a plan."""
    if work.kb is not None:
        return []
    created = [event.slug for event in agents(here, contents, work).events]  # type: ignore[union-attr]
    changes = [f"create agent {slug}" for slug in created][:_MOST_CHANGES]
    if contents.notes:
        changes.append(f"write the files of {contents.notes} notes that are not there yet")
    return changes
