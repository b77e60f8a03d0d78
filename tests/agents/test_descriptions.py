"""An agent's description is checked side by side, and people read its changes as lines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.events.agent import AgentWritten
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import AgentRow
from kbproc.engine.store.target import Target
from kbproc.knowledge.agents.agent import (
    Agent,
    Quotas,
    as_record,
    changes,
    check_kbs,
    check_revision,
    check_scopes,
    check_slug,
    event_of,
    refuse_taken,
    require,
    row_of,
    target_of,
)

ROW = AgentRow(
    slug="gull",
    description="Watches birds.",
    kbs=["birds"],
    folder=None,
    scopes=None,
    quotas='{"notes_stored":5}',
    instructions="",
    revision=3,
    created_at="2026-01-01T00:00:00.000Z",
    updated_at="2026-01-02T00:00:00.000Z",
    deleted_at=None,
)
DELETED = msgspec.structs.replace(ROW, slug="heron", deleted_at="2026-02-01")
AGENT = Agent(
    slug="gull",
    description="Watches birds.",
    kbs=["birds"],
    notes_folder="/notes/gull",
    scopes=None,
    quotas=Quotas(notes_stored=5),
    instructions="",
    revision=3,
    created_at="",
    updated_at="",
)


def catalog(*rows: AgentRow, kbs: tuple[str, ...] = ()) -> Queries:
    by_slug = {row.slug: row for row in rows}
    live = [row for row in rows if row.deleted_at is None]
    members: dict[str, Any] = {
        "agent": by_slug.get,
        "agents": lambda: live,
        "kb_slugs": lambda: list(kbs),
    }
    return cast(Queries, SimpleNamespace(**members))


# ----------------------------------------------------------------- for people


def test_people_read_all_where_a_side_is_open_and_none_where_it_is_empty(
    subtests: pytest.Subtests,
) -> None:
    cases: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
        ({"kbs": None, "scopes": None, "quotas": None}, ("all", "all", "all")),
        ({"kbs": [], "scopes": [], "quotas": {"notes_stored": None}}, ("none", "none", "none")),
        (
            {"kbs": ["a"], "scopes": ["x"], "quotas": {"notes_stored": 0}},
            (["a"], ["x"], {"notes_stored": 0}),
        ),
    ]
    for sides, words in cases:
        with subtests.test(f"{sides!r:.80}"):
            members = as_record({"slug": "gull", **sides}, {}).members
            assert members["slug"] == "gull"
            assert (members["kbs"], members["scopes"], members["quotas"]) == words


def test_a_plan_lists_every_side_that_changes_and_quotas_one_by_one() -> None:
    after = msgspec.structs.replace(
        AGENT, kbs=None, instructions="Be brief.", quotas=Quotas(knowledge_stored=0)
    )
    assert changes(AGENT, after) == [
        'kbs: ["birds"] → null',
        'instructions: "" → "Be brief."',
        "notes_stored: 5 → null",
        "knowledge_stored: null → 0",
    ]
    assert changes(AGENT, AGENT) == []


def test_the_plan_of_a_new_agent_lists_what_it_states() -> None:
    assert changes(None, AGENT) == [
        'description: "" → "Watches birds."',
        'kbs: null → ["birds"]',
        'notes_folder: null → "/notes/gull"',
        "notes_stored: null → 5",
    ]


# --------------------------------------------------------------------- lookups


def test_a_live_agent_is_returned() -> None:
    assert require(catalog(ROW), "gull") == ROW
    assert require(catalog(ROW), "gull", only=ROW) == ROW
    assert target_of(ROW) == Target(kind="agent", id="gull", name="gull", revision=3)


def test_an_unknown_agent_is_an_error_with_the_nearest_names() -> None:
    with pytest.raises(KbprocError) as refusal:
        require(catalog(ROW, DELETED), "gul", field="$.params.agent")
    error = refusal.value
    assert (error.type, error.field) == ("resource.not_found", "$.params.agent")
    assert (error.message, error.valid_values) == ("There is no agent 'gul'.", ["gull"])


def test_a_deleted_agent_is_named_so_to_people_but_not_to_other_agents() -> None:
    with pytest.raises(KbprocError) as refusal:
        require(catalog(ROW, DELETED), "heron")
    assert refusal.value.message == "Agent 'heron' was deleted at 2026-02-01."
    assert refusal.value.detail == {"deleted_at": "2026-02-01"}
    with pytest.raises(KbprocError) as refusal:
        require(catalog(ROW, DELETED), "heron", only=ROW)
    error = refusal.value
    assert (error.message, error.detail) == ("There is no agent 'heron'.", {})
    assert error.valid_values == ["gull"]


# ---------------------------------------------------------------------- checks


def test_a_name_of_another_writer_of_the_log_is_refused(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("user", "an actor without a name is called so"),
        ("kbproc", "the program's own records bear it"),
        ("ann", "this very process acts under it and would be bound to the agent"),
        ("file", "a person's edit of a note's file is attributed to it"),
    ]
    for slug, reason in cases:
        with subtests.test(slug=slug, reason=reason):
            with pytest.raises(KbprocError) as refusal:
                check_slug(slug, "ann")
            error = refusal.value
            assert (error.type, error.field) == ("input.invalid_params", "$.params.slug")
            assert error.message == f"No agent can be called {slug!r}: {reason}."


def test_a_free_slug_may_be_taken_also_that_of_a_deleted_agent() -> None:
    check_slug("gull", "ann")
    refuse_taken(catalog(ROW, DELETED), "heron")
    refuse_taken(catalog(), "gull")
    with pytest.raises(KbprocError) as refusal:
        refuse_taken(catalog(ROW), "gull")
    assert (refusal.value.type, refusal.value.field) == (
        "resource.already_exists",
        "$.params.slug",
    )


def test_scopes_lose_their_duplicates_and_unknown_ones_are_refused_by_place() -> None:
    scopes = ["doc:read", "doc:write", "admin"]
    assert check_scopes(None, scopes) is None
    assert check_scopes([], scopes) == []
    assert check_scopes(["admin", "doc:read", "admin"], scopes) == ["admin", "doc:read"]
    with pytest.raises(KbprocError) as refusal:
        check_scopes(["admin", "doc:reed"], scopes)
    error = refusal.value
    assert (error.type, error.field) == ("input.invalid_params", "$.params.scopes[1]")
    assert error.message == "There is no scope 'doc:reed'."
    assert error.valid_values is not None and error.valid_values[0] == "doc:read"


def test_knowledge_bases_lose_their_duplicates_and_unknown_ones_are_refused_by_place() -> None:
    queries = catalog(kbs=("birds", "lakes"))
    assert check_kbs(queries, []) == []
    assert check_kbs(queries, ["lakes", "birds", "lakes"]) == ["lakes", "birds"]
    with pytest.raises(KbprocError) as refusal:
        check_kbs(queries, ["birds", "lake"])
    error = refusal.value
    assert (error.type, error.field) == ("resource.not_found", "$.params.kbs[1]")
    assert error.valid_values == ["lakes"]


def test_a_stale_revision_is_a_conflict() -> None:
    check_revision(ROW, None)
    check_revision(ROW, 3)
    for revision in (2, 4, 0):
        with pytest.raises(KbprocError) as refusal:
            check_revision(ROW, revision)
        error = refusal.value
        assert (error.type, error.field) == ("resource.conflict", "$.params.expected_revision")
        assert error.message == f"gull is at revision 3, not {revision}."
        assert error.detail == {"revision": 3}


def test_an_event_writes_the_agent_unchanged_at_its_next_revision() -> None:
    event = event_of(ROW)
    assert event == AgentWritten(
        slug="gull",
        revision=4,
        description="Watches birds.",
        kbs=["birds"],
        folder=None,
        scopes=None,
        quotas={"notes_stored": 5},
        instructions="",
    )
    row = row_of(event, created_at=ROW.created_at, now="2026-03-01T00:00:00.000Z")
    assert row == msgspec.structs.replace(ROW, revision=4, updated_at="2026-03-01T00:00:00.000Z")
