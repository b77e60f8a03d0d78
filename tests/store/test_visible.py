"""A narrowed store counts what its caller may see, and a whole one is not wrapped."""

from __future__ import annotations

from kbproc.engine.projections.catalog.reader import Sight
from kbproc.engine.store.visible import narrowed, narrowed_store
from tests.kit.talk import Session


def test_everything_is_the_store_itself(session: Session) -> None:
    assert narrowed(session.store, None) is session.store
    assert narrowed_store(session.store, None) is session.store


def test_chunks_and_reads_are_narrowed(session: Session) -> None:
    session.data("kb.create", slug="secret")
    session.data("doc.create", title="One", text="one")
    session.data("doc.create", title="Two", text="two", kb="secret")
    store = narrowed_store(session.store, Sight(kbs=("secret",)))
    assert (session.store.chunks, store.chunks) == (2, 1)
    with store.reading() as snapshot:
        assert snapshot.kbs == ["secret"]
        assert snapshot.queries.document(1) is None
    with store.reading_as(Sight(kbs=("default",))) as snapshot:
        assert snapshot.queries.document(2) is None
