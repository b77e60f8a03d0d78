"""The catalog's file: who may read it, what damages it, and what it can hold."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.events.document import ChunkDeleted, ChunkText, DocDeleted
from kbproc.engine.log.record import START, seal_all
from kbproc.engine.projections.catalog.catalog import Catalog, DatabaseError, is_sound
from kbproc.engine.projections.catalog.checks import damages, is_damage
from kbproc.engine.projections.catalog.files import WAL, beside
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.lists import DocumentLists
from kbproc.engine.projections.catalog.queries import NO_WRITE, TOUCHED, Queries
from kbproc.engine.projections.catalog.reader import Sight
from kbproc.knowledge.app.library import Library
from tests.kit.catalogs import alter, reading
from tests.kit.fixed import FixedHost
from tests.kit.records import draft_of, written


def filled(path: Path, *events: Any) -> Catalog:
    catalog = Catalog(path)
    drafts = [draft_of(number, event) for number, event in enumerate(events)]
    catalog.apply(seal_all(drafts, START))
    catalog.commit()
    return catalog


@contextlib.contextmanager
def opened(path: Path, *events: Any) -> Iterator[Queries]:
    with contextlib.closing(filled(path, *events)) as catalog:
        yield catalog.queries


def test_its_files_are_private_and_no_link_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "catalog-000001.sqlite"
    with contextlib.closing(filled(path, written(1))):
        modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        assert (len(list(tmp_path.iterdir())), modes) == (2, {0o600})
    for suffix in ("", "-wal"):
        link = tmp_path / f"linked{suffix}"
        link.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(OSError, match="symbolic links"):
            Catalog(tmp_path / "linked")
        link.unlink()
    assert not (tmp_path / "elsewhere").exists()


def test_a_row_that_somebody_changed_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "one.sqlite"
    with contextlib.closing(filled(path, written(1), written(2))) as catalog:
        alter(catalog, "update documents set title = 'Other' where id = 2")
        assert catalog.queries.document(1)
        with pytest.raises(DatabaseError) as caught:
            catalog.queries.document(2)
        assert is_damage(caught.value) and catalog.damaged() == ["documents"]
    assert not is_sound(path)


def test_a_check_does_not_rest_while_it_holds_a_snapshot(tmp_path: Path) -> None:
    """The WAL is not copied beyond a snapshot, so a pause within one lets it grow."""
    with contextlib.closing(filled(tmp_path / "one.sqlite", written(1), written(2))) as catalog:
        rests_by_moment = set[tuple[bool, bool]]()
        with contextlib.closing(catalog.cursor()) as db:

            def pace(*, rests: bool = True) -> None:
                rests_by_moment.add((db.in_transaction, rests))

            assert list(damages(db, pace)) == []
        assert rests_by_moment == {(True, False), (False, True)}


def test_a_standing_instruction_that_no_conversation_says_is_damage(tmp_path: Path) -> None:
    chunks = [
        ChunkText(
            text=f"User: Always name the version.\n\nUser: From now on use {name}.", section=at
        )
        for name, at in (("uv", "turn 1"), ("pnpm", "turn 2"))
    ]
    talks = [written(n, doc_type="conversation", chunks=chunks, first_chunk=n) for n in (1, 3, 5)]
    changes = [ChunkDeleted(document_id=3, ids=[3], revision=2), DocDeleted(id=5)]
    for number, change in enumerate(
        (
            "update standing set size = size - 1 where document = 1",
            "delete from standing where document = 1 and subject = '*'",
            "update standing set document = 5 where document = 1",
        )
    ):
        catalog = filled(tmp_path / f"{number}.sqlite", *talks, *changes)
        with contextlib.closing(catalog):
            assert catalog.damaged() == []
            alter(catalog, change)
            assert catalog.damaged() == ["standing"]


def test_a_file_with_other_columns_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "one.sqlite"
    with contextlib.closing(filled(path, written(1))) as catalog:
        alter(catalog, "alter table documents add column more")
        assert catalog.damaged() == ["schema"]
    assert not is_sound(path)


def test_what_a_text_and_a_number_may_hold(tmp_path: Path) -> None:
    """NUL characters and the largest integers are kept; what no row can hold is found nowhere."""
    metadata = {"big": 2**63 - 1, "bigger": 2**80, "nul": "a\0b", "half": 0.5, "one": 1, "no": None}
    event = written(
        2**53,
        title="Ä\0b",
        chunks=[ChunkText(text="a\0b\0")],
        size_bytes=2**62,
        metadata={**metadata, "long": "x" * 500},
        tags=["a\0b"],
    )
    with opened(tmp_path / "one.sqlite", event, written(1)) as queries:
        row = queries.document(2**53)
        assert row and (row.title, row.size_bytes, row.tags) == ("Ä\0b", 2**62, ["a\0b"])
        assert queries.chunks_of(2**53)[0].text == "a\0b\0"

        def found(**conditions: Any) -> list[int]:
            return [row.id for row in queries.documents(DocumentFilter(**conditions))]

        for member in (*metadata.items(), ("long", "x" * 500), ("one", 1.0)):
            assert found(metadata=dict([member])) == [2**53], member
        for member in (("big", 2**63 - 2), ("big", float(2**63)), ("one", True), ("one", "1")):
            assert found(metadata=dict([member])) == [], member
        assert found(title_contains="ä\0B") == found(tags=["a\0b"]) == [2**53]
        for nowhere in ({"ids": [2**70, -(2**70)]}, {"path": "\ud800"}, {"kbs": ["\udfff"]}):
            assert found(**nowhere) == []
        assert found(ids=range(1, 5000)) == [1] and found(not_ids=range(2, 5000)) == [1, 2**53]
        assert queries.document(2**70) is None


def test_a_long_list_can_be_passed_in_each_read(tmp_path: Path) -> None:
    """The end of the read, or a refused write, removes its temporary table."""
    path = tmp_path / "one.sqlite"
    with contextlib.closing(filled(path, written(1), written(2))) as catalog:
        reader = Queries(catalog.cursor())
        for _ in range(20):  # more than there are tables
            reader.begin()
            assert [*reader.documents_by_id(range(2, 3000))] == [2]
            reader.end()
            with contextlib.suppress(ValueError), catalog.savepoint():
                assert [*catalog.queries.documents_by_id(range(2, 3000))] == [2]
                raise ValueError
            catalog.rollback()


def test_a_path_begins_with_a_prefix_text_by_text(tmp_path: Path) -> None:
    paths = ["/a", "/a/b", "/a/Ä", "/a/\U0010ffff", "/a\U0010ffff", "/b", "/a0"]
    events = [written(n, path=path) for n, path in enumerate(paths, 1)]
    with opened(tmp_path / "one.sqlite", *events) as queries:
        for prefix in ("/a", "/a/", "/a/\U0010ffff", "/a\ud7ff", "", "/c"):
            rows = queries.documents(DocumentFilter(path_prefix=prefix))
            assert [row.path for row in rows] == [path for path in paths if path.startswith(prefix)]


def test_counters_count_what_a_caller_may_see(tmp_path: Path) -> None:
    events = [
        written(n, kb=("default", "team", "notes/ann")[n % 3], tags=["all", f"t{n % 2}"])
        for n in range(1, 13)
    ]
    events += [DocDeleted(id=3), written(4, kb="team", revision=2, tags=["new"])]
    with opened(tmp_path / "one.sqlite", *events) as queries:
        assert queries.miscounted() == []
        for sight in (
            Sight(),
            Sight(kbs=("team",)),
            Sight(kbs=(), notes=("ann",)),
            Sight(kbs=("default",), notes=()),
            Sight(notes=()),
            Sight(kbs=("te'am", "team"), notes=("ann",), entries=False),
        ):
            queries.see(sight)
            rows = queries.documents(DocumentFilter())
            assert queries.count(DocumentFilter()) == len(rows) == queries.chunk_total()
            tags = sorted({tag for row in rows for tag in row.tags})
            assert [name for name, _, _ in queries.tags(None, "", 99)] == tags
            assert all(sight.shows(row.kb, row.type) for row in rows)
            assert len(queries.chunks(range(1, 13))) == len(rows)
            hits = queries.hit_rows(range(1, 13)).values()
            expected = [(row.id, row.kb, row.tags) for row in rows]
            assert sorted((hit.document_id, hit.kb, hit.tags) for hit in hits) == expected


def test_the_wal_is_bounded_and_goes_with_the_last_connection(tmp_path: Path) -> None:
    path = tmp_path / "one.sqlite"
    with contextlib.closing(filled(path, written(1))) as catalog:
        reader = Queries(catalog.cursor())
        for number in range(2, 200):
            text = ChunkText(text="x" * 300_000)
            catalog.apply(seal_all([draft_of(number, written(number, chunks=[text]))], START))
            catalog.commit()
            reader.begin()
            reader.end()
            if catalog.needs_checkpoint:
                catalog.checkpoint()
        assert beside(path, WAL).stat().st_size < 40 << 20
        reader.begin()  # needs the WAL's end as it is before the next commit
        for number in range(200, 260):
            text = ChunkText(text="x" * 300_000)
            catalog.apply(seal_all([draft_of(number, written(number, chunks=[text]))], START))
            catalog.commit()
        catalog.checkpoint()
        reader.end()
        for number in range(260, 265):  # some 2 MB, after which it is tried again
            catalog.apply(seal_all([draft_of(number, written(number, chunks=[text]))], START))
            catalog.commit()
        assert catalog.needs_checkpoint
        catalog.checkpoint()
        catalog.commit()
        assert not catalog.needs_checkpoint
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_commit_writes_few_pages_and_every_index_answers(tmp_path: Path) -> None:
    """A commit writes a page of each index that its rows are in, so a lone write pays for each."""
    path = tmp_path / "one.sqlite"
    many = [written(n, tags=["all", "some"], metadata={"n": n}) for n in range(1, 2001)]
    with contextlib.closing(filled(path, *many)) as catalog:
        size, commits = beside(path, WAL).stat().st_size, 20
        for n in range(2001, 2001 + commits):
            draft = draft_of(n, written(n, tags=["all", "some"]))
            catalog.apply(seal_all([draft], catalog.position))
            catalog.commit()
        assert (beside(path, WAL).stat().st_size - size) / commits < 72_000
        plan = {
            name: catalog.queries._rows(f"explain query plan {sql}")[0][3]
            for name, sql in {
                "purges": f"select max(seq) from events where type = 'purge.ended' and {NO_WRITE}",
                "records": "select seq, ts from events where seq >= 7 limit 1",
                "touched": TOUCHED.replace("?", "7"),
                "token": "select * from tokens where token = 'a' order by seq desc limit 1",
                "pieces": "select * from pieces where message_id = 1 order by seq, idx",
            }.items()
        }
        assert [name for name, way in plan.items() if not way.startswith("SEARCH")] == []


def test_a_filter_is_cheap_whatever_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite does few steps for a page, whether many documents or one meet the filter."""
    monkeypatch.setattr("kbproc.engine.projections.catalog.queries._FEW", 100)
    count = 4000
    events = [
        written(
            n,
            kb="rare" if n == 77 else "default",
            tags=["all", f"t{n}"],
            metadata={"n": n, "same": True},
        )
        for n in range(1, count)
    ]
    filters: dict[str, Any] = {
        "many by tag": {"tags": ["all"]},
        "one by tag": {"tags": [f"t{count - 1}"]},
        "any tag": {"tags": ["all", "t5"], "tags_mode": "any"},
        "one by metadata": {"metadata": {"n": count - 1}},
        "many by metadata": {"metadata": {"same": True}},
        "a hidden kb": {"kbs": ["default"]},
        "many by type": {"types": ["text"]},
        "many by date": {"created_after": "2000"},
        "many by change": {"updated_after": "2000"},
        "none by change": {"updated_after": "2100"},
    }
    with opened(tmp_path / "one.sqlite", *events) as queries:
        for sight in (Sight(), Sight(kbs=("rare",), notes=())):
            queries.see(sight)
            for name, conditions in filters.items():
                steps = list[int]()
                queries._db.set_progress_handler(lambda: steps.append(1), 100)  # noqa: B023
                rows = queries.documents(DocumentFilter(**conditions), limit=3)
                queries._db.set_progress_handler(None, 0)
                assert len(steps) < 40, (name, sight)
                is_met = name.startswith(("many", "any")) or sight == Sight()
                assert bool(rows) == (is_met and not name.startswith("none")), name
            assert queries.count(DocumentFilter(tags=["all"])) == (
                count - 1 if sight == Sight() else 1
            )


def test_a_list_of_documents_follows_what_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A known list is brought up to date without a look at the other documents."""
    path, lists = tmp_path / "one.sqlite", DocumentLists()
    filters = [
        DocumentFilter(tags=["odd"]),
        DocumentFilter(metadata={"big": 2**80}),
        DocumentFilter(types=["text"], not_ids=[2]),
        DocumentFilter(kbs=["team"]),
    ]
    sights = [Sight(), Sight(kbs=("team",), notes=())]
    many = [
        written(
            n, kb=("team", "other")[n % 2], tags=["odd"] if n % 3 else [], metadata={"big": 2**80}
        )
        for n in range(1, 40)
    ]
    changes: list[list[Any]] = [
        [DocDeleted(id=4), written(5, kb="team", revision=2, tags=["new"])],
        [written(40, kb="team", tags=["odd"]), written(3, kb="other", revision=2, tags=["odd"])],
        [],
    ]
    with contextlib.closing(filled(path, *many)) as catalog:
        for events in changes:
            for sight in sights:
                catalog.queries.see(sight)
                for filter in filters:
                    ids = lists.ids(catalog.queries, filter, catalog.position.seq).tolist()
                    assert ids == catalog.queries.document_ids(filter).tolist(), (filter, sight)
            for event in events:
                draft = draft_of(catalog.position.seq, event)
                catalog.apply(seal_all([draft], catalog.position))
        monkeypatch.setattr(Queries, "document_ids", None)
        catalog.queries.see(sights[0])
        assert len(lists.ids(catalog.queries, filters[0], catalog.position.seq)) == 26


def test_the_records_of_a_moment_are_found(tmp_path: Path) -> None:
    """Their times never go back; many records may have one."""
    stamps = [f"2026-01-0{day}T00:00:00Z" for day in (1, 2, 2, 2, 4, 4, 7)]
    path = tmp_path / "one.sqlite"
    with contextlib.closing(Catalog(path)) as catalog:
        drafts = [
            msgspec.structs.replace(draft_of(n, written(n)), ts=ts)
            for n, ts in enumerate(stamps, 1)
        ]
        catalog.apply(seal_all(drafts, START))
        for day in range(9):
            ts = f"2026-01-0{day}T00:00:00Z"
            assert catalog.queries.seq_at(ts) == sum(stamp <= ts for stamp in stamps)
            assert catalog.queries.seq_at(ts, before=True) == sum(stamp < ts for stamp in stamps)
        assert [catalog.queries.ts_of(seq) for seq in (0, 4, 9)] == ["", stamps[3], stamps[-1]]


def test_a_moved_catalog_leaves_the_files_of_its_successor_alone(tmp_path: Path) -> None:
    """SQLite removes a WAL by its name, which may be another store's by then."""
    views = tmp_path / "views"
    path = views / "catalog-000001.sqlite"
    moved = filled(path, written(1))
    views.rename(tmp_path / "moved")
    with contextlib.closing(filled(path, written(1), written(2))) as other:
        with reading(moved) as queries:
            assert len(queries.documents(DocumentFilter())) == 1
        moved.close()
        assert beside(path, WAL).exists()
        with reading(other) as queries:
            assert len(queries.documents(DocumentFilter())) == 2


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("_OLDEST", (99, 1), r", and 99\.1 or newer is needed\.$"),
        ("_VFS", "other", r", built without other\.$"),
        ("_VFS", "unix-dotfile", r", built without a write-ahead log\.$"),
        ("sqlite3.threadsafety", 0, r", built for a single thread\.$"),
    ],
)
def test_what_a_sqlite_lacks_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: Any, message: str
) -> None:
    monkeypatch.setattr(f"kbproc.engine.projections.catalog.catalog.{name}", value)
    with pytest.raises(KbprocError, match=rf"^Python's SQLite is 3\.[\d.]+{message}") as caught:
        Library.open(tmp_path / "store", host=FixedHost(), cache=tmp_path / "cache")
    assert caught.value.type == "store.incompatible" and "another Python" in caught.value.hint


def test_what_the_indexes_ask_for_reads_no_whole_table(tmp_path: Path) -> None:
    """An order by id would make SQLite read all documents, or all chunks, in that order."""
    statements: list[str] = []
    with opened(tmp_path / "one.sqlite", *map(written, range(1, 9))) as queries:
        queries._db.set_trace_callback(statements.append)
        assert list(queries.touched_since(0)) == list(range(1, 9))
        assert [row.document_id for row in queries.index_rows([3, 2])] == [2, 3]
        assert queries.hit_rows([4]).keys() == {4}
        queries._db.set_trace_callback(None)
        plans = [queries._db.execute(f"explain query plan {sql}").fetchall() for sql in statements]
    assert len(plans) == 3
    scanned = {row[3] for plan in plans for row in plan if "SCAN" in row[3]}
    assert not {row for row in scanned if "documents" in row or "chunks" in row}
