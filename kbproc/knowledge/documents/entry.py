"""A knowledge entry: as it is shown, found, and linked with others.

Owns: the Entry struct, the not-found answers, which links are allowed and to whom, and what the
deletion of entries does to their chains.
Refuses to know: texts and their parsing, search, the wire.

An entry is superseded by at most one other; who supersedes it may be superseded in turn.
`head` is the entry at the chain's end, kept by the fold of the log:
see views/catalog/folds/entry.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.layout import in_minutes
from kbproc.base.values import DocumentId, Percent
from kbproc.base.wording import there_is_no
from kbproc.documents.chains import Chains
from kbproc.store.decision import Target
from kbproc.store.state import IndexStatus, Model
from kbproc.views.catalog.queries.all import Queries
from kbproc.views.catalog.rows import EntryRow

MAX_BODY = 32_000

EntryId = Annotated[DocumentId, Meta(description="knowledge entry, by id")]
Replaced = Annotated[EntryId, Meta(description="the entry that is replaced, by id")]
Successor = Annotated[EntryId, Meta(description="the entry that takes its place, by id")]
Owner = Annotated[str, Meta(min_length=1, max_length=200, description="who stored it")]
TaskId = Annotated[str, Meta(min_length=1, max_length=200, description="a task, by your own name")]


class TaskRef(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which task an entry has to do with; `produced`: it came out of it."""

    task_id: TaskId
    kind: Annotated[Literal["references", "produced"], Meta(description="how it relates")] = (
        "references"
    )


class Entry(Struct, kw_only=True, frozen=True):
    """A knowledge entry. `head`: the entry that holds now; itself unless superseded.

    `source`: where it was learned. `expired`: at the moment of this answer.
    """

    id: int
    kb: str
    title: str
    tags: list[str]
    confidence: Percent
    expires_at: str | None
    expired: bool
    task_ref: TaskRef | None
    source: str
    created_by: str
    created_at: str
    superseded_by: int | None
    head: int
    embedding_status: IndexStatus


class EntryText(Entry, kw_only=True, frozen=True):
    """With its text, and the entries whose place it took directly (the first hundred)."""

    body: str
    supersedes: list[int]


class Superseded(Struct, kw_only=True, frozen=True):
    """`head`: the entry that holds in old_id's place from now on."""

    old_id: int
    new_id: int
    head: int


def entry_of(row: EntryRow, embedding: Model, now: str) -> Entry:
    return Entry(
        id=row.id,
        kb=row.kb,
        title=row.title,
        tags=list(row.tags),
        confidence=row.confidence,
        expires_at=row.expires_at,
        expired=row.expires_at is not None and row.expires_at <= now,
        task_ref=task_ref_of(row.task_id, row.task_kind),
        source=row.source,
        created_by=row.created_by,
        created_at=row.created_at,
        superseded_by=row.superseded_by,
        head=row.head,
        embedding_status=embedding.status_of(row.id),
    )


def task_ref_of(task_id: str | None, kind: str | None) -> TaskRef | None:
    if task_id is None:
        return None
    return TaskRef(task_id=task_id, kind="produced" if kind == "produced" else "references")


def standing(entry: dict[str, Any], *, expired: bool) -> Iterator[str]:
    """In words, what keeps an entry from holding, or will."""
    if entry["superseded_by"] is not None:
        yield f"superseded by {entry['superseded_by']}"
    if entry["expires_at"] is not None:
        yield f"{'expired' if expired else 'expires'} {in_minutes(entry['expires_at'])}"


def require(queries: Queries, id: int, *, field: str = "$.params.id") -> EntryRow:
    """The live entry; raises resource.not_found that tells what is there instead."""
    row = queries.entry(id)
    if row is not None and row.deleted_at is None:
        return row
    if row is not None:
        raise KbprocError(
            "resource.not_found",
            f"Entry {id} was deleted at {row.deleted_at}.",
            field=field,
            hint="events.revert undoes its deletion; as_of shows it as it was.",
            detail={"deleted_at": row.deleted_at},
        )
    document = queries.document(id)
    if document is not None and document.type and document.deleted_at is None:
        raise KbprocError(
            "resource.not_found",
            f"{id} is a document of type {document.type}, no entry.",
            field=field,
            hint="See knowledge.list for the entries, doc.get for documents.",
        )
    raise KbprocError(
        "resource.not_found",
        f"There is no entry {id}.",
        field=field,
        hint="See knowledge.list for the entries there are.",
    )


def require_all(queries: Queries, ids: Sequence[int], *, field: str) -> list[EntryRow]:
    """Raises resource.not_found naming every id that is missing."""
    found = {id: row for id, row in queries.entries_by_id(ids).items() if not row.deleted_at}
    missing = [id for id in dict.fromkeys(ids) if id not in found]
    if len(missing) == 1:
        require(queries, missing[0], field=field)
    if missing:
        raise KbprocError(
            "resource.not_found",
            there_is_no("entry", missing, "entries"),
            field=field,
            detail={"missing": missing[:100]},
        )
    return [found[id] for id in dict.fromkeys(ids)]


def require_both(queries: Queries, old_id: int, new_id: int) -> tuple[EntryRow, EntryRow]:
    """The entry that is replaced, and the one that takes its place. Raises resource.not_found."""
    old = require(queries, old_id, field="$.params.old_id")
    return old, require(queries, new_id, field="$.params.new_id")


def targets_of(rows: Collection[EntryRow]) -> list[Target]:
    return [Target(kind="entry", id=row.id, name=row.title, revision=row.revision) for row in rows]


# ---------------------------------------------------------------------------- chains


def check_own(rows: Collection[EntryRow], actor: str, own_names: Collection[str]) -> None:
    """Raises auth.not_owner unless the actor has stored them all, under whichever of its names."""
    others = [row for row in rows if row.created_by not in own_names]
    if others:
        raise KbprocError(
            "auth.not_owner",
            f"Entry {others[0].id} belongs to {others[0].created_by}, and {actor} may delete only "
            "its own.",
            field="$.params.ids",
            hint="Leave out the entries of others, or supersede one by an entry of your own.",
            detail={
                "owners": {str(row.id): row.created_by for row in others[:100]},
                "needed": "admin",
            },
        )


def check_owner(
    old: EntryRow, new: EntryRow, actor: str, own_names: Collection[str], scopes: Collection[str]
) -> None:
    """Raises auth.not_owner for an actor who owns neither entry, under none of its names."""
    is_own = old.created_by in own_names or new.created_by in own_names
    if is_own or "knowledge:write_others" in scopes:
        return
    raise KbprocError(
        "auth.not_owner",
        f"Entries {old.id} and {new.id} belong to others, and {actor} may not link them.",
        field="$.params.old_id",
        hint="Store an entry of your own and let that supersede the old one.",
        detail={
            "owners": {str(old.id): old.created_by, str(new.id): new.created_by},
            "needed": "knowledge:write_others",
        },
    )


def without(queries: Queries, rows: Collection[EntryRow]) -> Chains:
    """The chains once these entries are deleted.

    An entry that a deleted head superseded holds again; one that another deleted entry
    superseded is superseded by that entry's successor from now on.
    """
    ids = [row.id for row in rows]
    chains = Chains(queries, ids)
    chains.remove(ids)
    chains.settle()
    return chains


def describe_changes(queries: Queries, chains: Chains) -> list[str]:
    """What changes in the chains, for a plan."""
    titles = {row.id: row.title for row in queries.entries_by_id(chains.changed).values()}
    return [
        f"revive entry {id} “{titles[id]}”"
        if chains.by(id) is None
        else f"entry {id} “{titles[id]}” is superseded by {chains.by(id)} instead"
        for id in chains.changed
    ]
