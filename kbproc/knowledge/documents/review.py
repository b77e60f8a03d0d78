"""Decides which new entries wait for an approval, and writes the revisions that a review makes.

An entry in review is a document that no list, search or index has: only its author and reviewers
see it. Its approval is a revision like any other, which these do have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import asdict, replace

from kbproc.base.errors import KbprocError
from kbproc.base.values import MOST_ALIASES
from kbproc.engine.events.entry import EntryReplaces, EntrySuperseded
from kbproc.engine.events.event import Event
from kbproc.engine.events.origin import FOREIGN, PERSON, Origin
from kbproc.engine.projections.catalog.rows import DocumentRow, EntryRow, facts_in
from kbproc.knowledge.documents import entry, revision
from kbproc.knowledge.documents.content import Intake, content_of_text

if TYPE_CHECKING:
    from kbproc.engine.events.document import DocWritten
    from kbproc.engine.events.entry import EntryFacts
    from kbproc.engine.events.kb import Review
    from kbproc.engine.projections.catalog.queries import Queries
    from kbproc.engine.store.decision import DecisionState
    from kbproc.knowledge.documents.revision import Content


def facts_after(queries: Queries, event: DocWritten, facts: EntryFacts) -> EntryFacts:
    """Returns the facts of a new entry, which say whether it waits."""
    kb = queries.kb(event.kb)
    review = kb.review if kb else "none"  # the default one is created with the first write
    return replace(facts, in_review=must_wait(review, event.origin))


def must_wait(review: Review, origin: Origin) -> bool:
    """Returns whether a new entry of this origin waits for an approval."""
    match review:
        case "web":
            return origin in FOREIGN
        case "agents":
            return origin != PERSON
        case _:
            return review == "all"


class Reviewed(NamedTuple):
    """An entry in review, in both of its rows."""

    row: EntryRow
    document: DocumentRow


def require_in_review(
    queries: Queries, ids: Sequence[int], *, field: str = "$.params.ids"
) -> list[Reviewed]:
    """Returns these entries in review. Raises resource.not_found, resource.conflict."""
    rows = entry.require_all(queries, ids, field=field)
    for row in rows:
        if not row.in_review:
            raise KbprocError(
                "resource.conflict",
                f"Entry {row.id} is not in review: everybody finds it.",
                field=field,
                hint="See review.list for the entries in review; knowledge.verify notes that an "
                "entry holds, knowledge.delete hides one.",
                detail={"id": row.id},
            )
    documents = queries.documents_by_id([row.id for row in rows])
    return [Reviewed(row, documents[row.id]) for row in rows]


def refuse_in_review(rows: Iterable[EntryRow], *, field: str) -> None:
    """Raises resource.conflict for an entry in review, which must be approved first."""
    for row in rows:
        if row.in_review:
            raise KbprocError(
                "resource.conflict",
                f"Entry {row.id} is in review.",
                field=field,
                hint=f"A reviewer approves it (review.approve, ids [{row.id}]), changes it "
                "(review.edit) or rejects it (review.reject).",
                detail={"id": row.id},
            )


def check_same(rows: Iterable[EntryRow], revisions: Mapping[int, int]) -> None:
    """Raises resource.conflict for an entry that was changed since its text was read."""
    for row in rows:
        if row.revision != revisions.get(row.id):
            raise KbprocError(
                "resource.conflict",
                f"Entry {row.id} was changed meanwhile.",
                field="$.params",
                hint="Read it again (knowledge.get), then decide.",
                detail={"revision": row.revision},
            )


# ------------------------------------------------------------------- revisions


def content_of(intake: Intake, row: EntryRow, body: str, title: str, *, keep: bool) -> Content:
    """Returns the content of a revision: `body` under `title`, with the entry's other names.

    It parses, so that it is not to be called in the lane.
    """
    content = content_of_text(intake, body, "markdown", title, field="$.params.body", keep=keep)
    aliases = list(dict.fromkeys([*row.aliases, *content.aliases]))[:MOST_ALIASES]
    return replace(content, doc_type="knowledge", aliases=aliases)


def written(
    here: DecisionState,
    item: Reviewed,
    content: Content,
    ids: revision.Ids,
    *,
    tags: list[str] | None = None,
    approved: bool,
) -> DocWritten:
    """Returns the event of the entry's next revision, which stays in review or is `approved`.

    The same text keeps its origin, and so does a text under a new title.
    """
    row, document = item
    event = revision.document_written(
        here,
        content,
        kb=row.kb,
        existing=document,
        ids=ids,
        tags=row.tags if tags is None else tags,
        metadata={},
        origin=row.origin if content.sha256 == row.sha256 else None,
    )
    facts = facts_in(asdict(row))
    if approved:
        facts = replace(facts, in_review=False, replaces=[])
    return replace(event, entry=facts)


# ------------------------------------------------------------------- replaced entries


def replacing(row: EntryRow, old: EntryRow, *, is_replaced: bool) -> EntryReplaces:
    """Returns the event by which an entry in review replaces `old`, or no more, once approved."""
    others = [id for id in row.replaces if id != old.id]
    return EntryReplaces(id=row.id, replaces=[*others, old.id] if is_replaced else others)


def links_of(queries: Queries, row: EntryRow) -> Iterator[EntrySuperseded]:
    """Yields the links that an approval makes.

    An entry that was deleted or superseded since it was named stays as it is.
    """
    for old in queries.entries_by_id(row.replaces).values():
        if old.deleted_at is None and old.superseded_by is None and old.kb == row.kb:
            yield EntrySuperseded(id=old.id, by=row.id)


def links_in_words(row: EntryRow, links: Sequence[Event]) -> Iterator[str]:
    """Yields the lines of a plan about the entries that an approval supersedes, or does not."""
    superseded = {link.id for link in links if isinstance(link, EntrySuperseded)}
    for id in row.replaces:
        if id in superseded:
            yield f"entry {id} is superseded by entry {row.id}"
        else:
            yield f"entry {id} stays: it was deleted or superseded before"
