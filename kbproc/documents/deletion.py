"""What a deletion of documents means.

Owns: the decision that hides documents, what a plan names, and how much is a bulk.
Refuses to know: who asks, and chains of entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from kbproc.base.wording import plural
from kbproc.events.document import DocDeleted
from kbproc.store.decision import Decision, Here, Target
from kbproc.views.catalog.rows import DocumentRow


def targets_of(rows: Iterable[DocumentRow]) -> list[Target]:
    return [
        Target(kind="document", id=row.id, name=row.title, revision=row.revision) for row in rows
    ]


MANY = 10  # of fewer, a person sees at a glance which they are


def is_bulk(here: Here, kb: str, removed: int) -> bool:
    """More than half of a knowledge base that is not small."""
    documents = here.queries.kb_counts([kb]).get(kb, (0, 0, 0))[0]
    return documents >= MANY and removed * 2 > documents


class Deleted(Struct, kw_only=True, frozen=True):
    """Hidden from every read; the log keeps the text until it is purged."""

    deleted: int
    ids: list[int]


def deletion(here: Here, rows: Sequence[DocumentRow]) -> Decision:
    return Decision(
        events=[DocDeleted(id=row.id) for row in rows],
        data=Deleted(deleted=len(rows), ids=[row.id for row in rows][:1000]),
        targets=targets_of(rows),
        changes=[f"hide “{row.title}” ({plural(row.chunk_count, 'chunk')})" for row in rows],
        bulk=any(is_bulk(here, kb, count) for kb, count in _per_kb(rows).items()),
    )


def _per_kb(rows: Iterable[DocumentRow]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.kb] = counts.get(row.kb, 0) + 1
    return counts
