"""The probability that a hit answers, the levels that follow from it, and its use."""

from __future__ import annotations

import math
import operator
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from kbproc.engine.models.fluency import Fluency
from kbproc.engine.models.hashing import HashEmbedder
from kbproc.knowledge.search.probability import (
    ANSWERS,
    LIKELY,
    ON_TOPIC,
    RELATED,
    Evidence,
    chance,
)
from tests.kit.talk import REPO, Session

shares = st.floats(0, 1)


def evidence(
    words: float,
    together: float,
    matched: float,
    reach: float = 0.5,
    cosine: float | None = None,
    **others: Any,
) -> Evidence:
    values = {"words": words, "together": together, "matched": matched, "reach": reach}
    return Evidence(chance=0.0, **values, cosine=cosine, **others)


def test_the_features_tell(subtests: pytest.Subtests) -> None:
    cases: list[tuple[Evidence, str]] = [
        (evidence(0.2, 0.1, 0.1, 0.1, length=4), "none"),
        (evidence(1.0, 1.0, 1.0, 0.8, length=4), "likely"),
        (evidence(0.2, 0.1, 0.1, 0.1, 0.1, length=4, chunks=1000), "none"),
        (evidence(0.2, 0.2, 0.2, 0.1, 0.45, length=4, chunks=1000), "related"),
        (evidence(0.0, 0.0, 0.0, 0.0, 0.6, length=4, chunks=1000), "likely"),
        (evidence(0.0, 0.0, 0.0, 0.0, 0.3, length=8, chunks=1000), "none"),
        (evidence(1.0, 1.0, 1.0, 0.8, 0.7, length=4, chunks=1000), "likely"),
    ]
    for features, level in cases:
        with subtests.test(features=features):
            value = chance(features)
            assert ("none", "related", "likely")[(value >= RELATED) + (value >= LIKELY)] == level


FEATURES = ("words", "together", "matched", "reach", "cosine")


@given(shares, st.floats(0, 0.5), st.floats(0, 1))
def test_in_other_words_more_words_and_absent_names_are_less_sure(
    cosine: float, words: float, unnamed: float
) -> None:
    short = evidence(words, 0.0, 0.0, 0.0, cosine, length=3, chunks=500)
    assert chance(structs.replace(short, unnamed=unnamed)) <= chance(short)
    if not words:
        assert chance(structs.replace(short, length=12)) <= chance(short)


@given(st.lists(shares, min_size=5, max_size=5), st.integers(0, 4), st.floats(0, 0.5))
def test_more_of_a_feature_is_no_less_sure(features: list[float], at: int, by: float) -> None:
    more = [value + by * (place == at) for place, value in enumerate(features)]
    less, greater = (
        Evidence(chance=0, length=5, **dict(zip(FEATURES, values, strict=True)))
        for values in (features, more)
    )
    if at:  # more words leave less to the meaning alone
        assert 0 <= chance(less) <= chance(greater) <= 1
    for has_pairs in (False, True):
        by_words = [structs.replace(one, cosine=None) for one in (less, greater)]
        least, most = (chance(one, has_pairs=has_pairs) for one in by_words)
        assert least <= most
    large, small = (structs.replace(less, chunks=chunks) for chunks in (10**5, 10))
    assert chance(large) <= chance(small)


ROWS = "\n".join(f"{n},Depot {n},Reno street {n},open" for n in range(400))
TEXTS = {
    "Depots": f"id,name,street,state\n{ROWS}",
    "Cranes": "Cranes are greased every four weeks.",
    "Git": "To install git, fetch the archive. Then run make. Git keeps its settings in a file.",
    "Backups": "Backups run each night at two. Each is kept for a month.",
    "港口": "港口的起重机每周一由早班涂油，并在每月初检查一次。",
}


def results_of(session: Session, query: str, **params: Any) -> dict[str, Any]:
    result: dict[str, Any] = session.data("search", query=query, explain=True, **params)
    return result


def evidence_of(session: Session, query: str, **params: Any) -> dict[str, Any]:
    evidence: dict[str, Any] = results_of(session, query, **params)["results"][0]["explain"][
        "evidence"
    ]
    return evidence


def test_words_count_by_how_rare_they_are(filled: Session) -> None:
    def words(query: str) -> float:
        share: float = evidence_of(filled, query)["words"]
        return share

    assert words("fetch the archive to install git") == 1
    assert 0 < words("fetch the archive by zebras") < 1
    assert words("make archive zebras") < words("make archive file")


def test_confidence_is_that_of_the_best_hit(filled: Session) -> None:
    for query in ("greased cranes", "zebras of the month"):
        result = results_of(filled, query)
        chances = [hit["explain"]["evidence"]["chance"] for hit in result["results"]]
        level = "none" if chances[0] < RELATED else "related" if chances[0] < LIKELY else "likely"
        assert result["confidence"] == level


def test_a_hit_that_holds_the_whole_query_is_related_at_least(
    filled: Session, subtests: pytest.Subtests
) -> None:
    for mode in ("hybrid", "fts"):
        for query in ("depot 317 reno street", "archive", '"four weeks" zyzzyva quokka vlerk'):
            with subtests.test(mode=mode, query=query):
                assert results_of(filled, query, mode=mode)["confidence"] != "none"
    assert (
        results_of(filled, "weeks zyzzyva quokka vlerk xyzzy", mode="fts")["confidence"] == "none"
    )


def test_the_level_is_the_same_for_every_page_and_filter(filled: Session) -> None:
    query = "cranes greased by the crew"
    levels = {
        results_of(filled, query, offset=offset, **only)["confidence"]
        for offset in (0, 1)
        for only in ({}, {"kb": "default"}, {"types": ["text"]})
    }
    assert levels == {results_of(filled, query)["confidence"]} != {"none"}


def test_pairs_of_characters_that_no_text_holds_count_for_nothing(filled: Session) -> None:
    """Most of them cross the border between two words."""
    assert evidence_of(filled, "起重机什么时候涂油", mode="fts")["words"] == 1
    assert results_of(filled, "起重机什么时候涂油")["confidence"] != "none"
    assert evidence_of(filled, "crane zebra", mode="fts")["words"] < 1


def test_pairs_of_characters_that_ask_count_for_nothing(filled: Session) -> None:
    """A text that holds them, too, answers nothing for it."""
    filled.data("doc.create", title="问题", text="什么时候开会，谁也不知道。")
    for query in ("谁的潜艇", "什么潜艇"):
        assert results_of(filled, query, mode="fts")["confidence"] == "none"
    with_words = evidence_of(filled, "起重机涂油什么", mode="fts")
    assert with_words["words"] == 1


def test_names_and_numbers_that_a_hit_lacks_are_told(filled: Session) -> None:
    assert evidence_of(filled, "Who greases the cranes at Reno?")["unnamed"] == 1
    assert evidence_of(filled, "depot 317 on Reno Street")["unnamed"] == 0
    assert evidence_of(filled, "depot 317 on Reno street, Nevada 2031")["unnamed"] == 0.5
    assert evidence_of(filled, "who greases the cranes")["unnamed"] == 0


def test_a_cosine_counts_only_where_the_model_knows_the_language(
    filled: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    russian = "когда работают backups run night month"
    assert evidence_of(filled, russian)["cosine"] is not None
    assert evidence_of(filled, russian, mode="fts")["cosine"] is None
    monkeypatch.setattr(HashEmbedder, "fluency", lambda self, text, is_foreign: Fluency(factor=0.7))
    assert evidence_of(filled, russian)["cosine"] is None


def test_only_answers_leaves_out_hits_that_probably_do_not_answer(filled: Session) -> None:
    query = "archive of the month"
    probable_ids = [
        hit["chunk_id"]
        for hit in results_of(filled, query, mode="fts")["results"]
        if hit["explain"]["evidence"]["chance"] >= LIKELY
    ]
    cut = results_of(filled, query, mode="fts", only="answers")
    assert [hit["chunk_id"] for hit in cut["results"]] == probable_ids
    related = results_of(filled, query, mode="fts", only="related")["results"]
    assert set(probable_ids) <= {hit["chunk_id"] for hit in related}
    assert cut["confidence"] == results_of(filled, query, mode="fts")["confidence"]
    unknown = {"query": "zebra quokka month vlerk xyzzy plugh", "mode": "fts"}
    nothing = filled.ask("search", **unknown, only="answers")
    assert nothing["result"]["data"]["results"] == []
    assert "know nothing" in nothing["result"]["meta"]["hint"]
    assert not nothing["result"]["meta"]["has_more"]


def test_chat_answers_what_hits_probably_answer(filled: Session) -> None:
    refused = filled.ask("chat", question="Why are zebras quick at night?")["result"]["data"]
    assert refused["status"] == "refused"
    assert refused["references"] == []
    answered = filled.ask("chat", question="When do backups run each night?")["result"]["data"]
    assert answered["status"] == "finished" and "may hold" not in answered["text"]
    question = "How is the archive of backups checked by the crew?"
    assert results_of(filled, question)["confidence"] == "related"
    doubted = filled.ask("chat", question=question)["result"]
    assert doubted["data"]["text"].startswith("This may hold the answer: Backups run")
    assert "may not answer" in doubted["meta"]["hint"]


def test_chat_refuses_a_question_on_a_topic_without_an_answer(filled: Session) -> None:
    question = "Which colour has the archive of backups?"
    evidence = evidence_of(filled, question)
    assert evidence["words"] >= ON_TOPIC and RELATED <= evidence["chance"] < ANSWERS
    refused = filled.ask("chat", question=question)["result"]
    assert refused["data"]["status"] == "refused"
    assert "may not answer" in refused["meta"]["hint"]


def test_the_docs_state_the_thresholds_and_the_formulas() -> None:
    page = (REPO / "docs" / "search.md").read_text()

    def numbers(beginning: str) -> list[float]:
        row = next(line for line in page.splitlines() if line.startswith(beginning))
        figures = re.findall(r"[−-]?\s?\d+(?:\.\d+)?", row.split("|")[2])
        return [float(number.replace("−", "-").replace(" ", "")) for number in figures]

    assert numbers("| `none`") == numbers("| `related`") == [RELATED]
    assert numbers("| `likely`") == [LIKELY]
    prose = " ".join(page.split())
    assert f"at least {ON_TOPIC} of the query's words" in prose
    assert f"the probability is below {ANSWERS}." in prose
    own = {"words": 0.4, "together": 0.3, "matched": 0.5, "reach": 0.25, "length": 5}
    by_word = Evidence(chance=0, **own, chunks=1000)
    features = [0.4, 0.3, 0.5, 0.5, math.log(6), 3]
    for row, has_pairs in (("by words", False), ("by pairs of characters", True)):
        *weights, constant = numbers(f"| {row} |")
        number = sum(map(operator.mul, weights, features)) + constant
        expected = pytest.approx(1 / (1 + math.exp(-number)), abs=0.001)
        assert chance(by_word, has_pairs=has_pairs) == expected
    *weights, constant = numbers("| with a cosine |")
    number = sum(map(operator.mul, weights, [0.4, 0.3, 0.5, 0.2, math.log(6), 3])) + constant
    expected = pytest.approx(1 / (1 + math.exp(-number)), abs=0.001)
    assert chance(structs.replace(by_word, cosine=0.2)) == expected
    *weights, constant = numbers("| by meaning |")
    number = sum(map(operator.mul, weights, [0.6, 0.5, math.log(7), 3])) + constant
    expected = pytest.approx(0.81 / (1 + math.exp(-number)), abs=0.001)
    paraphrased = Evidence(
        chance=0, words=0.1, together=0, matched=0, cosine=0.6, unnamed=0.5, length=4, chunks=1000
    )
    assert chance(paraphrased) == expected
