"""Entries answer what was true at a time, and apart from that what was thought at a time."""

from __future__ import annotations

from typing import Any

from kbproc.knowledge.documents.entry import status_in_words
from tests.kit.talk import Session

JUNE, AUGUST = "2025-06-15", "2025-08-15"


def stored(session: Session, title: str, **more: Any) -> int:
    return int(session.data("knowledge.store", title=title, body=title, **more)["id"])


def listed(session: Session, **more: Any) -> list[int]:
    return [entry["id"] for entry in session.data("knowledge.list", **more)]


def hits(session: Session, method: str = "search", **more: Any) -> list[int]:
    results = session.data(method, query="office", mode="fts", **more)["results"]
    return [hit["source"]["document_id"] for hit in results]


def test_what_was_true_is_not_what_was_thought(session: Session) -> None:
    bern = stored(session, "The office is in Bern", valid_from="2025-01-01")
    thought = session.store.published.seq
    zurich = stored(session, "The office is in Zurich", valid_from="2025-07-01")
    session.data("knowledge.supersede", old_id=bern, new_id=zurich)
    for valid_at, true in ((JUNE, [bern]), (AUGUST, [zurich]), ("2024-12-31", [])):
        assert listed(session, valid_at=valid_at) == true
        assert hits(session, valid_at=valid_at) == true
        assert hits(session, "knowledge.search", valid_at=valid_at) == true
    assert listed(session, as_of=thought) == [bern], "what was thought then"
    assert listed(session, as_of=thought, valid_at=AUGUST) == [bern], "and of August, too"
    assert hits(session, as_of=thought, valid_at=AUGUST) == [bern]
    assert session.data("knowledge.get", id=bern, valid_at=JUNE)["id"] == bern
    error = session.error("knowledge.get", id=zurich, valid_at=JUNE)
    assert (error["type"], error["detail"]) == ("resource.not_found", {"true_then": bern})
    error = session.error("knowledge.get", id=bern, valid_at="2024-12-31")
    assert (error["type"], error["detail"]) == ("resource.not_found", {})
    error = session.error("knowledge.get", id=zurich, as_of=thought, valid_at=AUGUST)
    assert error["message"] == f"There is no entry {zurich}.", "which nobody thought then"
    entry = session.data("knowledge.get", id=bern)
    assert (entry["valid_from"], entry["valid_to"]) == (
        "2025-01-01T00:00:00.000Z",
        "2025-07-01T00:00:00.000Z",
    )
    session.data("knowledge.unsupersede", old_id=bern, new_id=zurich)
    assert "valid_to" not in session.data("knowledge.get", id=bern)
    assert listed(session, valid_at=AUGUST) == [bern, zurich]


def test_a_stated_end_counts_and_documents_have_none(session: Session) -> None:
    summer = stored(session, "Office hours", valid_from="2025-06-01", valid_to="2025-07-01")
    unsaid = stored(session, "The office has a door")
    page = session.data("doc.create", title="Office", text="The office.")["id"]
    assert listed(session, valid_at=JUNE) == [summer]
    assert listed(session, valid_at=AUGUST) == []
    assert listed(session, valid_at="2099-01-01") == [unsaid], "since it was stored"
    assert sorted(hits(session, valid_at=JUNE)) == [summer, page]
    assert listed(session) == [summer, unsaid], "nothing is left out unasked"
    [hit] = session.data("search", query="hours", mode="fts")["results"]
    assert (hit["valid_from"][:10], hit["valid_to"][:10]) == ("2025-06-01", "2025-07-01")
    words = list(status_in_words(hit, expired=False))
    assert words == ["true from 2025-06-01", "true until 2025-07-01"]


def test_a_time_that_ends_before_it_begins_is_refused(session: Session) -> None:
    times = {"valid_from": "2025-07-01", "valid_to": "2025-06-01"}
    error = session.error("knowledge.store", title="T", body="B", **times)
    assert (error["type"], error["field"]) == ("input.invalid_params", "$.params.valid_to")
