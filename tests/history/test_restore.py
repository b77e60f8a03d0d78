"""A document comes back only if no other has taken its place."""

from __future__ import annotations

from typing import Any

import pytest

from kbproc.engine.events.document import ChunkText, DocWritten
from kbproc.knowledge.history.restore import conflicting_documents, kind_of_source, source_of
from kbproc.knowledge.history.timeline import DocumentState
from tests.kit.talk import Session


def state(id: int, **source: Any) -> DocumentState:
    written = DocWritten(
        id=id,
        kb=source.pop("kb", "default"),
        revision=1,
        title="T",
        doc_type="text",
        source_sha256="aa",
        size_bytes=1,
        first_chunk=1,
        chunks=[ChunkText(text="x")],
        parser=1,
        origin="user",
        **source,
    )
    return DocumentState(written=written, title="T", tags=[], metadata={}, revision=1)


def test_a_source_is_a_path_else_a_url_else_a_name(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, str], str]] = [
        ({"path": "/a", "url": "http://a", "source_id": "s"}, "path"),
        ({"url": "http://a", "source_id": "s"}, "url"),
        ({"source_id": "s"}, "source_id"),
        ({}, None),
    ]
    for members, kind in cases:
        with subtests.test(f"{members!r:.80}"):
            one = state(1, **members)
            assert source_of(one.written) == (
                None if kind is None else ("default", kind, members[kind])
            )
            assert kind_of_source(one) == (kind or "source")


def test_documents_from_the_same_source_are_in_the_way(session: Session) -> None:
    """Documents 1 and 2 are live; documents that leave make room for others."""
    session.data("doc.create", title="One", text="one", source_id="a")
    session.data("doc.create", title="Two", text="two", source_id="b")
    with session.store.reading() as snapshot:
        queries = snapshot.queries

        def conflicts(*coming: DocumentState, leaving: Any = ()) -> dict[int, int]:
            return conflicting_documents(queries, coming, leaving)

        assert conflicts(state(7, source_id="a"), state(8, source_id="c")) == {7: 1}
        assert conflicts(state(1, source_id="a")) == {}, "a document is not in its own way"
        assert conflicts(state(7, source_id="a"), leaving={1}) == {}
        assert conflicts(state(7, source_id="a", kb="other")) == {}
        assert conflicts(state(7, url="a")) == {}, "another kind of source"
        assert conflicts(state(7), state(8)) == {}, "documents without a source"
        twins = [state(7, source_id="z"), state(8, source_id="z"), state(9, path="/z")]
        assert conflicts(*twins) == {8: 7}, "the first of two comes back"
