"""The decisions to put or delete a note, with the change of its file as their effect.

Owns: what a put and a delete mean, who waits for whom, and trying again after an edit that the
log had not seen.
Refuses to know: changes made by hand (sync.py), and how a file is replaced without losing
anybody's text (agents/notefiles/edit.py).
"""

from __future__ import annotations

from collections.abc import Callable

from kbproc.agents.notefiles import edit
from kbproc.agents.notefiles.file import digest
from kbproc.agents.notefiles.folder import Unavailable
from kbproc.agents.notes.note import DeletedNote, NoteInfo, info, require_note
from kbproc.agents.notes.notebook import ACTOR, Notebook
from kbproc.agents.notes.revision import note_written
from kbproc.agents.quotas import check_quota
from kbproc.base.errors import KbprocError
from kbproc.documents.earlier import deleted
from kbproc.documents.revision import Content, Ids
from kbproc.events.document import DocDeleted, DocWritten
from kbproc.store.decision import Decision, Here, Target
from kbproc.views.catalog.reader import EVERYTHING, NOTES
from kbproc.views.catalog.rows import AgentRow, DocumentRow

_ROUNDS = 5  # of looking at a file again that is being edited
_TURNS = 100  # of waiting for what others write of the same note
_WAIT_SECONDS = 1.0


class NotDurableYet(KbprocError):
    """The note's newest revision is not durable yet, and may never be: its file must stay."""

    def __init__(self, row: DocumentRow) -> None:
        super().__init__(
            "operation.timeout",
            f"The note {row.source_id} is being written by many others.",
            hint="Repeat the change.",
        )
        self.after = row.touched


class FolderChanged(KbprocError):
    """The agent got another folder since its notes were looked at."""

    def __init__(self, agent: str) -> None:
        super().__init__(
            "resource.conflict",
            f"The notes folder of {agent} was changed meanwhile.",
            hint="Repeat the change.",
        )


class _Change:
    """A decision over one note, which can be made again once its file is settled."""

    def __init__(self, book: Notebook, slug: str) -> None:
        self.book = book
        self.agent = book.agent
        self.slug = slug
        self._rounds = 0
        self._turns = 0
        self._blocked: KbprocError | None = None
        self._is_edited = False

    def prepare(self, *, dry_run: bool) -> None:
        """Records an edit that the log has not seen; not to be called in the lane.

        An error is raised only when the change is decided: a repeated client_token is answered
        before that.
        """
        self._blocked = None
        try:
            if dry_run:
                self.book.foresee_folder()
                self._is_edited = self.book.is_unrecorded(self.slug)
            else:
                self.book.settle(self.slug)
        except KbprocError as error:
            self._blocked = error

    def again(self, error: KbprocError) -> bool:
        """Whether the change is worth another try after `error`; not to be called in the lane.

        It is after an edit, which is recorded first, and after what others have written of the
        note or its agent in the same batch.
        """
        if isinstance(error, NotDurableYet):
            self._turns += 1
            self.book.store.wait_for(error.after, _WAIT_SECONDS)
        elif isinstance(error, edit.EditedMeanwhile | FolderChanged):
            self._rounds += 1
        else:
            return False
        if self._rounds > _ROUNDS or self._turns > _TURNS:
            return False
        if isinstance(error, FolderChanged):
            self.book = self.book.current()
        self.prepare(dry_run=False)
        return True

    def _row(self, here: Here) -> DocumentRow | None:
        """The note as it is; raises resource.not_found for an agent that is gone, and more."""
        if not self.book.is_of(self._owner(here)):
            raise FolderChanged(self.agent)
        row = here.queries.note(self.agent, self.slug)
        if self._blocked is not None:
            raise self._blocked
        if row is not None and row.touched > self.book.store.published.seq:
            raise NotDurableYet(row)
        return row

    def _changes(self, change: str) -> list[str]:
        first = [f"record what was edited in {self.slug}.md by hand"] if self._is_edited else []
        return [*first, change]

    def _owner(self, here: Here) -> AgentRow:
        row = here.queries.agent(self.agent)
        if row is None or row.deleted_at is not None:
            raise KbprocError(
                "resource.not_found", f"There is no agent {self.agent!r}.", field="$.params.agent"
            )
        return row

    def _target(self, row: DocumentRow) -> Target:
        name = f"{self.agent}/{self.slug}"
        return Target(kind="note", id=name, name=row.title, revision=row.revision)

    def _on_file(self, change: Callable[[str | None], None], expected: str | None) -> None:
        """A file that is gone or blank may be changed, whatever the log knew of it."""
        try:
            change(expected)
        except edit.EditedMeanwhile as error:
            data = error.data
            if data is None:
                change(None)
            elif _is_blank(data) or self.book.is_behind(self.slug, digest(data)):
                change(digest(data))
            else:
                raise


class Put(_Change):
    """Creates the note or replaces it; the same text again changes nothing."""

    def __init__(
        self,
        book: Notebook,
        slug: str,
        *,
        data: bytes,
        content: Content,
        expected_revision: int | None,
    ) -> None:
        super().__init__(book, slug)
        self._data = data
        self._content = content
        self._expected = expected_revision

    def __call__(self, here: Here) -> Decision:

        here.queries.see(EVERYTHING)  # whoever may write but not read makes no second note
        row = self._row(here)
        known = None if row is None else row.sha256
        if row is not None and known == self._content.sha256:
            # A put that died between log and file is finished so, whatever revision it expected.
            return Decision(
                events=[], data=info(row, self.agent), effect=lambda: self._write(here, known)
            )
        self._check_revision(row)
        if row is None:
            self._check_quota(here)
        event = note_written(
            here, self._content, agent=self.agent, slug=self.slug, row=row, ids=Ids(here)
        )
        verb = "create" if row is None else "replace"
        return Decision(
            events=[event],
            data=self._made(event, here.ts),
            targets=[] if row is None else [self._target(row)],
            changes=self._changes(f"{verb} the note {self.slug} of {self.agent}: “{event.title}”"),
            effect=lambda: self._write(here, known),
        )

    def _write(self, here: Here, known: str | None) -> None:
        self.book.require_folder(here.queries)

        def write(expected: str | None) -> None:
            edit.write(self.book.folder, self.slug, self._data, expected)

        self._on_file(write, known)

    def _made(self, event: DocWritten, now: str) -> NoteInfo:
        return NoteInfo(
            id=event.id,
            slug=self.slug,
            title=event.title,
            updated_at=now,
            size_bytes=event.size_bytes,
            revision=event.revision,
            agent=self.agent,
            sha256=event.source_sha256,
        )

    def _check_revision(self, row: DocumentRow | None) -> None:
        """Raises resource.conflict."""
        now = None if row is None else row.revision
        if self._expected is None or self._expected == now:
            return
        is_at = "does not exist" if now is None else f"is at revision {now}"
        raise KbprocError(
            "resource.conflict",
            f"The note {self.slug} of {self.agent} {is_at}, not at {self._expected}.",
            field="$.params.expected_revision",
            detail={"revision": now},
            hint="Read the note again and decide anew.",
        )

    def _check_quota(self, here: Here) -> None:
        """Raises quota.exceeded."""
        check_quota(
            self._owner(here),
            "notes_stored",
            lambda: here.queries.notes_count(self.agent),
            instead="Delete notes that are not needed",
        )


class Delete(_Change):
    def __init__(self, book: Notebook, slug: str, *, confirmed: bool) -> None:
        super().__init__(book, slug)
        self._confirmed = confirmed

    def __call__(self, here: Here) -> Decision:
        row = self._row(here)
        if row is None and (gone := self._gone(here)) is not None:
            return Decision(events=[], data=self._done(gone), targets=[self._target(gone)])
        row = row or require_note(here.queries, self.agent, self.slug)
        return Decision(
            events=[DocDeleted(id=row.id)],
            data=self._done(row),
            targets=[self._target(row)],
            changes=self._changes(f"hide the note {self.slug} of {self.agent}, remove its file"),
            effect=lambda: self._remove(row),
        )

    def _gone(self, here: Here) -> DocumentRow | None:
        """The note that an earlier, interrupted run of this delete has removed already."""
        if not self._confirmed or self.book.has_file(self.slug):
            return None
        return deleted(here.queries, NOTES + self.agent, self.slug, ACTOR)

    def _done(self, row: DocumentRow) -> DeletedNote:
        return DeletedNote(id=row.id, agent=self.agent, slug=self.slug)

    def _remove(self, row: DocumentRow) -> None:
        def remove(expected: str | None) -> None:
            if expected is not None:
                edit.remove(self.book.folder, self.slug, expected)

        try:
            self._on_file(remove, row.sha256)
        except Unavailable as error:
            if error.code != "missing":
                raise


def _is_blank(data: bytes) -> bool:
    return not data.decode(errors="replace").strip("\ufeff \t\r\n\f\v")
