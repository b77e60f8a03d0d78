"""Stores that earlier versions wrote open, and answer what they answered then.

stores/VERSION.tar.gz is a store as that version left it; VERSION.json holds requests
and that version's answers. Neither is ever written again. The ingested files are in the
store's blobs; a test puts them back at their old paths.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.engine.events import codec
from kbproc.knowledge.app.health import doctor
from tests.conftest import OpenSession
from tests.kit.faults import killed_at
from tests.kit.places import alone_at
from tests.kit.talk import Session

STORES = sorted((Path(__file__).parent / "stores").glob("*.tar.gz"))
# Folder of each version's documents according to its log; the answers say /work.
FOLDERS = {"0.1.0": Path("/tmp/tmpr9gj9s7g")}


def version_of(store: Path) -> str:
    return store.name.removesuffix(".tar.gz")


def unpacked(archive: Path, tmp_path: Path, *, views: bool) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    if not views:
        shutil.rmtree(tmp_path / "store" / "views")
    return tmp_path / "store"


@pytest.fixture
def documents(archive: Path) -> Iterator[Path]:
    """Folder that the store's documents were read from, with its files."""
    with alone_at(FOLDERS[version_of(archive)]) as folder, tarfile.open(archive) as tar:
        log = tar.extractfile("store/log/000000000001.ndjson")
        assert log
        for path, sha256 in ingested(log.read()).items():
            blob = tar.extractfile(f"store/blobs/{sha256[:2]}/{sha256[2:4]}/{sha256}")
            assert blob and path.is_relative_to(folder)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(blob.read())
        yield folder


def ingested(log: bytes) -> dict[Path, str]:
    """Maps path to sha256 for every document that was read from a file."""
    events = (event for line in log.splitlines() for event in json.loads(line)["events"])
    return {
        Path(event["path"]): event["source_sha256"]
        for event in events
        if event.get("path") and event["type"] == "doc.written"
    }


def lacks(answer: Any, expected: Any, where: str = "$") -> list[str]:
    """Differences between an answer and an earlier one; members added since are fine."""
    if isinstance(expected, dict) and isinstance(answer, dict):
        return [
            wrong
            for name, value in expected.items()
            for wrong in lacks(answer.get(name), value, f"{where}.{name}")
        ]
    if isinstance(expected, list) and isinstance(answer, list) and len(answer) == len(expected):
        pairs = enumerate(zip(answer, expected, strict=True))
        return [wrong for i, (f, e) in pairs for wrong in lacks(f, e, f"{where}[{i}]")]
    return [] if answer == expected else [f"{where}: {answer!r}, not {expected!r}"]


def answer_of(session: Session, folder: Path, method: str, params: dict[str, Any]) -> Any:
    answer = json.dumps(session.data(method, **params), ensure_ascii=False)
    return json.loads(answer.replace(str(folder), "/work"))


@pytest.mark.parametrize("views", [True, False])
@pytest.mark.parametrize("archive", STORES, ids=version_of)
def test_it_answers_as_it_did(
    open_session: OpenSession, tmp_path: Path, archive: Path, documents: Path, views: bool
) -> None:
    session = open_session(unpacked(archive, tmp_path, views=views))
    session.library.compact()
    answers = archive.with_name(f"{version_of(archive)}.json")
    for method, params, expected in json.loads(answers.read_text()):
        assert lacks(answer_of(session, documents, method, params), expected) == []
    assert session.store.log.verify() == session.store.seq


@pytest.mark.parametrize("archive", STORES, ids=version_of)
def test_it_goes_on(open_session: OpenSession, tmp_path: Path, archive: Path) -> None:
    """Current methods work on an old store: past reads, undo, purge and writes."""
    session = open_session(unpacked(archive, tmp_path, views=True))
    seq = session.store.seq
    assert session.data("doc.list", as_of=seq) == session.data("doc.list")
    assert session.data("doc.history", id=1)
    document = session.data("doc.create", title="New", text="written by a later version")
    plan = session.error("store.purge", document_ids=[1])["plan"]
    session.data("store.purge", document_ids=[1], confirm=plan["plan_hash"])
    assert session.data("doc.get", id=document["id"])["title"] == "New"
    session.embedded()


@pytest.mark.parametrize("archive", STORES, ids=version_of)
def test_its_sources_move_into_packs(
    open_session: OpenSession, tmp_path: Path, archive: Path
) -> None:
    """The move raises the format; the next process completes the move of a killed one."""
    session = open_session(unpacked(archive, tmp_path, views=True))
    store, before = session.store, downloads(session)
    settings = (store.folder / "store.toml").read_text()
    assert "format = 1" in settings and not (store.folder / "sources").exists()
    with killed_at(["upkeep.moved"], store.folder, tmp_path / "killed"):
        session.library.tidy()
    for moved in (session, open_session(tmp_path / "killed" / "upkeep.moved")):
        moved.library.tidy()
        folder = moved.store.folder
        assert (folder / "store.toml").read_text() == settings.replace("format = 1", "format = 2")
        assert not (folder / "blobs").exists()
        assert downloads(moved) == before
        assert moved.data("store.backup", path=f"copy-{folder.name}")
        assert downloads(open_session(tmp_path / f"copy-{folder.name}")) == before


@pytest.mark.parametrize("archive", STORES, ids=version_of)
def test_a_backup_of_it_has_packs(open_session: OpenSession, tmp_path: Path, archive: Path) -> None:
    session = open_session(unpacked(archive, tmp_path, views=True))
    session.data("store.backup", path="copy")
    assert (tmp_path / "store" / "store.toml").read_text().startswith("format = 1")
    copy = open_session(tmp_path / "copy")
    assert (tmp_path / "copy" / "store.toml").read_text().startswith("format = 2")
    assert downloads(copy) == downloads(session)


def downloads(session: Session) -> dict[int, str]:
    ids = [document["id"] for document in session.data("doc.list", limit=1000)]
    return {id: session.data("doc.download", id=id)["content"] for id in ids}


def test_every_version_is_kept() -> None:
    assert [version_of(archive) for archive in STORES] == sorted(FOLDERS)
    for archive in STORES:
        assert archive.with_name(f"{version_of(archive)}.json").exists()


def test_an_old_shape_is_lifted(
    open_session: OpenSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads the first version's log as if file.failed had been renamed to file.cleared."""

    def lift(item: dict[str, Any]) -> dict[str, Any]:
        return {"type": "file.cleared", "kb": item["kb"], "path": item["path"]}

    store = unpacked(STORES[0], tmp_path, views=False)
    untouched = open_session(store)
    before = untouched.data("doc.list")
    assert untouched.data("kb.check", slug="default")["failed"] == 1
    untouched.close()
    monkeypatch.setattr(codec, "UPCASTS", {"file.failed": lift})
    shutil.rmtree(store / "views")
    lifted = open_session(store)
    assert lifted.data("kb.check", slug="default")["failed"] == 0
    assert lifted.data("doc.list") == before
    lifted.data("index.rebuild")
    assert lifted.data("kb.check", slug="default")["failed"] == 0
    assert not any(doctor.compare(lifted.store).values())
    lifted.close()


def test_what_earlier_versions_kept_of_texts_is_removed(open_session: OpenSession) -> None:
    """A purge would miss it. SQL's tables of today stay."""
    session = open_session()
    session.data("doc.create", title="Kept", text="words")
    session.data("sql.query", sql="select 1")
    views = session.store.folder / "views"
    session.close()
    (today,) = (views / "sql").iterdir()
    older = ["catalog.duckdb", "catalog-000003.duckdb", "catalog-000003.duckdb.wal", "front"]
    for name in (*older, "catalog-000003.duckdb.boot", "sql/7-0123456789abcdef.duckdb"):
        (views / name).write_bytes(b"words")
    (views / "catalog-000003.duckdb.tmp").mkdir()
    again = open_session()
    assert again.data("doc.list")[0]["title"] == "Kept"
    names = {str(path.relative_to(views)) for path in views.rglob("*")}
    assert not [name for name in names if "duckdb" in name and name != f"sql/{today.name}"]
    assert "front" not in names and today.exists()
