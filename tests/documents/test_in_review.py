"""Entries that wait for an approval: who sees them, and what approves, changes and rejects them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from kbproc.engine.events.kb import Review
from kbproc.engine.events.origin import ORIGINS
from kbproc.knowledge.documents.review import must_wait
from tests.kit.talk import Session

SECRET = "The beacon of Skagen burns blue"


def store(session: Session, title: str = SECRET, **more: Any) -> dict[str, Any]:
    body = more.pop("body", f"{title}, said the keeper.")
    entry: dict[str, Any] = session.data("knowledge.store", title=title, body=body, **more)
    return entry


def reviewed(session: Session, review: str = "agents") -> Session:
    """Turns a review on; returns the session of an agent whose entries wait from now on."""
    session.data("kb.update", slug="default", review=review)
    session.data("agent.create", slug="scout")
    return session.another("scout")


def approve(session: Session, *ids: int, **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = session.data("review.approve", ids=list(ids), **more)
    return answer


def finds(session: Session, query: str = "beacon Skagen") -> list[int]:
    """Returns the entries that a search, a list and a search of entries agree to find."""
    hits = session.data("search", query=query, mode="fts")["results"]
    ids = [hit["source"]["document_id"] for hit in hits]
    entries = session.data("knowledge.search", query=query, mode="fts")["results"]
    assert [hit["source"]["document_id"] for hit in entries] == ids
    listed = {item["id"] for item in session.data("knowledge.list", include_superseded=True)}
    assert set(ids) <= listed
    return ids


def waiting(session: Session) -> list[int]:
    return [item["id"] for item in session.data("review.list")]


def test_each_level_holds_back_what_is_trusted_less() -> None:
    levels = {
        level: [one for one in ORIGINS if must_wait(level, one)] for level in get_args(Review)
    }
    assert levels == {
        "none": [],
        "web": ["web", "import"],
        "agents": ["agent", "tool", "web", "import"],
        "all": list(ORIGINS),
    }


def test_nobody_finds_an_entry_in_review(session: Session) -> None:
    """No read of any noun shows its words, neither to others nor to a person."""
    scout = reviewed(session)
    session.data("agent.create", slug="other")
    other = session.another("other")
    counts_before = session.data("status")
    entry = store(scout, tags=["light"])
    assert entry["in_review"] is True
    assert "in_review" not in store(session, "Mine"), "what a person stores does not wait"
    for reader in (session, scout, other):
        assert finds(reader) == []
        for method, params in (
            ("knowledge.list", {"include_superseded": True, "owner": "scout"}),
            ("doc.list", {"types": ["knowledge"], "tags": ["light"]}),
            ("tag.list", {}),
            ("chat", {"question": "What colour has the beacon of Skagen?"}),
            ("knowledge.duplicates", {}),
        ):
            answer = str(reader.ask(method, **params)["result"]["data"])
            assert "blue" not in answer and "'light'" not in answer, (method, answer)
        error = reader.error("doc.get", id=entry["id"])
        assert error["message"] == f"There is no document {entry['id']}."
    texts = "select title from documents union all select text from chunks union all "
    texts += "select title from entries union all select tag from tags"
    assert "blue" not in str(session.data("sql.query", sql=texts))
    counts_after = session.data("status")
    assert counts_after["total_documents"] == counts_before["total_documents"] + 1
    assert counts_after["in_review"] == 1
    assert approve(session, entry["id"]) == {
        "approved": 1,
        "ids": [entry["id"]],
        "superseded": [],
    }
    assert finds(session) == finds(other) == [entry["id"]]
    assert "blue" in str(session.data("sql.query", sql=texts))
    assert "in_review" not in session.data("status")
    answer = session.data("knowledge.get", id=entry["id"])
    assert "in_review" not in answer
    assert (answer["created_by"], answer["origin"]) == ("scout", "agent")
    assert answer["verified_by"] == "user", "a person's approval verifies it"


def test_author_and_reviewers_see_an_entry_in_review(session: Session) -> None:
    scout = reviewed(session)
    session.data("agent.create", slug="other")
    other = session.another("other")
    id = store(scout)["id"]
    for reader in (session, scout):
        (item,) = reader.data("review.list")
        assert (item["id"], item["in_review"], item["text"]) == (
            id,
            True,
            f"{SECRET}, said the keeper.",
        )
        assert reader.data("knowledge.get", id=id)["body"] == f"{SECRET}, said the keeper."
    assert waiting(other) == []
    assert other.error("knowledge.get", id=id)["type"] == "resource.not_found"
    assert "in_review" not in other.data("status"), "counts tell no more than lists"
    assert scout.data("status")["in_review"] == 1


def test_an_agent_approves_nothing_without_the_scope(session: Session) -> None:
    scout = reviewed(session)
    id = store(scout)["id"]
    for method, params in (
        ("review.approve", {"ids": [id]}),
        ("review.reject", {"ids": [id]}),
        ("review.edit", {"id": id, "title": "x"}),
        ("kb.update", {"slug": "default", "review": "none"}),
    ):
        error = scout.error(method, **params)
        assert (error["type"], error["detail"]["needed"]) == (
            "auth.insufficient_scope",
            "review:write",
        ), method
    assert finds(session) == []
    session.data(
        "agent.create", slug="judge", scopes=["doc:read", "knowledge:read", "review:write"]
    )
    judge = session.another("judge")
    assert waiting(judge) == [id]
    approve(judge, id)
    assert finds(judge) == [id]
    assert session.data("knowledge.get", id=id)["verified_by"] is None, "no person has read it"


def test_a_rejected_entry_stays_in_the_log_and_comes_back_by_a_revert(session: Session) -> None:
    scout = reviewed(session)
    id = store(scout)["id"]
    plan = session.ask("review.reject", ids=[id], dry_run=True)["result"]["meta"]["plan"]
    assert plan["changes"] == [f"reject “{SECRET}”"]
    assert waiting(session) == [id], "a preview writes nothing"
    answer = session.ask("review.reject", ids=[id])["result"]
    assert answer["data"] == {"rejected": 1, "ids": [id]}
    assert waiting(session) == waiting(scout) == finds(session) == []
    assert "deleted" in session.error("review.approve", ids=[id])["message"]
    seq = answer["meta"]["seq"]
    assert session.data("events.read", after_seq=seq - 1)[0]["method"] == "review.reject"
    revert = session.ask("events.revert", seqs=[seq], dry_run=True)["result"]["meta"]["plan"]
    session.data("events.revert", seqs=[seq], confirm=revert["plan_hash"])
    assert waiting(session) == [id]
    assert finds(session) == []


def test_a_revert_of_an_approval_puts_the_entry_back_into_review(session: Session) -> None:
    scout = reviewed(session)
    old = store(session, "The beacon of Skagen burns red")["id"]
    id = store(scout)["id"]
    linked = scout.data("knowledge.supersede", old_id=old, new_id=id)
    assert linked == {"old_id": old, "new_id": id, "head": old, "in_review": True}
    assert finds(session) == [old], "nothing takes its place before the approval"
    seq = session.ask("review.approve", ids=[id])["result"]["meta"]["seq"]
    assert finds(session) == [id]
    assert session.data("knowledge.get", id=old)["head"] == id
    revert = session.ask("events.revert", seqs=[seq], dry_run=True)["result"]["meta"]["plan"]
    session.data("events.revert", seqs=[seq], confirm=revert["plan_hash"])
    assert finds(session) == [old]
    assert waiting(session) == [id]
    assert session.data("knowledge.get", id=id)["replaces"] == [old]
    assert approve(session, id)["superseded"] == [old]


def test_an_entry_in_review_replaces_others_only_with_its_approval(session: Session) -> None:
    scout = reviewed(session)
    old = [store(session, f"The beacon of Skagen burns {colour}")["id"] for colour in "abc"]
    id = store(scout)["id"]
    for one in old:
        scout.data("knowledge.supersede", old_id=one, new_id=id)
    scout.data("knowledge.unsupersede", old_id=old[1], new_id=id)
    newer = store(session, "The beacon of Skagen is out")["id"]
    session.data("knowledge.supersede", old_id=old[2], new_id=newer)
    plan = session.ask("review.approve", ids=[id], dry_run=True)["result"]["meta"]["plan"]
    assert plan["changes"] == [
        "1 entry approved",
        f"approve “{SECRET}”",
        f"entry {old[0]} is superseded by entry {id}",
        f"entry {old[2]} stays: it was deleted or superseded before",
    ]
    assert approve(session, id)["superseded"] == [old[0]]
    assert set(finds(session)) == {id, old[1], newer}
    own = store(scout, "Another beacon")["id"]
    error = scout.error("knowledge.supersede", old_id=own, new_id=id)
    assert error["message"] == f"Entry {own} is in review."
    assert session.error("knowledge.verify", ids=[own])["type"] == "resource.conflict"


def test_a_reviewer_changes_an_entry_before_the_approval(session: Session) -> None:
    scout = reviewed(session)
    id = store(scout, tags=["light"])["id"]
    session.data("review.edit", id=id, title="The beacon", tags=["sea"])
    answer = session.data("knowledge.get", id=id)
    assert (answer["title"], answer["tags"], answer["in_review"]) == ("The beacon", ["sea"], True)
    assert answer["origin"] == "agent", "the words are the agent's under any title"
    session.data("review.edit", id=id, body="The beacon of Skagen burns green.")
    assert finds(session) == []
    approve(session, id)
    answer = session.data("knowledge.get", id=id)
    assert (answer["body"], answer["origin"]) == ("The beacon of Skagen burns green.", "user")
    assert finds(session) == [id]
    error = session.error("review.edit", id=id, title="x")
    assert error["message"] == f"Entry {id} is not in review: everybody finds it."
    error = session.error("review.edit", id=id)
    assert error["message"] == "There is nothing to change: give title, body or tags."


def test_what_ends_an_entry_ends_one_in_review(session: Session) -> None:
    scout = reviewed(session, "all")
    one, two, three = (store(scout, f"Beacon {n}")["id"] for n in "123")
    mine = store(session, "Mine")
    assert mine["in_review"] is True, "all means a person's, too"
    plan = scout.ask("knowledge.delete", ids=[one], dry_run=True)["result"]["meta"]["plan"]
    scout.data("knowledge.delete", ids=[one], confirm=plan["plan_hash"])
    assert waiting(session) == [two, three, mine["id"]]
    plan = session.ask("store.purge", document_ids=[two], dry_run=True)["result"]["meta"]["plan"]
    session.data("store.purge", document_ids=[two], confirm=plan["plan_hash"])
    files = [path for path in session.store.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"Beacon 2" in path.read_bytes()]
    assert waiting(session) == [three, mine["id"]]
    session.data("kb.create", slug="other", review="all")
    four = store(session, "Four", kb="other")["id"]
    plan = session.ask("kb.delete", slug="other", dry_run=True)["result"]["meta"]["plan"]
    session.data("kb.delete", slug="other", confirm=plan["plan_hash"])
    assert four not in waiting(session)
    session.data("kb.update", slug="default", review="none")
    assert "in_review" not in store(session, "Not in review")
    assert waiting(session) == [three, mine["id"]], "an end of the review approves nothing"


def test_the_setting_is_answer_and_comes_back_by_a_revert(session: Session) -> None:
    assert "review" not in session.data("kb.get", slug="default")
    answer = session.ask("kb.update", slug="default", review="web")["result"]
    assert answer["data"]["review"] == session.data("kb.list")[0]["review"] == "web"
    session.data("kb.update", slug="default", name="All")
    assert session.data("kb.get", slug="default")["review"] == "web", "another change keeps it"
    assert store(session, "Seen", source="https://example.org/x")["in_review"] is True
    seq = session.ask("kb.update", slug="default", review="none")["result"]["meta"]["seq"]
    revert = session.ask("events.revert", seqs=[seq], dry_run=True)["result"]["meta"]["plan"]
    session.data("events.revert", seqs=[seq], confirm=revert["plan_hash"])
    assert session.data("kb.get", slug="default")["review"] == "web"


@pytest.mark.parametrize("method", ["review.approve", "review.reject"])
def test_entries_that_are_not_in_review_are_refused(session: Session, method: str) -> None:
    id = store(session)["id"]
    error = session.error(method, ids=[id])
    assert (error["type"], error["detail"]) == ("resource.conflict", {"id": id})
    assert session.error(method, ids=[999])["type"] == "resource.not_found"


def test_an_export_says_which_entries_are_in_review(session: Session, tmp_path: Path) -> None:
    """So they wait in another store, too: see transfer/test_sources. Others can't export."""
    scout = reviewed(session)
    store(scout)
    store(session, "Mine")
    session.data("store.export", path=str(tmp_path / "out.ndjson"))
    lines = [json.loads(line) for line in (tmp_path / "out.ndjson").read_bytes().splitlines()]
    entries = {line["title"]: line["entry"] for line in lines if line["type"] == "document"}
    assert {title: facts.get("in_review") for title, facts in entries.items()} == {
        SECRET: True,
        "Mine": None,
    }
    assert [line["review"] for line in lines if line["type"] == "kb"] == ["agents"]
    error = session.another("other", scopes="store:read").error("store.export")
    assert error["type"] == "auth.insufficient_scope"
