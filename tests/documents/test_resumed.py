"""A session that goes on in a file of its own: what its client copied there is indexed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit import chats
from tests.kit.talk import Session

Record = dict[str, Any]


def turn(number: int, words: str) -> list[Record]:
    """Returns a question and its answer, a minute after those of the turn before."""
    at = f"2026-03-05T14:{number:02}"
    common = {"isSidechain": False, "cwd": chats.PROJECT}
    return [
        {
            **common,
            "type": role,
            "uuid": f"{role}{number}",
            "parentUuid": f"assistant{number - 1}" if role == "user" else f"user{number}",
            "timestamp": f"{at}:{seconds}.000Z",
            "message": {"role": role, "content": f"{words} {role}", "id": f"m{number}"},
        }
        for role, seconds in (("user", "00"), ("assistant", "30"))
    ]


def log(session: str, *turns: list[Record]) -> bytes:
    id = chats.UUID.replace("6f1c", session * 4) + "1"
    return chats.lines(*({**record, "sessionId": id} for each in turns for record in each))


ONE, TWO, THREE, FOUR = (
    turn(number, f"{words} {words}er")
    for number, words in enumerate(("anchor", "bollard", "capstan", "derrick"), 1)
)


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    project = home / ".claude" / "projects" / "-home-ann-crane"
    project.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return project


def matches(session: Session) -> list[int]:
    """Returns in how many chunks each turn's word is."""
    queries = ("anchorer", "bollarder", "capstaner", "derricker")
    hits = [session.data("search", query=query, mode="fts")["results"] for query in queries]
    # A title holds the word of the first turn, too.
    pairs = zip(queries, hits, strict=True)
    return [sum(query in hit["text"] for hit in results) for query, results in pairs]


def add(session: Session) -> Record:
    return chats.add(session, clients=["claude-code"])


def titles(session: Session) -> list[str]:
    return sorted(row["title"] for row in session.data("doc.list"))


def test_a_resumed_session_is_indexed_once(session: Session, logs: Path) -> None:
    (logs / "a.jsonl").write_bytes(log("a", ONE, TWO))
    (logs / "b.jsonl").write_bytes(log("b", ONE, TWO, THREE))
    answer = add(session)
    assert (answer["added"], answer["failed"]) == (2, 0)
    assert answer["unread"]["copied_messages"] == 4
    assert matches(session) == [1, 1, 1, 0]
    assert titles(session) == ["anchor anchorer user", "capstan capstaner user"]
    [later] = [row for row in session.data("doc.list") if row["title"].startswith("capstan")]
    assert later["metadata"]["resumed_from"] == str(logs / "a.jsonl")
    assert later["metadata"]["turns"] == 3
    # The copy is resumed in turn, and one is closed without a word.
    (logs / "c.jsonl").write_bytes(log("c", ONE, TWO, THREE, FOUR))
    (logs / "d.jsonl").write_bytes(log("d", ONE, TWO))
    answer = add(session)
    assert (answer["added"], answer["unchanged"], answer["empty"]) == (1, 2, 1)
    assert matches(session) == [1, 1, 1, 1]


def test_each_log_keeps_its_own_messages_as_it_grows(session: Session, logs: Path) -> None:
    (logs / "b.jsonl").write_bytes(log("b", ONE, TWO))
    add(session)
    (logs / "a.jsonl").write_bytes(log("a", ONE, THREE))  # another way from the first turn on
    add(session)
    assert matches(session) == [1, 1, 1, 0]
    (logs / "a.jsonl").write_bytes(log("a", ONE, THREE, FOUR))
    (logs / "b.jsonl").write_bytes(log("b", ONE, TWO, turn(5, "ensign")))
    assert add(session)["updated"] == 2
    assert matches(session) == [1, 1, 1, 1]


def test_a_session_whose_beginning_is_deleted_is_read_as_a_whole(
    session: Session, logs: Path
) -> None:
    (logs / "a.jsonl").write_bytes(log("a", ONE, TWO))
    (logs / "b.jsonl").write_bytes(log("b", ONE, TWO, THREE))
    add(session)
    (logs / "a.jsonl").unlink()
    assert add(session)["updated"] == 1
    [row] = [row for row in session.data("doc.list") if row["source"]["path"].endswith("b.jsonl")]
    assert (row["title"], row["metadata"]["turns"]) == ("anchor anchorer user", 3)
    assert "resumed_from" not in row["metadata"]
    assert add(session)["unchanged"] == 1


def test_a_log_that_was_moved_is_no_copy(session: Session, logs: Path) -> None:
    (logs / "a.jsonl").write_bytes(log("a", ONE, TWO))
    add(session)
    (logs / "a.jsonl").rename(logs / "b.jsonl")
    assert add(session)["moved"] == 1
    assert matches(session) == [1, 1, 0, 0]
