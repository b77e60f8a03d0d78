"""The support value, which estimates if the best hit answers the query, and its use by answers."""

from __future__ import annotations

from typing import Any

import pytest

from kbproc.engine.models.fluency import Fluency
from kbproc.engine.models.hashing import HashEmbedder
from kbproc.knowledge.search.support import ANSWERED, SURE
from tests.kit.talk import Session

TEXTS = {
    "Git": "To install git, fetch the archive. Then run make. Git keeps its settings in a file.",
    "Backups": "Backups run each night at two. Each is kept for a month.",
    "Deploys": "Deploys happen on Fridays. Nobody deploys on Sundays.",
}
TOUCHED = "Why are backups slow?"
DOUBTED = "Which deploys break backups of the archive each month?"
ANSWERABLE = "When do backups run, and how long is each kept?"


def explanation_of(session: Session, query: str, **params: Any) -> dict[str, Any]:
    hits = session.data("search", query=query, explain=True, **params)["results"]
    explanation: dict[str, Any] = hits[0]["explain"]
    return explanation


def test_it_is_made_of_score_cosine_and_words_that_stand_together(filled: Session) -> None:
    for query in (TOUCHED, DOUBTED, ANSWERABLE):
        for hit in filled.data("search", query=query, explain=True)["results"]:
            support = hit["explain"]["support"]
            cosine = max(0.0, hit["explain"]["vector"]["cosine"])
            assert support["score"] == hit["score"]
            assert support["cosine"] == pytest.approx(cosine, abs=1e-6)
            expected = 0.3 * support["score"] + 0.5 * cosine + 0.2 * support["together"]
            assert support["value"] == pytest.approx(expected, abs=2e-6)


def test_words_count_that_stand_together_by_how_rare_they_are(filled: Session) -> None:
    def together(query: str) -> float:
        share: float = explanation_of(filled, query)["support"]["together"]
        return share

    assert together("fetch the archive to install git") == 1
    assert 0 < together("fetch the archive by zebras") < 1
    assert together("make the archive zebras") < together("make archive file")
    assert "support" not in explanation_of(filled, "zebras"), "no word tells anything"


def test_no_support_is_told_where_no_cosine_tells_much(
    filled: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    russian = "когда работают backups run night month"
    assert "support" in explanation_of(filled, ANSWERABLE)
    assert "support" in explanation_of(filled, russian)
    for params in ({"mode": "fts"}, {"mode": "vector"}, {"fusion": "rrf"}):
        assert "support" not in explanation_of(filled, ANSWERABLE, **params)
    monkeypatch.setattr(HashEmbedder, "fluency", lambda self, text, is_foreign: Fluency(factor=0.7))
    assert "support" not in explanation_of(filled, russian)


def test_what_is_on_the_topic_only_is_refused_and_referred_to(filled: Session) -> None:
    assert explanation_of(filled, TOUCHED)["support"]["value"] < ANSWERED
    end = filled.ask("chat", question=TOUCHED)["result"]
    assert end["data"]["status"] == "refused"
    assert end["data"]["references"] == []
    assert end["data"]["see_also"]
    assert "related" in end["meta"]["hint"]


def test_what_is_perhaps_no_answer_is_told_so(filled: Session) -> None:
    assert ANSWERED <= explanation_of(filled, DOUBTED)["support"]["value"] < SURE
    end = filled.ask("chat", question=DOUBTED)["result"]
    assert end["data"]["status"] == "finished"
    assert "may not answer" in end["meta"]["hint"]
    assert explanation_of(filled, ANSWERABLE)["support"]["value"] >= SURE
    assert "hint" not in filled.ask("chat", question=ANSWERABLE)["result"]["meta"]
