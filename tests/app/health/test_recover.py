"""The records that an old catalog gives bring a fold with gaps to the old catalog's state."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbproc.engine.events import codec
from kbproc.engine.events.agent import AgentDeleted, AgentWritten
from kbproc.engine.events.document import (
    ChunkText,
    DocChanged,
    DocDeleted,
    DocWritten,
    FileCleared,
    FileFailed,
)
from kbproc.engine.events.entry import EntryFacts, EntryReviewed, EntryRevived, EntrySuperseded
from kbproc.engine.events.event import Event, NextIds
from kbproc.engine.events.kb import KbCreated, KbDeleted, KbUpdated
from kbproc.engine.events.upkeep import DocPurged
from kbproc.engine.events.watch import FolderUnwatched, FolderWatched
from kbproc.engine.log.record import START, Position, Record, RecordDraft, seal_all
from kbproc.engine.projections.catalog.catalog import Catalog
from kbproc.knowledge.app.health import recover
from kbproc.knowledge.app.health.recover import RewrittenRecord

MOMENT = "2026-01-01T00:00:00.000Z"


def document(id: int, title: str = "T", *, revision: int = 1, **more: Any) -> DocWritten:
    facts = {"kb": "default", "doc_type": "markdown", "source_sha256": f"{id:064x}"}
    facts["origin"] = "user"
    return DocWritten(
        id=id,
        revision=revision,
        title=title,
        size_bytes=4,
        first_chunk=id * 10 + revision,
        chunks=[ChunkText(text=f"text {id} {revision}")],
        parser=1,
        **{**facts, **more},
    )


def entry(id: int) -> DocWritten:
    return document(id, doc_type="knowledge", entry=EntryFacts(confidence=80, source=""))


def agent(slug: str, revision: int = 1) -> AgentWritten:
    return AgentWritten(
        slug=slug,
        revision=revision,
        description="",
        kbs=None,
        folder=None,
        scopes=None,
        quotas={},
        instructions="",
    )


def record_of(*events: Event, actor: str = "ann", **more: Any) -> RecordDraft:
    return RecordDraft(
        ts=MOMENT,
        actor=actor,
        method="test",
        salt="0" * 32,
        events=codec.encode(events),
        **more,
    )


class Catalogs:
    """Catalogs of a log with all its records, and of one in which some records are lost."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self._opened: list[Catalog] = []

    def of(self, records: list[Record]) -> Catalog:
        catalog = Catalog(self._folder / f"catalog-{next(self._numbers)}.duckdb")
        self._opened.append(catalog)
        catalog.apply(records)
        catalog.commit()
        return catalog

    def pair(self, *drafts: RecordDraft, lost: tuple[int, ...]) -> tuple[Catalog, Catalog]:
        """Returns both catalogs; `lost`: places in the drafts."""
        records = seal_all(drafts, START)
        empty = msgspec.Raw(b"[]")
        rest = [
            msgspec.structs.replace(record, events=empty, token=None) if at in lost else record
            for at, record in enumerate(records)
        ]
        return self.of(records), self.of(rest)

    def close(self) -> None:
        for catalog in self._opened:
            catalog.close()


@pytest.fixture
def catalogs(tmp_path: Path) -> Iterator[Catalogs]:
    with contextlib.closing(Catalogs(tmp_path)) as catalogs:
        yield catalogs


def events_of(records: list[RewrittenRecord]) -> list[Event]:
    return [event for record in records for event in record.events]


def test_equal_catalogs_need_no_record(catalogs: Catalogs) -> None:
    old, new = catalogs.pair(record_of(KbCreated(slug="a", name="A"), document(1)), lost=())
    assert list(recover.remainder(old, new)) == []
    assert recover.next_ids(old) == NextIds(2, 12, 1, 1)


def test_knowledge_bases_agents_watches_and_failures_come_back_in_one_record(
    catalogs: Catalogs,
) -> None:
    watched = FolderWatched(machine="here", path="/docs", kb="default")
    failed = FileFailed(kb="default", path="/x", error="e", message="m")
    old, new = catalogs.pair(
        record_of(KbCreated(slug="b", name="B"), KbCreated(slug="c", name="C"), agent("heron")),
        record_of(FileFailed(kb="default", path="/gone", error="e", message="m")),
        record_of(KbCreated(slug="a", name="A"), KbUpdated(slug="b", name="New", description="")),
        record_of(KbDeleted(slug="c"), agent("gull"), AgentDeleted(slug="heron")),
        record_of(watched, failed, FileCleared(kb="default", path="/gone")),
        lost=(2, 3, 4),
    )
    (record,) = recover.remainder(old, new)
    assert (record.actor, record.method) == ("kbproc", "doctor")
    assert record.events == [
        KbCreated(slug="a", name="A"),
        KbUpdated(slug="b", name="New", description=""),
        KbDeleted(slug="c"),
        agent("gull"),
        AgentDeleted(slug="heron"),
        watched,
        failed,
        FileCleared(kb="default", path="/gone"),
    ]


def test_a_deleted_agent_is_written_before_it_is_deleted_so_that_its_name_stays(
    catalogs: Catalogs,
) -> None:
    old, new = catalogs.pair(
        record_of(agent("gull"), AgentDeleted(slug="gull")), record_of(agent("heron")), lost=(0,)
    )
    assert events_of(list(recover.remainder(old, new))) == [
        agent("gull"),
        AgentDeleted(slug="gull"),
    ]


def test_a_folder_that_the_old_catalog_does_not_watch_is_ended(catalogs: Catalogs) -> None:
    watched = FolderWatched(machine="here", path="/docs", kb="default")
    ended = FolderUnwatched(machine="here", path="/docs", kb="default")
    old, new = catalogs.pair(record_of(watched), record_of(ended), lost=(1,))
    assert events_of(list(recover.remainder(old, new))) == [ended]


def test_lost_documents_are_written_under_the_names_of_their_creators(
    catalogs: Catalogs,
) -> None:
    old, new = catalogs.pair(
        record_of(document(1)),
        record_of(document(2, "Two"), actor="ben"),
        record_of(document(1, "New", revision=2)),
        lost=(1, 2),
    )
    records = list(recover.remainder(old, new))
    assert [(record.actor, len(record.events)) for record in records] == [("ann", 1), ("ben", 1)]
    first, second = events_of(records)
    assert isinstance(first, DocWritten) and isinstance(second, DocWritten)
    assert (first.id, first.title, first.revision, first.first_chunk) == (1, "New", 2, 12)
    assert (second.title, second.chunks) == ("Two", [ChunkText(text="text 2 1")])


def test_a_changed_title_is_a_difference_and_a_hidden_document_is_hidden_again(
    catalogs: Catalogs,
) -> None:
    renamed = DocChanged(id=1, revision=2, title="New", tags=[], metadata={})
    old, new = catalogs.pair(
        record_of(document(1), document(2), document(3)),
        record_of(renamed, DocDeleted(id=2), DocPurged(ids=[3])),
        lost=(1,),
    )
    shared, written = recover.remainder(old, new)
    assert shared.events == [DocDeleted(id=2), DocPurged(ids=[3])]
    (event,) = written.events
    assert isinstance(event, DocWritten) and (event.id, event.title) == (1, "New")


def test_links_are_removed_before_others_are_set_and_reviews_come_back(
    catalogs: Catalogs,
) -> None:
    review = EntryReviewed(id=3, verified_by="ann", verified_at=MOMENT)
    old, new = catalogs.pair(
        record_of(entry(1), entry(2), entry(3)),
        record_of(EntrySuperseded(id=1, by=2)),
        record_of(EntryRevived(ids=[1], was=2), EntrySuperseded(id=1, by=3), review),
        lost=(2,),
    )
    (record,) = recover.remainder(old, new)
    assert record.actor == "kbproc"
    assert record.events == [
        EntryRevived(ids=[1], was=2),
        EntrySuperseded(id=1, by=3, was=2),
        review,
    ]


def test_an_outcome_under_a_token_is_kept_for_repeated_requests(catalogs: Catalogs) -> None:
    outcome = msgspec.Raw(b'{"data":1}')
    old, new = catalogs.pair(
        record_of(document(1), token="t", params_hash="ab", result=outcome),
        record_of(document(2)),
        lost=(0,),
    )
    *_, last = recover.remainder(old, new)
    assert last == RewrittenRecord("ann", "test", [], "t", "ab", "0" * 32, '{"data":1}')


def test_at_most_a_hundred_documents_go_into_a_record(catalogs: Catalogs) -> None:
    many = [document(number) for number in range(1, 102)]
    old, new = catalogs.pair(record_of(*many), lost=(0,))
    assert [len(record.events) for record in recover.remainder(old, new)] == [100, 1]


def test_lost_records_are_named_by_what_they_concerned(catalogs: Catalogs) -> None:
    events = [document(number, f"D{number}") for number in range(1, 8)]
    catalog = catalogs.of(
        seal_all([record_of(FileCleared(kb="a", path="/x")), record_of(*events)], START)
    )
    assert recover.concerned(catalog, 1, 1) == ["file.cleared a"]
    assert recover.concerned(catalog, 2, 2) == [
        *(f"document {number} “D{number}”" for number in range(1, 6)),
        "2 more",
    ]
    assert recover.concerned(catalog, 3, 9) == []


def test_the_readable_catalog_with_the_highest_position_is_copied(
    catalogs: Catalogs, tmp_path: Path
) -> None:
    views, scratch = tmp_path / "views", tmp_path / "scratch"
    views.mkdir()
    scratch.mkdir()
    assert recover.open_copy(views, scratch) is None
    records = seal_all([record_of(document(1)), record_of(document(2))], START)
    for name, count in (("catalog-1.sqlite", 2), ("catalog-2.sqlite", 1)):
        with contextlib.closing(Catalog(views / name)) as catalog:
            catalog.apply(records[:count])
            catalog.commit()
    (views / "catalog-3.sqlite").write_bytes(b"no database")
    copy = recover.open_copy(views, scratch)
    assert copy is not None
    assert copy.position == Position(2, records[-1].hash)
    copy.close()
