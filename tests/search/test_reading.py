"""How a query is read: nothing in it filters by accident, and what filters is said."""

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


def found(session: Session, query: str, **params: Any) -> dict[str, Any]:
    answer: dict[str, Any] = session.ask("search", query=query, limit=100, **params)["result"]
    return answer


def texts(answer: dict[str, Any]) -> list[str]:
    return [hit["text"] for hit in answer["data"]["results"]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_finds_what_is_said_of_it(typed: Session, command: str, mode: str) -> None:
    answer = found(typed, command, mode=mode)
    assert COMMANDS[command] in texts(answer)
    assert mode == "vector" or texts(answer)[0] == COMMANDS[command]
    assert "left out" not in answer["meta"].get("hint", "")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("query", QUOTED)
def test_a_quoted_sentence_that_is_nowhere_is_its_words(
    typed: Session, query: str, mode: str
) -> None:
    answer = found(typed, query, mode=mode)
    assert QUOTED[query] in texts(answer)
    assert mode == "vector" or texts(answer)[0] == QUOTED[query]
    (notice,) = answer["meta"]["notice"]
    assert notice.startswith("No chunk that is searched holds the phrase “")
    assert notice.endswith("its words count.")


@pytest.mark.parametrize("mode", MODES)
def test_a_dash_before_a_word_leaves_out_what_holds_it(typed: Session, mode: str) -> None:
    answer = found(typed, "jaguar -car", mode=mode)
    assert OTHERS["Cats"] in texts(answer)
    assert OTHERS["Cars"] not in texts(answer) and OTHERS["Both"] not in texts(answer)
    assert "Chunks with “car” are left out." in answer["meta"]["hint"]


@pytest.mark.parametrize("mode", MODES)
def test_phrases_bind_where_one_text_holds_all_of_them(typed: Session, mode: str) -> None:
    both = found(typed, '"jaguar is a" "South America"', mode=mode)
    assert texts(both) == [OTHERS["Cats"]] and "notice" not in both["meta"]
    apart = found(typed, '"fast car" "South America"', mode=mode)
    assert {OTHERS["Cars"], OTHERS["Cats"]} <= {*texts(apart)}
    assert apart["meta"]["notice"] == [
        "No chunk holds “fast car” and “south america” together: their words count."
    ]


@pytest.mark.parametrize("mode", MODES)
def test_a_phrase_that_is_not_in_what_is_searched_is_its_words(typed: Session, mode: str) -> None:
    """It is in another knowledge base."""
    answer = found(typed, '"a fresh container" jaguar', kb="other", mode=mode)
    assert OTHERS["Cats"] in texts(answer)
    assert "“a fresh container”" in answer["meta"]["notice"][0]


@pytest.mark.parametrize("mode", ["fts", "hybrid"])
@pytest.mark.parametrize(
    "query, said",
    [
        ("jaguar -cat -car", "All that matches holds “cat” or “car”, so nothing is left out."),
        ('"named after" -cat', "All that matches holds “cat”, so nothing is left out."),
        ("swims -cat", "All that matches holds “cat”, so nothing is left out."),
    ],
)
def test_nothing_is_left_out_where_nothing_would_remain(
    typed: Session, query: str, said: str, mode: str
) -> None:
    answer = found(typed, query, mode=mode)
    without = found(typed, query.partition(" -")[0], mode=mode)
    assert texts(answer)[0] == texts(without)[0]
    assert answer["meta"]["notice"] == [said]
    assert "left out" not in answer["meta"].get("hint", "")


def test_what_no_chunk_holds_is_named_where_a_dash_leaves_out_nothing(typed: Session) -> None:
    answer = found(typed, "zyzzyva -cat", mode="fts")
    assert answer["data"]["results"] == []
    assert answer["meta"]["hint"] == "No chunk holds zyzzyva; try other words."


def test_no_innocent_word_is_named(typed: Session) -> None:
    hint = found(typed, "jaguar frobnicate zyzzyva quux swims -car", mode="fts")["meta"]["hint"]
    assert "No chunk holds frobnicate, zyzzyva, quux." in hint
    assert "Chunks with “car” are left out." in hint
    assert "jaguar" not in hint and "swims" not in hint
