"""Checks what a caller says of a text's origin, and decides what a person's review changes.

A review says that an entry holds, and when to check it again. It counts for `min_trust` like an
origin of `user`, and leaves the origin as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from kbproc.base.errors import KbprocError
from kbproc.base.values import Instant
from kbproc.base.wording import there_is_no
from kbproc.engine.events.entry import Anchor, EntryReviewed
from kbproc.engine.events.origin import PERSON, Origin, at_least, least, least_of, origin_of_source
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import EntryRow

StatedOrigin = Annotated[
    Origin,
    Meta(
        description="where it came from, if not from the caller: user, agent, tool, web, import. "
        "Only a person can say user"
    ),
]
MinTrust = Annotated[
    Origin,
    Meta(
        description="only what came from there or from where is trusted more: user, agent, tool, "
        "web, import; an entry that a person has verified counts as user"
    ),
]
ReviewAfter = Annotated[
    Instant, Meta(description="when a person should check it again: RFC 3339, in the future")
]


def check_stated(writer: Origin, stated: Origin | None, *, field: str = "$.params.origin") -> None:
    """Raises input.invalid_params for an origin that is trusted more than the writer."""
    if stated is None or writer == PERSON or least(writer, stated) == stated:
        return
    allowed = [one for one in at_least("import") if least(writer, one) == one]
    raise KbprocError(
        "input.invalid_params",
        f"{field} is {stated}, and what an agent writes can't come from the {stated}.",
        field=field,
        valid_values=list(allowed),
        hint="Leave origin out. A person says that an entry holds: knowledge.verify.",
    )


def entry_origin(writer: Origin, stated: Origin | None, source: str) -> Origin | None:
    """Returns the origin that an entry's writer states, or that of its source; None for neither.

    Only a person may trust a text more than its source.
    """
    if stated is not None and writer == PERSON:
        return stated
    return least_of(stated, origin_of_source(source))


def origin_from(queries: Queries, ids: Sequence[int], stated: Origin | None) -> Origin | None:
    """Returns the least of the stated origin and those of the sources; None without any.

    Raises resource.not_found with every source that does not exist or that the caller can't see.
    """
    rows = queries.documents_by_id(ids) if ids else {}
    missing = [id for id in ids if id not in rows or rows[id].deleted_at is not None]
    if missing:
        raise KbprocError(
            "resource.not_found",
            there_is_no("document", missing),
            field="$.params.derived_from",
            detail={"missing": missing[:100]},
        )
    return least_of(stated, *(row.origin for row in rows.values()))


def check_future(moment: str | None, now: str, *, field: str) -> None:
    """Raises input.invalid_params for a moment that has passed."""
    if moment is not None and moment <= now:
        raise KbprocError(
            "input.invalid_params",
            f"{field.rpartition('.')[2]} is {moment}; it is {now} now.",
            field=field,
            hint="Give a moment in the future, or leave it out.",
        )


# ---------------------------------------------------------------------- reviews


class VerifiedEntries(Struct, kw_only=True, frozen=True):
    """Entries that a person found to hold. `review_after`: the first such day; null without any."""

    verified: int
    ids: list[int]
    verified_by: str
    verified_at: str
    review_after: str | None


def is_due(review_after: str | None, now: str) -> bool:
    """Returns True if a person should have checked the entry again by now."""
    return review_after is not None and review_after <= now


def review_of(
    row: EntryRow,
    *,
    by: str,
    at: str,
    now: str,
    review_after: str | None,
    anchors: Sequence[Anchor] | None = None,
) -> EntryReviewed:
    """Returns the event of a review. A day of checking that has passed is dropped.

    `anchors`: the entry's sources as they are now; None where these stay as they were.
    """
    is_ahead = row.review_after is not None and row.review_after > now
    return EntryReviewed(
        id=row.id,
        verified_by=by,
        verified_at=at,
        review_after=review_after or (row.review_after if is_ahead else None),
        anchors=None if anchors is None or row.anchors is None else [*anchors],
    )
