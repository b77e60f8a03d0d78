"""One agent's notes: its folder, and what the log says of them.

Owns: how files and log differ, the folder of the first note, recording new revisions of notes,
and recording what somebody did to one file before that file is replaced.
Refuses to know: what counts as a change (diff.py), what becomes of all changes (sync.py), and
how files are read and replaced (notefiles/).

The log is read before the folder is, and again in the writers' lane: a note that somebody else
has written meanwhile is left to the next look.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from kbproc.agents.folder import notes_folder
from kbproc.agents.notefiles import folder as notefolder
from kbproc.agents.notefiles import hidden
from kbproc.agents.notefiles.file import digest
from kbproc.agents.notefiles.folder import NoteFile, Unavailable
from kbproc.agents.notes import diff as notediff
from kbproc.agents.notes import others
from kbproc.agents.notes.diff import Action, Diff, HeldBack
from kbproc.agents.notes.revision import NewRevision, content_of, is_unchanged, note_written
from kbproc.base.errors import KbprocError
from kbproc.documents.content import Intake
from kbproc.documents.revision import Ids
from kbproc.events.event import Event
from kbproc.store.decision import Here
from kbproc.store.lane import Lane
from kbproc.store.state import SeenStore
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import AgentRow, DocumentRow

ACTOR, METHOD = "file", "note.sync"  # who changes files by hand, and how it is recorded

_ROUNDS = 5  # of looking at a file again that is being edited


class Notebook:
    """One agent's folder. `lock` is held while it is synced, and never in the writers' lane.

    `synced`: at least once in this process. `warnings`: those of the last sync. `held_back`:
    notes without a file that only a person lets go. `recorded_leftovers`: texts that are in
    the log while their hidden files are still there, by name and digest.
    """

    def __init__(
        self,
        store: SeenStore,
        intake: Intake,
        agent: str,
        folder: Path,
        *,
        own: bool,
        current: Callable[[AgentRow], Notebook],
    ) -> None:
        """`own`: the folder lies in the store, and is made when it is first needed.

        `current` gives the notebook that an agent has by now.
        """
        self.agent = agent
        self.folder = folder
        self.lock = threading.RLock()
        self.synced = False
        self.warnings: list[str] = []
        self.store = store
        self.intake = intake
        self.held_back = HeldBack(store.folder / "notes" / f".{agent}.held")
        self.recorded_leftovers: set[tuple[str, str]] = set()
        self._notebook_of = current
        self._own = own
        agent_row = store.published.roster.agents.get(agent)
        self._created_at = None if agent_row is None else agent_row.created_at
        self._files: dict[str, NoteFile] = {}

    def is_of(self, agent: AgentRow | None) -> bool:
        """Whether the agent's notes still lie here; asked in the lane."""
        return (
            agent is not None
            and agent.deleted_at is None
            and agent.created_at == self._created_at
            and notes_folder(self.store, agent) == self.folder
        )

    def current(self) -> Notebook:
        """The notebook of the agent's folder by now. Waits for its first sync."""
        agent = self.store.published.roster.agents.get(self.agent)
        return self if agent is None else self._notebook_of(agent)

    # ------------------------------------------------------------------ looking

    def diff(self) -> Diff:
        """How files and log differ now. Raises Unavailable."""
        with self.lock:
            known = self._known()
            scan = notefolder.scan(self.folder, self._files)
            self._files = scan.files
            diff = notediff.compare(known, scan, self.held_back.ids)
            return others.apart(self.store, self.agent, diff) if self.is_shared else diff

    def foresee_diff(self) -> Diff:
        """As `diff`, also before the store's own folder is made. Raises Unavailable."""
        if self._own_folder_is_missing():
            if (known := len(self._known())) and not self.is_shared:
                raise notediff.folder_is_gone(self.folder, self.agent, known)
            return Diff(known=0, found=[], removed=[], unchanged=0, skipped=[])
        return self.diff()

    def _known(self) -> dict[str, DocumentRow]:
        with self.store.reading() as snapshot:
            return {str(row.source_id): row for row in snapshot.queries.notes(self.agent)}

    def note(self, slug: str) -> DocumentRow | None:
        with self.store.reading() as snapshot:
            return snapshot.queries.note(self.agent, slug)

    @property
    def is_shared(self) -> bool:
        """Other nodes write these notes, too."""
        return self.store.log.is_shared

    def is_behind(self, slug: str, sha256: str) -> bool:
        """Whether that is a text of the note which others have replaced since."""
        found = self.is_shared and others.note_before(
            self.store, self.agent, slug, self.note(slug), sha256
        )
        return bool(found)

    def has_file(self, slug: str) -> bool:
        """Whether anything stands under the note's file name. Raises store.io, Unavailable."""
        return not self._own_folder_is_missing() and bool(hidden.existing(self.folder, [slug]))

    # ------------------------------------------------------------------ the folder

    def require_folder(self, queries: Queries) -> None:
        """Makes the store's own folder for the first note. Raises Unavailable, store.io.

        It waits for nobody, so that it may be called in the lane.
        """
        if self._own_folder_is_missing():
            if (known := queries.notes_count(self.agent)) and not self.is_shared:
                raise notediff.folder_is_gone(self.folder, self.agent, known)
            self.make_folder()

    def foresee_folder(self) -> None:
        """Raises what `require_folder` raises, and makes nothing."""
        if self._own_folder_is_missing():
            self.foresee_diff()

    def make_folder(self) -> None:
        try:
            notefolder.make(self.folder, above=True)
        except OSError as error:
            raise KbprocError(
                "store.io", f"The notes folder {self.folder} could not be made: {error.strerror}."
            ) from error

    def _own_folder_is_missing(self) -> bool:
        return self._own and not notefolder.exists(self.folder)

    # ------------------------------------------------------------------ recording

    def record(self, revisions: list[NewRevision]) -> list[NewRevision]:
        """Writes one record; a revision whose note is not what it was made for is left out.

        Returns those that were written.
        """
        if not revisions:
            return []
        return self.store.commit(lambda lane: self._append(lane, revisions))

    def _append(self, lane: Lane, revisions: list[NewRevision]) -> list[NewRevision]:
        here = Here(lambda: lane.queries, lane.now, lane.head, lane.group.roster)
        taken = [one for one in revisions if self._still_holds(here, one)]
        ids = Ids(here)
        events: list[Event] = [
            note_written(here, one.content, agent=self.agent, slug=one.slug, row=one.row, ids=ids)
            for one in taken
        ]
        if events:
            lane.append(events, actor=ACTOR, method=METHOD)
        return taken

    def _still_holds(self, here: Here, revision: NewRevision) -> bool:
        """Whether the log still says what the revision was made for."""
        row, slug = revision.row, revision.slug
        if not self.is_of(here.queries.agent(self.agent)):
            return False
        if row is not None and not is_unchanged(here.queries.document(row.id), row):
            return False
        keeps_its_slug = row is not None and row.source_id == slug
        return keeps_its_slug or here.queries.note(self.agent, slug) is None

    # ------------------------------------------------------------------ one note

    def settle(self, slug: str) -> None:
        """Records what the log has not seen of this one file, so that it may be replaced.

        Raises resource.conflict if the file is no note as it stands, or never comes to
        rest; Unavailable.
        """
        with self.lock:
            for _ in range(_ROUNDS):
                row = self.note(slug)
                data = self._unrecorded(slug, row)
                if data is None:
                    return
                action: Action = "added" if row is None else "changed"
                self.record([NewRevision(action, slug, row, content_of(self.intake, slug, data))])
        raise KbprocError(
            "resource.conflict",
            f"{self.folder / slug}.md keeps changing.",
            hint="Wait until whoever edits it is done, then repeat the change.",
            passing=True,
        )

    def is_unrecorded(self, slug: str) -> bool:
        """Whether `settle` would record something; raises what it raises."""
        return self._unrecorded(slug, self.note(slug)) is not None

    def _unrecorded(self, slug: str, row: DocumentRow | None) -> bytes | None:
        """The file's text if the log does not say it of this note; None for no or a blank file."""
        try:
            data = notefolder.read(self.folder, slug)
        except Unavailable as error:
            if error.code == "missing" and self._own:
                return None
            raise
        except KbprocError as error:
            if error.type == "resource.not_found" or error.detail.get("code") == "blank":
                return None
            if error.type != "operation.failed":
                raise
            raise KbprocError(
                "resource.conflict",
                f"{error.message} It is left as it is.",
                hint="Repair that file or move it away, then repeat the change.",
                detail=error.detail,
            ) from None
        is_known = row is not None and row.sha256 == digest(data)
        return None if is_known or self.is_behind(slug, digest(data)) else data
