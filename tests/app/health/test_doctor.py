"""doctor, called while the store embeds."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import pytest

from kbproc.engine.projections.catalog.rows import IndexRow
from kbproc.engine.projections.vectors.view import Vectors
from kbproc.knowledge.app.health import doctor
from tests.kit.patience import PATIENCE, until
from tests.kit.talk import Session


def test_a_vector_that_is_on_its_way_is_no_fault(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During doctor's first look the vector is in the pack, but not yet in the view."""
    looked = threading.Event()
    embedded, differences = Vectors.embedded, doctor.vector_differences

    def slowly(view: Vectors, keys: Sequence[bytes]) -> int:
        looked.wait(PATIENCE)
        return embedded(view, keys)

    def look(view: Vectors, rows: Iterable[IndexRow]) -> list[str]:
        messages = differences(view, rows)
        assert looked.is_set() or messages == [
            "chunk 1 is pending, although its vector is in the pack"
        ]
        looked.set()
        return messages

    vectors = session.store.vectors
    assert vectors is not None
    monkeypatch.setattr(Vectors, "embedded", slowly)
    monkeypatch.setattr(doctor, "vector_differences", look)
    session.data("doc.create", title="Heron", text="heron")
    with session.store.reading() as snapshot:
        (row,) = snapshot.queries.all_index_rows()
    until(lambda: vectors.pack.has(vectors.key(row)), "the pack has the vector")
    findings = {one["name"]: one for one in session.data("doctor", deep=True)["findings"]}
    assert findings["vectors"]["status"] == "pass", findings["vectors"]
    assert looked.is_set()
