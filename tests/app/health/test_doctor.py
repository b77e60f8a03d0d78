"""doctor while the store is at work."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import pytest

from kbproc.library.health import vectors as check
from kbproc.views.catalog.rows import IndexRow
from kbproc.views.vectors.view import Vectors
from tests.kit.patience import PATIENCE, until
from tests.kit.talk import Session


def test_a_vector_that_is_on_its_way_is_no_fault(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pack has it already, the view not yet: as long as doctor's first look takes."""
    looked = threading.Event()
    embedded, differences = Vectors.embedded, check.differences

    def slowly(view: Vectors, keys: Sequence[bytes]) -> int:
        looked.wait(PATIENCE)
        return embedded(view, keys)

    def look(view: Vectors, rows: Iterable[IndexRow]) -> list[str]:
        found = differences(view, rows)
        assert looked.is_set() or found == ["chunk 1 is pending though its vector is there"]
        looked.set()
        return found

    vectors = session.store.vectors
    assert vectors is not None
    monkeypatch.setattr(Vectors, "embedded", slowly)
    monkeypatch.setattr(check, "differences", look)
    session.data("doc.create", title="Heron", text="heron")
    with session.store.reading() as snapshot:
        (row,) = snapshot.queries.all_index_rows()
    until(lambda: vectors.pack.has(vectors.key(row)), "the pack has the vector")
    findings = {one["name"]: one for one in session.data("doctor", deep=True)["findings"]}
    assert findings["vectors"]["status"] == "pass", findings["vectors"]
    assert looked.is_set()
