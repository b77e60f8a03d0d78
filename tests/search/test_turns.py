"""A turn's score is a share of the greatest that any text could reach, whatever other turns say."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kbproc.base.text.forms import Term
from kbproc.base.text.stems import stems
from kbproc.engine.projections.catalog.filters import SessionFilter
from kbproc.engine.projections.catalog.rows import TurnRow
from kbproc.knowledge.search.turns import TurnAnswer, TurnSearch, run, turn_layout

NOW = "2026-03-06T10:00:00.000Z"
# The word "heron" is three quarters of the query "heron lake".
RARITY = {"heron": 3.0, "lake": 1.0, "grey": 1.0, "yesterday": 0.0}


class Store:
    """A store with these turns, in which a word counts half, and twice two thirds, of its most."""

    def __init__(self, *rows: TurnRow, chunks: int = 50) -> None:
        self.beginnings: list[Sequence[str]] = []
        clauses = SimpleNamespace(
            idf=lambda term: RARITY[term.word],
            counted=chunks,
            terms=lambda query: [Term("stem", stem, 1.0, 1.0) for stem in stems(query.terms)],
            frequency=lambda field, word: 1,
        )
        fulltext = SimpleNamespace(
            clauses=clauses, share_of_most=lambda count, length: count / (count + 1)
        )
        queries = SimpleNamespace(turns=self._turns)
        self._rows = rows
        self._snapshot = SimpleNamespace(fulltext=fulltext, queries=queries, seq=7)

    def _turns(self, filter: SessionFilter, words: Sequence[str]) -> list[TurnRow]:
        self.beginnings.append(words)
        return list(self._rows)

    @contextlib.contextmanager
    def searching(self) -> Iterator[Any]:
        yield self._snapshot


def turn(id: int, question: str, answer: str = "", **more: Any) -> TurnRow:
    facts = {
        "id": id,
        "session_id": 4,
        "number": id,
        "title": "Birds",
        "agent": None,
        "question": question,
        "text": answer,
        "asked_at": "2026-03-05T14:03:00.000Z",
        "asked_by": "ann",
    }
    return TurnRow(**{**facts, **more})


def answer_to(store: Store, query: str, **more: Any) -> TurnAnswer:
    search = TurnSearch(query=query, filter=SessionFilter(), now=NOW, **more)
    return run(store, search)  # type: ignore[arg-type]


def scores(answer: TurnAnswer) -> dict[int, float]:
    return {hit.message_id: hit.score for hit in answer.hits}


def test_a_score_weighs_each_word_by_its_rarity_and_the_best_turn_comes_first() -> None:
    store = Store(
        turn(1, "Where is the lake?"),
        turn(2, "A heron at the lake?"),
        turn(3, "A heron?", "Two herons."),
        turn(4, "Bread?"),
    )
    answer = answer_to(store, "heron lake")
    assert scores(answer) == {2: 0.5, 3: 0.5, 1: 0.125}
    assert [hit.message_id for hit in answer.hits] == [2, 3, 1], "equal scores keep their order"
    assert (answer.total, answer.has_more, answer.hint, answer.seq) == (3, False, None, 7)
    assert answer.confidence == "likely"


def test_a_hybrid_score_is_three_fifths_as_a_turn_has_no_vector() -> None:
    store = Store(turn(1, "A heron at the lake?"))
    assert scores(answer_to(store, "heron lake", is_hybrid=True)) == {1: 0.3}
    assert answer_to(store, "heron lake", is_hybrid=True).confidence == "likely"


def test_a_turn_of_another_time_than_the_query_names_scores_a_fifth_less() -> None:
    store = Store(
        turn(1, "A heron?", asked_at="2026-03-04T23:59:59.000Z"),
        turn(2, "A heron?", asked_at="2026-03-05T00:00:00.000Z"),
    )
    assert scores(answer_to(store, "heron yesterday")) == {2: 0.5, 1: 0.4}
    assert scores(answer_to(store, "heron")) == {1: 0.5, 2: 0.5}


def test_a_page_begins_at_its_offset_and_says_whether_more_turns_follow() -> None:
    store = Store(*(turn(number, "A heron?") for number in range(1, 6)))
    middle = answer_to(store, "heron", limit=2, offset=2)
    assert ([hit.message_id for hit in middle.hits], middle.has_more) == ([3, 4], True)
    last = answer_to(store, "heron", limit=2, offset=3)
    assert ([hit.message_id for hit in last.hits], last.has_more) == ([4, 5], False)
    assert len(answer_to(Store(*(turn(1, "A heron?") for _ in range(11))), "heron").hits) == 10
    beyond = answer_to(store, "heron", limit=2, offset=9)
    assert (beyond.hits, beyond.total, beyond.has_more, beyond.hint) == ([], 5, False, None)


def test_a_phrase_must_stand_in_order_and_an_excluded_word_in_no_turn() -> None:
    store = Store(turn(1, "A grey heron?"), turn(2, "Grey, the heron?"), turn(3, "Heron, grey?"))
    assert scores(answer_to(store, '"grey heron"')).keys() == {1}
    lakes = Store(turn(1, "A heron at the lake?"), turn(2, "A heron?"))
    assert scores(answer_to(lakes, "heron -lake")).keys() == {2}


def test_only_turns_with_the_least_score_are_counted() -> None:
    store = Store(turn(1, "Where is the lake?"), turn(2, "A heron?"))
    assert scores(answer_to(store, "heron lake", min_score=0.125)) == {2: 0.375, 1: 0.125}
    answer = answer_to(store, "heron lake", min_score=0.126)
    assert (scores(answer), answer.total) == ({2: 0.375}, 1)


@pytest.mark.parametrize(
    ("query", "hint", "lookups"),
    [
        ("heron", "No question or answer contains these words.", [["hero"]]),
        ("!?", "The query has no letter or digit to look for.", []),
    ],
)
def test_a_search_without_a_hit_says_why(query: str, hint: str, lookups: list[list[str]]) -> None:
    store = Store(turn(1, "Bread?"))
    answer = answer_to(store, query)
    assert (answer.hits, answer.total, answer.confidence) == ([], 0, "none")
    assert answer.hint == hint
    assert [list(words) for words in store.beginnings] == lookups


def test_a_hit_cites_its_turn_and_marks_the_words_of_the_query() -> None:
    (hit,) = answer_to(Store(turn(3, "A heron?", "Herons fish.", agent="gull")), "heron").hits
    assert (hit.session_id, hit.turn, hit.agent, hit.asked_by) == (4, 3, "gull", "ann")
    assert hit.cite == "Birds, § 2026-03-05 > turn 3, 14:03"
    assert [hit.snippet[start:end] for start, end in hit.highlights] == ["heron", "Herons"]
    (plain,) = answer_to(Store(turn(1, "A heron?", title="")), "heron", highlight=False).hits
    assert (plain.title, plain.highlights) == ("Session 4", [])


def test_people_see_where_a_turn_stands_and_whose_it_is(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str | None, str]] = [
        ("gull", " [session] of gull"),
        (None, " [session]"),
        ("", " [session]"),
    ]
    for agent, label in cases:
        with subtests.test(agent=agent, label=label):
            hit = {
                "score": 0.5,
                "cite": "Birds, § 2026-03-05",
                "agent": agent,
                "snippet": "A heron?",
                "highlights": [(2, 7)],
                "session_id": 4,
                "message_id": 9,
                "dated": "2026-03-05, today",
            }
            layout = turn_layout(hit)
            assert (layout.title, layout.labels) == ("Birds, § 2026-03-05", label)
            assert (layout.score, layout.where) == (0.5, "session 4, message 9, 2026-03-05, today")
