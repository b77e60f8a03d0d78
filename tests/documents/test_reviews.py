"""Only a person raises the trust in a text, and a review drops a day of checking that is past."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.events.entry import EntryReviewed
from kbproc.engine.events.origin import Origin
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import EntryRow
from kbproc.knowledge.documents.trust import (
    check_future,
    check_stated,
    entry_origin,
    is_due,
    origin_from,
    review_of,
)

NOW = "2026-01-01T00:00:00.000Z"
BEFORE = "2025-12-31T23:59:59.999Z"
AFTER = "2026-01-01T00:00:00.001Z"


def documents(**origins: str) -> Queries:
    """Returns a catalog's queries; document 1 has the origin `d1`, and "gone" is a deleted one."""
    rows = {
        int(name.removeprefix("d")): SimpleNamespace(
            origin="user" if origin == "gone" else origin,
            deleted_at=BEFORE if origin == "gone" else None,
        )
        for name, origin in origins.items()
    }
    return cast(
        Queries,
        SimpleNamespace(documents_by_id=lambda ids: {id: rows[id] for id in ids if id in rows}),
    )


@pytest.mark.parametrize(
    ("writer", "stated"),
    [("user", "user"), ("user", "import"), ("agent", None), ("agent", "agent"), ("web", "import")],
)
def test_a_writer_may_state_an_origin_that_is_trusted_no_more_than_itself(
    writer: Origin, stated: Origin | None
) -> None:
    check_stated(writer, stated)


@pytest.mark.parametrize(
    ("writer", "stated", "valid"),
    [
        ("agent", "user", ["agent", "tool", "web", "import"]),
        ("web", "tool", ["web", "import"]),
        ("import", "web", ["import"]),
    ],
)
def test_an_agent_may_state_no_origin_that_is_trusted_more(
    writer: Origin, stated: Origin, valid: list[str]
) -> None:
    with pytest.raises(KbprocError) as refusal:
        check_stated(writer, stated, field="$.params.documents[2].origin")
    error = refusal.value
    assert (error.type, error.field) == ("input.invalid_params", "$.params.documents[2].origin")
    assert error.message == (
        f"$.params.documents[2].origin is {stated}, and what an agent writes can't come from the "
        f"{stated}."
    )
    assert error.valid_values == valid


@pytest.mark.parametrize(
    ("writer", "stated", "source", "origin"),
    [
        ("user", None, "", None),
        ("user", "user", "https://example.org", "user"),
        ("agent", "agent", "https://example.org", "web"),
        ("agent", "import", "http://example.org", "import"),
        ("agent", None, "a book about http://", None),
    ],
)
def test_an_entry_from_the_web_is_trusted_like_the_web_unless_a_person_says_more(
    writer: Origin, stated: Origin | None, source: str, origin: Origin | None
) -> None:
    assert entry_origin(writer, stated, source) == origin


def test_a_text_has_the_least_origin_of_its_sources_and_its_own() -> None:
    queries = documents(d1="user", d2="web", d3="tool")
    assert origin_from(queries, [1, 3], None) == "tool"
    assert origin_from(queries, [1, 2, 3], "agent") == "web"
    assert origin_from(queries, [1], "import") == "import"
    assert origin_from(queries, [], None) is None


def test_every_source_that_is_missing_or_deleted_is_named() -> None:
    queries = documents(d1="user", d2="gone")
    with pytest.raises(KbprocError) as refusal:
        origin_from(queries, [1, 2, 9], None)
    error = refusal.value
    assert (error.type, error.field) == ("resource.not_found", "$.params.derived_from")
    assert error.message == "There are no documents 2, 9."
    assert error.detail == {"missing": [2, 9]}
    with pytest.raises(KbprocError) as refusal:
        origin_from(queries, range(10, 210), None)
    assert refusal.value.detail == {"missing": [*range(10, 110)]}, "at most a hundred"


def test_a_moment_must_lie_after_now() -> None:
    check_future(None, NOW, field="$.params.review_after")
    check_future(AFTER, NOW, field="$.params.review_after")
    for moment in (NOW, BEFORE):
        with pytest.raises(KbprocError) as refusal:
            check_future(moment, NOW, field="$.params.review_after")
        error = refusal.value
        assert (error.type, error.field) == ("input.invalid_params", "$.params.review_after")
        assert error.message == f"review_after is {moment}; it is {NOW} now."
        assert error.hint == "Give a moment in the future, or leave it out."


def test_an_entry_is_due_from_its_moment_on() -> None:
    assert [is_due(moment, NOW) for moment in (None, BEFORE, NOW, AFTER)] == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("before", "asked_day", "after"),
    [
        (None, None, None),
        (BEFORE, None, None),
        (NOW, None, None),
        (AFTER, None, AFTER),
        (AFTER, "2027-01-01T00:00:00.000Z", "2027-01-01T00:00:00.000Z"),
    ],
)
def test_a_review_keeps_a_day_that_lies_ahead_and_drops_one_that_has_passed(
    before: str | None, asked_day: str | None, after: str | None
) -> None:
    facts: dict[str, Any] = dict.fromkeys(EntryRow.__struct_fields__)
    row = EntryRow(**{**facts, "id": 5, "review_after": before})
    review = review_of(row, by="ann", at="2025-06-01", now=NOW, review_after=asked_day)
    assert review == EntryReviewed(
        id=5, verified_by="ann", verified_at="2025-06-01", review_after=after
    )
