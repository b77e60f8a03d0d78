"""A store that is opened for one request opens its vectors when they are needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.base.settings.config import Config
from kbproc.engine.store.store import Store
from kbproc.knowledge.app.library import Library
from kbproc.methods.all import registry
from kbproc.surfaces.sharing.command import Command
from tests.kit.fixed import FixedHost
from tests.kit.start import REPO
from tests.kit.talk import Session
from tests.kit.world import filled


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A filled store, which is copied and never opened."""
    return filled(tmp_path_factory.mktemp("world")) / "store"


@pytest.fixture
def store(world: Path, tmp_path: Path) -> Path:
    store = Path(shutil.copytree(world, tmp_path / "store"))
    asked_of_a_server(store, "ping")  # which saves the manifest of the copied files
    return store


@contextmanager
def command(store: Path) -> Iterator[tuple[Callable[..., Any], Store]]:
    """A function that asks like a one-off command, and the store that the command opens."""
    backend = Command(
        config=Config(store=store, cache=store.parent / "cache"),
        registry=registry(),
        host=FixedHost(),
    )

    def ask(method: str, **params: Any) -> Any:
        response = backend.ask(method, params, lambda event: None)
        return response["result"] if "result" in response else response["error"]["data"]

    try:
        backend.ask("ping", {}, lambda event: None)
        assert backend.here is not None
        opened = backend.here.owner.open_library().store
        yield ask, opened
    finally:
        backend.close()


def asked_of_a_server(store: Path, method: str, **params: Any) -> Any:
    session = Session(store, cwd=store.parent)
    try:
        return session.ask(method, **params)["result"]
    finally:
        session.close()


def timeless(result: dict[str, Any]) -> dict[str, Any]:
    return {**result, "meta": {**result["meta"], "took_ms": 0}}


ASKED: list[tuple[str, dict[str, Any], bool]] = [
    ("search", {"query": "cache branch", "mode": "fts"}, False),
    ("search", {"query": "cache branch", "mode": "fts", "explain": True}, True),
    ("search", {"query": "cache branch"}, True),
    ("search", {"query": "cache branch", "mode": "vector"}, True),
    ("knowledge.search", {"query": "cache", "mode": "fts"}, False),
    ("doc.list", {}, False),
    ("doc.get", {"id": 1, "text": True}, False),
    ("kb.status", {"slug": "default"}, False),
    ("status", {}, False),
]


def test_what_is_answered_does_not_depend_on_it(store: Path, subtests: pytest.Subtests) -> None:
    session = Session(store, cwd=store.parent)
    expected = [session.ask(method, **params)["result"] for method, params, _ in ASKED]
    session.close()
    for (method, params, opens), other in zip(ASKED, expected, strict=True):
        with subtests.test(f"{method} {params}"):
            with command(store) as (ask, opened):
                answer = ask(method, **params)
                assert opened.are_vectors_opened is opens
            for result in (other, answer):
                if "db_size_bytes" in result["data"]:
                    result["data"]["db_size_bytes"] = 0  # closing a view writes files
            assert timeless(answer) == timeless(other)


def test_a_write_opens_them_first(store: Path) -> None:
    with command(store) as (ask, opened):
        ask("doc.create", title="New", text="The lighthouse keeper counts gulls.")
        assert opened.are_vectors_opened
        answer = ask("search", query="lighthouse", mode="fts")
        assert answer["meta"]["freshness"]["pending_embeddings"] == 1
    with command(store) as (ask, opened):
        answer = ask("search", query="lighthouse", mode="fts")
        assert not opened.are_vectors_opened
        assert answer["meta"]["freshness"]["pending_embeddings"] == 1
        assert answer["meta"]["freshness"]["vector_seq"] < answer["meta"]["seq"]
        assert ask("doc.get", id=7)["data"]["index_status"] == "pending"
    session = Session(store, cwd=store.parent)
    session.embedded()
    session.close()
    with command(store) as (ask, opened):
        assert ask("search", query="gulls", mode="fts")["meta"]["freshness"] == {
            "seq": opened.seq,
            "fulltext_seq": opened.seq,
            "vector_seq": opened.seq,
            "pending_embeddings": 0,
        }
        assert ask("doc.get", id=7)["data"]["index_status"] == "ready"


def test_nothing_is_written_where_they_cannot_be_opened(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write fails before its record is in the log, so that the error is true."""

    def refuses(store: Store) -> None:
        raise KbprocError("store.io", "cannot open the pack: Input/output error")

    with command(store) as (ask, opened):
        head = opened.log.head
        with monkeypatch.context() as patch:
            patch.setattr(Store, "attach_vectors", refuses)
            error = ask("doc.create", title="New", text="Gulls.")
        assert (error["type"], error["message"][:20]) == ("store.io", "cannot open the pack")
        assert opened.log.head == head
        assert ask("search", query="cache", mode="fts")["meta"]["seq"] == head.seq
        assert ask("doc.create", title="New", text="Gulls.")["meta"]["seq"] == head.seq + 1


def test_a_manifest_of_another_pack_says_nothing(store: Path) -> None:
    with command(store) as (ask, _):
        ask("doc.create", title="New", text="Gulls.")
    manifest = store / "views" / "vectors.manifest"
    before = manifest.read_bytes()
    session = Session(store, cwd=store.parent)
    session.embedded()
    session.close()
    assert manifest.read_bytes() != before
    manifest.write_bytes(before)
    with command(store) as (ask, opened):
        assert opened.standing is None
        ask("search", query="gulls", mode="fts")
        assert opened.are_vectors_opened


def pack_of(store: Path) -> Path:
    (pack,) = (store / "vectors").glob("*.pack")
    return pack


@pytest.mark.parametrize("damage", ["pack", "manifest", "touched", "cut"])
def test_they_are_opened_where_their_files_are_not_as_they_were_saved(
    store: Path, damage: str
) -> None:
    """A search by words opens the vectors, since their files are missing or have changed."""
    pack, manifest = pack_of(store), store / "views" / "vectors.manifest"
    chunks = asked_of_a_server(store, "status")["data"]["total_chunks"]
    if damage == "pack":
        pack.unlink()
    elif damage == "manifest":
        manifest.unlink()
    elif damage == "touched":
        os.utime(pack)
    else:
        os.truncate(pack, pack.stat().st_size // 2)
    with command(store) as (ask, opened):
        answer = ask("search", query="cache", mode="fts")
        assert opened.are_vectors_opened
        pending = answer["meta"]["freshness"]["pending_embeddings"]
        least, most = {"pack": (chunks, chunks), "cut": (1, chunks)}.get(damage, (0, 0))
        assert least <= pending <= most
    with command(store) as (ask, opened):  # the first command saved the manifest
        again = ask("search", query="cache", mode="fts")
        assert not opened.are_vectors_opened
        assert again["meta"]["freshness"] == answer["meta"]["freshness"]


def test_another_model_under_the_same_name(store: Path) -> None:
    """A model of another dimension cannot use the vectors, although the files are unchanged."""
    with command(store) as (ask, opened):
        assert opened.standing == (opened.seq, 0)
    settings = store / "store.toml"
    text = settings.read_text()
    assert "dim" not in text
    settings.write_text(text.replace('kind = "hash"', 'kind = "hash"\ndim = 32'))
    with command(store) as (ask, opened):
        answer = ask("search", query="cache", mode="fts")
        assert opened.are_vectors_opened
        assert answer["meta"]["freshness"]["pending_embeddings"] > 0


def test_threads_that_ask_at_once_open_them_once(store: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with command(store) as (_, opened), ThreadPoolExecutor(8) as threads:
        views = list(threads.map(lambda _: opened.vectors, range(32)))
    assert views[0] is not None
    assert len(set(map(id, views))) == 1


def test_a_server_opens_them_at_once(store: Path) -> None:
    host = FixedHost()
    library = Library.open(store, host=host, cache=store.parent / "cache")
    assert library.store.are_vectors_opened and library.store.indexed is not None
    assert (library.store.vectors is None, library.store.standing) == (False, None)
    library.close()


def test_a_search_for_words_in_a_process_of_its_own_imports_no_numpy(store: Path) -> None:
    report = "print(*sorted({'numpy', 'faiss', 'tantivy'} & set(sys.modules)), file=sys.stderr)"
    code = (
        "import sys, kbproc.__main__ as main\n"
        "leave = main.leave\n"
        f"main.leave = lambda code: ({report}, leave(code))\n"
        "main.main()"
    )
    argv = [sys.executable, "-c", code, "search", "cache", "--fts-only", "--format", "json"]
    env = {**os.environ, "KBPROC_STORE": str(store), "PYTHONPATH": str(REPO)}
    for _ in range(2):  # the first may check the catalog for damage
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    assert done.stderr.split() == ["tantivy"]
    assert '"chunk_id":5,' in done.stdout


def test_a_pack_that_was_closed_damaged_is_looked_into(store: Path) -> None:
    session = Session(store, cwd=store.parent)
    data = bytearray(pack_of(store).read_bytes())
    data[-6] ^= 1  # a bit of the last vector
    with pack_of(store).open("r+b") as file:
        file.write(data)
    session.data("doc.create", title="New", text="Gulls.", tags=["saved-once-more"])
    session.embedded()
    session.close()
    with command(store) as (ask, opened):
        answer = ask("search", query="cache", mode="fts")
        assert opened.are_vectors_opened
        assert answer["meta"]["freshness"]["pending_embeddings"] == 1


def test_another_model_takes_the_place_of_one_that_nobody_has_opened(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new model's vectors are used as created, without opening their files."""

    def never(store: Store) -> None:
        raise AssertionError("opened after all")

    monkeypatch.setattr(Store, "attach_vectors", never)
    with command(store) as (ask, opened):
        ask("model.use", name="hash", kind="hash", dim=32)
        assert (opened.are_vectors_opened, opened.standing) == (True, None)
        assert opened.vectors is not None
        assert opened.vectors.pack is opened.model.pack
        assert opened.vectors.pack.dim == 32
        answer = ask("search", query="cache")
        assert answer["meta"]["freshness"]["pending_embeddings"] == 0
        assert answer["data"]["results"][0]["score_breakdown"]["vector"] is not None


def test_a_part_is_made_once_whoever_asks(store: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    library = Library.open(store, host=FixedHost(), cache=store.parent / "cache")
    with ThreadPoolExecutor(8) as threads:
        parts = list(threads.map(lambda _: (library.answers, library.intake), range(32)))
    assert len({tuple(map(id, both)) for both in parts}) == 1
    assert parts[0][1].parsers is library.parsers
    library.close()
