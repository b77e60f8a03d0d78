"""The map of a store: what it shows stays true while the store changes."""

from __future__ import annotations

from tests.conftest import OpenSession
from tests.kit.notes import approved
from tests.kit.talk import Session


def chunks(session: Session, **params: object) -> list[int]:
    return [point["chunk_id"] for point in session.data("chunk.map", **params)["points"]]


def test_a_map_follows_the_store(open_session: OpenSession) -> None:
    session = open_session()
    for title in ("One", "Two", "Three"):
        session.data("doc.create", title=title, text=f"What {title} says.")
    session.embedded()
    assert chunks(session) == [1, 2, 3]
    session.data("doc.create", title="Four", text="What Four says.")
    session.embedded()
    assert chunks(session) == [1, 2, 3, 4]
    approved(session, "doc.delete", ids=[2])
    assert chunks(session) == [1, 3, 4]


def test_a_map_is_the_same_with_a_query_on_it(open_session: OpenSession) -> None:
    """Each request gets its own sample and knowledge bases, whatever the one before has asked."""
    session = open_session()
    session.data("kb.create", slug="other")
    for number in range(6):
        kb = "other" if number % 2 else "default"
        session.data("doc.create", title=f"Title {number}", text=f"Word{number} says.", kb=kb)
    session.embedded()
    whole = session.data("chunk.map")
    assert chunks(session, kb="other") == [2, 4, 6]
    assert len(chunks(session, limit=2)) == 2
    starred = session.data("chunk.map", query="Word3 says.")
    assert whole["query"] is None and starred.pop("query") is not None
    assert {**starred, "query": None} == whole
