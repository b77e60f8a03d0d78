"""Each record that touched a document is one revision, and its summary says what changed."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from kbproc.engine.events.document import (
    ChunkDeleted,
    ChunkText,
    DocChanged,
    DocDeleted,
    DocWritten,
)
from kbproc.engine.events.entry import EntryReviewed, EntryRevived, EntrySuperseded
from kbproc.engine.events.event import Event
from kbproc.engine.events.upkeep import ContentForgotten, DocPurged
from kbproc.engine.projections.catalog.rows import EventRow
from kbproc.knowledge.history.revisions import DocumentRevision, review_in_words, revisions
from kbproc.knowledge.history.timeline import PastRecords, Timeline

FIRST = DocWritten(
    id=1,
    kb="default",
    revision=1,
    title="One",
    doc_type="markdown",
    source_sha256="a",
    size_bytes=4,
    first_chunk=1,
    chunks=[ChunkText(text="a"), ChunkText(text="b")],
    parser=1,
    origin="user",
    path="/one.md",
    tags=["x"],
    metadata={"n": 1},
)


def again(revision: int, **more: Any) -> DocWritten:
    return msgspec.structs.replace(FIRST, revision=revision, **more)


def history(*records: Event | tuple[Event, ...] | None, method: str = "doc.update") -> Timeline:
    """Returns the timeline of document 1; None stands for a lost record."""
    groups = [one if isinstance(one, tuple | None) else (one,) for one in records]
    rows = [
        EventRow(seq, 0, "2026", "ann", method, event.tag(), None, 1, None, None, None)
        for seq, events in enumerate(groups, 1)
        for event in (events or (FIRST,))
    ]

    class Records:
        def events(self, seq: int) -> Any:
            return groups[seq - 1]

    return Timeline(cast(PastRecords, Records()), 1, rows)


def newest(timeline: Timeline) -> DocumentRevision:
    return revisions(timeline, before=0, most=1)[0]


def test_revisions_come_newest_first_before_a_position() -> None:
    timeline = history(FIRST, again(2, title="Two"), again(3, title="Three"))
    assert [one.seq for one in revisions(timeline, before=0, most=2)] == [3, 2]
    assert [one.seq for one in revisions(timeline, before=3, most=9)] == [2, 1]
    assert revisions(timeline, before=1, most=9) == []
    assert revisions(history(), before=0, most=9) == []


def test_a_revision_has_the_state_after_its_record() -> None:
    assert newest(history(FIRST)) == DocumentRevision(
        seq=1,
        ts="2026",
        actor="ann",
        method="doc.update",
        action="created",
        summary="2 chunks",
        revision=1,
        title="One",
        chunk_count=2,
        size_bytes=4,
        sha256="a",
    )


def test_a_change_is_told_by_what_was_before(subtests: pytest.Subtests) -> None:
    cases: list[tuple[Event, str, str]] = [
        (again(2, title="Two"), "replaced", "title was “One”"),
        (again(2, tags=["y"]), "replaced", "tags: +y -x"),
        (again(2, path="/two.md", source_id=None), "replaced", "file was /one.md"),
        (again(2, metadata={"n": 2, "m": 1}), "replaced", "metadata: n, m"),
        (again(2, metadata={"n": None}), "replaced", "metadata: n"),
        (
            again(2, chunks=[ChunkText(text="c")], source_sha256="c"),
            "replaced",
            "text: 2 chunks before, 1 now",
        ),
        (again(2), "replaced", "the same again"),
        (
            DocChanged(id=1, revision=2, title="Two", tags=[], metadata={"n": 1}),
            "changed",
            "title was “One”; tags: -x",
        ),
        (
            ChunkDeleted(document_id=1, revision=2, ids=[2]),
            "chunks_deleted",
            "text: 2 chunks before, 1 now",
        ),
        (DocDeleted(id=1), "deleted", "hidden from every read"),
    ]
    for event, action, summary in cases:
        with subtests.test(action=action, summary=summary):
            revision = newest(history(FIRST, event))
            if isinstance(event, DocWritten) and event.path != "/one.md":
                assert revision.summary == f"{summary}; text: 2 chunks before, 2 now"
            else:
                assert revision.summary == summary
            assert revision.action == action


def test_a_restored_document_shows_its_chunks_and_a_hidden_one_has_none() -> None:
    timeline = history(FIRST, DocDeleted(id=1), again(2))
    restored, hidden, _ = revisions(timeline, before=0, most=9)
    assert (restored.action, restored.summary, restored.chunk_count) == ("restored", "2 chunks", 2)
    assert (hidden.action, hidden.chunk_count, hidden.title) == ("deleted", 0, "One")
    back = newest(history(FIRST, again(2, title="Two"), method="events.revert"))
    assert back.action == "restored"


def test_links_and_reviews_of_an_entry_are_told() -> None:
    review = EntryReviewed(id=1, verified_by="ann", verified_at="2026", review_after="2027")
    timeline = history(FIRST, EntrySuperseded(id=1, by=7), EntryRevived(ids=[1], was=7), review)
    latest = revisions(timeline, before=0, most=3)
    assert [(one.action, one.summary) for one in latest] == [
        ("reviewed", "ann has verified it; to check at 2027"),
        ("revived", "it holds again"),
        ("superseded", "entry 7 takes its place"),
    ]
    assert review_in_words(EntryReviewed(id=1)) == "nobody has verified it"


def test_what_a_purge_damage_or_compaction_took_is_named_without_a_state() -> None:
    purged = revisions(history(FIRST, again(2), DocPurged(ids=[1])), before=0, most=9)
    assert [(one.action, one.title) for one in purged] == [
        ("purged", None),
        ("erased", None),
        ("erased", None),
    ]
    lost = newest(history(None))
    assert (lost.action, lost.title) == ("lost", None)
    assert lost.summary == "what it was then, damage has taken from the log"
    timeline = history(FIRST, again(2, title="Two"), ContentForgotten(id=1, kept=2))
    forgetting, current, first = revisions(timeline, before=0, most=9)
    assert (forgetting.action, forgetting.summary) == (
        "forgotten",
        "what it held before was erased",
    )
    assert (current.title, first.title) == ("Two", None)
    assert first.summary == "what it held then is forgotten"
