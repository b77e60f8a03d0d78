"""Time words in a query, and their effect on the scores of what has a time of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.engine.projections.catalog.catalog import Catalog
from kbproc.knowledge.search.times import ELSEWHEN, Period, period
from tests.kit import chats
from tests.kit.shared import shared_store
from tests.kit.talk import Session

NOW = "2026-11-25T07:30:00.000Z"  # a Wednesday


def test_what_is_meant(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str, str, str]] = [
        ("what did we decide last week?", "last week", "2026-11-16", "2026-11-23"),
        ("Yesterday's deploy", "Yesterday", "2026-11-24", "2026-11-25"),
        ("notes of today", "today", "2026-11-25", "2026-11-26"),
        ("bugs in March", "in March", "2026-03-01", "2026-04-01"),
        ("bugs in December", "in December", "2025-12-01", "2026-01-01"),
        ("bugs in March 2024", "in March 2024", "2024-03-01", "2024-04-01"),
        ("the December 2024 outage", "December 2024", "2024-12-01", "2025-01-01"),
        ("outages in 2024", "in 2024", "2024-01-01", "2025-01-01"),
        ("outage of 2026-02-28", "2026-02-28", "2026-02-28", "2026-03-01"),
        ("two weeks ago", "two weeks ago", "2026-11-09", "2026-11-16"),
        ("what broke 13 months ago", "13 months ago", "2025-10-01", "2025-11-01"),
        ("the past 10 days", "past 10 days", "2026-11-15", "2026-11-26"),
        ("said on Wednesday", "on Wednesday", "2026-11-18", "2026-11-19"),
        ("last Tuesday", "last Tuesday", "2026-11-24", "2026-11-25"),
        ("this month", "this month", "2026-11-01", "2026-12-01"),
        ("last year", "last year", "2025-01-01", "2026-01-01"),
    ]
    for query, words, since, until in cases:
        with subtests.test(query=query, words=words, since=since, until=until):
            span = period(query, NOW)
            assert span is not None
            assert (span.words, span.since[:10], span.until[:10]) == (words, since, until)


def test_what_says_no_time(subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        "what may happen",
        "march on",
        "2026-02-31",
        "version 2024.1",
        "weekly",
        "999 years ago in 20",
    ]
    for query in cases:
        with subtests.test(query=query):
            assert period(query, "0500-01-01T00:00:00.000Z" if "999" in query else NOW) is None


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, bench: Catalog) -> Iterator[Session]:
    """A store with an entry and a document of today that hold the same text."""
    base = tmp_path_factory.mktemp("filled")
    with shared_store(base, bench) as session:
        text = "The deploy failed for want of disk."
        session.data("knowledge.store", title="Deploys", body=text)
        session.data("doc.create", title="Deploys", text=text)
        session.embedded()
        yield session


def by_type(session: Session, query: str, **params: Any) -> dict[str, dict[str, Any]]:
    hits = session.data("search", query=query, explain=True, **params)["results"]
    return {hit["source"]["type"]: hit for hit in hits}


@pytest.mark.parametrize("mode", ["hybrid", "fts", "vector"])
def test_an_entry_of_another_time_counts_less_and_a_document_as_ever(
    filled: Session, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "why did the deploy fail in 1999"
    hits = by_type(filled, query, mode=mode)
    monkeypatch.setattr("kbproc.knowledge.search.times.ELSEWHEN", 1.0)
    plain = by_type(filled, query, mode=mode)
    for channel, part in hits["knowledge"]["score_breakdown"].items():
        was = plain["knowledge"]["score_breakdown"][channel]
        assert part == (None if was is None else pytest.approx(ELSEWHEN * was, abs=2e-6))
    time_part = hits["knowledge"]["explain"]["time"]
    assert (time_part["words"], time_part["factor"]) == ("in 1999", ELSEWHEN)
    assert hits["text"]["score"] == plain["text"]["score"]
    assert "time" not in hits["text"]["explain"]


def test_an_entry_of_that_time_counts_in_full(filled: Session) -> None:
    time_part = by_type(filled, "why did the deploy fail today")["knowledge"]["explain"]["time"]
    assert time_part["factor"] == 1
    hits = by_type(filled, "why did the deploy fail")
    assert "time" not in hits["knowledge"]["explain"]


def test_ranks_are_left_alone(filled: Session) -> None:
    hits = by_type(filled, "why did the deploy fail in 1999", fusion="rrf")
    assert "time" not in hits["knowledge"]["explain"]


def test_a_turn_of_another_time_counts_less(session: Session, tmp_path: Path) -> None:
    """The same words were said in March and in April: the time decides which turn is first."""
    for name, month in (("march", "03"), ("april", "04")):
        log = chats.claude_code(more=False).replace(b"2026-03-05", f"2026-{month}-05".encode())
        (tmp_path / f"{name}.jsonl").write_bytes(log)
    session.data("doc.ingest", paths=["march.jsonl", "april.jsonl"])
    for month, day in (("March", "2026-03-05"), ("April", "2026-04-05")):
        query = f"which rope does the crane need in {month} 2026"
        hits = session.data("search", query=query, explain=True, mode="fts")["results"]
        assert [hit["explain"]["time"]["factor"] for hit in hits] == [1, ELSEWHEN]
        assert hits[0]["source"]["section"].startswith(day)


def test_words_for_a_relative_time_are_no_words_to_search(filled: Session) -> None:
    """No text of last week says "last week"; texts in March may well say March."""
    query = "why did the deploy fail"
    plain = by_type(filled, query, mode="fts")["text"]
    for words in ("last week", "two weeks ago", "in the past 3 days", "this month"):
        hit = by_type(filled, f"{query} {words}", mode="fts")["text"]
        assert hit["score"] == plain["score"], words
    for words in ("“last week”", "in March 2026", "yesterday"):
        hit = by_type(filled, f"{query} {words}", mode="fts").get("text")
        assert hit is None or hit["score"] < plain["score"], words
    blast = Period(words="last week", since="", until="", is_relative=True)
    assert blast.timeless("the blast week, last week").split() == ["the", "blast", "week,"]
    assert filled.data("search", query="last week", mode="fts")["results"] == []
    assert filled.data("search", query="what was it last week", mode="fts")["results"] == []


def test_a_store_of_files_alone_searches_all_words(session: Session) -> None:
    session.data("doc.create", title="Report", text="Sales of last week rose.")
    session.data("doc.create", title="Other", text="Sales rose.")
    hits = session.data("search", query="sales of last week", mode="fts")["results"]
    assert hits[0]["source"]["title"] == "Report"
    assert hits[0]["score"] > 2 * hits[1]["score"]
