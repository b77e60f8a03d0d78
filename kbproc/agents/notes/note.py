"""A note as it is shown, and which note or agent is meant.

Owns: notes as structs, the not-found answers, and what a note's text may be.
Refuses to know: how notes are changed, and what lies in their folders.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from kbproc.agents.notefiles import file as notefile
from kbproc.agents.notefiles.file import NotANote, require_text
from kbproc.base.errors import KbprocError
from kbproc.base.suggest import closest, did_you_mean, nearest
from kbproc.base.values import SLUG
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import AgentRow, DocumentRow, NoteRow, Roster

AgentSlug = Annotated[
    str,
    Meta(
        pattern=SLUG,
        description="whose notes; a process that is bound to an agent may leave it out",
    ),
]
NoteSlug = Annotated[str, Meta(pattern=SLUG, description="note: its file's name without .md")]

MOST_BYTES = notefile.MOST_BYTES


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
    """The agent whose notes are meant: the one that the process is bound to, or the one named.

    A bound process may see no other agent. Raises input.invalid_params, resource.not_found.
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


def not_read_yet(agent: AgentRow) -> KbprocError:
    """For a request that has waited in vain for the first sync of the agent's folder."""
    return KbprocError(
        "operation.timeout",
        f"The notes of {agent.slug} are still being read.",
        field="$.params.timeout_ms",
    )


def head(row: DocumentRow | NoteRow) -> NoteHead:
    return NoteHead(
        id=row.id,
        slug=str(row.source_id),
        title=row.title,
        updated_at=row.updated_at,
        size_bytes=row.size_bytes,
        revision=row.revision,
    )


def info(row: DocumentRow | NoteRow, agent: str) -> NoteInfo:
    return NoteInfo(**msgspec.structs.asdict(head(row)), agent=agent, sha256=row.sha256)


def whole(row: DocumentRow | NoteRow, agent: str, data: bytes) -> Note:
    """The note with its text; `data` are its bytes."""
    fields = msgspec.structs.asdict(info(row, agent))
    return Note(**fields, text=data.decode(), updated_by=row.updated_by)


def bytes_of(text: str) -> bytes:
    """The bytes that the note's file will hold. Raises input.invalid_params, input.too_large."""
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
