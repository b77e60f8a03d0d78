"""How a query is parsed: no word filters by accident, and a notice names each filter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.talk import Session
from tests.kit.typed import COMMANDS, QUOTED

MODES = ("hybrid", "fts", "vector")
OTHERS = {
    "Cars": "A jaguar is a fast car, built in England for a hundred years.",
    "Cats": "A jaguar is a cat that swims; it lives in South America.",
    "Both": "The car was named after the jaguar, and not after another cat.",
}


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("typed")
    session = Session(folder / "store", cwd=folder)
    session.data("kb.create", slug="other")
    for title, text in {**COMMANDS, **QUOTED}.items():
        session.data("doc.create", title=f"Of {title.split()[0]}"[:20], text=text)
    for title, text in OTHERS.items():
        session.data("doc.create", title=title, text=text, kb="other")
    session.embedded()
    yield session
    session.close()


def search(session: Session, query: str, **params: Any) -> dict[str, Any]:
    answer: dict[str, Any] = session.ask("search", query=query, limit=100, **params)["result"]
    return answer


def texts(answer: dict[str, Any]) -> list[str]:
    return [hit["text"] for hit in answer["data"]["results"]]


def test_a_command_finds_what_is_said_of_it(typed: Session, subtests: pytest.Subtests) -> None:
    for command in COMMANDS:
        for mode in MODES:
            with subtests.test(command=command, mode=mode):
                answer = search(typed, command, mode=mode)
                assert COMMANDS[command] in texts(answer)
                assert mode == "vector" or texts(answer)[0] == COMMANDS[command]
                assert "excluded" not in answer["meta"].get("hint", "")


def test_a_quoted_sentence_that_is_nowhere_is_its_words(
    typed: Session, subtests: pytest.Subtests
) -> None:
    for query in QUOTED:
        for mode in MODES:
            with subtests.test(query=query, mode=mode):
                answer = search(typed, query, mode=mode)
                assert QUOTED[query] in texts(answer)
                assert mode == "vector" or texts(answer)[0] == QUOTED[query]
                (notice,) = answer["meta"]["notice"]
                assert notice.startswith("No chunk contains the phrase “")
                assert notice.endswith("so its words are searched.")


def test_a_dash_before_a_word_leaves_out_what_holds_it(
    typed: Session, subtests: pytest.Subtests
) -> None:
    for mode in MODES:
        with subtests.test(mode=mode):
            answer = search(typed, "jaguar -car", mode=mode)
            assert OTHERS["Cats"] in texts(answer)
            assert OTHERS["Cars"] not in texts(answer) and OTHERS["Both"] not in texts(answer)
            assert "Chunks with “car” are excluded." in answer["meta"]["hint"]


def test_phrases_bind_where_one_text_holds_all_of_them(
    typed: Session, subtests: pytest.Subtests
) -> None:
    for mode in MODES:
        with subtests.test(mode=mode):
            both = search(typed, '"jaguar is a" "South America"', mode=mode)
            assert texts(both) == [OTHERS["Cats"]] and "notice" not in both["meta"]
            apart = search(typed, '"fast car" "South America"', mode=mode)
            assert {OTHERS["Cars"], OTHERS["Cats"]} <= {*texts(apart)}
            assert apart["meta"]["notice"] == [
                "No chunk contains “fast car” and “south america” together, "
                "so their words are searched."
            ]


def test_a_phrase_that_is_not_in_what_is_searched_is_its_words(
    typed: Session, subtests: pytest.Subtests
) -> None:
    """Another knowledge base holds the phrase, so its words are searched one by one."""
    for mode in MODES:
        with subtests.test(mode=mode):
            answer = search(typed, '"a fresh container" jaguar', kb="other", mode=mode)
            assert OTHERS["Cats"] in texts(answer)
            assert "“a fresh container”" in answer["meta"]["notice"][0]


def test_nothing_is_left_out_where_nothing_would_remain(
    typed: Session, subtests: pytest.Subtests
) -> None:
    cases0: list[tuple[str, str]] = [
        ("jaguar -cat -car", "Every match contains “cat” or “car”, so nothing was excluded."),
        ('"named after" -cat', "Every match contains “cat”, so nothing was excluded."),
        ("swims -cat", "Every match contains “cat”, so nothing was excluded."),
    ]
    for query, notice in cases0:
        for mode in ("fts", "hybrid"):
            with subtests.test(query=query, notice=notice, mode=mode):
                answer = search(typed, query, mode=mode)
                without = search(typed, query.partition(" -")[0], mode=mode)
                assert texts(answer)[0] == texts(without)[0]
                assert answer["meta"]["notice"] == [notice]
                assert "excluded" not in answer["meta"].get("hint", "")


def test_what_no_chunk_holds_is_named_where_a_dash_leaves_out_nothing(typed: Session) -> None:
    answer = search(typed, "zyzzyva -cat", mode="fts")
    assert answer["data"]["results"] == []
    assert answer["meta"]["hint"] == "No chunk contains: zyzzyva. Try other words."


def test_no_innocent_word_is_named(typed: Session) -> None:
    hint = search(typed, "jaguar frobnicate zyzzyva quux swims -car", mode="fts")["meta"]["hint"]
    assert "No chunk contains: frobnicate, zyzzyva, quux." in hint
    assert "Chunks with “car” are excluded." in hint
    assert "jaguar" not in hint and "swims" not in hint
