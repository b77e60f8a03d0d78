"""The catalog's file: who may read it, what damages it, and what it can hold."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.events.document import ChunkText, DocDeleted
from kbproc.engine.log.record import START, seal_all
from kbproc.engine.projections.catalog.catalog import Catalog, DatabaseError, is_sound
from kbproc.engine.projections.catalog.checks import is_damage
from kbproc.engine.projections.catalog.files import WAL, beside
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.reader import Sight
from kbproc.knowledge.app.library import Library
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
        catalog.cursor().execute("update documents set title = 'Other' where id = 2")
        assert catalog.queries.document(1)
        with pytest.raises(DatabaseError) as caught:
            catalog.queries.document(2)
        assert is_damage(caught.value) and catalog.damaged() == ["documents"]
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
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_moved_catalog_leaves_the_files_of_its_successor_alone(tmp_path: Path) -> None:
    """SQLite removes a WAL by its name, which may be another store's by then."""
    views = tmp_path / "views"
    path = views / "catalog-000001.sqlite"
    moved = filled(path, written(1))
    views.rename(tmp_path / "moved")
    with contextlib.closing(filled(path, written(1), written(2))) as other:
        assert len(Queries(moved.cursor()).documents(DocumentFilter())) == 1
        moved.close()
        assert beside(path, WAL).exists()
        assert len(Queries(other.cursor()).documents(DocumentFilter())) == 2


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
