"""The confidence of a search, and the thresholds and formulas in its docs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbproc.engine.projections.catalog.catalog import Catalog
from kbproc.knowledge.search.confidence import LIKELY, RELATED, evidence
from tests.kit.shared import shared_store
from tests.kit.talk import REPO, Session

shares = st.floats(0, 1)
chunks = st.integers(1, 10**7)


def test_words_and_meaning_tell(subtests: pytest.Subtests) -> None:
    cases: list[tuple[float | None, float | None, int, str]] = [
        (0.0, None, 100, "none"),
        (0.2, None, 100, "none"),
        (0.28, None, 10**6, "related"),
        (0.4, None, 100, "likely"),
        (None, 0.2, 1000, "none"),
        (None, 0.4, 1000, "related"),
        (None, 0.6, 1000, "likely"),
        (0.0, 0.3, 40, "related"),  # in other words
        (0.0, 0.3, 4000, "none"),  # the best of many is higher
        (0.4, 0.6, 10**5, "likely"),
    ]
    for words, cosine, chunks, level in cases:
        with subtests.test(chunks=chunks, level=level):
            assert evidence(words, cosine, chunks).level == level


@given(shares, shares, chunks, st.floats(0, 0.2))
def test_more_of_either_is_no_less_sure(
    words: float, cosine: float, chunks: int, more: float
) -> None:
    least = evidence(words, cosine, chunks).chance
    assert 0 <= least <= evidence(words + more, cosine, chunks).chance <= 1
    assert least <= evidence(words, cosine + more, chunks).chance
    assert least >= evidence(words, cosine, 10 * chunks).chance


def test_a_passage_that_holds_the_whole_query_is_sure() -> None:
    weak = evidence(0.1, 0.1, 1000)
    assert weak.level == "none"
    assert weak.with_passage(1.0).level == "likely"
    assert weak.with_passage(0.6).level == "none"
    assert evidence(0.4, 0.6, 100).with_passage(0.0).level == "likely"


ROWS = "\n".join(f"{n},Depot {n},Reno street {n},open" for n in range(400))


def search_best(session: Session, query: str, **params: Any) -> dict[str, Any]:
    result: dict[str, Any] = session.data("search", query=query, limit=1, explain=True, **params)
    return result


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, bench: Catalog) -> Iterator[Session]:
    base = tmp_path_factory.mktemp("rows")
    with shared_store(base, bench) as session:
        session.data("doc.create", title="Depots", text=f"id,name,street,state\n{ROWS}")
        session.data("doc.create", title="Cranes", text="Cranes are greased every four weeks.")
        session.embedded()
        yield session


def test_a_row_that_holds_all_words_is_likely(rows: Session, subtests: pytest.Subtests) -> None:
    """A row that holds all words is likely even in a long chunk."""
    for mode in ("hybrid", "fts"):
        with subtests.test(mode=mode):
            result = search_best(rows, "depot 317 reno street", mode=mode)
            (hit,) = result["results"]
            assert "317,Depot 317" in hit["text"]
            assert result["confidence"] == "likely"
            assert hit["explain"]["evidence"]["chance"] >= LIKELY


def test_a_phrase_that_is_there_is_related_at_least(
    rows: Session, subtests: pytest.Subtests
) -> None:
    for mode in ("hybrid", "fts", "vector"):
        with subtests.test(mode=mode):
            query = '"four weeks" zyzzyva quokka vlerk frobnicate xyzzy plugh'
            assert search_best(rows, query, mode=mode)["confidence"] != "none"
            assert search_best(rows, query.replace('"', ""), mode="fts")["confidence"] == "none"


def test_the_level_is_the_same_for_every_page_and_filter(rows: Session) -> None:
    query = "cranes greased by the crew"
    levels = {
        search_best(rows, query, offset=offset, **only)["confidence"]
        for offset in (0, 1)
        for only in ({}, {"kb": "default"}, {"types": ["text"]})
    }
    assert levels == {search_best(rows, query)["confidence"]} != {"none"}


def test_the_docs_state_the_thresholds_and_the_formulas() -> None:
    page = (REPO / "docs" / "search.md").read_text()

    def numbers(beginning: str) -> list[float]:
        row = next(line for line in page.splitlines() if line.startswith(beginning))
        figures = re.findall(r"[−-]?\s?\d+(?:\.\d+)?", row.split("|")[2])
        return [float(number.replace("−", "-").replace(" ", "")) for number in figures]

    assert numbers("| `none`") == numbers("| `related`") == [RELATED]
    assert numbers("| `likely`") == [LIKELY]

    def chance(words: float | None, cosine: float | None) -> float:
        return evidence(words, cosine, 10**4).chance

    def logistic(number: float) -> float:
        return pytest.approx(1 / (1 + 2.718281828**-number), abs=0.001)

    by_words, by_cosine, by_size, rest = numbers("| hybrid |")
    assert chance(0.2, 0.4) == logistic(by_words * 0.2 + by_cosine * 0.4 + by_size * 4 + rest)
    by_cosine, by_size, rest = numbers("| vector |")
    assert chance(None, 0.4) == logistic(by_cosine * 0.4 + by_size * 4 + rest)
    by_words, rest = numbers("| fts |")
    assert chance(0.3, None) == logistic(by_words * 0.3 + rest)
    by_words, rest = numbers("| fts and hybrid, a query in a language")
    foreign = evidence(0.2, None, 10**4, is_foreign=True)
    assert foreign.chance == logistic(by_words * 0.2 + rest)


def test_words_of_another_language_count_for_more(session: Session) -> None:
    """Their shares are smaller, because prefixes weigh more in the greatest possible BM25."""
    for title, text in {
        "Kran": "Die Kräne werden jeden Montag von der Frühschicht gefettet und geprüft.",
        "Tor": "Das Tor wird abends um zehn von der Wache geschlossen.",
    }.items():
        session.data("doc.create", title=title, text=text)
    query = "Wann werden die Kräne von der Schicht gefettet?"
    [best, *_] = search_best(session, query, mode="fts")["results"]
    explained = best["explain"]["evidence"]
    assert explained["chance"] == evidence(explained["words"], None, 2, is_foreign=True).chance
    assert explained["chance"] > evidence(explained["words"], None, 2).chance
