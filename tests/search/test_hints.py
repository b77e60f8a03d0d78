"""The sentence of an empty or a weak search names the condition that is to blame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from kbproc.base.text.query import parse_query
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.knowledge.documents import selection
from kbproc.knowledge.search.candidates import CandidatePool
from kbproc.knowledge.search.hints import SearchHints
from kbproc.knowledge.search.hits import Results
from kbproc.knowledge.search.params import Search
from kbproc.knowledge.search.probability import NOTHING
from tests.kit.talk import Session

FAR_PAST = "2000-01-01T00:00:00.000Z"
FAR_FUTURE = "2999-01-01T00:00:00.000Z"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Two documents, and an entry that has superseded another; searches by words alone."""
    folder = tmp_path_factory.mktemp("hints")
    session = Session(folder / "store", cwd=folder, model="none")
    session.data("doc.create", title="One", text="a heron in the reeds", tags=["bird"])
    session.data("doc.create", title="Two", text="a heron on the lake", tags=["bird"])
    session.data("knowledge.store", title="Old", body="the weir is closed")
    session.data("knowledge.store", title="New", body="the gate is open")
    session.data("knowledge.supersede", old_id=3, new_id=4)
    yield session
    session.close()


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("empty")
    session = Session(folder / "store", cwd=folder, model="none")
    yield session
    session.close()


def pool(total: int = 0) -> CandidatePool:
    return CandidatePool(candidates=[], bound=1.0, total=total, exact=True)


def why(session: Session, query: str, matches: int = 0, /, **params: Any) -> str:
    """Returns the reason for no hits, for a pool of so many matches."""
    search = Search(query=query, mode="fts", **params)
    hides = {"hide_superseded": True, "valid_at": FAR_PAST}
    with session.store.searching() as snapshot:
        filter = selection.filter_of(search, **hides)
        parsed = parse_query(query)
        return SearchHints(snapshot, search, parsed, "fts", filter).why_nothing(pool(matches))


def test_an_empty_store_asks_for_texts(empty: Session) -> None:
    assert why(empty, "heron").startswith("The store is empty")
    assert why(empty, "heron", as_of=1) == "The store held no texts at that time."
    assert "knowledge.store" in why(empty, "heron", types=["knowledge"])


def test_a_least_score_above_every_score_is_named(
    store: Session, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[Any, Any, float]] = [
        ("hybrid", "rrf", 0.032787),
        ("fts", "rrf", 0.016393),
        ("hybrid", "blend", 1),
    ]
    for mode, fusion, greatest in cases:
        with subtests.test(greatest=greatest):
            search = Search(query="heron", fusion=fusion, min_score=1.0)
            with store.store.searching() as snapshot:
                hints = SearchHints(snapshot, search, parse_query("heron"), mode, DocumentFilter())
                reason = hints.why_nothing(pool(2))
            if greatest == 1:
                assert reason == "min_score or min_similarity excluded 2 candidates."
            else:
                assert f"min_score 1 is above {greatest}, the greatest score of rrf" in reason


def test_candidates_that_were_dropped_are_counted(store: Session) -> None:
    assert why(store, "heron", 1, min_score=0.9).endswith("excluded 1 candidate.")
    assert why(store, "heron", 2, offset=5) == "offset 5 skips 2 matches, which is all of them."
    assert why(store, "heron zebra", 2).endswith("were found, not: zebra.")


def test_a_query_of_exclusions_alone_is_named(store: Session) -> None:
    assert why(store, "-heron").startswith("The query only says what to leave out")


def test_filters_are_blamed_only_for_what_they_exclude(store: Session) -> None:
    assert why(store, "heron", tags=["fish"]).startswith("No document matches the filters")
    assert why(store, "weir", types=["knowledge"], tags=["fish"]).startswith("No entry matches")
    assert why(store, "gate", tags=["bird"]).startswith("The filters exclude the one match")
    assert why(store, "heron", types=["knowledge"]).startswith("The filters exclude all 2 matches")
    assert why(store, "zebra", tags=["bird"]) == "No chunk contains: zebra. Try other words."


def test_entries_that_do_not_hold_are_named_without_filters(store: Session) -> None:
    reason = why(store, "weir")
    assert reason.startswith("The entries with the one match are superseded or expired")
    assert "include_superseded" in reason


def test_a_phrase_and_an_exclusion_are_told_apart(store: Session) -> None:
    hides = {"kbs": ["default"]}
    cases = {
        '"reeds lake"': "No chunk contains the phrase “reeds lake”.",
        "heron -heron": "Every match contains “heron”, which the query excludes.",
        '"a heron" -heron': "Every chunk with the phrase “a heron” also contains “heron”",
    }
    with store.store.searching() as snapshot:
        for query, reason in cases.items():
            parsed, search = parse_query(query), Search(query=query)
            hints = SearchHints(snapshot, search, parsed, "fts", DocumentFilter(**hides))
            assert hints.why_nothing(pool()).startswith(reason)


# ------------------------------------------------------------------------- remarks


def remark(session: Session, query: str, chance: float) -> str | None:
    best = msgspec.structs.replace(NOTHING, chance=chance)
    results = Results(
        query=query,
        results=[],
        total_matches=1,
        total_is_exact=True,
        returned=1,
        confidence=best.level,
    )
    with session.store.searching() as snapshot:
        hints = SearchHints(
            snapshot, Search(query=query), parse_query(query), "fts", DocumentFilter()
        )
        return hints.remark(results, best)


def test_a_sure_hit_needs_no_remark(store: Session) -> None:
    assert remark(store, "heron zebra", 0.95) is None


def test_a_weak_hit_is_remarked_with_its_chance_and_the_unknown_words(store: Session) -> None:
    related = remark(store, "heron zebra", 0.3)
    assert related is not None
    assert related.endswith("the chance is 30%. No chunk contains: zebra.")
    none = remark(store, "heron", 0.05)
    assert none is not None
    assert none.endswith("with a chance of 5%.")


def test_no_chance_is_shown_as_zero(store: Session, subtests: pytest.Subtests) -> None:
    for chance in (0.001, 0.004, 0.005, 0.006, 0.015):
        with subtests.test(chance=chance):
            sentence = remark(store, "heron", chance)
            percent = "less than 1%" if chance <= 0.005 else f"{chance:.0%}"
            assert sentence is not None
            assert percent != "0%"
            assert sentence.endswith(f"a chance of {percent}.")


def test_exclusions_are_remarked(store: Session) -> None:
    assert remark(store, 'heron -"the lake"', 0.95) == "Chunks with “the lake” are excluded."
