"""A clock that went wrong once: its dates stay as they are, and nothing else suffers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.corpus import confirmed
from tests.kit.talk import Session

NOW = "2026-01-01T00:10:00.000Z"
A_MINUTE_AGO = "2026-01-01T00:09:00.000Z"
TOMORROW = "2026-01-02T00:00:00.000Z"
DAY_AFTER = "2026-01-03T00:00:00.000Z"
WRONG = "2036-01-01T00:00:00.000Z"


def search_ids(session: Session, **params: Any) -> list[int]:
    hits = session.data("knowledge.search", query="heron", mode="fts", **params)["results"]
    return [hit["source"]["document_id"] for hit in hits]


@pytest.fixture
def jumped(session: Session) -> Session:
    """Session after one write dated ten years ahead; then the clock was corrected."""
    session.data("doc.create", title="Before", text="before")
    session.store.host.pass_until(WRONG)
    session.data("doc.create", title="Wrong", text="by the wrong clock")
    session.store.host.pass_until(NOW)
    return session


def test_records_never_go_back(jumped: Session) -> None:
    document = jumped.data("doc.create", title="After", text="after")
    assert document["created_at"] == document["updated_at"] == WRONG
    assert jumped.data("doc.get", id=document["id"])["created_at"] == WRONG
    assert [record.ts for record in jumped.store.log.read()][-2:] == [WRONG, WRONG]


def test_expiry_is_judged_by_the_clock_of_the_host(jumped: Session) -> None:
    entry = jumped.data("knowledge.store", title="Heron", body="heron", expires_at=TOMORROW)
    id, seq = entry["id"], jumped.store.seq
    assert entry["expired"] is False
    assert jumped.data("knowledge.get", id=id)["expired"] is False
    assert search_ids(jumped) == [row["id"] for row in jumped.data("knowledge.list")] == [id]
    assert search_ids(jumped, as_of=seq) == [id]
    assert jumped.data("knowledge.get", id=id, as_of=seq)["expired"] is False
    jumped.store.host.pass_until(DAY_AFTER)
    assert search_ids(jumped) == jumped.data("knowledge.list") == []
    assert jumped.data("knowledge.get", id=id)["expired"] is True
    error = jumped.error("knowledge.store", title="x", body="x", expires_at=TOMORROW)
    assert error["message"] == f"expires_at is {TOMORROW}; it is {DAY_AFTER} now."


def test_what_expires_tomorrow_is_judged_so_at_a_moment_that_was_dated_ahead(
    jumped: Session,
) -> None:
    entry = jumped.data("knowledge.store", title="Heron", body="heron", expires_at=TOMORROW)
    assert search_ids(jumped, as_of=WRONG) == [entry["id"]]
    assert search_ids(jumped, as_of="2030-01-01") == [], "it was written after what is dated then"


def test_what_was_just_done_is_undone(jumped: Session) -> None:
    other = jumped.another("robot")
    id = other.data("doc.create", title="After", text="after")["id"]
    done = confirmed(jumped, "events.revert", actor="robot", since=A_MINUTE_AGO)
    assert done["ids"] == [id]
    assert jumped.error("doc.get", id=id)["type"] == "resource.not_found"


def test_the_past_before_is_found_by_its_time(jumped: Session) -> None:
    jumped.data("doc.create", title="After", text="after")
    titles = [row["title"] for row in jumped.data("doc.list", as_of=A_MINUTE_AGO)]
    assert titles == ["Before"]
    seq = jumped.store.seq
    assert len(jumped.data("doc.list", as_of=seq)) == 3
    assert len(jumped.data("doc.list", as_of=seq - 1)) == 2


def test_answers_and_doctor_say_so_until_the_clock_has_passed_it(jumped: Session) -> None:
    expected = (
        f"The log's last record is dated {WRONG}, 3651 days ahead of this machine's clock: "
        "a clock was wrong then, or is now."
    )
    (notice,) = jumped.ask("doc.list")["result"]["meta"]["notice"]
    assert notice.startswith(expected)
    clock = [f for f in jumped.data("doctor")["findings"] if f["name"] == "clock"]
    assert [(f["status"], f["message"]) for f in clock] == [("warn", notice)]
    jumped.store.host.pass_until("2035-12-31T00:00:00.000Z")
    assert "notice" not in jumped.ask("doc.list")["result"]["meta"]
    assert "clock" not in {f["name"] for f in jumped.data("doctor")["findings"]}
    jumped.store.host.pass_until("2036-01-02T00:00:00.000Z")
    after = jumped.data("doc.create", title="Later", text="later")
    assert after["created_at"] == "2036-01-02T00:00:00.000Z"


def test_a_store_that_lay_idle_for_years_is_written_to(session: Session) -> None:
    session.store.host.pass_until(WRONG)
    result = session.ask("doc.create", title="After", text="after")["result"]
    assert result["data"]["created_at"] == WRONG
    assert "notice" not in result["meta"]
