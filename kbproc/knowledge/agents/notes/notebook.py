"""Compares one agent's folder with the log, and records new revisions of its notes.

The module makes the folder for the first note, and the content of a revision from the note's file.
Before a request replaces a file, it records a person's edit of that file.

The log is read before the folder, and again in the writers' lane. A note that another writer has
changed in between is left to the next sync.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from kbproc.base.errors import KbprocError
from kbproc.base.threads import map_ahead
from kbproc.engine.events.document import DocWritten
from kbproc.engine.events.event import Event
from kbproc.engine.events.origin import Origin
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.reader import NOTES
from kbproc.engine.projections.catalog.rows import AgentRow, DocumentRow, anchors_of
from kbproc.engine.store.decision import DecisionState
from kbproc.engine.store.lane import Lane
from kbproc.engine.store.state import SeenStore
from kbproc.knowledge.agents.folder import notes_folder
from kbproc.knowledge.agents.notes import diff as notediff
from kbproc.knowledge.agents.notes import edit
from kbproc.knowledge.agents.notes import files as notefiles
from kbproc.knowledge.agents.notes.diff import Action, Diff, FileChange, HeldBack
from kbproc.knowledge.agents.notes.files import (
    ScannedFile,
    Unavailable,
    cleaned_title,
    digest,
    file_name,
    may_have_head,
    title_of,
    words_of,
)
from kbproc.knowledge.agents.notes.rules import FolderRules
from kbproc.knowledge.documents.anchors import NamedSources, mentioned, with_documents
from kbproc.knowledge.documents.content import Intake, read_content
from kbproc.knowledge.documents.revision import Content, Ids, document_written
from kbproc.knowledge.documents.trust import origin_from

ACTOR, METHOD = "file", "note.sync"  # a person's edits of files are recorded under these names

_ROUNDS = 5  # attempts, while a person edits the file
_ENDS_THE_SYNC = {"store.io", "operation.cancelled"}
_READERS = 8  # files that are parsed ahead, each in a thread


class NewRevision(Struct, frozen=True):
    """A revision to record of one note, made for its state `row`."""

    action: Action
    slug: str
    row: DocumentRow | None
    content: Content


class Notebook:
    """One agent's folder. `lock` is held while it is synced, and never in the writers' lane.

    `synced`: at least once in this process. `warnings`: those of the last sync. `held_back`:
    notes without a file whose removal a person must approve. `recorded_leftovers`: texts that the
    log has while their hidden files still exist, by name and digest. `unknown_sources`: of each
    note that this process recorded, the names in its `derived_from` that stand for nothing.
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
        rules: Callable[[], FolderRules],
    ) -> None:
        """`own`: the folder lies in the store, and is made when it is first needed.

        `current` gives the notebook that an agent has by now, `rules` the store's present rules.
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
        self.unknown_sources: dict[str, list[str]] = {}
        self._notebook_of = current
        self._present_rules = rules
        self._is_own = own
        agent_row = store.published.roster.agents.get(agent)
        self._created_at = None if agent_row is None else agent_row.created_at
        self._files: dict[str, ScannedFile] = {}

    def is_of(self, agent: AgentRow | None) -> bool:
        """Returns True if the agent's notes still lie here; called in the lane."""
        return (
            agent is not None
            and agent.deleted_at is None
            and agent.created_at == self._created_at
            and notes_folder(self.store, agent) == self.folder
        )

    def current(self) -> Notebook:
        """Returns the notebook of the agent's present folder, after its first sync."""
        agent = self.store.published.roster.agents.get(self.agent)
        return self if agent is None else self._notebook_of(agent)

    # ------------------------------------------------------------------ differences

    def diff(self) -> Diff:
        """Returns how files and log differ now. Raises Unavailable."""
        with self.lock:
            rows = self._rows_by_slug()
            scan = notefiles.scan(self.folder, self._files)
            self._files = scan.files
            diff = notediff.compare(rows, scan, self.held_back.ids)
            with_renames = partial(
                notediff.with_renames,
                size_of=lambda slug: scan.files[slug].size,
                old_text=self._logged_text,
                new_text=self._file_text,
            )
            return self.rules.judge(self.store, self.agent, diff, with_renames)

    def _logged_text(self, row: DocumentRow) -> str | None:
        try:
            return self.intake.blobs.get(row.sha256).decode()
        except KbprocError:
            return None

    def _file_text(self, slug: str) -> str | None:
        """Returns the file's text; None if it is no note. Raises Unavailable."""
        try:
            return notefiles.read(self.folder, slug).decode()
        except Unavailable:
            raise
        except KbprocError:
            return None

    def foresee_diff(self) -> Diff:
        """Returns `diff`, also if the store's own folder does not exist yet. Raises Unavailable."""
        if self._own_folder_is_missing():
            self.rules.check_missing(self.folder, self.agent, len(self._rows_by_slug()))
            return Diff(note_count=0, changes=[], removed=[], unchanged=0, skipped=[])
        return self.diff()

    def _rows_by_slug(self) -> dict[str, DocumentRow]:
        with self.store.reading() as snapshot:
            return {str(row.source_id): row for row in snapshot.queries.notes(self.agent)}

    def note(self, slug: str) -> DocumentRow | None:
        with self.store.reading() as snapshot:
            return snapshot.queries.note(self.agent, slug)

    @property
    def rules(self) -> FolderRules:
        return self._present_rules()

    def is_earlier_text(self, slug: str, sha256: str) -> bool:
        """Returns True if a revision from another folder has replaced that text of the note."""
        return self.rules.is_earlier_text(self.store, self.agent, slug, sha256)

    def has_file(self, slug: str) -> bool:
        """Returns True if the note's file name exists. Raises store.io, Unavailable."""
        return not self._own_folder_is_missing() and bool(edit.existing(self.folder, [slug]))

    # ------------------------------------------------------------------ the folder

    def require_folder(self, queries: Queries) -> None:
        """Makes the store's own folder for the first note. Raises Unavailable, store.io.

        It never waits for another thread, so that it may be called in the lane.
        """
        if self._own_folder_is_missing():
            self.rules.check_missing(self.folder, self.agent, queries.notes_count(self.agent))
            self.make_folder()

    def foresee_folder(self) -> None:
        """Raises what `require_folder` raises, and makes nothing."""
        if self._own_folder_is_missing():
            self.foresee_diff()

    def make_folder(self) -> None:
        try:
            notefiles.make(self.folder, above=True)
        except OSError as error:
            raise KbprocError(
                "store.io", f"The notes folder {self.folder} could not be made: {error.strerror}."
            ) from error

    def _own_folder_is_missing(self) -> bool:
        return self._is_own and not notefiles.exists(self.folder)

    # ------------------------------------------------------------------ recording

    def record(self, revisions: list[NewRevision]) -> list[NewRevision]:
        """Writes one record; a revision is left out if its note has changed since.

        Returns the revisions that were written.
        """
        if not revisions:
            return []
        sources = {
            revision.slug: self.sources_of(revision.content, revision.row) for revision in revisions
        }
        return self.store.commit(lambda lane: self._append(lane, revisions, sources))

    def sources_of(
        self,
        content: Content,
        row: DocumentRow | None,
        *,
        folders: Sequence[Path] = (),
        root: Path | None = None,
    ) -> NamedSources:
        """Returns what a note says that it was made from; not to be called in the lane.

        `folders`: where relative paths may begin, besides the notes folder. `row`: the note before.
        """
        if not content.derived_from:
            return NamedSources()
        before = [] if row is None else anchors_of(row.anchors)
        return mentioned(content.derived_from, [*folders, self.folder], root, before=before)

    def source_warnings(self) -> list[str]:
        """Returns a warning for each note that names sources which are not there."""
        return [
            f"{slug} says that it was derived from {', '.join(names)}: there is no such source."
            for slug, names in self.unknown_sources.items()
            if names and slug in self._files
        ]

    def _append(
        self, lane: Lane, revisions: list[NewRevision], sources: Mapping[str, NamedSources]
    ) -> list[NewRevision]:
        here = DecisionState(lane.queries, lane.now, lane.head, lane.group.roster)
        valid = [revision for revision in revisions if self._still_holds(here, revision)]
        ids = Ids(here)
        events: list[Event] = []
        for revision in valid:
            event = note_written(
                here,
                revision.content,
                agent=self.agent,
                slug=revision.slug,
                row=revision.row,
                ids=ids,
                sources=sources[revision.slug],
            )
            self.unknown_sources[revision.slug] = unknown_in(sources[revision.slug], event)
            events.append(event)
        if events:
            lane.append(events, here.new_sources, actor=ACTOR, method=METHOD)
        return valid

    def _still_holds(self, here: DecisionState, revision: NewRevision) -> bool:
        """Returns True if the note is still at the state that the revision was made for."""
        row, slug = revision.row, revision.slug
        if not self.is_of(here.queries.agent(self.agent)):
            return False
        if row is not None and not is_unchanged(here.queries.document(row.id), row):
            return False
        keeps_its_slug = row is not None and row.source_id == slug
        return keeps_its_slug or here.queries.note(self.agent, slug) is None

    # ------------------------------------------------------------------ one note

    def settle(self, slug: str) -> None:
        """Records the file's text if the log lacks it, so that the file may be replaced.

        Raises resource.conflict if the file is no note as it stands, or keeps changing;
        Unavailable.
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
            hint="Wait until it is not being edited any more, then repeat the change.",
            passing=True,
        )

    def is_unrecorded(self, slug: str) -> bool:
        """Returns True if `settle` would record a text; raises the errors that it raises."""
        return self._unrecorded(slug, self.note(slug)) is not None

    def _unrecorded(self, slug: str, row: DocumentRow | None) -> bytes | None:
        """Returns the file's text if the log lacks it; None for a missing or blank file, too."""
        try:
            data = notefiles.read(self.folder, slug)
        except Unavailable as error:
            if error.code == "missing" and self._is_own:
                return None
            raise
        except KbprocError as error:
            if error.type == "resource.not_found" or error.detail.get("code") == "blank":
                return None
            if error.type != "operation.failed":
                raise
            raise KbprocError(
                "resource.conflict",
                f"{error.message} The file was not changed.",
                hint="Repair that file or move it away, then repeat the change.",
                detail=error.detail,
            ) from None
        is_known = row is not None and row.sha256 == digest(data)
        return None if is_known or self.is_earlier_text(slug, digest(data)) else data


def unknown_in(sources: NamedSources, event: DocWritten) -> list[str]:
    """Returns the names of a note's sources that stand for nothing, ids of no document included."""
    documents = {anchor.document for anchor in event.anchors}
    return [*sources.unknown, *(str(id) for id in sources.ids if id not in documents)]


def is_unchanged(current: DocumentRow | None, row: DocumentRow) -> bool:
    """Returns True if the note `current` is live and at the revision of `row`."""
    return current is not None and current.deleted_at is None and current.revision == row.revision


def content_of(intake: Intake, slug: str, data: bytes) -> Content:
    """Returns the note's content. Raises store.io, operation.cancelled.

    A text that the parser fails on is stored, but has no chunks, so that no search finds it.
    """
    text = data.decode()
    title = title_of(text, slug)
    try:
        if may_have_head(text):  # the parser reads the head; what it states comes first
            content = read_content(intake, data, "markdown", words_of(slug), redacts=False)
            content = replace(content, title=cleaned_title(content.title) or title)
        else:
            content = read_content(
                intake, data, "markdown", file_name(slug), title=title, redacts=False
            )
    except KbprocError as error:
        if error.type in _ENDS_THE_SYNC:
            raise
        source = intake.blobs.put(data)
        content = Content(
            title=title,
            doc_type="note",
            chunks=[],
            sha256=source.name,
            size_bytes=len(data),
            source=source,
        )
    return replace(content, doc_type="note")


def read_ahead(
    intake: Intake, folder: Path, changes: Sequence[FileChange]
) -> Generator[NewRevision | None]:
    """Yields the revisions in order, parsing a few ahead; None for a file that has changed."""
    if len(changes) == 1:  # the common case, and a pool of threads takes a while to start
        yield _read(intake, folder, changes[0])
        return
    yield from map_ahead(partial(_read, intake, folder), changes, threads=_READERS, name="notes")


def _read(intake: Intake, folder: Path, change: FileChange) -> NewRevision | None:
    try:
        data = notefiles.read(folder, change.slug)
    except Unavailable:
        raise
    except KbprocError:
        return None
    if digest(data) != change.sha256:
        return None
    return NewRevision(
        change.action, change.slug, change.row, content_of(intake, change.slug, data)
    )


def note_written(
    here: DecisionState,
    content: Content,
    *,
    agent: str,
    slug: str,
    row: DocumentRow | None,
    ids: Ids,
    origin: Origin | None = None,
    sources: NamedSources | None = None,
) -> DocWritten:
    """Returns the event for a new note, or for the next revision of `row`.

    Its sources are as they are now; those of a note with the same text under another name stay.
    """
    named_ids, anchors = with_documents(here.queries, sources or NamedSources())
    if row is not None and row.sha256 == content.sha256:
        anchors = anchors_of(row.anchors)
    documents = here.queries.documents_by_id(named_ids) if named_ids else {}
    live = [id for id, document in documents.items() if document.deleted_at is None]
    event = document_written(
        here,
        content,
        kb=NOTES + agent,
        existing=row,
        ids=ids,
        tags=content.tags,
        metadata=content.metadata,
        source_id=slug,
        origin=origin_from(here.queries, live, origin),
    )
    return replace(event, anchors=anchors)
