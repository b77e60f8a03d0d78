"""A compaction forgets replaced contents and those of deleted documents, each of them once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from msgspec import UNSET

from kbproc.engine.events import codec
from kbproc.engine.events.event import Event
from kbproc.engine.events.upkeep import ContentForgotten
from kbproc.knowledge.history.compact import compaction


def compacted(
    contents: list[tuple[int, bool, list[int]]], *earlier: ContentForgotten
) -> tuple[list[Event], list[str], tuple[int, str]]:
    """Returns the events, the changes in words and the data of a compaction."""
    records = [
        SimpleNamespace(seq=seq, lost=UNSET, events=codec.encode([event]))
        for seq, event in enumerate(earlier, 1)
    ]
    log = SimpleNamespace(read=lambda after_seq, to_seq: iter(records[after_seq:to_seq]))
    queries = SimpleNamespace(
        contents_before=lambda before: contents,
        documents_by_id=lambda ids: {
            id: SimpleNamespace(id=id, title=f"D{id}", revision=9) for id in ids
        },
        matching_records=lambda *filters: [record.seq for record in records],
    )
    here = SimpleNamespace(queries=queries, head=SimpleNamespace(seq=len(records)))
    decision = compaction(cast(Any, here), cast(Any, log), "2026")
    return decision.events, decision.changes, decision.data


def test_replaced_contents_are_forgotten_and_the_current_one_stays() -> None:
    events, changes, (count, hint) = compacted([(2, False, [1, 2, 3]), (1, False, [1, 2])])
    assert events == [ContentForgotten(id=1, kept=2), ContentForgotten(id=2, kept=3)]
    assert changes == ["forget 3 earlier contents of 2 documents for good"]
    assert count == 3 and hint.startswith("What is forgotten can't be restored")


def test_a_deleted_document_loses_its_last_content_too() -> None:
    events, changes, (count, _) = compacted([(1, True, [1, 2]), (2, False, [4, 5])])
    assert events == [ContentForgotten(id=1, kept=3), ContentForgotten(id=2, kept=5)]
    assert changes == [
        "forget 1 earlier content of 1 document for good",
        "forget 2 contents of 1 deleted document for good",
    ]
    assert count == 3


def test_what_was_forgotten_before_is_not_counted_again() -> None:
    before = [ContentForgotten(id=1, kept=3), ContentForgotten(id=1, kept=2)]
    events, _, (count, _) = compacted([(1, False, [1, 2, 3, 4])], *before)
    assert (events, count) == ([ContentForgotten(id=1, kept=4)], 1)
    events, changes, (count, hint) = compacted([(1, False, [1, 2, 3])], *before)
    assert (events, changes, count) == ([], [], 0)
    assert hint == ("Nothing was replaced or deleted before then that is not forgotten already.")
    assert compacted([])[2][0] == compacted([(1, False, [1])])[2][0] == 0
