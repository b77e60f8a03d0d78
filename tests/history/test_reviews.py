"""A reverted review gives way to the one before it, unless another followed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kbproc.engine.events.document import DocWritten
from kbproc.engine.events.entry import EntryFacts, EntryReviewed
from kbproc.engine.events.event import Event
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.rows import DocumentRow, EventRow
from kbproc.knowledge.history.reversal import Undoing
from kbproc.knowledge.history.reviews import ReviewReversal
from kbproc.knowledge.history.timeline import PastRecords

ENTRY = DocWritten(
    id=1,
    kb="default",
    revision=1,
    title="Ports",
    doc_type="knowledge",
    source_sha256="a",
    size_bytes=1,
    first_chunk=1,
    chunks=[],
    parser=1,
    origin="agent",
    entry=EntryFacts(confidence=80, source="", review_after="2030"),
)
ANN = EntryReviewed(id=1, verified_by="ann", verified_at="2026")
BEN = EntryReviewed(id=1, verified_by="ben", verified_at="2027")


def undone(*groups: Event, seqs: set[int], kind: str = "knowledge", method: str = "x") -> Undoing:
    """Reverts the reviews in these records of entry 1, whose first record is `ENTRY`."""
    events: dict[int, list[Event]] = dict(enumerate(([ENTRY], *([one] for one in groups)), 1))
    rows = [
        EventRow(seq, 0, "t", "ann", method, one.tag(), None, 1, None, None, None)
        for seq, (one,) in events.items()
    ]
    facts: dict[str, Any] = dict.fromkeys(DocumentRow.__struct_fields__)
    row = DocumentRow(**{**facts, "id": 1, "title": "Ports", "type": kind, "revision": 1})
    queries = SimpleNamespace(documents_by_id=lambda ids: {1: row} if kind != "gone" else {})
    undoing = Undoing(left_out=0)
    reversal = ReviewReversal(
        cast(Queries, queries),
        cast(PastRecords, SimpleNamespace(events=events.get)),
        undoing,
        seqs,
    )
    reversal.undo({1: rows})
    return undoing


def reasons(undoing: Undoing) -> list[str]:
    return [one.why for one in undoing.decision(frozenset(), bulk=False).data.kept]


def test_the_review_before_a_reverted_one_holds_again() -> None:
    undoing = undone(ANN, BEN, seqs={3})
    assert (undoing.events, undoing.changed) == ([ANN], {"document": {1: None}})
    assert undoing.bound == ["entry 1 “Ports”: ann has verified it"]
    assert undone(BEN, seqs={2}).events == [EntryReviewed(id=1, review_after="2030")]


def test_a_review_that_others_followed_stays_and_so_does_one_of_the_same_words() -> None:
    blocked = undone(ANN, BEN, seqs={2})
    assert (blocked.events, reasons(blocked)) == (
        [],
        ["entry 1 was reviewed again at seq 3 by ann"],
    )
    same = undone(ANN, ANN, seqs={3})
    assert (same.events, reasons(same)) == ([], ["entry 1 is reviewed as it was before"])


def test_a_purged_entry_gets_no_review_back(subtests: pytest.Subtests) -> None:
    for kind in ("", "gone"):
        with subtests.test(kind=kind):
            undoing = undone(ANN, seqs={2}, kind=kind)
            assert (undoing.events, reasons(undoing)) == ([], ["entry 1 is gone for good"])
            assert reasons(undone(ANN, seqs={9}, kind=kind)) == []
