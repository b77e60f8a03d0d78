"""Returns notes to methods, finds notes and their agents, and decides to put or delete a note.

A change of a note changes its file, too. It is tried again after an edit that the log did not
have, and waits for other changes of the same note.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from kbproc.base.errors import KbprocError
from kbproc.base.suggest import closest, did_you_mean, nearest
from kbproc.base.values import SLUG
from kbproc.engine.events.document import DocDeleted, DocWritten
from kbproc.engine.events.origin import Origin
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.reader import EVERYTHING, NOTES
from kbproc.engine.projections.catalog.rows import AgentRow, DocumentRow, Roster, anchors_of
from kbproc.engine.store.decision import Decision, DecisionState
from kbproc.engine.store.target import Target
from kbproc.knowledge.agents.notes import edit, files
from kbproc.knowledge.agents.notes.files import NotANote, Unavailable, digest, require_text
from kbproc.knowledge.agents.notes.notebook import ACTOR, Notebook, note_written, unknown_in
from kbproc.knowledge.agents.quotas import check_quota
from kbproc.knowledge.documents.anchors import NamedSources
from kbproc.knowledge.documents.document import SourceChange, places_of
from kbproc.knowledge.documents.lookup import newest_deleted
from kbproc.knowledge.documents.revision import Content, Ids

AgentSlug = Annotated[
    str,
    Meta(
        pattern=SLUG,
        description="whose notes; a process that is bound to an agent may leave it out",
    ),
]
NoteSlug = Annotated[str, Meta(pattern=SLUG, description="note: its file's name without .md")]

MOST_BYTES = files.MOST_BYTES
_ROUNDS = 5  # attempts, while a person edits the file
_TURNS = 100  # waits for other changes of the same note
_WAIT_SECONDS = 1.0


class NoteHead(Struct, kw_only=True, frozen=True):
    """A note in a list. `tags`: those that its front matter names. `source_changed`: what it was
    derived from, as its front matter says, and what has changed since.
    """

    id: int
    slug: str
    title: str
    updated_at: str
    size_bytes: int
    revision: int
    tags: list[str] = []
    origin: Origin = "agent"
    source_changed: list[SourceChange] | UnsetType = UNSET


class NoteInfo(NoteHead, kw_only=True, frozen=True):
    """A note without its text; `sha256` is that of its file.

    `places`: the files and commits that it was derived from. `unknown_sources`: of a note that was
    put, the names in its `derived_from` that stand for nothing.
    """

    agent: str
    sha256: str
    places: list[str] | UnsetType = UNSET
    unknown_sources: list[str] | UnsetType = UNSET


class Note(NoteInfo, kw_only=True, frozen=True):
    """`text`: the file as the log knows it; `updated_by`: `file` for a person's edit by hand."""

    text: str
    updated_by: str


class DeletedNote(Struct, kw_only=True, frozen=True):
    """Hidden from every read, and its file removed; the log keeps the text until it is purged."""

    id: int
    agent: str
    slug: str


# ------------------------------------------------------------------ lookup


def require_agent(roster: Roster, slug: str | None, bound: AgentRow | None) -> AgentRow:
    """Returns the agent of the notes: the one that the process is bound to, or the named one.

    A bound process may see no other agent. Raises input.invalid_params, resource.not_found.
    """
    live = {bound.slug: bound} if bound else _live(roster)
    agent_slug = slug or (bound.slug if bound else None)
    if agent_slug is None:
        raise KbprocError(
            "input.invalid_params",
            "agent is required: it says whose notes are meant.",
            field="$.params.agent",
            valid_values=sorted(live)[:20],
            hint="Only a process bound to an agent may leave it out."
            + ("" if live else " There is no agent yet: create one with agent.create."),
        )
    if agent_slug not in live:
        near = nearest(agent_slug, live)
        raise KbprocError(
            "resource.not_found",
            f"There is no agent {agent_slug!r}.",
            field="$.params.agent",
            valid_values=near,
            hint=f"This process is bound to {bound.slug}: leave agent out."
            if bound
            else f"Use {near[0]}, or create it with agent.create."
            if near
            else "Create it with agent.create.",
        )
    return live[agent_slug]


def _live(roster: Roster) -> dict[str, AgentRow]:
    return {slug: row for slug, row in roster.agents.items() if row.deleted_at is None}


def agents_seen(roster: Roster, bound: AgentRow | None) -> list[AgentRow]:
    return [bound] if bound else list(_live(roster).values())


def require_note(queries: Queries, agent: str, slug: str) -> DocumentRow:
    """Returns the note. Raises resource.not_found with the nearest slugs."""
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


def not_read_yet(agent: AgentRow) -> KbprocError:
    """Returns the error of a request that waited in vain for the first sync of the folder."""
    return KbprocError(
        "operation.timeout",
        f"The notes of {agent.slug} are still being read.",
        field="$.params.timeout_ms",
    )


def head(row: DocumentRow, source_changed: list[SourceChange] | None = None) -> NoteHead:
    return NoteHead(
        id=row.id,
        slug=str(row.source_id),
        title=row.title,
        tags=row.tags,
        updated_at=row.updated_at,
        size_bytes=row.size_bytes,
        revision=row.revision,
        origin=row.origin,
        source_changed=source_changed or UNSET,
    )


def info(
    row: DocumentRow, agent: str, source_changed: list[SourceChange] | None = None
) -> NoteInfo:
    fields = msgspec.structs.asdict(head(row, source_changed))
    places = places_of(anchors_of(row.anchors)) or UNSET
    return NoteInfo(**fields, agent=agent, sha256=row.sha256, places=places)


def note_of(
    row: DocumentRow, agent: str, data: bytes, source_changed: list[SourceChange] | None = None
) -> Note:
    """Returns the note with its text; `data` are its bytes."""
    fields = msgspec.structs.asdict(info(row, agent, source_changed))
    return Note(**fields, text=data.decode(), updated_by=row.updated_by)


def bytes_of(text: str) -> bytes:
    """Returns the bytes for the note's file. Raises input.invalid_params, input.too_large."""
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
        problem = "is blank" if why.code == "blank" else "holds NUL characters"
        raise KbprocError("input.invalid_params", f"text {problem}.", field=field) from None
    return data


# ------------------------------------------------------------------ changes


class NotDurableYet(KbprocError):
    """The note's newest revision is not durable yet, and may never be: its file must stay."""

    def __init__(self, row: DocumentRow) -> None:
        super().__init__(
            "operation.timeout",
            f"The note {row.source_id} is being changed by many other requests.",
            hint="Repeat the change.",
        )
        self.after = row.touched


class FolderChanged(KbprocError):
    """The agent got another folder since its notes were read."""

    def __init__(self, agent: str) -> None:
        super().__init__(
            "resource.conflict",
            f"The notes folder of {agent} was changed during the request.",
            hint="Repeat the change.",
        )


class _NoteDecision:
    """A decision over one note, which can be made again once its file is settled."""

    def __init__(self, book: Notebook, slug: str) -> None:
        self.book = book
        self.agent = book.agent
        self.slug = slug
        self._rounds = 0
        self._turns = 0
        self._error: KbprocError | None = None
        self._is_edited = False

    def prepare(self, *, dry_run: bool) -> None:
        """Records an edit that the log does not have; not to be called in the lane.

        An error is raised only when the change is decided, because a repeated client_token is
        answered before that.
        """
        self._error = None
        try:
            if dry_run:
                self.book.foresee_folder()
                self._is_edited = self.book.is_unrecorded(self.slug)
            else:
                self.book.settle(self.slug)
        except KbprocError as error:
            self._error = error

    def again(self, error: KbprocError) -> bool:
        """Returns True if the change is worth another attempt; not to be called in the lane.

        It is after an edit, which is recorded first, and after other changes of the note or its
        agent in the same batch.
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

    def _row(self, here: DecisionState) -> DocumentRow | None:
        """Returns the present note. Raises resource.not_found for a deleted agent.

        Raises FolderChanged, NotDurableYet and the error of `prepare`, too.
        """
        if not self.book.is_of(self._owner(here)):
            raise FolderChanged(self.agent)
        row = here.queries.note(self.agent, self.slug)
        if self._error is not None:
            raise self._error
        if row is not None and row.touched > self.book.store.published.seq:
            raise NotDurableYet(row)
        return row

    def _changes(self, change: str) -> list[str]:
        first = [f"record what was edited in {self.slug}.md by hand"] if self._is_edited else []
        return [*first, change]

    def _owner(self, here: DecisionState) -> AgentRow:
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
        """Changes the file, which holds `expected`.

        A file that is missing, blank or holds an earlier text may be changed, too.
        """
        try:
            change(expected)
        except edit.EditedMeanwhile as error:
            data = error.data
            if data is None:
                change(None)
            elif _is_blank(data) or self.book.is_earlier_text(self.slug, digest(data)):
                change(digest(data))
            else:
                raise


class NotePut(_NoteDecision):
    """Creates the note or replaces it; the same text again changes nothing."""

    def __init__(
        self,
        book: Notebook,
        slug: str,
        *,
        data: bytes,
        content: Content,
        expected_revision: int | None,
        folder: Path | None = None,
        root: Path | None = None,
    ) -> None:
        """`folder`: where relative paths of its sources begin, besides the notes folder. All lie
        below `root`, if any.
        """
        super().__init__(book, slug)
        self._data = data
        self._content = content
        self._expected = expected_revision
        self._folders = [] if folder is None else [folder]
        self._root = root
        self._sources = NamedSources()

    def prepare(self, *, dry_run: bool) -> None:
        super().prepare(dry_run=dry_run)
        row = self.book.note(self.slug) if self._content.derived_from else None
        self._sources = self.book.sources_of(
            self._content, row, folders=self._folders, root=self._root
        )

    def __call__(self, here: DecisionState) -> Decision:

        # An actor that may write but not read notes must not create a second one.
        here.queries.see(EVERYTHING)
        row = self._row(here)
        logged_sha256 = None if row is None else row.sha256
        if row is not None and logged_sha256 == self._content.sha256:
            # This finishes a put that died between log and file, whatever revision it expected.
            return Decision(
                events=[],
                data=info(row, self.agent),
                effect=lambda: self._write(here, logged_sha256),
            )
        self._check_revision(row)
        if row is None:
            self._check_quota(here)
        event = note_written(
            here,
            self._content,
            agent=self.agent,
            slug=self.slug,
            row=row,
            ids=Ids(here),
            sources=self._sources,
        )
        unknown = unknown_in(self._sources, event)
        verb = "create" if row is None else "replace"
        return Decision(
            events=[event],
            data=self._note_after(event, here.ts, unknown),
            targets=[] if row is None else [self._target(row)],
            changes=self._changes(f"{verb} the note {self.slug} of {self.agent}: “{event.title}”"),
            effect=lambda: self._write(here, logged_sha256, unknown),
        )

    def _write(
        self, here: DecisionState, logged_sha256: str | None, unknown: list[str] | None = None
    ) -> None:
        self.book.require_folder(here.queries)
        if unknown is not None:
            self.book.unknown_sources[self.slug] = unknown

        def write(expected: str | None) -> None:
            edit.write(self.book.folder, self.slug, self._data, expected)

        self._on_file(write, logged_sha256)

    def _note_after(self, event: DocWritten, now: str, unknown: list[str]) -> NoteInfo:
        return NoteInfo(
            id=event.id,
            slug=self.slug,
            title=event.title,
            tags=event.tags,
            updated_at=now,
            size_bytes=event.size_bytes,
            revision=event.revision,
            agent=self.agent,
            sha256=event.source_sha256,
            origin=event.origin,
            places=places_of(event.anchors) or UNSET,
            unknown_sources=unknown or UNSET,
        )

    def _check_revision(self, row: DocumentRow | None) -> None:
        """Raises resource.conflict unless the note is at the expected revision."""
        revision = None if row is None else row.revision
        if self._expected is None or self._expected == revision:
            return
        is_at = "does not exist" if revision is None else f"is at revision {revision}"
        raise KbprocError(
            "resource.conflict",
            f"The note {self.slug} of {self.agent} {is_at}, not at {self._expected}.",
            field="$.params.expected_revision",
            detail={"revision": revision},
            hint="Read the note again, then decide.",
        )

    def _check_quota(self, here: DecisionState) -> None:
        """Raises quota.exceeded if the agent may have no further note."""
        check_quota(
            self._owner(here),
            "notes_stored",
            lambda: here.queries.notes_count(self.agent),
            instead="Delete notes that are not needed",
        )


class NoteDeletion(_NoteDecision):
    def __init__(self, book: Notebook, slug: str, *, confirmed: bool) -> None:
        super().__init__(book, slug)
        self._confirmed = confirmed

    def __call__(self, here: DecisionState) -> Decision:
        row = self._row(here)
        if row is None and (deleted_row := self._already_deleted(here)) is not None:
            return Decision(
                events=[], data=self._result(deleted_row), targets=[self._target(deleted_row)]
            )
        row = row or require_note(here.queries, self.agent, self.slug)
        return Decision(
            events=[DocDeleted(id=row.id)],
            data=self._result(row),
            targets=[self._target(row)],
            changes=self._changes(f"hide the note {self.slug} of {self.agent}, remove its file"),
            effect=lambda: self._remove(row),
        )

    def _already_deleted(self, here: DecisionState) -> DocumentRow | None:
        """Returns the note that an earlier, interrupted run of this delete has removed."""
        if not self._confirmed or self.book.has_file(self.slug):
            return None
        return newest_deleted(here.queries, NOTES + self.agent, self.slug, ACTOR)

    def _result(self, row: DocumentRow) -> DeletedNote:
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
