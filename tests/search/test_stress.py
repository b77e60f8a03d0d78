"""A question inside a polite mail finds the same text as the question alone."""

from __future__ import annotations

from typing import Any

import pytest

from kbproc.base.text.analysis import sentences
from kbproc.knowledge.search.stress import Parts
from tests.kit import mail
from tests.kit.mail import ASKING, MAIL
from tests.kit.talk import Session

TEXTS = mail.TEXTS
ABSTRACT = (
    "Backups of the archive run each night, and each backup is kept for a month. "
    "Each night at two the backup of the archive begins. "
    "Backups of the archive are kept at night for each month that a backup runs. "
    "Each backup run at night is kept in the archive for a month."
)


def search(session: Session, query: str, **params: Any) -> tuple[dict[str, float], list[str], Any]:
    """Returns the scores by title, the notices, and the explanation's stress part."""
    answer = session.ask("search", query=query, explain=True, **params)["result"]
    hits = answer["data"]["results"]
    stress = [hit["explain"].get("stress") for hit in hits]
    assert all(one == stress[0] for one in stress)
    scores = {hit["source"]["title"]: hit["score"] for hit in hits}
    return scores, answer["meta"].get("notice", []), stress[0]


def test_the_sentence_that_asks_is_found_and_told(
    filled: Session, subtests: pytest.Subtests
) -> None:
    for mode in ("hybrid", "fts", "vector"):
        with subtests.test(mode=mode):
            scores, notice, stress = search(filled, MAIL, mode=mode)
            assert max(scores, key=lambda title: scores[title]) == "Backups"
            assert stress["sentence"] == ASKING
            assert stress["others"] < 0.6 * stress["worth"]
            assert any(ASKING in line and "half" in line for line in notice)


def test_its_share_is_the_mean_of_the_whole_and_the_sentence(
    filled: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed, _, _ = search(filled, MAIL, mode="fts")
    alone, _, _ = search(filled, ASKING, mode="fts")
    monkeypatch.setattr(Parts, "best", lambda self, text: None)
    whole, _, stress = search(filled, MAIL, mode="fts")
    assert stress is None
    for title, score in whole.items():
        assert mixed[title] == pytest.approx((score + alone.get(title, 0.0)) / 2, abs=1e-4)
    assert mixed["Backups"] > whole["Backups"]


def test_an_abstract_is_searched_as_it_is(filled: Session) -> None:
    assert len(ABSTRACT.split()) > 30
    _, notice, stress = search(filled, ABSTRACT)
    assert stress is None
    assert not any("half" in line for line in notice)


def test_a_short_query_has_no_sentence_that_counts_more(filled: Session) -> None:
    _, _, stress = search(
        filled, "Hello dear team! How long is each backup kept? Thank you so much."
    )
    assert stress is None


def test_abbreviations_end_no_sentence() -> None:
    text = (
        "Is there any use for DDC, UDC, LC, etc. in systems, e.g. in libraries? Ask Dr. Who. Now!"
    )
    expected = ["Is there any use for DDC, UDC, LC, etc. in systems, e.g. in libraries?"]
    assert list(sentences(text)) == [*expected, "Ask Dr. Who.", "Now!"]
