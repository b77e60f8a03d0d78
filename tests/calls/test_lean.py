"""Lean answers: fields, text and a budget of tokens, on every read that can be long."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.kit.talk import Session

BODY = "Backups run each night, and each of them is tested on Monday. " * 8


@pytest.fixture
def filled(session: Session) -> Session:
    documents = [
        {"title": f"Backups {n}", "text": f"{BODY} Number {n}.", "tags": ["ops"]} for n in range(12)
    ]
    session.data("doc.create", documents=documents)
    session.data("knowledge.store", title="Cache", body="Backups hold no cache.")
    session.embedded()
    return session


def meta_of(session: Session, method: str, **params: Any) -> tuple[Any, dict[str, Any]]:
    answer = session.ask(method, **params)
    assert "result" in answer, answer
    return answer["result"]["data"], answer["result"]["meta"]


def test_only_these_members_of_each_hit(filled: Session) -> None:
    fields = ["score", "source.cite", "source.document_id", "snippet"]
    data, meta = meta_of(filled, "search", query="backups", fields=fields)
    assert meta["lean"] is True
    assert data["confidence"] == "likely" and data["returned"] == 10
    for hit in data["results"]:
        assert set(hit) == {"score", "source", "snippet"}
        assert set(hit["source"]) == {"cite", "document_id"}


def test_hits_without_their_text(filled: Session) -> None:
    whole, meta = meta_of(filled, "search", query="backups", limit=3)
    assert "lean" not in meta
    lean, meta = meta_of(filled, "search", query="backups", limit=3, text=False)
    assert meta["lean"] is True
    for hit, full in zip(lean["results"], whole["results"], strict=True):
        assert "text" in full and "text" not in hit
        assert set(hit) < set(full)
        assert None not in hit.values(), "what says nothing is left out, too"
    entry = next(h for h in filled.data("search", query="cache", text=False)["results"])
    assert entry["confidence"] == 80 and "expires_at" not in entry


def test_texts_share_their_room(filled: Session) -> None:
    long = "Nothing of it. " * 60
    filled.data("doc.create", title="Long", text=f"{long}The zebra sleeps at noon. {long}")
    filled.data("doc.create", title="Short", text="A zebra.")
    params = {"query": "zebra noon", "mode": "fts", "snippet_chars": 20}
    whole = filled.data("search", **params)["results"]
    cut = filled.data("search", **params, text_chars=100)["results"]
    assert [hit["chunk_id"] for hit in cut] == [hit["chunk_id"] for hit in whole]
    texts = {hit["source"]["title"]: hit["text"] for hit in cut}
    assert texts["Short"] == "A zebra.", "what is short stays whole"
    assert "The zebra sleeps at noon." in texts["Long"]
    assert 150 < len(texts["Long"]) <= 192, "it has the room that the short one leaves"
    assert [hit["snippet"] for hit in cut] == [hit["snippet"] for hit in whole]
    assert filled.data("search", **params, text_chars=20_000)["results"] == whole


def test_lists_and_single_things(filled: Session) -> None:
    data, meta = meta_of(filled, "doc.list", fields=["id", "title"], limit=2)
    assert [set(item) for item in data] == [{"id", "title"}] * 2
    assert meta["has_more"] is True
    assert filled.data("doc.get", id=1, fields=["title"]) == {"title": "Backups 0"}
    assert set(filled.data("chunk.list", document_id=1, text=False)[0]) >= {"id", "chunk_index"}
    assert "text" not in filled.data("chunk.list", document_id=1, text=False)[0]
    near = filled.data("chunk.get", id=1, fields=["chunk.text", "total_chunks"])
    assert set(near) == {"chunk", "total_chunks"} and set(near["chunk"]) == {"text"}
    assert filled.data("tag.list", fields=["count"]) == [{"count": 12}]


NEAR: list[tuple[str, dict[str, Any], str, str | None]] = [
    ("search", {"query": "x"}, "titel", None),
    ("search", {"query": "x"}, "source.titel", "source.title"),
    ("doc.list", {}, "titel", "title"),
    ("doc.get", {"id": 1}, "source.urls", "source.url"),
]


def test_a_name_that_no_member_has(filled: Session) -> None:
    for method, params, name, near in NEAR:
        error = filled.error(method, **params, fields=["id" if near == "title" else "score", name])
        assert error["type"] == "input.invalid_params", (method, name)
        assert error["field"].startswith("$.params.fields["), (method, name)
        assert near is None or method == "doc.get" or error["valid_values"][0] == near, method


def test_a_budget_bounds_a_page(filled: Session) -> None:
    ids: list[int] = []
    cursor: dict[str, str] = {}
    while True:
        data, meta = meta_of(filled, "doc.list", budget_tokens=600, **cursor)
        assert data and (len(data) == 1 or len(msgspec.json.encode(data)) <= 600 * 3 + 2)
        ids += [item["id"] for item in data]
        if not meta["has_more"]:
            break
        cursor = {"cursor": meta["next_cursor"]}
    assert ids == list(range(1, 14))
    lean, meta = meta_of(filled, "doc.list", budget_tokens=600, fields=["id"])
    assert len(lean) == 13, "what is left out costs nothing"


def test_a_budget_bounds_a_search_and_a_text(filled: Session) -> None:
    whole = filled.data("search", query="backups")
    data, meta = meta_of(filled, "search", query="backups", budget_tokens=1000)
    assert 0 < data["returned"] == len(data["results"]) == meta["count"] < whole["returned"]
    assert meta["has_more"] is True
    assert data["results"] == whole["results"][: data["returned"]]
    part, meta = meta_of(filled, "doc.get", id=1, text=True, budget_tokens=50)
    assert len(part["text"]) == 150 and meta["has_more"] is True
    assert filled.data("search", query="backups", budget_tokens=1)["returned"] == 1


def test_a_budget_bounds_what_is_got(filled: Session) -> None:
    entry = filled.data("knowledge.list")[0]["id"]
    filled.data("agent.create", slug="ann")
    filled.data("note.put", agent="ann", slug="night", text="# Night\n\n" + BODY)
    for method, params, text in (
        ("knowledge.get", {"id": entry}, "body"),
        ("note.get", {"agent": "ann", "slug": "night"}, "text"),
    ):
        whole, meta = meta_of(filled, method, **params)
        assert "has_more" not in meta
        part, meta = meta_of(filled, method, **params, budget_tokens=5)
        assert (part[text], meta["has_more"]) == (whole[text][:15], True)


def test_a_budget_keeps_the_nearest_neighbours(session: Session) -> None:
    id = session.data("doc.create", title="Long", text=f"{BODY}\n\n" * 20)["id"]
    ids = [chunk["id"] for chunk in session.data("chunk.list", document_id=id)]
    middle = len(ids) // 2
    params = {"id": ids[middle], "before": 50, "after": 50}
    whole, meta = meta_of(session, "chunk.get", **params)
    assert "has_more" not in meta and len(whole["before"]) + len(whole["after"]) == len(ids) - 1
    size = len(msgspec.json.encode(whole["chunk"]))
    part, meta = meta_of(session, "chunk.get", **params, budget_tokens=size * 4 // 3)
    assert meta["has_more"] is True
    assert part["chunk"] == whole["chunk"]
    near = part["before"] + part["after"]
    assert near and part["before"] == whole["before"][-len(part["before"]) :]
    assert part["after"] == whole["after"][: len(part["after"])]
    assert abs(len(part["before"]) - len(part["after"])) <= 1
