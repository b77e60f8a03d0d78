"""Notes that come in with an import.

Owns: the files that notes become.
Refuses to know: how a note's file is recorded: the next sync of its folder does that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import BinaryIO

from kbproc.agents import folder as agent
from kbproc.agents.notefiles import edit
from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.base.wording import plural
from kbproc.moving.incoming.contents import Emit, Imported
from kbproc.moving.portable import file as reading
from kbproc.moving.portable import lines
from kbproc.store.state import SeenStore
from kbproc.views.catalog.rows import AgentRow


def planned(store: SeenStore, notes: Mapping[str, int], rows: Mapping[str, AgentRow]) -> list[str]:
    """Each folder that would be written into; first those that lie elsewhere.

    `notes`: how many each agent has in the file. `rows`: the agents as they will be.
    """
    coming = [rows[slug] for slug in notes if slug in rows]
    coming.sort(key=lambda row: row.folder is None)  # what comes late may not be looked at
    return [
        f"write into {paths.printable(agent.notes_folder(store, row))} the "
        f"{plural(notes[row.slug], 'note')} of {row.slug}, where "
        f"{'it is' if notes[row.slug] == 1 else 'they are'} not there yet"
        for row in coming
    ]


def write_notes(
    store: SeenStore, file: BinaryIO, result: Imported, emit: Emit, check: Callable[[], None]
) -> None:
    """Writes the notes' files; one that holds another text is left, with a warning."""
    with store.reading() as snapshot:
        rows = {row.slug: row for row in snapshot.queries.agents()}
    for _, line, _ in reading.read(file):
        if isinstance(line, lines.Note):
            check()
            if row := rows.get(line.agent):
                _write_note(store, row, line, result, emit)


def _write_note(
    store: SeenStore, row: AgentRow, line: lines.Note, result: Imported, emit: Emit
) -> None:
    folder = agent.notes_folder(store, row)
    there = (folder / f"{line.slug}.md").exists()
    try:
        agent.make_folder(store, folder)
        edit.write(folder, line.slug, line.text.encode(), None)
    except KbprocError as error:
        result.notes_kept += 1
        emit("warning", {"message": f"The note {line.agent}/{line.slug}: {error.message}"})
    else:
        result.notes_unchanged += there
        result.notes_added += not there
