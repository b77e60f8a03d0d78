"""The store: disposable views, consistent reads, one owner."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import tantivy

from kbproc.base.errors import KbprocError
from kbproc.engine.events.kb import KbCreated
from kbproc.engine.log.record import Position
from kbproc.engine.projections.catalog.catalog import Catalog
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.engine.projections.catalog.queries import Queries
from kbproc.engine.projections.catalog.reader import Sight
from kbproc.engine.projections.catalog.rows import IndexRow
from kbproc.engine.projections.fulltext.search import FullTextSnapshot
from kbproc.engine.sources.blobs import digest
from kbproc.engine.store import rebuild
from kbproc.engine.store.folder import FORMAT, read_settings, size_of, write_settings
from kbproc.engine.store.snapshot import Readers
from kbproc.engine.store.store import Store
from kbproc.knowledge.app.health import doctor, secrets
from kbproc.knowledge.app.health.doctor import compare
from kbproc.knowledge.app.library import Library
from tests.conftest import OpenSession
from tests.kit.catalogs import alter
from tests.kit.corpus import answers, change, confirmed, fill, listed
from tests.kit.fixed import FixedHost
from tests.kit.patience import PATIENCE, until
from tests.kit.sources import harm
from tests.kit.talk import REPO, Process, Session

# --------------------------------------------------------------------------- opening


def test_a_new_store(session: Session) -> None:
    folder = session.store.folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name for path in folder.iterdir()} >= {"store.toml", "lock", "log", "views"}
    assert session.data("kb.list")[0]["slug"] == "default"
    assert session.data("ping") == {"seq": 1}
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or path.is_dir(), path


def test_reopening_gives_the_same(open_session: OpenSession) -> None:
    one = open_session()
    fill(one)
    change(one)
    one.library.compact()
    before = answers(one), listed(one), one.store.seq
    one.close()
    two = open_session()
    two.embedded()
    assert (answers(two), listed(two), two.store.seq) == before
    new = two.data("doc.create", title="New", text="x")
    assert new["id"] == 10, "ids are never used again"


def test_without_its_views_it_answers_the_same_bytes(open_session: OpenSession) -> None:
    one = open_session()
    fill(one)
    change(one)
    one.library.compact()
    before = answers(one), listed(one)
    one.close()
    shutil.rmtree(one.store.folder / "views")
    two = open_session()
    assert two.library.embedding.pending_count == 0, "nothing is embedded again"
    assert (answers(two), listed(two)) == before


def test_views_of_former_engines_go_with_the_first_opening(open_session: OpenSession) -> None:
    """They hold texts, and no purge knows them."""
    one = open_session()
    one.close()
    views = one.store.folder / "views"
    names = ("catalog.duckdb", "catalog-000001.duckdb.wal", "front/page", "sql/000007.duckdb")
    for path in map(views.joinpath, names):
        path.parent.mkdir(exist_ok=True)
        path.write_text("a text")
    open_session()
    assert [path.name for path in views.rglob("*") if path.name in {"front", "page"}] == []
    assert list(views.rglob("*.duckdb*")) == []


def test_without_its_vectors_it_embeds_again(open_session: OpenSession) -> None:
    one = open_session()
    fill(one)
    one.library.compact()
    before = answers(one)
    one.close()
    shutil.rmtree(one.store.folder / "vectors")
    two = open_session()
    two.embedded()
    assert answers(two) == before


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(os.urandom(5000))


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def gone(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


HARMS = [
    *(("catalog-000001.sqlite", harm) for harm in (gone, empty, garbage, half)),
    *(("fulltext", harm) for harm in (gone, garbage, half)),
    ("fulltext/current.json", gone),
    ("fulltext/current.json", half),
    ("vectors.manifest", gone),
    ("vectors.manifest", garbage),
]


def test_a_damaged_view_is_made_again(
    open_session: OpenSession, tmp_path: Path, bench: Catalog, subtests: pytest.Subtests
) -> None:
    one = open_session()
    fill(one, 2)
    one.library.compact()
    before = answers(one), listed(one)
    one.close()
    sound, store = tmp_path / "sound", one.store.folder
    store.rename(sound)

    def check(harmed: tuple[str, Callable[[Path], None]]) -> None:
        view, harm = harmed
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(sound, store)
        path = store / "views" / view
        assert path.exists()
        if path.is_dir():
            for file in [path] if harm is gone else list(path.rglob("*.*")):
                harm(file)
        else:
            harm(path)
        two = open_session()
        two.embedded()
        two.library.compact()
        assert (answers(two), listed(two)) == before
        two.data("doc.create", title="New", text="x")
        two.embedded()
        assert not any(doctor.compare(two.store, bench).values())
        two.close()

    for harmed in HARMS:
        with subtests.test(f"{harmed[0]} {harmed[1].__name__}"):
            check(harmed)


def test_a_catalog_of_another_shape_is_made_again(open_session: OpenSession) -> None:
    one = open_session()
    fill(one, 4)
    before = listed(one)
    one.close()
    path = one.store.folder / "views" / "catalog-000001.sqlite"
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("create table head(something text)")
    assert listed(open_session()) == before


def test_a_catalog_with_other_columns_is_made_again(open_session: OpenSession) -> None:
    one = open_session()
    fill(one, 4)
    before = listed(one)
    one.close()
    path = one.store.folder / "views" / "catalog-000001.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("update local set value = 'of other columns' where name = 'schema'")
        db.commit()
    assert listed(open_session()) == before


def test_an_older_catalog_version_is_made_again(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kbproc.engine.projections.catalog import tables

    one = open_session()
    fill(one, 4)
    before = listed(one)
    one.close()
    monkeypatch.setattr(tables, "CATALOG_VERSION", 999)
    two = open_session()
    assert listed(two) == before
    two.close()


def test_a_catalog_that_lags_behind_catches_up(open_session: OpenSession, tmp_path: Path) -> None:
    """The catalog catches up after a crash between the log's fsync and the views' commits."""
    one = open_session()
    fill(one, 4)
    one.close()
    views = one.store.folder / "views"
    shutil.copytree(views, tmp_path / "older")
    two = open_session()
    change_few(two)
    two.library.compact()
    before = answers(two), listed(two)
    two.close()
    for lagging in ("catalog-000001.sqlite", "fulltext", "vectors.manifest"):
        target, older = views / lagging, tmp_path / "older" / lagging
        gone(target)
        shutil.copytree(older, target) if older.is_dir() else shutil.copy(older, target)
        again = open_session()
        again.embedded()
        again.library.compact()
        assert (answers(again), listed(again)) == before, lagging
        again.close()


def change_few(session: Session) -> None:
    session.data("doc.update", id=1, text="git branch")
    confirmed(session, "doc.delete", ids=[2])
    session.data("doc.create", title="Late", text="nightly mirror")
    session.embedded()


def test_a_log_that_was_cut_is_not_served(open_session: OpenSession, tmp_path: Path) -> None:
    one = open_session()
    fill(one, 4)
    one.close()
    [segment] = (one.store.folder / "log").iterdir()
    data = segment.read_bytes()
    segment.write_bytes(data[: data.rstrip(b"\n").rfind(b"\n") + 1])
    assert refused("store.corrupt", one.store.folder).detail["expected_seq"] == 6
    gone(one.store.folder / "views" / "catalog-000001.sqlite")
    refused("store.corrupt", one.store.folder)
    segment.write_bytes(data)


def refused(type: str, folder: Path, **options: Any) -> KbprocError:
    with pytest.raises(KbprocError) as error:
        Library.open(folder, host=FixedHost(), cache=folder.parent / "cache", **options)
    assert error.value.type == type, error.value.message
    return error.value


@pytest.mark.parametrize("end", ["killed", "copied", "closed"])
def test_half_written_sources_go_unless_the_last_process_ended_well(
    open_session: OpenSession, tmp_path: Path, end: str
) -> None:
    one = open_session()
    one.data("doc.create", title="A", text="alpha")
    one.close()
    store = one.store.folder
    half = store / "sources" / "large" / "half.tmp"
    half.parent.mkdir()
    half.write_bytes(b"half")
    if end == "killed":
        (store / "lock").write_text("17\n")
    elif end == "copied":
        store = Path(shutil.copytree(store, tmp_path / "copy"))
    two = Session(store, cwd=tmp_path)
    leftovers = list((store / "sources").glob("*/*.tmp"))
    two.close()
    assert len(leftovers) == (end == "closed"), "then there is none, and nobody looks"


def test_a_second_opener_is_told_who_holds_it(session: Session) -> None:
    error = refused("store.locked", session.store.folder)
    assert "4242" in error.message
    assert error.row.retryable is True
    assert error.retry_after_ms


def test_another_process_is_locked_out_until_the_first_ends(open_session: OpenSession) -> None:
    one = open_session()
    code = (
        "import sys; from pathlib import Path; from kbproc.base.errors import KbprocError\n"
        "from kbproc.base.host import Host; from kbproc.knowledge.app.library import Library\n"
        "folder = Path(sys.argv[1])\n"
        "try:\n    Library.open(folder, host=Host(), cache=folder.parent / 'cache').close()\n"
        "except KbprocError as error:\n    sys.exit(error.type)\n"
    )
    command = [sys.executable, "-c", code, str(one.store.folder)]
    first = subprocess.run(command, capture_output=True, text=True, cwd=REPO, check=False)
    assert first.stderr.strip() == "store.locked"
    one.close()
    second = subprocess.run(command, capture_output=True, text=True, cwd=REPO, check=False)
    assert (second.returncode, second.stderr) == (0, "")


def test_a_failed_opening_leaves_no_lock(open_session: OpenSession) -> None:
    one = open_session()
    one.close()
    toml = one.store.folder / "store.toml"
    settings = toml.read_text()
    toml.write_text(settings.replace("format = 2", "format = 3"))
    assert "format 3" in refused("store.incompatible", one.store.folder).message
    toml.write_text("format = ")
    refused("store.corrupt", one.store.folder)
    toml.write_text(settings.split("[model]")[0] + '[model]\nkind = "psychic"\n')
    refused("input.invalid_params", one.store.folder)
    toml.write_text(settings.split("[model]")[0] + "model = 3\n")
    refused("input.invalid_params", one.store.folder)
    toml.write_text(settings)
    open_session()


@pytest.mark.parametrize(
    ("text", "type", "reason"),
    [
        ("format = 2\nmodel = =\n", "store.corrupt", "line 2"),
        ("format = 2\na = " + "[" * 3000 + "]" * 3000, "store.corrupt", "nested too deeply"),
        ("\xff", "store.corrupt", "not UTF-8"),
        ("", "store.corrupt", "names no format"),
        ("format = 3\n", "store.incompatible", "format 3"),
        (None, "store.io", "Is a directory"),
    ],
    ids=["no TOML", "nested", "no text", "empty", "newer", "a folder"],
)
def test_settings_that_can_not_be_read(
    tmp_path: Path, text: str | None, type: str, reason: str
) -> None:
    path = tmp_path / "store.toml"
    path.mkdir() if text is None else path.write_bytes(text.encode("latin-1"))
    with pytest.raises(KbprocError) as error:
        read_settings(path, None)
    assert (error.value.type, reason in error.value.message) == (type, True), error.value.message
    assert str(path) in error.value.message or type == "store.incompatible"


@pytest.mark.parametrize("name", ["blobs", "blobs.journal", None])
def test_a_store_from_before_the_first_release(tmp_path: Path, name: str | None) -> None:
    """The error names the commit that exports it, because no later one reads it."""
    path = tmp_path / "store.toml"
    path.write_text(f"format = {1 if name is None else FORMAT}\n")
    if name is not None:
        (tmp_path / name).touch()
    with pytest.raises(KbprocError) as error:
        read_settings(path, None)
    assert error.value.type == "store.incompatible"
    assert "commit fce81a0b of kbproc exports it (kbproc store export FILE)" in (
        error.value.hint or ""
    )


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    refused("store.io", tmp_path / "file" / "store")


def test_the_model_is_the_stores(open_session: OpenSession) -> None:
    one = open_session()
    one.close()
    two = open_session(model="none")
    assert two.store.settings["model"] == {"kind": "hash", "name": "hash"}


# -------------------------------------------------------------------------- reading


def put(store: Store, slug: str) -> int:
    def work(lane: Any) -> int:
        return int(lane.append([KbCreated(slug=slug, name=slug)], actor="a", method="m"))

    return store.commit(work)


def test_a_reader_sees_one_position_while_writes_go_on(session: Session) -> None:
    store = session.store
    session.data("doc.create", title="A", text="alpha")
    with store.searching() as snapshot:
        before = snapshot.queries.head().seq, snapshot.fulltext.num_docs
        writer = threading.Thread(
            target=lambda: (
                [put(store, f"kb-{n}") for n in range(5)]
                + [session.data("doc.create", title="B", text="beta")]
            )
        )
        writer.start()
        writer.join()
        assert (snapshot.queries.head().seq, snapshot.fulltext.num_docs) == before
        assert snapshot.seq == before[0]
        assert snapshot.queries.kb_slugs() == ["default"]
        assert snapshot.queries.chunk_total() == 1
    with store.searching() as snapshot:
        assert snapshot.queries.head().seq == snapshot.seq == before[0] + 6
        assert snapshot.fulltext.num_docs == 2


def test_readings_may_be_nested(session: Session) -> None:
    """A service that reads may call another one that reads."""
    with session.store.reading() as outer:
        seq = outer.queries.head().seq
        with session.store.reading() as inner:
            assert inner.queries.head().seq == seq
        assert outer.queries.head().seq == seq


def test_both_sides_of_a_snapshot_show_the_same_position(session: Session) -> None:
    """Catalog, full-text index and vectors agree in every read beside a writer."""
    store, wrong = session.store, list[Any]()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            with store.searching() as snapshot:
                chunks = snapshot.queries.chunk_total()
                assert snapshot.vectors is not None
                positions = {
                    snapshot.seq,
                    snapshot.queries.head().seq,
                    snapshot.vectors.position.seq,
                }
                if chunks != snapshot.fulltext.num_docs or len(positions) > 1:
                    wrong.append((chunks, snapshot.fulltext.num_docs, positions))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for n in range(12):
        session.data("doc.create", title=f"T{n}", text="some text")
    confirmed(session, "doc.delete", ids=[1, 2, 3])
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []


def test_a_client_that_waits_reads_its_own_writes(session: Session) -> None:
    for n in range(10):
        document = session.data("doc.create", title=f"T{n}", text=f"unique{n} word")
        assert session.data("doc.get", id=document["id"])["title"] == f"T{n}"
        assert session.data("search", query=f"unique{n}", mode="fts")["total_matches"] == 1
        confirmed(session, "doc.delete", ids=[document["id"]])
        assert session.data("search", query=f"unique{n}", mode="fts")["total_matches"] == 0


def test_min_seq_waits_for_the_position(session: Session) -> None:
    store = session.store
    waited = threading.Thread(target=lambda: session.data("ping", min_seq=store.seq + 1))
    waited.start()
    put(store, "aa")
    waited.join(PATIENCE)
    assert not waited.is_alive()


def test_rebuilding_changes_nothing_and_reads_go_on(session: Session) -> None:
    fill(session)
    change(session)
    session.library.compact()
    before, done, failed = answers(session), threading.Event(), list[Any]()
    store = session.store

    def read() -> None:
        while not done.is_set():
            with store.searching() as snapshot:
                counts = snapshot.queries.chunk_total(), snapshot.fulltext.num_docs
                if counts[0] != counts[1] or not counts[0]:
                    failed.append(counts)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(3):
        session.data("index.rebuild")
    done.set()
    reader.join()
    assert failed == []
    assert answers(session) == before


def test_a_rebuild_that_fails_leaves_what_was(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(session, 4)
    session.library.compact()
    before = answers(session)

    def fail(*arguments: Any) -> None:
        raise KbprocError("store.io", "no")

    with monkeypatch.context() as patch:
        patch.setattr(session.store.fulltext, "build", fail)
        assert session.error("index.rebuild")["type"] == "store.io"
    with monkeypatch.context() as patch:
        patch.setattr("kbproc.engine.projections.catalog.catalog.Catalog.apply", fail)
        assert session.error("index.rebuild")["type"] == "store.io"
    assert answers(session) == before
    session.data("doc.create", title="New", text="x")


def test_a_retired_catalog_is_closed_once(session: Session) -> None:
    """The last two readers give their connections back at the same moment."""
    session.data("doc.create", title="A", text="x")
    closed, together = list[str](), threading.Barrier(2)

    class Counted:
        def cursor(self) -> Any:
            return session.store.catalog.cursor()

        def close(self) -> None:
            closed.append("closed")

    readers = Readers(Counted())  # type: ignore[arg-type]
    lent = [readers.borrow(), readers.borrow()]
    readers.retire()
    for queries in lent:
        queries.close = together.wait  # type: ignore[method-assign,assignment]
    threads = [threading.Thread(target=readers.give_back, args=[queries]) for queries in lent]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert closed == ["closed"]


def test_a_read_outlives_the_end_of_its_store(session: Session) -> None:
    session.data("doc.create", title="A", text="x")
    session.connection.end(PATIENCE)
    with session.store.reading() as snapshot:
        closing = threading.Thread(target=session.library.close)
        closing.start()
        until(lambda: session.store.readers._retired, "the store retires its catalog")
        assert [row.title for row in snapshot.queries.documents(DocumentFilter())] == ["A"]
    closing.join(PATIENCE)
    assert not closing.is_alive()
    with pytest.raises(KbprocError, match="the store is closed"), session.store.reading():
        pass


# ------------------------------------------------------------------------- idle work


def test_the_dead_are_forgotten_once_idle(session: Session) -> None:
    """Deleted chunks count in BM25's statistics until the index is compacted."""
    for n in range(12):
        session.data("doc.create", title=f"T{n}", text=f"alpha beta gamma {n}")
    session.store.catch_up()
    confirmed(session, "doc.delete", where={"title_contains": "T1"})
    store = session.store
    store.catch_up()
    assert store.fulltext.dead_ratio > 0.02
    session.library.tidy()
    assert store.fulltext.dead_ratio == 0.0
    before = session.data("search", query="alpha", mode="fts")
    session.data("index.rebuild")
    assert session.data("search", query="alpha", mode="fts") == before


def test_no_scan_keeps_the_wal_from_being_copied(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan goes by pages and holds no state between two of them, so the WAL stays small.

    What is indexed beside writes is read before its words are found.
    """
    fill(session, 30)
    store, copied = session.store, dict[str, bool]()

    def write_beside(scan: str) -> None:
        session.data("doc.create", title=scan, text=f"beside {scan}")
        with store.lane():
            sql = "pragma wal_checkpoint(passive)"
            _, frames, copied_frames = store.catalog._db.execute(sql).fetchall()[0]
            copied[scan] = frames == copied_frames

    def build(rows: Iterable[IndexRow], position: Position) -> Any:
        rows = iter(rows)
        first = next(rows)
        write_beside("compaction")
        return built(itertools.chain([first], rows), position)

    def read(*bounds: int) -> Any:
        if not bounds:
            write_beside("doctor")
        return records(*bounds)

    def commit() -> None:
        write_beside("indexing")
        committed()

    built, records, committed = store.fulltext.build, store.log.read, store.fulltext.commit
    with monkeypatch.context() as patched:
        patched.setattr(store.fulltext, "commit", commit)
        store.catch_up()
    monkeypatch.setattr(store.fulltext, "build", build)
    rebuild.compact(store)
    assert session.data("search", query="compaction", mode="fts")["total_matches"] == 1
    monkeypatch.setattr(secrets, "_BATCH_CHARS", 1)
    batches = secrets._batches(store)
    next(batches)
    write_beside("search for secrets")
    monkeypatch.setattr(store.log, "read", read)
    problems = compare(store)
    assert {view: wrong for view, wrong in problems.items() if wrong} == {}
    scans = "indexing", "compaction", "search for secrets", "doctor"
    assert copied == dict.fromkeys(scans, True)


def test_few_dead_are_left_alone(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n\n".join(f"alpha beta gamma {n} " * 60 for n in range(60))
    session.data("doc.create", title="Long", text=text)
    session.data("doc.create", title="Short", text="x")
    session.library.compact()
    confirmed(session, "doc.delete", ids=[2])
    session.store.catch_up()
    assert 0 < session.store.fulltext.dead_ratio <= 0.02
    monkeypatch.setattr(rebuild, "compact", lambda store: pytest.fail("not worth it"))
    session.library.tidy()


def test_tidying_beside_writers(session: Session) -> None:
    done = threading.Event()

    def tidy() -> None:
        while not done.is_set():
            session.library.tidy()

    tidying = threading.Thread(target=tidy)
    tidying.start()
    for n in range(8):
        document = session.data("doc.create", title=f"T{n}", text="alpha")
        if n % 2:
            confirmed(session, "doc.delete", ids=[document["id"]])
        expected = n // 2 + 1
        assert session.data("search", query="alpha", mode="fts")["total_matches"] == expected
    done.set()
    tidying.join()


# ------------------------------------------------------------------- views that fail


def fail(*arguments: Any) -> None:
    raise KbprocError("store.io", "The disk is full.")


def test_if_a_view_fails_after_the_fsync_the_write_is_kept(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = open_session()
    fill(one, 4)
    before = listed(one)
    with monkeypatch.context() as patch:
        patch.setattr(one.store.catalog, "commit", fail)
        error = one.error("kb.update", slug="default", name="kept")
        assert error["type"] == "store.io"
        assert error["detail"] == {"kept": True}
        assert not error["retryable"], "it would be done twice"
        error = one.error("doc.create", title="Refused", text="x")
        assert error["type"] == "store.io"
        assert error["detail"] == {"kept": False}
        assert error["retryable"]
        assert listed(one) == before, "reads go on"
    one.close()
    two = open_session()
    assert "kept" in {kb["name"] for kb in two.data("kb.list")}


def test_a_catalog_that_can_not_follow_keeps_nobody_from_reading(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write is in the log by then; later writes are refused until the catalog has it."""
    one = open_session()
    fill(one, 4)
    before = listed(one)
    with monkeypatch.context() as patch:
        patch.setattr(one.store.catalog, "commit", fail)
        error = one.error("doc.create", title="Kept", text="kept words")
        assert (error["type"], error["detail"]) == ("store.io", {"kept": True})
        assert listed(one) == before, "reads go on"
        [notice] = one.ask("doc.list")["result"]["meta"]["notice"]
        assert notice.startswith("1 write can't be shown yet, and nothing is lost: ")
        error = one.error("doc.create", title="Refused", text="x")
        assert (error["type"], error["detail"]) == ("store.io", {"kept": False})
        assert listed(one) == before
    one.data("doc.create", title="Next", text="next words")
    assert "notice" not in one.ask("doc.list")["result"]["meta"]
    assert [doc["title"] for doc in one.data("doc.list")][-2:] == ["Kept", "Next"]
    assert one.data("search", query="kept", mode="fts")["total_matches"] == 1
    one.close()
    two = open_session()
    assert [doc["title"] for doc in two.data("doc.list")][-2:] == ["Kept", "Next"]


def where(thread: threading.Thread) -> str:
    """Name of the function that the thread is in."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "" if frame is None else frame.f_code.co_name


def test_searches_that_wait_together_share_a_commit(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One commits for all; the snapshots of these are of one position, and lack nothing."""
    store, threads = session.store, 6
    session.data("doc.create", title="First", text="first words")
    session.data("search", query="first", mode="fts")
    commits, answers_of, arrived = 0, list[Any](), threading.Barrier(threads + 1)
    real = store.fulltext.commit

    def commit() -> None:
        nonlocal commits
        commits += 1
        if commits == 1:
            arrived.wait(PATIENCE)
            until(lambda: len(store._waiters) == threads + 1, "searches that wait")
            session.data("doc.create", title="Third", text="third words")
        real()

    def search() -> None:
        arrived.wait(PATIENCE)
        with store.searching() as snapshot:
            ids = sorted(documents_of(snapshot.fulltext, "words"))
            answers_of.append((snapshot.seq, ids, len(snapshot.unindexed)))

    session.data("doc.create", title="Second", text="second words")
    monkeypatch.setattr(store.fulltext, "commit", commit)
    others = [threading.Thread(target=search) for _ in range(threads)]
    for other in others:
        other.start()
    with store.searching() as snapshot:
        assert documents_of(snapshot.fulltext, "third") == []
        assert (snapshot.seq, snapshot.unindexed) == (store.seq - 1, {})
    for other in others:
        other.join()
    assert answers_of == [(store.seq, [1, 2, 3], 0)] * threads
    assert commits == 2


def documents_of(fulltext: FullTextSnapshot, word: str) -> list[int]:
    term = tantivy.Query.term_query(fulltext.schema, "word", word)
    return fulltext.column("document_id", fulltext.searcher.search(term, 9).hits)


def test_a_read_keeps_the_index_that_it_began_with(session: Session) -> None:
    """A rebuild does not change the index of a running read: row addresses fit one index only."""
    fill(session, 2)
    with session.store.searching() as snapshot:
        before = snapshot.fulltext
        session.data("index.rebuild")
        assert snapshot.queries.document_ids(DocumentFilter()).tolist()
        assert snapshot.fulltext is before
    with session.store.searching() as snapshot:
        assert snapshot.fulltext is not before


def test_a_fact_is_read_once_for_a_position_and_a_sight(session: Session) -> None:
    fill(session, 2)
    reads: list[Sight] = []

    def count(queries: Queries) -> int:
        reads.append(queries.sight)
        return queries.chunk_total()

    def chunks(sight: Sight | None = None) -> int:
        with session.store.reading_as(sight) as snapshot:
            return snapshot.fact("chunks", count)

    before = chunks()
    assert chunks() == before > 0
    assert len(reads) == 1
    assert (chunks(Sight(kbs=("unknown",))), chunks()) == (0, before)
    assert len(reads) == 2
    with session.store.reading() as earlier:
        session.data("doc.create", title="New", text="x")
        assert chunks() == before + 1
        assert earlier.fact("chunks", count) == before
        assert chunks() == before + 1


def test_an_index_that_can_not_be_committed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches use the last committed index and say so; writes go on."""
    fill(session, 2)
    session.data("search", query="alpha", mode="fts")

    def fail() -> None:
        raise OSError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(session.store.fulltext, "commit", fail)
        document = session.data("doc.create", title="Kept", text="kept")
        answer = session.ask("search", query="kept", mode="fts")["result"]
        assert answer["data"]["total_matches"] == 0
        freshness = answer["meta"]["freshness"]
        assert freshness["fulltext_seq"] < freshness["seq"] == session.store.log.head.seq
        assert session.data("doc.get", id=document["id"])["title"] == "Kept"
        assert "lack the latest writes" in answer["meta"]["notice"][0]
        session.data("doc.create", title="Other", text="other")
        [chunk] = session.data("chunk.list", document_id=document["id"])
        assert session.data("chunk.get", id=chunk["id"])["chunk"] == chunk
        assert session.data("doc.get", id=document["id"])["title"] == "Kept"
    session.data("doc.create", title="Next", text="next")
    for word in ("kept", "next", "other"):
        answer = session.ask("search", query=word, mode="fts")["result"]
        assert answer["data"]["total_matches"] == 1
        assert "notice" not in answer["meta"]
    freshness = session.ask("search", query="kept")["result"]["meta"]["freshness"]
    assert freshness["fulltext_seq"] == freshness["seq"]


def test_what_the_catalog_can_not_take_in_is_shown_by_no_method(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The full-text index may have it already."""
    fill(session, 2)

    def fail() -> None:
        raise OSError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(session.store.catalog, "commit", fail)
        error = session.error("doc.create", title="Kept", text="kept")
        assert error["detail"] == {"kept": True}
        head = session.store.published.head
        id = head.next_document
        assert "Kept" not in [document["title"] for document in session.data("doc.list")]
        assert session.error("doc.get", id=id)["type"] == "resource.not_found"
        assert session.error("chunk.get", id=head.next_chunk)["type"] == "resource.not_found"
    session.data("doc.create", title="Next", text="next")
    assert session.data("doc.get", id=id)["title"] == "Kept"
    assert session.data("chunk.get", id=head.next_chunk)["title"] == "Kept"


@pytest.mark.parametrize("part", ["catalog", "vectors"])
def test_once_a_view_that_failed_can_go_on_so_do_writes(
    session: Session, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    fill(session, 2)

    def fail() -> None:
        raise OSError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(getattr(session.store, part), "commit", fail)
        assert session.error("knowledge.store", title="Kept", body="kept")["detail"]["kept"]
        refused = session.error("doc.create", title="Refused", text="refused")
        assert refused["detail"] == {"kept": False}
    session.data("doc.create", title="Next", text="next")
    titles = [document["title"] for document in session.data("doc.list")]
    assert titles[-2:] == ["Kept", "Next"]
    for word, count in (("kept", 1), ("next", 1), ("refused", 0)):
        assert session.data("search", query=word, mode="fts")["total_matches"] == count


def test_a_view_that_can_not_roll_back_does_not_keep_the_log_from_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = session.store.log.verify()
    with monkeypatch.context() as patch:
        patch.setattr(session.store.catalog, "apply", fail)
        patch.setattr(session.store.catalog, "rollback", fail)
        assert session.error("kb.update", slug="default", name="no")["type"] == "store.io"
    assert session.store.log.head.seq == session.store.log.verify() == before
    session.data("doc.create", title="B", text="x")
    assert [doc["title"] for doc in session.data("doc.list")] == ["B"]


def test_status_while_files_come_and_go(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may vanish while `status` sums the sizes, since indexes merge."""
    fleeting, real = session.store.folder / "views" / "fleeting", Path.is_file

    def is_file(path: Path) -> bool:
        is_there = real(path)
        fleeting.unlink(missing_ok=True)
        return is_there

    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_file", is_file)
        for _ in range(3):
            fleeting.write_bytes(b"x")
            assert size_of(session.store.origin) > 0


# --------------------------------------------------------------------------- doctor


def findings(session: Session, **params: Any) -> dict[str, str]:
    data = session.data("doctor", **params)
    assert data["healthy"] == all(f["status"] != "fail" for f in data["findings"])
    return {finding["name"]: finding["status"] for finding in data["findings"]}


def test_a_healthy_store(session: Session) -> None:
    fill(session, 4)
    for deep in (False, True):
        statuses = findings(session, deep=deep)
        assert {
            "libraries",
            "store",
            "log",
            "blobs",
            "catalog",
            "fulltext",
            "vectors",
            "model",
            "disk",
            "permissions",
        } <= statuses.keys()
        assert "fail" not in statuses.values()


def test_doctor_finds_a_damaged_log_and_a_missing_blob(session: Session) -> None:
    fill(session, 4)
    [segment] = (session.store.folder / "log").iterdir()
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b"Title 1", b"Title X"))
    assert findings(session)["log"] == "fail"
    segment.write_bytes(content)
    sha256 = session.data("doc.get", id=1)["sha256"]
    content = session.store.blobs.get(sha256)
    harm(session.store.folder, sha256, lambda data: b"other")
    assert findings(session, deep=True)["blobs"] == "fail", "its bytes are not what its name says"
    session.store.blobs.erase([sha256])
    assert findings(session)["blobs"] == "fail"
    session.store.blobs.heal(sha256, content)
    [pack] = (session.store.folder / "sources").glob("*.pack")
    content = pack.read_bytes()
    pack.unlink()
    assert findings(session)["blobs"] == "fail"
    pack.write_bytes(content)
    pack.chmod(0o600)
    session.store.folder.chmod(0o755)
    assert findings(session)["permissions"] == "warn"
    session.store.folder.chmod(0o700)
    assert "fail" not in findings(session, deep=True).values()


def test_doctor_finds_each_view_that_differs(session: Session) -> None:
    fill(session, 4)
    store = session.store
    alter(store.catalog, "delete from events where seq = 2")
    assert findings(session)["catalog"] == "pass"
    assert findings(session, deep=True)["catalog"] == "fail"
    session.library.rebuild()
    alter(store.catalog, "update documents set title = 'other' where id = 1")
    for deep in (False, True):
        assert findings(session, deep=deep)["catalog"] == "fail"
    session.library.rebuild()
    assert "fail" not in findings(session, deep=True).values()


def test_doctor_is_not_confused_by_writers(session: Session) -> None:
    fill(session, 4)
    store, done = session.store, threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            put(store, f"kb-{number}")

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for _ in range(4):
            assert {n: w for n, w in doctor.compare(store).items() if w} == {}
            assert {n: w for n, w in doctor.positions(store).items() if w} == {}
    finally:
        done.set()
        writing.join()


def test_nothing_is_left_running(open_session: OpenSession) -> None:
    before = {thread.name for thread in threading.enumerate()}
    one = open_session()
    one.data("doc.create", title="Marked up", text="# alpha", type="markdown")
    pids = one.library.parsers.get().pids
    assert pids
    one.close()
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []

    def late_threads() -> set[str]:
        names = {thread.name for thread in threading.enumerate()}
        return {name for name in names - before if not name.startswith(("worker", "waiting"))}

    # The close does not wait for a worker that computes: this one ends by itself.
    until(lambda: not late_threads(), "the end of the threads", lambda: str(late_threads()))
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('format = 2\n\n[model]\nkind = "hash"\n', 'format = 2\n\n[model]\nkind = "none"\n'),
        (
            '# mine\nformat = 2\n[model] # small\nkind = "hash"\n\nname = "a"\n'
            '[llm]\n# at home\nurl = "http://localhost/v1"\n',
            '# mine\nformat = 2\n[model] # small\nkind = "none"\n\n'
            '[llm]\n# at home\nurl = "http://localhost/v1"\n',
        ),
        (
            'format = 2\n[llm]\nurl = "http://localhost/v1"',
            'format = 2\n[llm]\nurl = "http://localhost/v1"\n\n[model]\nkind = "none"\n',
        ),
        (
            'format = 2\r\ntext = """\r\n[model]\r\n"""\r\n[model]\r\nkind = "hash"\r\n',
            'format = 2\r\ntext = """\r\n[model]\r\n"""\r\n[model]\r\nkind = "none"\r\n',
        ),
    ],
)
def test_another_model_leaves_the_other_settings(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "store.toml"
    path.write_text(before)
    write_settings(path, {"kind": "none"})
    assert path.read_bytes().decode() == after


def test_a_store_in_the_place_of_one_in_use_is_left_alone(tmp_path: Path) -> None:
    """Indexes have fixed paths, so an owner must not write to a store that replaced its own."""
    moved = Session(tmp_path / "store", cwd=tmp_path)
    texts = ["words", "more words", "and more"]
    for text in texts:
        moved.data("doc.create", title="before", text=text)
    (tmp_path / "store").rename(tmp_path / "moved")
    other = Process(tmp_path / "store", cwd=tmp_path).ready()
    assert "result" in other.ask(1, "doc.create", title="of another", text="words")
    other.close()
    other.stop()
    there = files_of(tmp_path / "store")
    moved.data("search", query="words")
    with pytest.raises(KbprocError, match="moved or replaced"):
        moved.store.look()
    error = moved.error("doc.create", title="lost?", text="words")
    assert (error["type"], moved.store.log.damage) == ("store.io", None)
    moved.close()
    assert files_of(tmp_path / "store") == there
    again = Session(tmp_path / "moved", cwd=tmp_path)
    ids = range(1, len(texts) + 1)
    assert [again.data("doc.get", id=id, text=True)["text"] for id in ids] == texts
    assert again.store.blobs.broken([digest(text.encode()) for text in texts], deep=True) == []
    again.close()


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Maps each file to its size and mtime."""
    named = {str(path.relative_to(folder)): path.stat() for path in folder.rglob("*")}
    return {name: (is_.st_size, is_.st_mtime_ns) for name, is_ in named.items()}
