"""Agents that come in with an import.

Owns: which agents are made, and where their notes lie here.
Refuses to know: documents, and links of entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from kbproc.agents import agent as agent_
from kbproc.agents import folder as agent
from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.events.agent import AgentWritten
from kbproc.events.event import Event
from kbproc.moving.incoming.contents import Contents, Emit, Import
from kbproc.moving.portable import lines
from kbproc.store.decision import Decision, Here
from kbproc.store.state import SeenStore
from kbproc.views.catalog.rows import AgentRow

FIELD = "$.params.path"


class Agents(NamedTuple):
    """`left`: how many of them could have had the folder that the file names."""

    created: int
    kept: int
    left: int


def with_folders(
    store: SeenStore, coming: Sequence[lines.Agent], *, root: Path | None, emit: Emit
) -> list[lines.Agent]:
    """The agents with the folders that they may have here.

    An agent whose folder can't be had gets the default one, with a warning. The folders are
    looked at, so this is not for the writers' lane.
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
                warning = f"The agent {line.slug} gets the store's own folder: {error.message}"
                emit("warning", {"message": warning})
        if line.folder is not None:
            taken.setdefault(line.folder, line.slug)
        found.append(line)
    return found


def _placed(
    store: SeenStore,
    line: lines.Agent,
    root: Path | None,
    others: Sequence[AgentRow],
    taken: dict[str, str],
) -> str | None:
    """The folder as agent.create would record it; raises what that raises."""
    named = paths.locate(str(line.folder), cwd=Path("/"), root=root, field=FIELD)
    folder = agent.folder_to_record(store, line.slug, named)
    agent.check_folder(store, named, line.slug, others)
    if folder in taken:
        raise KbprocError(
            "resource.already_exists",
            f"{folder} is the notes folder of {taken[folder]}, before it in the file.",
        )
    return folder


def agents(here: Here, contents: Contents, work: Import) -> Decision:
    """Makes the agents that are not here; none if everything goes into one knowledge base.

    Whoever made the file chose its folders, so they count for nothing unless approved.
    """
    coming = [] if work.kb is not None else contents.agents
    rows = {line.slug: here.queries.agent(line.slug) for line in coming}
    folders = {one.folder: one.slug for one in here.queries.agents()}
    events: list[Event] = []
    kept = left = 0
    for line in coming:
        row, event = rows[line.slug], _written(line, rows[line.slug], folders)
        if row is not None and row.deleted_at is None:
            kept += event != agent_.event_of(row)
            continue
        if event.folder is not None and not work.folders:
            event, left = msgspec.structs.replace(event, folder=None), left + 1
        events.append(event)
        folders[event.folder] = line.slug
    return Decision(events=events, data=Agents(created=len(events), kept=kept, left=left))


def _written(
    line: lines.Agent, row: AgentRow | None, folders: dict[str | None, str]
) -> AgentWritten:
    """The event that makes the agent; it does not get a folder that another agent has."""
    is_taken = line.folder is not None and folders.get(line.folder, line.slug) != line.slug
    return AgentWritten(
        slug=line.slug,
        revision=row.revision + 1 if row else 1,
        description=line.description,
        kbs=line.kbs,
        folder=None if is_taken else line.folder,
        scopes=line.scopes,
        quotas=line.quotas.given(),
        instructions=line.instructions,
    )
