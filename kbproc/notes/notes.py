"""Notes as they are shown, written and deleted by agents.

Owns: whose notes are meant, notes as structs, and the decisions to put or delete one,
with the file's change as their effect.
Refuses to know: changes made by hand (notesync.py), and how a file is replaced without
losing anybody's text (noteedit.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from kbproc.agents.quotas import check_quota
from kbproc.base.errors import KbprocError
from kbproc.base.suggest import closest, did_you_mean, nearest
from kbproc.base.values import SLUG
from kbproc.documents.revision import Content, Ids
from kbproc.events.document import DocDeleted, DocWritten
from kbproc.notefiles import edit
from kbproc.notefiles import file as notefile
from kbproc.notefiles.file import NotANote, digest, require_text
from kbproc.notefiles.folder import Unavailable
from kbproc.notes.revision import Moved, Pending, note_written, removed_by
from kbproc.notes.sync import ACTOR, Notebook
from kbproc.store.decision import Decision, Here, Target
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.reader import EVERYTHING
from kbproc.views.catalog.rows import AgentRow, DocumentRow, Roster

if TYPE_CHECKING:
    from collections.abc import Callable


AgentSlug = Annotated[
    str,
    Meta(
        pattern=SLUG,
        description="whose notes; a process that is bound to an agent may leave it out",
    ),
]
NoteSlug = Annotated[str, Meta(pattern=SLUG, description="note: its file's name without .md")]

MOST_BYTES = notefile.MOST_BYTES
_ROUNDS = 5  # of looking at a file again that is being edited
_TURNS = 100  # of waiting for what others write of the same note
_WAIT_SECONDS = 1.0


class NoteHead(Struct, kw_only=True, frozen=True):
    """A note in a list."""

    id: int
    slug: str
    title: str
    updated_at: str
    size_bytes: int
    revision: int


class NoteInfo(NoteHead, kw_only=True, frozen=True):
    """A note without its text; `sha256` is that of its file."""

    agent: str
    sha256: str


class Note(NoteInfo, kw_only=True, frozen=True):
    """`text`: the file as the log knows it; `updated_by`: `file` for whoever edits by hand."""

    text: str
    updated_by: str


class DeletedNote(Struct, kw_only=True, frozen=True):
    """Hidden from every read, and its file removed; the log keeps the text until it is purged."""

    id: int
    agent: str
    slug: str


# ------------------------------------------------------------------ whose, and which


def require_agent(roster: Roster, slug: str | None, bound: AgentRow | None) -> AgentRow:
    """The agent whose notes are meant: a bound process's own, else the one that is named.

    Raises input.invalid_params, resource.not_found; an agent may see no other.
    """
    live = {bound.slug: bound} if bound else _live(roster)
    wanted = slug or (bound.slug if bound else None)
    if wanted is None:
        raise KbprocError(
            "input.invalid_params",
            "Say whose notes are meant: agent is required.",
            field="$.params.agent",
            valid_values=sorted(live)[:20],
            hint="Only a process bound to an agent may leave it out."
            + ("" if live else " There is no agent yet: create one with agent.create."),
        )
    if wanted not in live:
        near = nearest(wanted, live)
        raise KbprocError(
            "resource.not_found",
            f"There is no agent {wanted!r}.",
            field="$.params.agent",
            valid_values=near,
            hint=f"This process is bound to {bound.slug}: leave agent out."
            if bound
            else f"Use {near[0]}, or create it with agent.create."
            if near
            else "Create it with agent.create.",
        )
    return live[wanted]


def _live(roster: Roster) -> dict[str, AgentRow]:
    return {slug: row for slug, row in roster.agents.items() if row.deleted_at is None}


def agents_seen(roster: Roster, bound: AgentRow | None) -> list[AgentRow]:
    return [bound] if bound else list(_live(roster).values())


def require_note(queries: Queries, agent: str, slug: str) -> DocumentRow:
    """Raises resource.not_found with the nearest slugs."""
    row = queries.note(agent, slug)
    if row is not None:
        return row
    near = nearest(slug, [str(row.source_id) for row in queries.notes(agent)])
    raise KbprocError(
        "resource.not_found",
        f"{agent} has no note {slug!r}.",
        field="$.params.slug",
        valid_values=near,
        hint=f"{did_you_mean(closest(slug, near))}See note.list."
        if near
        else f"{agent} has no notes yet: note.put writes one.",
    )


def still_read(agent: AgentRow) -> KbprocError:
    """For whoever has waited in vain for the first sync of the agent's folder."""
    return KbprocError(
        "operation.timeout",
        f"The notes of {agent.slug} are still being read.",
        field="$.params.timeout_ms",
    )


def head(row: DocumentRow) -> NoteHead:
    return NoteHead(
        id=row.id,
        slug=str(row.source_id),
        title=row.title,
        updated_at=row.updated_at,
        size_bytes=row.size_bytes,
        revision=row.revision,
    )


def info(row: DocumentRow, agent: str) -> NoteInfo:
    return NoteInfo(**msgspec.structs.asdict(head(row)), agent=agent, sha256=row.sha256)


def whole(queries: Queries, row: DocumentRow, agent: str, data: bytes) -> Note:
    """`data`: its source."""
    fields = msgspec.structs.asdict(info(row, agent))
    last = queries.events_of_document(row.id)[-1]
    return Note(**fields, text=data.decode(), updated_by=last.actor)


def bytes_of(text: str) -> bytes:
    """What the file will hold. Raises input.invalid_params, input.too_large."""
    field = "$.params.text"
    try:
        data = text.encode()
        require_text(data)
    except UnicodeEncodeError:
        raise KbprocError(
            "input.invalid_params", "text holds half a surrogate pair.", field=field
        ) from None
    except NotANote as why:
        if why.code == "large":
            raise KbprocError(
                "input.too_large",
                f"text has {len(data)} bytes; a note has at most {MOST_BYTES}.",
                field=field,
                hint="Split it into several notes.",
            ) from None
        said = "is blank" if why.code == "blank" else "holds NUL characters"
        raise KbprocError("input.invalid_params", f"text {said}.", field=field) from None
    return data


# ------------------------------------------------------------------ deciding


class _Change:
    """A decision over one note, which can be made again once its file is settled."""

    def __init__(self, book: Notebook, slug: str) -> None:
        self.book = book
        self.agent = book.agent
        self.slug = slug
        self._rounds = 0
        self._turns = 0
        self._blocked: KbprocError | None = None
        self._unseen = False

    def prepare(self, *, dry_run: bool) -> None:
        """Outside of the lane: records an edit that the log has not seen.

        What stands in the way is told when it is decided: a repeated client_token is
        answered before that.
        """
        self._blocked = None
        try:
            if dry_run:
                self.book.foresee_folder()
                self._unseen = self.book.is_unseen(self.slug)
            else:
                self.book.settle(self.slug)
        except KbprocError as error:
            self._blocked = error

    def again(self, error: KbprocError) -> bool:
        """After the effect has met an edit: records it; True if it is worth another try.

        Also after what others have written of the note, or of its agent, in the same batch.
        Outside of the lane; what stands in the way then is told when it is decided.
        """
        if isinstance(error, Pending):
            self._turns += 1
            self.book.store.wait_for(error.after, _WAIT_SECONDS)
        elif isinstance(error, edit.EditedMeanwhile | Moved):
            self._rounds += 1
        else:
            return False
        if self._rounds > _ROUNDS or self._turns > _TURNS:
            return False
        if isinstance(error, Moved):
            self.book = self.book.current()
        self.prepare(dry_run=False)
        return True

    def _row(self, here: Here) -> DocumentRow | None:
        """Raises resource.not_found for an agent that is gone, and what stands in the way."""
        if not self.book.is_of(self._owner(here)):
            raise Moved(self.agent)
        row = here.queries.note(self.agent, self.slug)
        if self._blocked is not None:
            raise self._blocked
        if row is not None and row.touched > self.book.store.published.seq:
            raise Pending(row)
        return row

    def _changes(self, change: str) -> list[str]:
        first = [f"record what was edited in {self.slug}.md by hand"] if self._unseen else []
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
        """Nothing is lost where the file is gone or blank, whatever was known of it."""
        try:
            change(expected)
        except edit.EditedMeanwhile as error:
            data = error.data
            if data is None:
                change(None)
            elif not data.decode(errors="replace").strip("\ufeff \t\r\n\f\v"):
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

        here.queries.see(EVERYTHING)  # who may write but not read makes no second note
        row = self._row(here)
        known = None if row is None else row.sha256
        if row is not None and known == self._content.sha256:
            # Whatever was expected: a put that died between file and log has come to this, too.
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
            data=self._made(event, here.now),
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
        used = here.queries.notes_count(self.agent)
        check_quota(
            self._owner(here), "notes_stored", used, instead="Delete notes that are not needed"
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
        """What a delete that died between file and log has come to; asked again, it is done."""
        if not self._confirmed or self.book.is_standing(self.slug):
            return None
        return removed_by(ACTOR, here.queries, self.agent, self.slug)

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
