"""Notes that come in with an import.

Owns: the files that notes become.
Refuses to know: how a note's file is recorded: the next sync of its folder does that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from kbproc.agents import folder as agent
from kbproc.base.errors import KbprocError
from kbproc.moving.incoming.contents import Emit, Imported
from kbproc.moving.portable import file as reading
from kbproc.moving.portable import lines
from kbproc.notefiles import edit
from kbproc.store.state import SeenStore
from kbproc.views.catalog.rows import AgentRow


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
