"""Groups of entries that say nearly the same or the opposite, and their plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kbproc.knowledge.search import duplicates
from tests.conftest import OpenSession
from tests.kit.models import INSTALLED
from tests.kit.patience import LONG
from tests.kit.talk import Session

PAIRS = json.loads(Path(__file__).with_name("near_pairs.json").read_bytes())
CACHE = "Deleting the lock file drops the cache, and then builds take twelve minutes."
SAME = "Deleting the lock file drops the cache; then a build takes twelve minutes."
OTHER = "The office has two meeting rooms, and the larger one has a projector."


def stored(session: Session, title: str, body: str, **params: Any) -> int:
    id: int = session.data("knowledge.store", title=title, body=body, **params)["id"]
    return id


def members(group: dict[str, Any]) -> tuple[int, list[int]]:
    return group["stays"]["id"], [other["id"] for other in group["others"]]


@pytest.mark.parametrize("model", ["none", "hash"])
def test_entries_that_say_the_same_are_a_group(open_session: OpenSession, model: str) -> None:
    session = open_session(model=model)
    first = stored(session, "CI cache", CACHE)
    stored(session, "Rooms", OTHER)
    second = stored(session, "The cache of the CI", SAME)
    if model != "none":
        session.embedded()
    seq = session.store.seq
    (group,) = session.data("knowledge.duplicates")
    assert members(group) == (second, [first]), "the newest stays"
    assert group["others"][0]["relation"] == "same"
    (request,) = group["plan"]
    assert request == {
        "method": "knowledge.supersede",
        "params": {"old_id": first, "new_id": second},
    }
    assert session.store.seq == seq, "nothing merges by itself"
    session.data(request["method"], **request["params"])
    assert session.data("knowledge.duplicates") == []
    assert session.data("knowledge.duplicates", as_of=seq) == [group]


def test_a_verified_entry_stays(session: Session) -> None:
    verified = stored(session, "CI cache", CACHE)
    newer = stored(session, "CI cache", SAME)
    session.data("knowledge.verify", ids=[verified])
    (group,) = session.data("knowledge.duplicates")
    assert members(group) == (verified, [newer])


def test_an_entry_of_a_better_origin_stays(session: Session) -> None:
    mine = stored(session, "CI cache", CACHE)
    fetched = stored(session, "CI cache", SAME, origin="web")
    (group,) = session.data("knowledge.duplicates")
    assert members(group) == (mine, [fetched])


@pytest.mark.parametrize(
    ("one", "other", "differs_in"),
    [
        ("Logs are kept for 30 days in Loki.", "Logs are kept for 90 days in Loki.", ["number"]),
        ("Tests need Docker to run here.", "Tests do not need Docker to run here.", ["negation"]),
        ("It doesn't run on 3.11 at all here.", "It runs on 3.12 here.", ["number", "negation"]),
        ("The job runs at 2 at night, 02:00.", "The job runs at 02:00 at night.", []),
    ],
)
def test_opposites_say_in_what_they_differ(
    session: Session, one: str, other: str, differs_in: list[str]
) -> None:
    stored(session, "A fact", one)
    stored(session, "A fact", other)
    (group,) = session.data("knowledge.duplicates", min_score=0.3)
    (duplicate,) = group["others"]
    assert duplicate["differs_in"] == differs_in
    assert duplicate["relation"] == ("opposite" if differs_in else "same")


def test_knowledge_bases_and_hidden_entries_stay_apart(session: Session) -> None:
    session.data("kb.create", slug="other")
    stored(session, "CI cache", CACHE)
    stored(session, "CI cache", CACHE, kb="other")
    expiring = stored(session, "CI cache", CACHE, expires_at="2099-01-01")
    assert len(session.data("knowledge.duplicates")) == 1
    session.store.host.pass_until("2099-01-02T00:00:00Z")  # type: ignore[attr-defined]
    assert session.data("knowledge.duplicates") == []
    assert session.data("knowledge.get", id=expiring)["expired"]


def test_groups_come_in_pages_best_first(session: Session) -> None:
    for number in range(3):
        for text in (CACHE, SAME if number else CACHE):
            stored(session, f"Topic{number} " * 3, f"{text} word{number}" * (number + 1))
    session.embedded()  # because a pending vector changes a score
    whole = session.data("knowledge.duplicates", min_score=0.8)
    assert len(whole) > 1
    scores = [group["others"][0]["score"] for group in whole]
    assert scores == sorted(scores, reverse=True)
    paged, cursor = [], {}
    while True:
        answer = session.ask("knowledge.duplicates", min_score=0.8, limit=1, **cursor)["result"]
        paged += answer["data"]
        if not answer["meta"]["has_more"]:
            break
        cursor = {"cursor": answer["meta"]["next_cursor"]}
    assert paged == whole
    assert answer["meta"]["total"] == len(whole)


def test_only_the_newest_entries_are_compared(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "MOST_ENTRIES", 2)
    old = stored(session, "CI cache", CACHE)
    pair = [stored(session, "CI cache", CACHE) for _ in range(2)]
    answer = session.ask("knowledge.duplicates")["result"]
    assert members(answer["data"][0]) == (pair[1], [pair[0]])
    assert old not in pair
    assert answer["meta"]["notice"] == ["Only the newest 2 of 3 entries were compared."]


def test_an_agent_sees_groups_of_its_knowledge_bases(session: Session) -> None:
    session.data("kb.create", slug="other")
    session.data("agent.create", slug="bot", kbs=["other"])
    for _ in range(2):
        stored(session, "CI cache", CACHE)
    assert session.another("bot").data("knowledge.duplicates") == []


def test_words_alone_put_the_near_pairs_in_order(open_session: OpenSession) -> None:
    """Without a model only pairs with common words are near; none on one topic is."""
    near = relations_of(open_session(model="none"))
    assert not [pair for pair in near if pair[0] == "topic"]
    assert len([pair for pair in near if pair == ("opposite", "opposite")]) == 8


@pytest.mark.skipif(
    not LONG or not INSTALLED.is_dir(),
    reason="needs the default model",
)
def test_the_default_model_tells_the_near_pairs(open_session: OpenSession) -> None:
    near = relations_of(open_session(model="onnx:all-MiniLM-L6-v2"))
    assert sorted(near) == [("opposite", "opposite")] * 8 + [("same", "same")] * 15


def relations_of(session: Session) -> list[tuple[str, str]]:
    """Returns what each near pair is, and what it is found to be; each has its knowledge base."""
    for number, pair in enumerate(PAIRS):
        session.data("kb.create", slug=f"pair-{number}")
        for side in ("one", "other"):
            session.data("knowledge.store", kb=f"pair-{number}", **pair[side])
    if session.store.vectors is not None:
        session.embedded()
    groups = session.data("knowledge.duplicates", limit=100)
    return [
        (PAIRS[int(group["kb"].removeprefix("pair-"))]["relation"], group["others"][0]["relation"])
        for group in groups
    ]
