"""The files of notes that are to be purged.

Owns: which files go with their notes, which stay though they could hold some of them, and
removing the former.
Refuses to know: what else a purge erases (purge.py), and how a plan is approved.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kbproc.agents.folder import notes_folder
from kbproc.agents.notefiles import edit, folder
from kbproc.agents.notefiles.file import digest
from kbproc.base import paths
from kbproc.base.errors import KbprocError
from kbproc.events.document import DocWritten
from kbproc.history.timeline import PastRecords
from kbproc.store.state import SeenStore
from kbproc.store.store import Store
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.reader import NOTES
from kbproc.views.catalog.rows import AgentRow, DocumentRow


def remove_left(
    store: Store, texts: Mapping[tuple[str, str], Collection[str]], purged: Collection[int]
) -> None:
    """What another node has purged, and this one's folders hold: by kb and slug, sha256s.

    Works in the lane. A file that holds anything else stays. Raises store.io.
    """
    with store.reading() as snapshot:
        for (kb, slug), known in texts.items():
            agent = store.published.roster.agents.get(kb.removeprefix(NOTES))
            if agent is None:
                continue
            live = snapshot.queries.note(agent.slug, slug)
            home = notes_folder(store, agent)
            held = _text_of(home, slug)
            is_others = live is not None and live.id not in purged and live.sha256 == held
            if held in known and not is_others:
                edit.remove(home, slug, str(held))


def _text_of(home: Path, slug: str) -> str | None:
    """By its sha256; None where no note can be read."""
    try:
        return digest(folder.read(home, slug))
    except (KbprocError, folder.Unavailable):
        return None


class NoteFile(NamedTuple):
    """A note's file; `sha256` of what it holds, None if that is no note."""

    folder: Path
    slug: str
    sha256: str | None

    @property
    def path(self) -> Path:
        return self.folder / f"{self.slug}.md"


class NoteFiles:
    """Of all that a purge concerns.

    `strays`: by note, a file that a hidden one has left behind and that goes with it.
    `left`: files that stay, since they hold something else or another note's text, too.
    """

    def __init__(self, store: SeenStore, queries: Queries, rows: Sequence[DocumentRow]) -> None:
        self._store = store
        self._queries = queries
        self._ids = {row.id for row in rows}
        self._notes = [row for row in rows if row.type == "note"]
        self.strays: dict[int, NoteFile] = {}
        self.left: list[Path] = []
        for row in self._notes:
            goes, stays = self._look(row) if row.deleted_at else (None, None)
            if goes is not None:
                self.strays[row.id] = goes
            if stays is not None:
                self.left.append(stays)

    def remove(self) -> None:
        """Before the log forgets the notes: the next sync would only read the files again.

        Looks again. Raises resource.conflict, and Unavailable, before any is removed.
        """
        going: dict[Path, NoteFile] = {}
        for row in self._notes:
            file = self._look(row)[0] if row.deleted_at else self._require_known(row)
            if file is not None:
                going[file.path] = file
        for file in going.values():
            if file.sha256 is not None:
                edit.remove(file.folder, file.slug, file.sha256)

    def _require_known(self, row: DocumentRow) -> NoteFile | None:
        """A live note's file. Raises resource.conflict if it holds what the log does not know."""
        file = self._file(row)
        if file is not None and file.sha256 != row.sha256:
            raise KbprocError(
                "resource.conflict",
                f"{paths.printable(file.path)} was edited meanwhile.",
                hint="Nothing was purged. Run note.sync, read the note again, then repeat the "
                "purge.",
            )
        return file

    def _look(self, row: DocumentRow) -> tuple[NoteFile | None, Path | None]:
        """A hidden note's file: one that goes, since it holds a text of it; one that stays."""
        try:
            file = self._file(row)
        except KbprocError:  # the folder can't be looked at
            return None, self._folder(row) / f"{row.source_id}.md"
        if file is None:
            return None, None
        known = file.sha256 in self._texts(row)
        owners = self._owners(file)
        if known and not owners:
            return file, None
        stays = not owners or (known and not owners <= self._ids)
        return None, file.path if stays else None

    def _folder(self, row: DocumentRow) -> Path:
        """Of a deleted agent, too: its files stay."""
        agent = self._agents()[row.kb.removeprefix(NOTES)]
        return notes_folder(self._store, agent)

    def _agents(self) -> dict[str, AgentRow]:
        return self._store.published.roster.agents

    def _file(self, row: DocumentRow) -> NoteFile | None:
        """None if there is none, or nothing in it. Raises Unavailable, store.io."""
        home, slug = self._folder(row), str(row.source_id)
        try:
            data = folder.read(home, slug)
        except folder.Unavailable as error:
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
        """By sha256, all that the note ever held."""
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
        """The live notes whose file it is."""
        agents = [agent for agent in self._agents().values() if not agent.deleted_at]
        at_home = [agent for agent in agents if notes_folder(self._store, agent) == file.folder]
        found = [self._queries.note(agent.slug, file.slug) for agent in at_home]
        return {note.id for note in found if note is not None}
