"""Removes the files of purged notes, and lists the files that stay though they may hold one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.engine.events.document import DocWritten
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.reader import NOTES
from kbproc.engine.projections.catalog.rows import AgentRow, DocumentRow
from kbproc.engine.store.state import SeenStore
from kbproc.engine.store.store import Store
from kbproc.knowledge.agents.folder import notes_folder
from kbproc.knowledge.agents.notes import edit
from kbproc.knowledge.agents.notes import files as notefiles
from kbproc.knowledge.agents.notes.files import digest
from kbproc.knowledge.history.timeline import PastRecords


def remove_purged(
    store: Store, texts: Mapping[tuple[str, str], Collection[str]], purged: Collection[int]
) -> None:
    """Removes note files that another node has purged and this node's folders still hold.

    `texts`: kb and slug → the sha256s of the note's texts. The caller holds the lane. A file with
    any other text stays. Raises store.io.
    """
    with store.reading() as snapshot:
        for (kb, slug), sha256s in texts.items():
            agent = store.published.roster.agents.get(kb.removeprefix(NOTES))
            if agent is None:
                continue
            live = snapshot.queries.note(agent.slug, slug)
            agent_folder = notes_folder(store, agent)
            file_sha256 = _text_of(agent_folder, slug)
            is_others = live is not None and live.id not in purged and live.sha256 == file_sha256
            if file_sha256 in sha256s and not is_others:
                edit.remove(agent_folder, slug, str(file_sha256))


def _text_of(home: Path, slug: str) -> str | None:
    """Returns the sha256 of the note's file; None where no note can be read."""
    try:
        return digest(notefiles.read(home, slug))
    except (KbprocError, notefiles.Unavailable):
        return None


class NoteFile(NamedTuple):
    """A note's file; `sha256` of its content, None if that is no note."""

    folder: Path
    slug: str
    sha256: str | None

    @property
    def path(self) -> Path:
        return self.folder / f"{self.slug}.md"


class NoteFiles:
    """The note files that a purge concerns.

    `strays`: hidden note → the file that it left behind and that is removed with it.
    `remaining`: files that stay, since they hold something else or another note's text, too.
    """

    def __init__(self, store: SeenStore, queries: Queries, rows: Sequence[DocumentRow]) -> None:
        self._store = store
        self._queries = queries
        self._ids = {row.id for row in rows}
        self._notes = [row for row in rows if row.type == "note"]
        self.strays: dict[int, NoteFile] = {}
        self.remaining: list[Path] = []
        for row in self._notes:
            stray, staying = self._look(row) if row.deleted_at else (None, None)
            if stray is not None:
                self.strays[row.id] = stray
            if staying is not None:
                self.remaining.append(staying)

    def remove(self) -> None:
        """Removes the files.

        Call it before the log forgets the notes, or the next sync would read the files again.
        Checks all files anew first. Raises resource.conflict, and Unavailable, before any is
        removed.
        """
        files: dict[Path, NoteFile] = {}
        for row in self._notes:
            file = self._look(row)[0] if row.deleted_at else self._require_known(row)
            if file is not None:
                files[file.path] = file
        for file in files.values():
            if file.sha256 is not None:
                edit.remove(file.folder, file.slug, file.sha256)

    def _require_known(self, row: DocumentRow) -> NoteFile | None:
        """Returns a live note's file. Raises resource.conflict if the log lacks its text."""
        file = self._file(row)
        if file is not None and file.sha256 != row.sha256:
            raise KbprocError(
                "resource.conflict",
                f"{paths.printable(file.path)} was edited in the meantime.",
                hint="Nothing was purged. Run note.sync, read the note again, then repeat the "
                "purge.",
            )
        return file

    def _look(self, row: DocumentRow) -> tuple[NoteFile | None, Path | None]:
        """Returns a hidden note's file: first, if it has a text of the note and goes; else second.

        Both are None where no file has to be named.
        """
        try:
            file = self._file(row)
        except KbprocError:  # the folder can't be looked at
            return None, self._folder(row) / f"{row.source_id}.md"
        if file is None:
            return None, None
        is_own_text = file.sha256 in self._texts(row)
        owners = self._owners(file)
        if is_own_text and not owners:
            return file, None
        stays = not owners or (is_own_text and not owners <= self._ids)
        return None, file.path if stays else None

    def _folder(self, row: DocumentRow) -> Path:
        """Returns the notes folder of the note's agent; a deleted agent keeps its files."""
        agent = self._agents()[row.kb.removeprefix(NOTES)]
        return notes_folder(self._store, agent)

    def _agents(self) -> dict[str, AgentRow]:
        return self._store.published.roster.agents

    def _file(self, row: DocumentRow) -> NoteFile | None:
        """Returns the note's file; None if it is missing or blank. Raises Unavailable, store.io."""
        home, slug = self._folder(row), str(row.source_id)
        try:
            data = notefiles.read(home, slug)
        except notefiles.Unavailable as error:
            if error.code != "missing":
                raise
            return None
        except KbprocError as error:
            if error.type == "resource.not_found" or error.detail.get("code") == "blank":
                return None
            if error.type != "operation.failed":
                raise
            return NoteFile(home, slug, None)
        return NoteFile(home, slug, digest(data))

    def _texts(self, row: DocumentRow) -> set[str]:
        """Returns the sha256s of all texts that the note ever had."""
        records = PastRecords(self._store.log, self._store.seq)
        events = self._queries.events_of_document(row.id)
        seqs = {event.seq for event in events if event.type == "doc.written"}
        written = [event for seq in sorted(seqs) for event in records.events(seq) or []]
        return {row.sha256} | {
            event.source_sha256
            for event in written
            if isinstance(event, DocWritten) and event.id == row.id
        }

    def _owners(self, file: NoteFile) -> set[int]:
        """Returns the ids of the live notes that this file belongs to."""
        agents = [agent for agent in self._agents().values() if not agent.deleted_at]
        at_home = [agent for agent in agents if notes_folder(self._store, agent) == file.folder]
        notes = [self._queries.note(agent.slug, file.slug) for agent in at_home]
        return {note.id for note in notes if note is not None}
