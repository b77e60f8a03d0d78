"""Passages of conversations: who speaks, what else the session says, and what stands beside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import structs

from kbproc.base.text.query import parse_query
from kbproc.engine.projections.catalog.catalog import Catalog
from kbproc.engine.projections.catalog.rows import HitRow
from kbproc.knowledge.search.conversations import Conversations, people_in
from kbproc.knowledge.search.fusion import Fused
from tests.kit.shared import shared_store
from tests.kit.talk import Session

CRANE = [
    ("Ann", "Shall we meet at the harbour, where the old crane stands beside the sheds?"),
    ("Bob", "I bought a red canoe last week, and it cost more than I had wanted to pay."),
    ("Ann", "My boat is a sloop, because a canoe tips over whenever a ferry passes too near."),
]


def factors(query: str, *texts: str, origin: Any = "agent") -> list[tuple[bool, bool]]:
    """Returns of each passage whether it is a reply, and whether others speak than the named."""
    rows = {
        id: HitRow(id, id, "default", "T", None, text, type="conversation", origin=origin)
        for id, text in enumerate(texts)
    }
    conversations = Conversations(parse_query(query), 10, rows_of=lambda ids: {})
    conversations.weighed([(id, Fused(0.5, 0.5, None)) for id in rows], rows)
    all_factors = [conversations.factors[id] for id in rows]
    return [(factor.is_reply, factor.is_of_another) for factor in all_factors]


def test_who_speaks() -> None:
    logs = ["User: Why?\n\nAssistant: So.", "Assistant: So.", "goes on", "sh: ls\n\nsh output: a"]
    assert [reply for reply, _ in factors("why", *logs)] == [False, True, True, True]
    assert factors("goes", "goes on", origin="user") == [(False, False)]
    talk = ["Ann Lee: Hi.", "Bob: Ann said so.", "Bob: Hi.\n\nAnn Lee: Hi.", "no speaker"]
    others = [False, True, False, False]
    assert [other for _, other in factors("what did Ann say?", *talk)] == others
    assert not any(other for _, other in factors("what did they say?", *talk))
    assert not any(other for _, other in factors("the user of sh", *logs))


def test_a_word_before_a_colon_is_no_speaker_in_a_log_of_user_and_assistant() -> None:
    """The session's first chunk tells its speakers, also where it is no hit."""
    first = HitRow(7, 1, "default", "T", None, "User: Why does it fail?", type="conversation")
    later = HitRow(9, 1, "default", "T", None, "Error: no space", idx=2, type="conversation")
    other = HitRow(20, 2, "default", "T", None, "User: Out of space", type="conversation")
    rows = {9: later, 20: other}
    for opening, is_speaker in ((first, False), (structs.replace(first, text="Ann: Hi"), True)):
        conversations = Conversations(
            parse_query("which error says space"), 10, rows_of=lambda ids, row=opening: {7: row}
        )
        conversations.weighed([(id, Fused(0.5, 0.5, None)) for id in rows], rows)
        assert conversations.factors[20].is_of_another is is_speaker


def test_a_question_counts_for_what_another_person_answers() -> None:
    question, answer = "Ann: Which boat did you buy?", "Bob: A red one."
    cases = (
        (question, 1, answer, 0.5),
        ("Ann: Welches Boot？", 1, answer, 0.5),
        ("Ann: I like boats.", 1, answer, 0.0),
        (question, 2, answer, 0.0),  # the question stands in another session
        (question, 1, "Ann: A red one.", 0.0),
        (question, 1, "Assistant: A red one.", 0.0),  # a reply repeats the question's words
        (question, 1, "a red one", 0.0),
        (f"{question}\n\n{answer}", 1, "Ann: I see.", 0.0),
    )
    for before, document, text, expected in cases:
        first = HitRow(1, 1, "default", "T", None, before, type="conversation")
        second = HitRow(2, document, "default", "T", None, text, idx=1, type="conversation")
        conversations = Conversations(parse_query("boat"), 10, rows_of=lambda ids: {})
        ranked = [(1, Fused(0.5, 0.5, None)), (2, Fused(0.1, 0.1, None))]
        conversations.weighed(ranked, {1: first, 2: second})
        assert conversations.factors[2].question == expected, (before, text)
        assert conversations.factors[1].question == 0.0


def test_words_count_more_and_short_texts_and_questions_less() -> None:
    long = "Ann: I bought the canoe at the harbour, " + "and it was red " * 8
    even, by_words, by_meaning = Fused(0.5, 0.25, 0.25), Fused(0.5, 0.4, 0.1), Fused(0.5, 0.1, 0.4)
    assert order((long, even), (long, by_words), (long, by_meaning)) == [1, 0, 2]
    alone = Fused(0.5, 0.5, None)
    assert order((long, alone), (long, even)) == [0, 1]
    texts = (long, f"{long} in 2023", f"{long}, right?", "Ann: Wow!", "安: " + "我买了红船" * 9)
    assert order(*((text, even) for text in texts)) == [1, 0, 4, 2, 3]


def order(*passages: tuple[str, Fused]) -> list[int]:
    """Returns the numbers of passages of different sessions, best first, each below 1."""
    rows = {
        id: HitRow(id, id, "default", "T", None, text, type="conversation")
        for id, (text, _) in enumerate(passages)
    }
    conversations = Conversations(parse_query("canoe"), 10, rows_of=lambda ids: {})
    ranked = conversations.weighed([(id, one) for id, (_, one) in enumerate(passages)], rows)
    assert all(0 < fused.score <= 1 for _, fused in ranked)
    return [id for id, _ in ranked]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, bench: Catalog) -> Iterator[Session]:
    base = tmp_path_factory.mktemp("filled")
    with shared_store(base, bench) as session:
        lines = [{"kbproc": "conversation", "version": 1, "client": "chat", "title": "Boats"}]
        messages = [
            {"turn": turn, "role": "user", "at": None, "name": name, "text": text}
            for turn, (name, text) in enumerate(CRANE, 1)
        ]
        path = base / "boats.jsonl"
        path.write_text("\n".join(map(json.dumps, [*lines, *messages])) + "\n")
        session.data("doc.ingest", paths=[str(path)])
        session.embedded()
        yield session


def test_the_named_speaker_comes_first_and_alone_answers(filled: Session) -> None:
    def found(query: str) -> dict[str, Any]:
        return filled.data("search", query=query, mode="fts", explain=True)

    of_bob = found("did Bob say that a canoe tips over whenever a ferry passes")
    best = of_bob["results"][0]
    assert best["text"].startswith("Ann") and best["explain"]["speech"]["is_of_another"]
    assert of_bob["confidence"] == "none"
    of_ann = found("did Ann say that a canoe tips over whenever a ferry passes")
    assert of_ann["confidence"] != "none"
    assert of_ann["results"][0]["score"] > best["score"]
    # No turn answers for a person whom no text names.
    for query in ("did Gina say that a canoe tips over whenever", "Gina's canoe tips over as"):
        assert found(f"{query} a ferry passes")["confidence"] == "none", query
    assert found("whenever a ferry passes does Crane say a canoe tips over")["confidence"] != "none"


def test_a_hidden_text_does_not_tell_that_it_names_somebody(filled: Session) -> None:
    filled.data("kb.create", slug="hidden", name="Hidden")
    filled.data("doc.create", kb="hidden", title="A guest", text="Zaphod was here.")
    filled.data("agent.create", slug="few", kbs=["default"])
    query = "did Zaphod say that a canoe tips over whenever a ferry passes"
    sessions = (filled, filled.another("few", named=True))
    levels = [one.data("search", query=query, mode="fts")["confidence"] for one in sessions]
    assert levels[0] != "none"
    assert levels[1] == "none"


def test_a_question_is_about_its_subject_and_a_possessor() -> None:
    assert people_in("What did Jon say about Gina's store? Is Tim at home, and has It gone?") == {
        *("jon", "gina", "tim")
    }
    for query in (
        "Has North Carolina a coast? What did he buy for Christmas in PARIS?",
        "Let's fix today's parser. Here's everyone's list: Today's, Everyone's.",
    ):
        assert people_in(query) == set()


def test_the_turns_beside_a_hit_are_shown_with_it(filled: Session) -> None:
    def texts(**params: Any) -> list[str]:
        hits = filled.data("search", query="red canoe", mode="fts", **params)["results"]
        return [hit["text"] for hit in hits]

    first, second, third = (f"{name}: {text}" for name, text in CRANE)
    assert texts(limit=1) == [second]
    assert texts(limit=1, text_chars=len(second) + len(third) + 2) == [f"{second}\n\n{third}"]
    assert texts(limit=1, text_chars=500) == [f"{first}\n\n{second}\n\n{third}"]
    assert texts(text_chars=500) == [f"{first}\n\n{second}", third]


def test_each_passage_stands_on_one_page(session: Session, tmp_path: Path) -> None:
    random = Random(1)
    for number in range(8):
        lines: list[dict[str, Any]] = [
            {"kbproc": "conversation", "version": 1, "client": "chat", "title": f"{number}"}
        ]
        for turn in range(1, 13):
            words = random.choices(
                ["red", "canoe", "boat", "harbour", "crane", "rope", "knot", "sail", "rain"], k=20
            )
            name = random.choice(["Ann", "Bob", "Cyd", "Dee"])
            line = {"role": "user", "at": None, "name": name, "text": " ".join(words)}
            lines.append({"turn": turn, **line})
        path = tmp_path / f"{number}.jsonl"
        path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    session.data("doc.ingest", paths=[str(tmp_path)])
    params = {"query": "what did Ann say about a red canoe", "mode": "fts", "limit": 5}
    total = session.data("search", **params)["total_matches"]
    pages = [session.data("search", **params, offset=at)["results"] for at in range(0, total, 5)]
    ids = [hit["chunk_id"] for page in pages for hit in page]
    assert len(ids) == len(set(ids)) == total > 50
