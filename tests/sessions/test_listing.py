"""session.list filters conversations by their begin and by their last message."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.talk import Session

BOUNDS = {
    "created_after": lambda row, moment: row["created_at"] > moment,
    "created_before": lambda row, moment: row["created_at"] < moment,
    "updated_after": lambda row, moment: row["updated_at"] > moment,
}


@pytest.fixture
def talks(session: Session) -> list[Any]:
    for day, title in enumerate(("One", "Two", "Three"), 2):
        session.store.host.pass_until(f"2026-01-0{day}T00:00:00Z")
        session.data("session.create", title=title)
    session.store.host.pass_until("2026-01-05T00:00:00Z")
    session.data("session.ask", session_id=1, question="How is git installed?")
    rows: list[Any] = session.data("session.list")
    assert len({row["created_at"] for row in rows}) == 3
    assert rows[0]["updated_at"] > rows[2]["created_at"]
    return rows


def test_a_bound_keeps_what_lies_within_it(
    session: Session, talks: list[Any], subtests: pytest.Subtests
) -> None:
    for name, holds in BOUNDS.items():
        with subtests.test(name=name):
            for row in talks:
                moment = row["created_at"]
                expected = [one["id"] for one in talks if holds(one, moment)]
                sessions = session.data("session.list", **{name: moment})
                assert [one["id"] for one in sessions] == expected


def test_bounds_and_pages_go_together(session: Session, talks: list[Any]) -> None:
    bounds = {"created_after": talks[0]["created_at"], "created_before": "2999-01-01"}
    first = session.ask("session.list", limit=1, **bounds)["result"]
    assert [one["id"] for one in first["data"]] == [2]
    cursor = first["meta"]["next_cursor"]
    rest = session.data("session.list", limit=1, cursor=cursor, **bounds)
    assert [one["id"] for one in rest] == [3]
    assert session.data("session.list", updated_after="2999-01-01") == []


def test_what_is_no_time_is_refused(session: Session) -> None:
    error = session.error("session.list", created_after="yesterday")
    assert (error["type"], error["field"]) == ("input.invalid_params", "$.params.created_after")


def test_words_agents_and_knowledge_bases_filter(session: Session, talks: list[Any]) -> None:
    def ids(**filters: str) -> list[int]:
        return [one["id"] for one in session.data("session.list", **filters)]

    assert ids(text="how is GIT") == [1]
    assert ids(text="two") == [2]
    assert ids(text="no such words") == []
    session.data("kb.create", slug="tides")
    session.data("session.create", title="Four", kb=["tides"])
    assert ids(kb="tides") == [1, 2, 3, 4]
    assert ids(kb="default") == [1, 2, 3]
    session.data("agent.create", slug="ada")
    session.data("session.create", title="Five", agent="ada")
    assert ids(agent="ada") == [5]
