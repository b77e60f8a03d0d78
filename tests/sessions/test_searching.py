"""session.search and search find turns of sessions, only as the caller may see them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import OpenSession
from tests.kit.sight import QUESTION, WORDS, Repeats, fill
from tests.kit.talk import Session

SCOPES = "doc:read,knowledge:read,note:read"


@pytest.fixture
def talks(session: Session) -> Session:
    session.store.host.pass_until("2026-03-05T14:03:00Z")
    text = "The crane needs a steel rope of 12 mm. The rope is greased in spring."
    session.data("doc.create", title="Crane", text=text)
    session.embedded()
    session.data("session.create", title="Ropes")
    session.data("session.ask", session_id=1, question="Which rope does the crane need?")
    session.data("session.ask", session_id=1, question="Who painted the zeppelin?")
    return session


def found(session: Session, query: str, **params: Any) -> list[int]:
    return [hit["message_id"] for hit in session.data("session.search", query=query, **params)]


def test_a_hit_cites_session_turn_and_time(talks: Session) -> None:
    [hit] = talks.data("session.search", query="painting zeppelins")
    assert (hit["session_id"], hit["message_id"], hit["turn"]) == (1, 2, 2)
    assert hit["cite"] == "Ropes, § 2026-03-05 > turn 2, 14:03"
    start, end = hit["highlights"][-1]
    assert hit["snippet"][start:end] == "zeppelin"
    read = {"session_id": 1, "before": hit["message_id"] + 1, "limit": 1}
    [message] = talks.data("session.get", **read)["messages"]
    assert message["question"] == "Who painted the zeppelin?"


def test_answers_are_found_and_filters_hold(talks: Session) -> None:
    assert 1 in found(talks, "steels")  # a word of the answer alone
    assert 1 in found(talks, '"steel rope"')
    assert found(talks, '"rope steel"') == []
    assert 1 not in found(talks, "crane -steel")
    assert found(talks, "zeppelin crane", limit=1, offset=1) != found(
        talks, "zeppelin crane", limit=1
    )
    assert found(talks, "zeppelin", created_after="2026-03-06") == []
    assert found(talks, "zeppelin", agent="nobody") == []
    assert found(talks, "zeppelin", kb="default") == [2]
    assert found(talks, "zeppelin", min_score=1) == []
    talks.data("kb.create", slug="tides")
    talks.data("chat", question="Which zeppelin flies at high tide?", kb=["tides"])
    assert sorted(found(talks, "zeppelin")) == [2, 3]
    assert found(talks, "zeppelin", kb="default") == [2]
    answer = talks.ask("session.search", query="no such wordings")["result"]
    assert answer["data"] == [] and "contains these words" in answer["meta"]["hint"]


def test_a_turn_of_another_time_counts_less(talks: Session) -> None:
    [plain] = talks.data("session.search", query="zeppelin in March 2026")
    [other] = talks.data("session.search", query="zeppelin in March 2020")
    assert other["score"] < plain["score"]


def test_search_finds_turns_with_the_type_of_conversations(talks: Session) -> None:
    before = talks.ask("search", query="rope of the crane", explain=True)["result"]
    data = talks.data("search", query="zeppelin", types=["conversation"])
    assert data["results"] == [] and data["confidence"] == "likely"
    [turn] = data["turns"]
    [same] = talks.data("session.search", query="zeppelin")
    assert turn == {**same, "score": turn["score"]}
    assert turn["score"] == pytest.approx(0.6 * same["score"], abs=1e-6)
    assert "turns" not in talks.data("search", query="zeppelin")
    assert "turns" not in talks.data("search", query="zeppelin", types=["markdown"])
    for nothing in ({"tags": ["x"]}, {"mode": "vector"}, {"document_ids": [1]}):
        params = {"query": "zeppelin", "types": ["conversation"], **nothing}
        assert "turns" not in talks.data("search", **params)
    talks.data("session.ask", session_id=1, question="Which crane, which rope, which zeppelin?")
    after = talks.ask("search", query="rope of the crane", explain=True)["result"]
    assert after["data"] == before["data"]


def test_the_best_turns_fit_the_budget(talks: Session) -> None:
    params = {"query": "rope crane zeppelin", "types": ["conversation"]}
    assert len(talks.data("search", **params)["turns"]) == 2
    answer = talks.ask("search", **params, budget_tokens=100)["result"]
    assert len(answer["data"]["turns"]) == 1
    assert (answer["meta"]["count"], answer["meta"]["has_more"]) == (1, False)
    assert answer["meta"]["notice"][0].startswith("2 turns of sessions match")
    assert "turns" not in talks.data("search", **params, offset=1)


def test_the_past_has_its_own_turns(talks: Session) -> None:
    seq = talks.ask("ping")["result"]["meta"]["seq"]
    talks.data("session.ask", session_id=1, question="Where is the xylophone?")
    assert found(talks, "xylophone") == [3]
    assert found(talks, "xylophone", as_of=seq) == []
    assert found(talks, "zeppelin", as_of=seq) == [2]


@pytest.mark.parametrize("way", ["session.delete", "store.purge"])
def test_what_is_gone_is_not_found(talks: Session, way: str) -> None:
    params: dict[str, Any] = {"session_ids": [1]}
    plan = talks.ask(way, **params)["error"]["data"]["plan"]
    talks.data(way, **params, confirm=plan["plan_hash"])
    assert found(talks, "zeppelin") == []


def test_an_agent_finds_its_own_sessions(talks: Session) -> None:
    talks.data("agent.create", slug="ada")
    ada = talks.another("ada", named=True)
    assert found(ada, "zeppelin") == []
    message = ada.data("chat", question="Is the zeppelin grey?")["message_id"]
    assert found(ada, "zeppelin") == [message]
    assert sorted(found(talks, "zeppelin")) == [2, message]


def test_no_hidden_word_finds_a_turn(open_session: OpenSession) -> None:
    session = open_session()
    fill(session)
    session.library.answers.answerer = Repeats()
    session.data("session.ask", session_id=1, question=QUESTION)
    for word in WORDS:
        assert 2 in found(session, word)
    session.data("agent.update", slug="alpha", kbs=["default"])
    alpha = session.another("alpha", named=True)
    assert found(alpha, "xylophone") == found(alpha, "quarantine") == []
    assert found(alpha, "porter") == [1, 2]  # no question is hidden
    for hit in alpha.data("session.search", query=QUESTION):
        assert "xylophone" not in hit["snippet"] and "quarantine" not in hit["snippet"]
    session.data("agent.update", slug="alpha", kbs=["default", "secrets"])
    assert 2 in found(alpha, "xylophone")
    peer = session.another("alpha", scopes=SCOPES, named=True)
    data = peer.data("search", query="marmalade", types=["conversation"])
    assert "turns" not in data


def test_other_scripts_are_found(session: Session) -> None:
    for question in ("Où est la clé du café?", "東京の天気は?", "Wie groß ist die Straße?"):
        session.data("chat", question=question)
    assert found(session, "cafe") == [1]
    assert found(session, "天気") == [2]
    assert found(session, "gross strasse") == [3]
