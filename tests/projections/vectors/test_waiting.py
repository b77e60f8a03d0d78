"""Pending chunks: by key, by document, in order of arrival, and the oldest."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kbproc.engine.projections.vectors.waiting import PendingRows, VectorRow

STEP = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 3), st.sampled_from([b"a", b"b", b"c"])),
    st.tuples(st.just("take"), st.sampled_from([b"a", b"b", b"c"]), st.none()),
    st.tuples(st.just("forget"), st.integers(0, 3), st.none()),
)


@given(steps=st.lists(STEP, max_size=25), limit=st.none() | st.integers(0, 5))
def test_any_history_equals_a_plain_list(steps: list[Any], limit: int | None) -> None:
    rows, plain, seq = PendingRows(), list[VectorRow](), 0
    for number, (step, first, second) in enumerate(steps):
        if step == "add":
            seq += number % 2
            row = VectorRow(100 - number, first, "default", second, seq)
            rows.add(row)
            plain.append(row)
        elif step == "take":
            under_key = sorted(
                (row for row in plain if row.key == first), key=lambda row: row.chunk_id
            )
            assert rows.take(first) == under_key
            plain = [row for row in plain if row.key != first]
        else:
            rows.forget([first, 99])
            plain = [row for row in plain if row.document_id != first]
        oldest = min((row.seq for row in plain), default=seq + 1)
        assert rows.settled_to(seq) == min(oldest - 1, seq)
    assert (len(rows), list(rows)) == (len(plain), plain)
    assert set(rows.keys) == {row.key for row in plain}
    ids = [row.chunk_id for row in plain]
    assert rows.ids(newest_first=False, limit=limit) == ids[:limit]
    assert rows.ids(newest_first=True, limit=limit) == ids[::-1][:limit]
    documents = [row.document_id for row in plain]
    assert rows.by_document() == {id: documents.count(id) for id in documents}
    assert [rows.has(id) for id in range(4)] == [id in documents for id in range(4)]


def test_a_chunk_that_comes_again_is_pending_since_then() -> None:
    """An update drops the document's rows and adds the chunk under a later record."""
    rows = PendingRows()
    rows.add(VectorRow(1, 1, "default", b"a", 3))
    rows.forget([1])
    rows.add(VectorRow(1, 1, "default", b"b", 7))
    assert rows.settled_to(9) == 6
    assert rows.take(b"a") == []
    assert [row.seq for row in rows.take(b"b")] == [7]
    assert rows.settled_to(9) == 9
