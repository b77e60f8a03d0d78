"""The map of a store needs vectors, and says what is missing where there are none."""

from __future__ import annotations

import pytest

from kbproc.base.errors import KbprocError
from kbproc.knowledge.search.places import MapPlace, chunk_map
from tests.conftest import OpenSession
from tests.kit.talk import Session


def test_a_map_numbers_the_knowledge_bases_that_it_shows(session: Session) -> None:
    session.data("kb.create", slug="lakes")
    for kb, text in (("lakes", "Herons fish."), ("default", "Bread rises."), ("lakes", "Reeds.")):
        session.data("doc.create", title="T", text=text, kb=kb)
    session.embedded()
    drawn, seq = chunk_map(session.store, kbs=None, query=None, most=10)
    assert (drawn.total, drawn.kbs, drawn.query) == (3, ["default", "lakes"], None)
    assert [(p.chunk_id, p.document_id, p.kb) for p in drawn.points] == [
        (1, 1, 1),
        (2, 2, 0),
        (3, 3, 1),
    ]
    assert max(max(abs(p.x), abs(p.y)) for p in drawn.points) == 1.0
    assert all((round(p.x, 3), round(p.y, 3)) == (p.x, p.y) for p in drawn.points)
    assert seq == session.store.seq
    half, _ = chunk_map(session.store, kbs=["lakes"], query=None, most=1)
    assert (half.total, half.kbs, len(half.points)) == (2, ["lakes"], 1)
    with pytest.raises(KbprocError) as refusal:
        chunk_map(session.store, kbs=["nowhere"], query=None, most=1)
    assert refusal.value.type == "resource.not_found"


def test_the_text_of_a_chunk_as_query_lies_near_the_chunk(session: Session) -> None:
    for text in ("Herons fish in the lake.", "Bread needs flour.", "Trains run at night."):
        session.data("doc.create", title="T", text=text)
    session.embedded()
    drawn, _ = chunk_map(session.store, kbs=None, query="T\n\nBread needs flour.", most=3)
    assert isinstance(drawn.query, MapPlace)
    place = drawn.query
    distances = {p.chunk_id: abs(p.x - place.x) + abs(p.y - place.y) for p in drawn.points}
    assert min(distances, key=distances.__getitem__) == 2


def test_a_store_without_a_model_has_no_map(open_session: OpenSession) -> None:
    store = open_session(model="none").store
    for query, reason in ((None, "No chunk is embedded yet."), ("x", "No embedding model is")):
        with pytest.raises(KbprocError) as refusal:
            chunk_map(store, kbs=None, query=query, most=10)
        error = refusal.value
        assert error.type == "model.unavailable"
        assert error.message.startswith(f"There is no map without vectors. {reason}")
        assert error.hint == "Run kbproc doctor: it checks the model."
