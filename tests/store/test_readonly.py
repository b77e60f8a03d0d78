"""A read-only store is read in place, and none of its files changes."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import failpoints
from kbproc.base.errors import KbprocError
from kbproc.engine.log import file as log
from kbproc.engine.store.place import StorePlace
from kbproc.knowledge.app.health import salvage
from kbproc.knowledge.app.health.doctor import examine
from kbproc.knowledge.app.library import Library
from kbproc.methods.all import registry
from kbproc.methods.calls.method import DistantExample
from tests.conftest import OpenSession
from tests.conversations.scripts import make_files
from tests.kit.faults import as_killed, flip
from tests.kit.fixed import FixedHost
from tests.kit.talk import Process, Session

METHODS = registry().methods.values()
READS: list[tuple[str, dict[str, Any]]] = [
    *((m.name, e.params) for m in METHODS if m.kind == "read" for e in m.examples),
    ("search", {"query": "git backup", "limit": 50, "explain": True}),
    ("search", {"query": "copy the repository", "mode": "vector"}),
    ("search", {"query": "nightly", "mode": "fts", "as_of": 4}),
    ("search", {"query": "draft", "fusion": "rrf", "as_of": 3}),
    ("doc.list", {"as_of": 2}),
    ("doc.get", {"id": 2, "text": True, "as_of": 4}),
    ("doc.history", {"id": 2}),
    ("doc.download", {"id": 1}),
    ("doc.wait", {"timeout_ms": 20_000}),
    ("events.read", {"limit": 100, "full": True}),
    ("events.subscribe", {"after_seq": 0, "timeout_ms": 0}),
    ("sql.query", {"sql": "select id, title from documents order by id"}),
    ("store.export", {}),
    ("status", {"min_seq": 3}),
]
WRITES = [
    (m.name, e.params)
    for m in METHODS
    if m.kind != "read"
    for e in m.examples
    if e.exit != 1 and not isinstance(e, DistantExample)
]
CLUSTER = {"servers": ["nats://127.0.0.1:1"], "stream": "team"}
# Their examples are dry runs.
WRITES += [("cluster.init", CLUSTER), ("cluster.join", CLUSTER), ("model.install", {})]
DRY = [(name, {**params, "dry_run": True}) for name, params in WRITES]
# Drops the capability to bypass file modes, which root has.
AS_ANYBODY = (
    "import ctypes, os, sys\n"
    "for right in (1, 2, 3): ctypes.CDLL(None).prctl(24, right, 0, 0, 0)\n"
    "os.execv(sys.executable, [sys.executable, '-m', 'tests.kit.fixed', *sys.argv[1:]])\n"
)

Seal = Callable[[Path], None]


@pytest.fixture
def seal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Seal]:
    """Makes a folder read-only, as media are; overlays of this process lie in `tmp_path`."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    sealed: list[Path] = []

    def mount(folder: Path) -> None:
        for options in (["--bind", str(folder)], ["-o", "remount,ro,bind"]):
            done = subprocess.run(
                ["mount", *options, str(folder)], capture_output=True, check=False
            )
            if done.returncode:
                pytest.skip("mounting is not allowed here")
            sealed.append(folder)

    yield mount
    for folder in set(sealed):
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A closed store with a past and several segments."""
    monkeypatch.setattr(log, "SEGMENT_BYTES", 1500)
    make_files(tmp_path)
    session = Session(tmp_path / "store", cwd=tmp_path)
    session.data("doc.ingest", paths=["docs"], client_token="in")
    session.data("kb.create", slug="scratch")
    session.data("doc.create", title="Draft", text="Not finished.", tags=["draft"], kb="scratch")
    session.data("doc.update", id=2, text="a nightly backup of every git repository")
    plan = session.error("doc.delete", ids=[3])["plan"]
    session.data("doc.delete", ids=[3], confirm=plan["plan_hash"])
    session.embedded()
    session.close()
    assert len(list((session.store.folder / "log").iterdir())) > 2
    return session.store.origin


def state(folder: Path) -> dict[str, Any]:
    """Maps every file and folder to its bytes, mode, mtime and size."""
    entries: dict[str, Any] = {}
    for path in (folder, *folder.rglob("*")):
        stat = path.stat()
        data = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        entries[str(path)] = data, stat.st_mode, stat.st_mtime_ns, stat.st_size
    return entries


def overlays(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "tmp").glob("kbproc-*"))


def talk(process: Process, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, list[str]]:
    """Maps each request to the lines of its answer."""
    answers = {}
    for id, (name, params) in enumerate(calls):
        line = json.dumps({"jsonrpc": "2.0", "id": id, "method": name, "params": params})
        process.send(line.encode())
        lines = [process.receive().decode()]
        while json.loads(lines[-1]).get("id") != id:
            lines.append(process.receive().decode())
        answers[line] = lines
    return answers


def end(process: Process) -> None:
    process.close()
    assert process.stop() == 0, process.told()


def test_every_read_and_every_dry_run_is_as_before(store: Path, seal: Seal) -> None:
    session = Session(store, cwd=store.parent)
    session.library.compact()  # removes deleted chunks from statistics, as a rebuild does
    session.close()
    there = set(store.parent.iterdir())
    writable = Process(store, cwd=store.parent).ready()
    before = talk(writable, [*READS, *DRY])
    end(writable)
    for copy in set(store.parent.iterdir()) - there:  # examples of exports and downloads make files
        copy.unlink()
    was = state(store)
    seal(store)
    process = Process(store, cwd=store.parent).ready()
    after = talk(process, [*READS, *DRY])
    end(process)
    assert state(store) == was
    doctor = next(line for line in after if '"doctor"' in line)
    assert "opens read-only" in "".join(after[doctor])
    for request, lines in before.items():
        answer = [line.replace("opens read-only", "opens") for line in after[request]]
        assert answer == lines, request


def refused(answer: Any, store: Path) -> None:
    data = answer["error"]["data"]
    assert (data["type"], data["message"]) == ("store.io", f"The store {store} is read-only.")
    assert data["retryable"] is False, "agents would try for ever"
    assert "Opening a copy is restoring it" in data["hint"]


def test_every_write_is_refused_and_nothing_changes(store: Path, seal: Seal) -> None:
    was = state(store)
    seal(store)
    process = Process(store, cwd=store.parent).ready()
    tried = set()
    for number, (name, params) in enumerate(WRITES):
        if name == "store.backup" or params.get("dry_run"):
            continue
        tried.add(name)
        refused(process.ask(number, name, **params), store)
        refused(process.ask(number, name, **params, client_token=f"t{number}"), store)
    assert tried == {m.name for m in METHODS if m.kind != "read"} - {"store.backup"}
    again = process.ask(1, "doc.ingest", paths=["docs"], client_token="in")
    refused(again, store)  # even with the token of an earlier write
    end(process)
    assert state(store) == was


@pytest.mark.parametrize("token", [{}, {"client_token": "b"}])
def test_a_backup_of_it_is_a_store(
    seal: Seal, open_session: OpenSession, store: Path, tmp_path: Path, token: dict[str, str]
) -> None:
    before = open_session(store)
    before.library.compact()
    expected = [
        before.ask(name, **params) for name, params in READS if name in ("search", "doc.get")
    ]
    verified = before.data("events.verify")
    before.close()
    seal(store)
    sealed = open_session(store)
    backup = sealed.data("store.backup", path="copy", **token)
    assert backup["path"] == str(tmp_path / "copy")
    assert sealed.error("store.backup", path="store/in")["field"] == "$.params.path"
    copy = open_session(tmp_path / "copy")
    answers = [copy.ask(name, **params) for name, params in READS if name in ("search", "doc.get")]
    assert answers == expected
    assert copy.data("events.verify") == verified
    assert copy.data("doc.create", title="New", text="It can be written.")["id"]


@pytest.mark.parametrize("what", ["the folder", "all"])
def test_without_the_permission(store: Path, what: str) -> None:
    paths = [store, *store.rglob("*")] if what == "all" else [store]
    if what == "the folder":
        (store / "lock").unlink()
    modes = {path: path.stat().st_mode for path in paths}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    was = state(store)
    process = Process(store, cwd=store.parent, program=AS_ANYBODY)
    try:
        process.ready()
        answer = process.ask(1, "search", query="nightly backup")
        assert answer["result"]["data"]["results"][0]["source"]["document_id"] == 2
        assert process.ask(2, "status")["result"]["data"]["store"] == str(store)
        refused(process.ask(3, "doc.create", title="New", text="This is refused."), store)
        process.close()
        assert state(store) == was
    finally:
        process.stop()
        for path, mode in modes.items():
            path.chmod(mode)


def test_many_at_once_each_for_itself(
    seal: Seal, open_session: OpenSession, store: Path, tmp_path: Path
) -> None:
    seal(store)
    one, two = open_session(store), open_session(store)
    three = Process(store, cwd=tmp_path).ready()
    assert len(overlays(tmp_path)) == 2
    assert {path.stat().st_mode & 0o777 for path in overlays(tmp_path)} == {0o700}
    results = [peer.ask("search", query="nightly")["result"] for peer in (one, two)]
    assert results[0] == results[1] == three.ask(1, "search", query="nightly")["result"]
    end(three)
    for session in (one, two):
        session.close()
    assert overlays(tmp_path) == []
    assert (store / "sources").is_dir()


def test_what_a_killed_process_left_goes_with_the_next(
    seal: Seal, open_session: OpenSession, store: Path, tmp_path: Path
) -> None:
    seal(store)
    killed = StorePlace.take(store, 1)
    killed.prepare()
    folder = killed.folder
    second = open_session(store).store
    assert folder in overlays(tmp_path), "somebody holds it"
    killed.lease.release()
    third = open_session(store).store
    assert overlays(tmp_path) == sorted([second.folder, third.folder])


def error_of(folder: Path) -> KbprocError:
    with pytest.raises(KbprocError) as error:
        Library.open(folder, host=FixedHost(), cache=folder.parent / "cache")
    return error.value


def test_the_sources_of_a_killed_process_are_there(
    seal: Seal, open_session: OpenSession, tmp_path: Path
) -> None:
    """They are read from the pack, which stays unchanged."""
    session = open_session()
    texts = [f"The tide of day {n} is high." for n in range(5)]
    for text in texts:
        session.data("doc.create", title="Tide", text=text)
    folder = tmp_path / "left"
    as_killed(session.store.folder, folder)
    assert texts[-1].encode() in (folder / "sources" / "000001.pack").read_bytes()
    seal(folder)
    before = state(folder)
    sealed = open_session(folder)
    ids = range(1, len(texts) + 1)
    got = [base64.b64decode(sealed.data("doc.download", id=id)["content"]) for id in ids]
    assert got == [text.encode() for text in texts]
    assert all(f["status"] != "fail" for f in sealed.data("doctor", deep=True)["findings"])
    assert "notice" not in sealed.ask("store.backup", path="copy")["result"]["meta"]
    sealed.close()
    assert state(folder) == before
    copy = open_session(tmp_path / "copy")
    assert [copy.data("doc.get", id=id, text=True)["text"] for id in ids] == texts


def test_where_there_is_none(seal: Seal, tmp_path: Path) -> None:
    medium = tmp_path / "medium"
    (medium / "empty" / "log").mkdir(parents=True)
    seal(medium)
    for folder in (medium / "empty", medium / "missing"):
        error = error_of(folder)
        assert error.type == "store.io"
        assert error.message.startswith(f"There is no store in {folder}, and none can be made")
        assert "--store" in error.hint
    assert overlays(tmp_path) == []


def test_a_damaged_one(seal: Seal, store: Path, tmp_path: Path) -> None:
    segment = sorted((store / "log").iterdir())[1]
    segment.write_bytes(flip(segment.read_bytes(), 0.5))
    was = state(store)
    seal(store)
    error = error_of(store)
    assert error.type == "store.corrupt"
    assert error.detail["segment"] == segment.name
    findings = list(
        examine(
            FixedHost(),
            lambda: Library.open(store, host=FixedHost(), cache=tmp_path).store,
            deep=False,
            folder=store,
        )
    )
    assert [f.name for f in findings if f.status == "fail"] == ["store", "log"]
    assert segment.name in findings[-1].message
    with pytest.raises(KbprocError, match="is read-only"):
        salvage.repair(store, FixedHost())
    assert overlays(tmp_path) == []
    assert state(store) == was


def test_a_torn_tail_is_left_out_and_left_alone(
    seal: Seal, open_session: OpenSession, store: Path
) -> None:
    last = sorted((store / "log").iterdir())[-1]
    with last.open("ab") as file:
        file.write(b'{"seq":99,"ts":"20')
    (store / "log" / "000000000099.ndjson").touch()
    was = state(store)
    seal(store)
    session = open_session(store)
    assert session.data("events.verify")["head"]["seq"] == session.store.seq < 99
    assert session.data("sql.query", sql="select count(*) as n from documents")["rows"]
    session.close()
    assert state(store) == was


def test_a_repair_that_was_decided_is_what_is_read(
    seal: Seal, open_session: OpenSession, store: Path
) -> None:
    aside = store / "damaged" / "000001"
    aside.mkdir(parents=True)
    (store / "log").rename(aside / "repaired")
    seal(store)
    assert open_session(store).data("doc.get", id=2)["revision"] == 2


def test_a_purge_that_was_cut_off_shows_nothing(
    seal: Seal, open_session: OpenSession, tmp_path: Path
) -> None:
    session = open_session()
    session.data("doc.create", title="A xylophone", text="The xylophone is a secret.")
    session.data("doc.update", id=1, text="The xylophone was a secret.")
    session.data("doc.create", title="Kept", text="This one stays.")
    session.embedded()
    copy = tmp_path / "killed"

    def die(name: str) -> None:
        if name == "purge.recorded":
            as_killed(session.store.folder, copy)

    plan = session.error("store.purge", document_ids=[1])["plan"]
    failpoints.arm(die)
    try:
        session.data("store.purge", document_ids=[1], confirm=plan["plan_hash"])
    finally:
        failpoints.arm(None)
    was = state(copy)
    seal(copy)
    sealed = open_session(copy)
    answers = [
        sealed.ask("search", query="secret"),
        sealed.ask("search", query="secret", as_of=2),
        sealed.ask("doc.list", as_of=3),
        sealed.ask("doc.get", id=1, as_of=2, text=True),
        sealed.ask("doc.history", id=1),
        sealed.ask("events.read", full=True, limit=100),
        sealed.ask("chunk.list", document_id=1),
    ]
    assert "xylophone" not in json.dumps(answers).lower()
    assert sealed.data("doc.list")[0]["title"] == "Kept"
    assert sealed.data("events.verify")["head"]["seq"] == sealed.store.seq
    sealed.data("store.backup", path="copy")
    sealed.close()
    assert state(copy) == was
    assert open_session(tmp_path / "copy").data("doc.list")[0]["title"] == "Kept"


def test_what_is_not_embedded_is_embedded_aside(
    seal: Seal, open_session: OpenSession, store: Path
) -> None:
    reference = open_session(store)
    reference.library.compact()
    best = reference.data("search", query="git backup", mode="vector")
    reference.close()
    shutil.rmtree(store / "vectors")
    seal(store)
    session = open_session(store)
    session.embedded()
    assert session.data("search", query="git backup", mode="vector") == best
    assert not (store / "vectors").exists()
