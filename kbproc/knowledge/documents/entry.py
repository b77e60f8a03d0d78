"""A knowledge entry as methods return it, look it up and link it with others.

The module has the not-found errors, checks which actor may link or delete which entries, and
shows what a deletion does to the chains of entries.

An entry is superseded by at most one other, which may be superseded in turn. `head` is the entry
at the chain's end; the fold of the log sets it: see engine/projections/catalog/folds.py. No live
entry is superseded by a deleted one, and no chain runs in a circle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from kbproc.base.errors import KbprocError
from kbproc.base.layout import in_minutes
from kbproc.base.values import MOST_ALIASES, DocumentId, Instant, Percent
from kbproc.base.wording import source_changes_in_words, there_is_no
from kbproc.engine.events.entry import EntryRevived, EntrySuperseded
from kbproc.engine.events.event import Event
from kbproc.engine.events.origin import Origin
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import EntryRow, anchors_of
from kbproc.engine.store.model import IndexStatus, Model
from kbproc.engine.store.target import Target
from kbproc.knowledge.documents import trust
from kbproc.knowledge.documents.document import SourceChange, places_of

MAX_BODY = 32_000

Aliases = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=100)]],
    Meta(max_length=MOST_ALIASES, description="other names for what it is about, at most 16"),
]
EntryId = Annotated[DocumentId, Meta(description="knowledge entry, by id")]
Replaced = Annotated[EntryId, Meta(description="the entry that is replaced, by id")]
Successor = Annotated[EntryId, Meta(description="the entry that takes its place, by id")]
ValidAt = Annotated[
    Instant,
    Meta(
        description="what was true then, as is known now: RFC 3339; entries that began later or "
        "had ceased by then are left out. as_of asks what was thought then"
    ),
]
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

    `source`: where it was learned. `expired`, `due`: at the moment of this answer. `origin`: who
    its text is from. `review_after`: when a person should check it again; `due` says that this day
    has come. `aliases`: further names, by which a search finds it as by its title. `in_review`: it
    waits for an approval, and only its author and reviewers see it; `replaces`: the entries that it
    supersedes then. Both are left out of an entry that everybody finds. `places`: files,
    lines and commits that it was derived from, too. `source_changed`: what it was derived from and
    is no longer as it was then. `valid_from`, `valid_to`: when what it says began and ceased to be
    true; a successor ends its predecessor's time, as far as that has no earlier end.
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
    origin: Origin = "agent"
    derived_from: list[int] = []
    verified_by: str | None = None
    verified_at: str | None = None
    review_after: str | None = None
    due: bool = False
    aliases: list[str] = []
    in_review: bool | UnsetType = UNSET
    replaces: list[int] | UnsetType = UNSET
    valid_from: str | UnsetType = UNSET
    valid_to: str | UnsetType = UNSET
    places: list[str] | UnsetType = UNSET
    source_changed: list[SourceChange] | UnsetType = UNSET


class EntryText(Entry, kw_only=True, frozen=True):
    """An entry with its text, and the entries that it superseded directly (the first hundred)."""

    body: str
    supersedes: list[int]


class Superseded(Struct, kw_only=True, frozen=True):
    """`head`: the entry that holds in old_id's place from now on. `in_review`: only once the new
    one is approved; left out of a link that holds already.
    """

    old_id: int
    new_id: int
    head: int
    in_review: bool | UnsetType = UNSET


def entry_of(
    row: EntryRow,
    embedding: Model,
    now: str,
    source_changed: list[SourceChange] | None = None,
    successor: EntryRow | None = None,
) -> Entry:
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
        origin=row.origin,
        derived_from=row.derived_from,
        verified_by=row.verified_by,
        verified_at=row.verified_at,
        review_after=row.review_after,
        due=trust.is_due(row.review_after, now),
        aliases=row.aliases,
        in_review=row.in_review or UNSET,
        replaces=row.replaces or UNSET,
        places=places_of(anchors_of(row.anchors)) or UNSET,
        source_changed=source_changed or UNSET,
        valid_from=row.valid_from or UNSET,
        valid_to=end_of(row, successor) or UNSET,
    )


def end_of(row: EntryRow, successor: EntryRow | None) -> str | None:
    """Returns when an entry ceased to be true: at its stated end, or when its successor began."""
    ends = [row.valid_to, None if successor is None else successor.began]
    return min((end for end in ends if end is not None), default=None)


def successors_of(queries: Queries, rows: Sequence[EntryRow]) -> dict[int, EntryRow]:
    """Returns superseded entry → its direct successor."""
    ids = [row.superseded_by for row in rows if row.superseded_by is not None]
    successors = queries.entries_by_id(ids) if ids else {}
    return {
        row.id: successors[row.superseded_by]
        for row in rows
        if row.superseded_by is not None and row.superseded_by in successors
    }


def task_ref_of(task_id: str | None, kind: str | None) -> TaskRef | None:
    if task_id is None:
        return None
    return TaskRef(task_id=task_id, kind="produced" if kind == "produced" else "references")


def status_in_words(entry: dict[str, Any], *, expired: bool) -> Iterator[str]:
    """Yields in words why an entry does not hold, or may not, or until when it does."""
    if entry["superseded_by"] is not None:
        yield f"superseded by {entry['superseded_by']}"
    if entry["expires_at"] is not None:
        yield f"{'expired' if expired else 'expires'} {in_minutes(entry['expires_at'])}"
    for name, word in (("valid_from", "true from"), ("valid_to", "true until")):
        if entry.get(name):
            yield f"{word} {entry[name][:10]}"
    if entry.get("source_changed"):
        yield source_changes_in_words(entry["source_changed"])


def require(queries: Queries, id: int, *, field: str = "$.params.id") -> EntryRow:
    """Returns the live entry.

    Raises resource.not_found, which says whether the id is a deleted entry or another document.
    """
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


def require_true(row: EntryRow, true_then: Collection[EntryRow], valid_at: str) -> None:
    """Raises resource.not_found for an entry that is not among those of its chain that were true.

    The hint names the one that was.
    """
    if row.id in {one.id for one in true_then}:
        return
    other = next(iter(true_then), None)
    raise KbprocError(
        "resource.not_found",
        f"What entry {row.id} says was not true at {valid_at}.",
        field="$.params.valid_at",
        hint="Leave valid_at out to read it; valid_from and valid_to say when it was true."
        if other is None
        else f"Entry {other.id}, “{other.title}”, was true then.",
        detail={} if other is None else {"true_then": other.id},
    )


def require_all(queries: Queries, ids: Sequence[int], *, field: str) -> list[EntryRow]:
    """Returns the live entries, each once. Raises resource.not_found with every missing id."""
    rows = {id: row for id, row in queries.entries_by_id(ids).items() if not row.deleted_at}
    missing = [id for id in dict.fromkeys(ids) if id not in rows]
    if len(missing) == 1:
        require(queries, missing[0], field=field)
    if missing:
        raise KbprocError(
            "resource.not_found",
            there_is_no("entry", missing, "entries"),
            field=field,
            detail={"missing": missing[:100]},
        )
    return [rows[id] for id in dict.fromkeys(ids)]


def require_both(queries: Queries, old_id: int, new_id: int) -> tuple[EntryRow, EntryRow]:
    """Returns the replaced entry and its successor. Raises resource.not_found."""
    old = require(queries, old_id, field="$.params.old_id")
    return old, require(queries, new_id, field="$.params.new_id")


def targets_of(rows: Collection[EntryRow]) -> list[Target]:
    return [Target(kind="entry", id=row.id, name=row.title, revision=row.revision) for row in rows]


# ---------------------------------------------------------------------------- chains


def check_own(rows: Collection[EntryRow], actor: str, own_names: Collection[str]) -> None:
    """Raises auth.not_owner unless the actor stored all entries under one of its names."""
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


def chains_without(queries: Queries, rows: Collection[EntryRow]) -> Chains:
    """Returns the chains as they will be once these entries are deleted.

    An entry that a deleted head superseded holds again; one that another deleted entry
    superseded is superseded by that entry's successor from now on.
    """
    ids = [row.id for row in rows]
    chains = Chains(queries, ids)
    chains.remove(ids)
    chains.settle()
    return chains


def describe_changes(queries: Queries, chains: Chains) -> list[str]:
    """Returns the changes of the chains as lines of a plan."""
    titles = {row.id: row.title for row in queries.entries_by_id(chains.changed).values()}
    return [
        f"revive entry {id} “{titles[id]}”"
        if chains.successor_of(id) is None
        else f"entry {id} “{titles[id]}” is superseded by {chains.successor_of(id)} instead"
        for id in chains.changed
    ]


# ---------------------------------------------------------------------- links


def check_link(queries: Queries, old: EntryRow, new: EntryRow) -> None:
    """Raises an error unless `new` may supersede `old`.

    The errors: input.invalid_params, knowledge.cycle, resource.conflict.
    """
    if old.kb != new.kb:
        raise KbprocError(
            "input.invalid_params",
            f"Entry {old.id} is in {old.kb}, entry {new.id} in {new.kb}: both must be in one kb.",
            field="$.params.new_id",
            hint=f"Store the new entry in {old.kb}.",
        )
    if old.id == new.id or _stands_behind(queries, new, old):
        raise KbprocError(
            "knowledge.cycle",
            f"Entry {old.id} already stands in the place of entry {new.id}."
            if old.id != new.id
            else f"Entry {old.id} can't supersede itself.",
            field="$.params.new_id",
            hint=f"Entry {new.head} is the one that holds now."
            if old.id != new.id
            else "Store a new entry and let that supersede it.",
            detail={"head": new.head},
        )
    if old.superseded_by is not None:
        raise KbprocError(
            "resource.conflict",
            f"Entry {old.id} is superseded by entry {old.superseded_by} already.",
            field="$.params.old_id",
            hint=f"Supersede entry {old.head}, which holds now, or undo it first: "
            f"knowledge.unsupersede, old_id {old.id}, new_id {old.superseded_by}.",
            detail={"superseded_by": old.superseded_by, "head": old.head},
        )


def _stands_behind(queries: Queries, entry: EntryRow, other: EntryRow) -> bool:
    """Returns True if `other` comes later than `entry` in its chain.

    An entry that nothing supersedes can only be the chain's head.
    """
    if entry.head != other.head:
        return False
    if other.superseded_by is None:
        return True
    successors = queries.successors(entry.head)
    id: int | None = entry.id
    while id is not None and id != other.id:
        id = successors.get(id)
    return id == other.id


class Chains:
    """The chains of these entries; ids of other documents are ignored."""

    def __init__(self, queries: Queries, ids: Collection[int]) -> None:
        rows = queries.chains(list(ids))
        self._old_successors = {id: row.superseded_by for id, row in rows.items()}
        self._successors = dict(self._old_successors)
        self._live = {id for id, row in rows.items() if row.live}

    def is_live(self, id: int | None) -> bool:
        return id in self._live

    def successor_of(self, id: int) -> int | None:
        """Returns the entry that supersedes it directly; None if none does."""
        return self._successors.get(id)

    def remove(self, ids: Collection[int]) -> None:
        self._live -= set(ids)

    def bring_back(self, ids: Collection[int]) -> None:
        self._live |= self._successors.keys() & set(ids)

    def relink(self, successors: Mapping[int, int | None]) -> list[int]:
        """Sets the successor of each entry, or None; both are ids.

        Returns the entries that stay as they were, because their links would close a circle.
        """
        self._successors.update(
            (id, None) for id, successor in successors.items() if successor is None
        )
        remaining = {id: successor for id, successor in successors.items() if successor is not None}
        # A link that closes a circle now may be possible once another entry is relinked.
        while free := next(
            (id for id, successor in remaining.items() if not self._leads(successor, id)), None
        ):
            self._successors[free] = remaining.pop(free)
        return list(remaining)

    def _leads(self, start: int, end: int) -> bool:
        current: int | None = start
        while current is not None and current != end:
            current = self._successors.get(current)
        return current == end

    def settle(self) -> None:
        """Links each live entry that a deleted one supersedes to the next live entry, if any."""
        for id in self._live:
            successor = self._successors[id]
            while successor is not None and successor not in self._live:
                successor = self._successors.get(successor)
            self._successors[id] = successor

    @property
    def changed(self) -> list[int]:
        return sorted(id for id, was in self._old_successors.items() if self._successors[id] != was)

    def events(self) -> list[Event]:
        """Returns the events of the changes.

        Entries are revived before others are linked, so that every head comes out right.
        """
        revived: dict[int, list[int]] = defaultdict(list)
        links: list[Event] = []
        for id in self.changed:
            was, successor = self._old_successors[id], self._successors[id]
            if was is not None:
                revived[was].append(id)
            if successor is not None:
                links.append(EntrySuperseded(id=id, by=successor, was=was))
        revivals = [EntryRevived(ids=ids, was=was) for was, ids in sorted(revived.items())]
        return [*revivals, *links]
