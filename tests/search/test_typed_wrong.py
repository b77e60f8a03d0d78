"""Query words that no text holds: typing errors, and words that the texts join into one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kbproc.base.text.typos import may_be_mistyped, one_slip_away
from kbproc.engine.projections.catalog.catalog import Catalog
from tests.conftest import OpenSession
from tests.kit.shared import shared_store
from tests.kit.talk import Session

TEXTS = [
    "The reticulum is a chamber of the stomach of a cow.",
    "The retina of the eye turns light into signals.",
    "AMERICANEXPRESS reports its earnings in January.",
    "An express train crosses the American prairie.",
    "Обновление установки занимает пять минут.",
    "A kind host, a king and his home.",
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, bench: Catalog) -> Iterator[Session]:
    base = tmp_path_factory.mktemp("filled")
    with shared_store(base, bench) as session:
        for text in TEXTS:
            session.data("doc.create", title="-", text=text)
        session.embedded()
        yield session


def search(session: Session, query: str, **params: Any) -> dict[str, Any]:
    answer: dict[str, Any] = session.ask("search", query=query, explain=True, **params)["result"]
    return answer


def test_one_slip_is_seen_through(filled: Session, subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str | None, int | None]] = [
        ("reticulm", "reticulum", 0),
        ("reticuluum", "reticulum", 0),
        ("retucilum", None, None),
        ("reticulmu", "reticulum", 0),
        ("signslas", None, None),
        ("signasl", "signals", 1),
        ("обновлние", "обновление", 4),
    ]
    for typed, correction, text in cases:
        with subtests.test(typed=typed, correction=correction, text=text):
            answer = search(filled, typed, mode="fts")
            if correction is None or text is None:
                assert answer["data"]["results"] == []
                return
            (hit,) = answer["data"]["results"]
            assert hit["text"] == TEXTS[text]
            (notice,) = answer["meta"]["notice"]
            assert notice.endswith(f"similar ones were searched: {correction} instead of {typed}.")
            marked = [hit["snippet"][start:end].lower() for start, end in hit["highlights"]]
            assert marked == [correction]


def test_what_is_nearly_so_weighs_less(filled: Session) -> None:
    clean = search(filled, "reticulum", mode="fts")["data"]["results"][0]
    wrong = search(filled, "reticulm", mode="fts")["data"]["results"][0]
    assert wrong["score"] == pytest.approx(0.8 * clean["score"], abs=1e-5)
    boosts = {term["form"]: term["boost"] for term in wrong["explain"]["fts"]["terms"]}
    assert boosts == {"stem": pytest.approx(0.8), "word": pytest.approx(0.2)}
    assert wrong["explain"]["fts"]["bm25"] <= wrong["explain"]["fts"]["bound"]


def test_words_that_are_known_or_too_short_stay(filled: Session, subtests: pytest.Subtests) -> None:
    cases: list[str] = ["stomach", "the cow", "cows", "home", "hpe", "v2x", "水道水道"]
    for query in cases:
        with subtests.test(query=query):
            assert "notice" not in search(filled, query, mode="fts")["meta"]


def test_short_words_differ_by_keys_that_lie_apart(filled: Session) -> None:
    """Most short words have such neighbours, so neither of these is corrected."""
    assert "notice" not in search(filled, "hole kinp", mode="fts")["meta"]
    assert "king instead of kimg" in search(filled, "kimg", mode="fts")["meta"]["notice"][0]


def test_the_word_of_another_agent_is_not_told(open_session: OpenSession) -> None:
    session = open_session()
    session.data("kb.create", slug="secret")
    session.data("kb.create", slug="open")
    session.data("doc.create", title="-", text="The frobnicator hums.", kb="secret")
    session.data("doc.create", title="-", text="A machine hums.", kb="open")
    session.data("agent.create", slug="guest", kbs=["open"])
    guest = session.another("guest", named=True)
    answer = search(guest, "frobnicatr hums", mode="fts")
    assert "frobnicator" not in str(answer)
    assert "frobnicator" in str(search(session, "frobnicatr hums", mode="fts"))


def test_neighbours_that_texts_write_as_one(filled: Session) -> None:
    answer = search(filled, "american express earnings", mode="fts")
    best = next(hit for hit in answer["data"]["results"] if hit["text"] == TEXTS[2])
    joined = {
        t["form"]: t for t in best["explain"]["fts"]["terms"] if t["word"].startswith("ameri")
    }
    assert joined["word"]["word"] == "americanexpress"
    assert joined["word"]["boost"] == pytest.approx(0.125)
    apart = search(filled, "the express of an american", mode="fts")["data"]["results"]
    assert [hit["text"] for hit in apart] == [TEXTS[3]], "words that don't stand together"
    for hit in answer["data"]["results"]:
        assert hit["explain"]["fts"]["bm25"] <= hit["explain"]["fts"]["bound"]


def test_slips() -> None:
    slips = set(one_slip_away("letter"))
    assert {"leter", "lettter", "lettre", "lester", "latter"} <= slips
    assert not {"letter", "leer", "etterl"} & slips
    assert {"knd", "kizd", "ikdn"} & set(one_slip_away("kind")) == {"knd"}
    assert "kimd" in set(one_slip_away("kind")) and "king" not in set(one_slip_away("kind"))
    assert may_be_mistyped("wort") and may_be_mistyped("слово")
    assert not any(map(may_be_mistyped, ("abc", "v2x1", "水道水道", "हिन्दी")))


def test_names_are_found_by_the_whole_and_by_their_parts(
    session: Session, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[str, str]] = [
        ("v2.3.1", "Release v2.3.1 mends the clock."),
        ("2.3.1", "Release v2.3.1 mends the clock."),
        ("what changed in 3.1.2", "Version 3.1.2 mends the bell."),
        ("CVE-2024-3094", "The backdoor CVE-2024-3094 was found by chance."),
        ("CVE 3094", "The backdoor CVE-2024-3094 was found by chance."),
        ("os.path.join", "Use os.path.join to join parts of a path."),
        ("path join", "Use os.path.join to join parts of a path."),
        ("parse_query", "The function parseQuery reads a query."),
    ]
    for text in (
        "Release v2.3.1 mends the clock.",
        "Version 3.1.2 mends the bell.",
        "In 3 of 2 cases, 1 clock and v2 of it; 2, 3, 1, v2, 3, 1.",
        "The backdoor CVE-2024-3094 was found by chance.",
        "CVE-3094-2024 and CVE-2024-3095: 3094 CVE 2024.",
        "Use os.path.join to join parts of a path.",
        "We join the path of the os; os, path, join.",
        "The function parseQuery reads a query.",
    ):
        session.data("doc.create", title="-", text=text)
    session.embedded()
    for query, best in cases:
        with subtests.test(query=query, best=best):
            hits = search(session, query, mode="fts")["data"]["results"]
            assert hits[0]["text"] == best or (
                " " in query and best in [hit["text"] for hit in hits]
            )
            for hit in hits:
                assert hit["explain"]["fts"]["bm25"] <= hit["explain"]["fts"]["bound"]
