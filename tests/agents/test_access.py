"""An agent may do what both it and its process may, and sees its own notes and sessions alone."""

from __future__ import annotations

from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.projections.catalog.reader import Sight
from kbproc.engine.projections.catalog.rows import AgentRow, Roster
from kbproc.knowledge.agents.access import require_agent, scopes_of, visible_to
from kbproc.knowledge.agents.quotas import check_quota, quotas_of, usage

ALL = frozenset({"doc:read", "knowledge:read", "note:read", "admin", "knowledge:write_others"})
FACTS: dict[str, Any] = {
    "description": "",
    "kbs": None,
    "folder": None,
    "scopes": None,
    "quotas": "{}",
    "instructions": "",
    "revision": 1,
    "created_at": "2026-01-01T00:00:00.000Z",
    "updated_at": "2026-01-01T00:00:00.000Z",
    "deleted_at": None,
}


def agent(slug: str = "gull", **more: Any) -> AgentRow:
    return AgentRow(**{"slug": slug, **FACTS, **more})


def roster(*agents: AgentRow) -> Roster:
    return Roster({row.slug: row for row in agents}, (), (), (), frozenset(), [], [])


def test_a_mere_name_is_no_agent_unless_a_flag_says_so() -> None:
    gull = agent()
    assert require_agent(roster(gull), "gull", None) == gull
    assert require_agent(roster(gull), "ann", None) is None
    with pytest.raises(KbprocError) as refusal:
        require_agent(roster(gull, agent("heron", deleted_at="2026-01-02")), "gul", "--agent")
    error = refusal.value
    assert (error.type, error.field) == ("resource.not_found", "--agent")
    assert (error.message, error.valid_values) == ("There is no agent 'gul'.", ["gull"])


def test_the_name_of_a_deleted_agent_gives_no_right(subtests: pytest.Subtests) -> None:
    for named_by in (None, "--agent"):
        with subtests.test(named_by=named_by):
            agents = roster(agent(deleted_at="2026-01-02"), agent("heron"))
            with pytest.raises(KbprocError) as refusal:
                require_agent(agents, "gull", named_by)
            error = refusal.value
            assert (error.type, error.field) == ("resource.not_found", named_by or "--actor")
            assert error.message == "Agent 'gull' was deleted at 2026-01-02."
            assert error.valid_values == []


def test_an_agent_has_the_scopes_that_process_and_agent_allow(subtests: pytest.Subtests) -> None:
    cases: list[tuple[AgentRow | None, bool, frozenset[str]]] = [
        (None, False, ALL),
        (agent(), True, ALL),
        (agent(), False, ALL - {"admin", "knowledge:write_others"}),
        (agent(scopes=["admin", "kb:write"]), False, {"admin"}),
        (agent(scopes=[]), True, set()),
    ]
    for row, named, scopes in cases:
        with subtests.test(named=named):
            assert scopes_of(row, ALL, named=named) == scopes


def test_a_person_with_every_scope_sees_everything() -> None:
    assert visible_to(None, ALL) is None
    assert visible_to(None, frozenset()) == Sight(notes=(), entries=False, texts=False)
    assert visible_to(None, ALL - {"note:read"}) == Sight(notes=())


def test_an_agent_sees_its_knowledge_bases_its_notes_and_its_sessions() -> None:
    assert visible_to(agent(kbs=["birds"]), ALL) == Sight(
        kbs=("birds",), notes=("gull",), sessions=("gull",)
    )
    assert visible_to(agent(kbs=[]), frozenset({"doc:read"})) == Sight(
        kbs=(), notes=(), entries=False, sessions=("gull",)
    )


# ----------------------------------------------------------------------- quotas


class Counts:
    """Counts of a catalog, which notes for whom they are asked."""

    def __init__(self) -> None:
        self.slugs: list[str] = []

    def entries_owned(self, slug: str) -> int:
        self.slugs.append(slug)
        return 3

    def notes_count(self, slug: str) -> int:
        self.slugs.append(slug)
        return 7


def test_usage_shows_the_quotas_whose_things_may_be_seen(subtests: pytest.Subtests) -> None:
    cases: list[tuple[set[str], dict[str, int]]] = [
        ({"knowledge:read", "note:read"}, {"knowledge_stored": 3, "notes_stored": 7}),
        ({"note:read"}, {"notes_stored": 7}),
        ({"admin"}, {}),
    ]
    for scopes, counts in cases:
        with subtests.test(f"{scopes!r:.80}"):
            catalog: Any = Counts()
            assert usage(catalog, agent(), scopes) == counts
            assert catalog.slugs == ["gull"] * len(counts)


def never() -> int:
    raise AssertionError("without a limit the catalog is not asked")


def test_a_quota_that_is_full_is_exceeded_by_one_more() -> None:
    row = agent(quotas='{"notes_stored": 2}')
    assert quotas_of(row) == {"notes_stored": 2}
    check_quota(row, "notes_stored", lambda: 1, instead="Delete a note")
    for count in (2, 3):
        with pytest.raises(KbprocError) as refusal:
            check_quota(row, "notes_stored", lambda count=count: count, instead="Delete a note")  # type: ignore[misc]
        error = refusal.value
        assert error.type == "quota.exceeded"
        assert error.message == f"Agent gull has used up its quota notes_stored: {count} of 2."
        assert error.hint == "Delete a note, or have the quota raised: agent.update."
        assert error.detail == {"quota": "notes_stored", "limit": 2, "used": count}


def test_without_a_limit_nothing_is_counted() -> None:
    check_quota(None, "notes_stored", never, instead="")
    check_quota(agent(quotas='{"notes_stored": 0}'), "knowledge_stored", never, instead="")


def test_a_quota_of_0_allows_nothing() -> None:
    with pytest.raises(KbprocError) as refusal:
        check_quota(agent(quotas='{"notes_stored": 0}'), "notes_stored", lambda: 0, instead="")
    assert refusal.value.detail["used"] == 0
