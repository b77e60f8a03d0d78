"""A backup is a store at one seq; it is complete or does not exist."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import failpoints
from kbproc.base.errors import KbprocError
from kbproc.engine.events.document import DocDeleted
from kbproc.engine.log import file
from kbproc.knowledge.app.health import doctor
from kbproc.knowledge.app.library import Library
from kbproc.knowledge.transfer import backup as backup_module
from tests.conftest import OpenSession
from tests.kit import knowledge
from tests.kit.fixed import FixedHost
from tests.kit.sources import harm, source_files
from tests.kit.talk import REPO, Session, as_bytes, cancel, request

QUESTIONS: list[dict[str, Any]] = [
    {"query": "git backup", "limit": 50},
    {"query": "nightly mirror", "mode": "fts", "explain": True},
    {"query": "mirror the repository", "mode": "vector"},
    {"query": "alpha", "fusion": "rrf"},
]


def fill(session: Session, count: int = 12) -> None:
    for n in range(count):
        session.data(
            "doc.create",
            title=f"Title {n}",
            text=f"git backup number {n}, a nightly mirror",
            tags=["even"] if n % 2 else [],
            source_id=f"s{n}",
            client_token=f"first-{n}",
        )
    session.data("doc.update", id=1, text="alpha mirrored the repository")
    plan = session.error("doc.delete", ids=[2])["plan"]
    session.data("doc.delete", ids=[2], confirm=plan["plan_hash"])
    session.embedded()


def answers(session: Session) -> list[bytes]:
    session.library.compact()
    return [json.dumps(session.data("search", **question)).encode() for question in QUESTIONS]


def listed(session: Session) -> list[Any]:
    return [session.data("doc.list", limit=1000), session.data("kb.list"), session.data("tag.list")]


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if ".partial-" in path.name)


def test_a_backup_is_the_store(open_session: OpenSession, tmp_path: Path) -> None:
    one = open_session()
    fill(one)
    answer = one.ask("store.backup", path="copy")["result"]
    result = answer["data"]
    assert result["path"] == str(tmp_path / "copy")
    assert result["seq"] == answer["meta"]["seq"] == one.store.seq
    assert answer["meta"]["hint"].endswith(f"kbproc --store {tmp_path / 'copy'} status")
    files = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert result["files"] == len(files)
    assert result["bytes"] == sum(path.stat().st_size for path in files)
    two = open_session(tmp_path / "copy")
    assert two.library.embedding.pending_count == 0, "nothing is embedded again"
    two.store.log.verify()
    assert listed(two) == listed(one)
    assert answers(two) == answers(one)
    assert two.data("doc.download", id=3) == one.data("doc.download", id=3)
    assert two.store.settings == one.store.settings


def test_what_is_not_part_of_it(session: Session, tmp_path: Path) -> None:
    fill(session, 2)
    store = session.store
    knowledge.agent(store, "ann")
    knowledge.note(store, "ann", "known", "# A")
    notes = store.folder / "notes" / "ann"
    (notes / "out.md").symlink_to(tmp_path)
    (notes / "picture.png").write_bytes(b"png")
    (notes / ".git").mkdir()
    (notes / ".git" / "HEAD").write_text("ref")
    (store.folder / "sources" / "large").mkdir()
    (store.folder / "sources" / "large" / "half.tmp").write_bytes(b"half")
    session.data("store.backup", path="copy")
    names = {str(p.relative_to(tmp_path / "copy")) for p in (tmp_path / "copy").rglob("*.*")}
    folders = {"store.toml", "log", "sources", "vectors", "notes"}
    assert {name.partition("/")[0] for name in names} == folders
    assert [name for name in names if name.startswith("notes/")] == ["notes/ann/known.md"]
    assert not any(name.endswith(".tmp") for name in names)
    for path in [tmp_path / "copy", *(tmp_path / "copy").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_first_sync_of_a_backup_changes_nothing(
    open_session: OpenSession, tmp_path: Path
) -> None:
    one = open_session()
    store = one.store
    for slug in ("ann", "bob"):
        knowledge.agent(store, slug)
        for n in range(3):
            knowledge.note(store, slug, f"note-{n}", f"# {slug} {n}\r\n")
    (tmp_path / "own").mkdir()
    knowledge.agent(store, "eve", folder=str(tmp_path / "own"))
    edited = store.folder / "notes" / "ann" / "note-1.md"
    edited.write_text("# Edited while nobody looked\n")
    answer = one.ask("store.backup", path="copy")["result"]
    assert answer["meta"]["hint"].startswith("The notes of eve lie elsewhere")
    copied = tmp_path / "copy" / "notes"
    assert (copied / "ann" / "note-1.md").read_text() == "# Edited while nobody looked\n"
    assert sorted(str(p.relative_to(copied)) for p in copied.rglob("*.md")) == sorted(
        str(p.relative_to(store.folder / "notes")) for p in (store.folder / "notes").rglob("*.md")
    )
    two = open_session(tmp_path / "copy")
    seq = two.store.seq
    two.data("note.sync")
    assert two.store.seq == seq
    notes = [s.data("note.list", agent="ann") for s in (one, two)]
    assert notes[0] == notes[1]


def test_a_note_that_comes_while_it_is_copied(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy has the notes at its seq, although the folder has changed since."""
    store = session.store
    knowledge.agent(store, "ann")
    note_id = knowledge.note(store, "ann", "gone", "# Gone later\n")
    stock = backup_module.take_stock(store, lambda: None)
    with store.lane():
        knowledge.put(store, DocDeleted(id=note_id))
        (store.folder / "notes" / "ann" / "gone.md").unlink()
    knowledge.note(store, "ann", "later", "# Later\n")
    backup_module.copy(
        stock, tmp_path / "copy", tell=lambda done, total, name: None, check=lambda: None
    )
    assert [p.name for p in (tmp_path / "copy" / "notes").rglob("*.md")] == ["gone.md"]


def test_while_four_threads_write(
    open_session: OpenSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy holds every record up to its seq and none later, over several segments."""
    monkeypatch.setattr(file, "SEGMENT_BYTES", 6000)
    one = open_session()
    acknowledged: list[tuple[int, int, str]] = []
    stop = threading.Event()

    def write(number: int) -> None:
        n, connection = 0, one.another("user")
        while not stop.is_set() and n < 200:
            token = f"{number}-{n}"
            seq, id = create(connection, token)
            acknowledged.append((seq, id, token))
            n += 1

    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    backups = []
    for n in range(2):
        while len(acknowledged) < (n + 1) * 8:
            assert all(writer.is_alive() for writer in writers)
            one.store.wait_for_change(0.05)
        before = list(acknowledged)
        backups.append((before, backup(one, tmp_path / f"copy-{n}")))
    stop.set()
    for writer in writers:
        writer.join()
    assert len(list((one.store.folder / "log").iterdir())) > 2
    for n, (before, seq) in enumerate(backups):
        two = open_session(tmp_path / f"copy-{n}")
        assert two.store.seq == seq == two.store.log.verify()
        assert {seen_seq for seen_seq, _, _ in before} <= set(range(seq + 1)), (
            "what was acknowledged"
        )
        upto = {id for at, id, _ in acknowledged if at <= seq}
        assert {doc["id"] for doc in two.data("doc.list", limit=1000)} == upto
        for id in upto:
            two.data("doc.download", id=id)
        assert not any(doctor.compare(two.store).values())
        inside = next(token for at, _, token in acknowledged if at <= seq)
        again = two.ask("doc.create", title=inside, text=f"word {inside}", client_token=inside)
        assert again["result"]["meta"]["duplicate"] is True
        assert two.store.seq == seq
        two.close()


def create(session: Session, token: str) -> tuple[int, int]:
    answer = session.ask("doc.create", title=token, text=f"word {token}", client_token=token)
    return answer["result"]["meta"]["seq"], answer["result"]["data"]["id"]


def backup(session: Session, path: Path) -> int:
    return int(session.data("store.backup", path=str(path))["seq"])


def test_a_client_token(session: Session, tmp_path: Path) -> None:
    fill(session, 2)
    first = session.ask("store.backup", path="copy", client_token="t")["result"]
    session.data("doc.create", title="Later", text="later")
    again = session.ask("store.backup", path="copy", client_token="t")["result"]
    assert again["meta"]["duplicate"] is True
    assert again["data"] == first["data"]


def test_dry_run(session: Session, tmp_path: Path) -> None:
    fill(session, 2)
    plan = session.ask("store.backup", path="copy", dry_run=True)["result"]["meta"]["plan"]
    result = session.data("store.backup", path="copy")
    assert plan["changes"] == [
        f"copy {result['files']} files, {result['bytes']} bytes, to {tmp_path / 'copy'}"
    ]


def test_where_it_may_go(session: Session, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "empty").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "file")
    seq = session.store.seq
    for path, type in {
        "file": "resource.already_exists",
        "empty": "resource.already_exists",
        "dangling": "resource.already_exists",
        ".": "resource.already_exists",
        "store": "input.invalid_params",
        "store/sources/copy": "input.invalid_params",
        "no/where": "resource.not_found",
        "file/below": "resource.not_found",
        "../outside": "path.outside_root",
        "/": "path.outside_root",
        "a\0b": "input.invalid_params",
    }.items():
        for method in ("store.backup", "store.export"):
            error = session.error(method, path=path)
            assert (error["type"], error["field"]) == (type, "$.params.path"), path
    assert (tmp_path / "file").read_text() == "kept"
    assert not any((tmp_path / "empty").iterdir())
    assert session.store.seq == seq
    assert left_over(tmp_path) == []


def test_it_needs_the_scope_admin(open_session: OpenSession) -> None:
    session = open_session(scopes="doc:read,doc:write,store:read")
    for method in ("store.backup", "store.export", "store.import"):
        assert session.error(method, path="copy")["type"] == "auth.insufficient_scope"


def test_a_full_disk(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(session, 3)

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for method in ("store.backup", "store.export"):
        with monkeypatch.context() as patch:
            patch.setattr("kbproc.base.disk.sync", full)
            error = session.error(method, path="copy")
        assert (error["type"], error["retryable"]) == ("store.io", True)
        assert "No space left" in error["message"]
        assert not (tmp_path / "copy").exists()
        assert left_over(tmp_path) == []
    session.data("store.backup", path="copy")


def test_cancelled_half_way(session: Session, tmp_path: Path) -> None:
    """A cancelled backup leaves no files, and the next one may run."""
    fill(session, 3)
    session.data("store.backup", path="first")

    def stop(name: str) -> None:
        if name == "backup.copied":
            raise AssertionError("it was cancelled before")

    lock = session.store.exclusive()
    with lock:  # another upkeep runs: the backup waits for its turn, and is cancelled there
        session.send(as_bytes(request(7, "store.backup", path="copy")))
        session.send(as_bytes(cancel(7)))
        failpoints.arm(stop)
        try:
            while "method" in (message := json.loads(session.receive())):
                pass
        finally:
            failpoints.arm(None)
    assert message["error"]["data"]["type"] == "operation.cancelled"
    assert not (tmp_path / "copy").exists()
    assert left_over(tmp_path) == []


def test_progress_counts_bytes(session: Session) -> None:
    fill(session, 3)
    session.send(as_bytes(request(7, "store.backup", path="copy")))
    events = []
    while "method" in (message := json.loads(session.receive())):
        events.append(message["params"])
    last = [event for event in events if event["type"] == "progress"][-1]
    assert last["stage"] == "copy"
    assert last["current"] == last["total"] == message["result"]["data"]["bytes"]


def test_killed_before_it_is_named(open_session: OpenSession, tmp_path: Path) -> None:
    """The leftover folder does not open as a store; the next backup to that place removes it."""
    one = open_session()
    fill(one, 3)
    one.close()
    own_partial = tmp_path / "copy.partial-mine"
    own_partial.mkdir()
    (own_partial / "store.toml").write_text("format = 2\n")
    code = (
        "import os, sys\nfrom pathlib import Path\n"
        "from kbproc.base import failpoints\nfrom kbproc.knowledge.transfer import backup\n"
        "from kbproc.knowledge.app.library import Library\n"
        "from tests.kit.fixed import FixedHost\n"
        "folder = Path(sys.argv[1])\n"
        "store = Library.open(folder / 'store', host=FixedHost(), cache=folder / 'cache')\n"
        "failpoints.arm(lambda name: os._exit(7) if name == 'backup.copied' else None)\n"
        "stock = backup.take_stock(store.store, lambda: None)\n"
        "backup.copy(stock, folder / 'copy', tell=lambda *a: None, check=lambda: None)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=REPO, check=False)
    assert done.returncode == 7
    assert not (tmp_path / "copy").exists()
    [remainder] = set(left_over(tmp_path)) - {own_partial.name}
    with pytest.raises(KbprocError, match="format 0"):
        Library.open(tmp_path / remainder, host=FixedHost(), cache=tmp_path / "cache")
    two = open_session()
    two.data("store.backup", path="copy")
    assert left_over(tmp_path) == [own_partial.name], "never what merely has such a name"
    assert open_session(tmp_path / "copy").store.seq == two.store.seq


def test_a_running_backup_is_no_leftover(session: Session, tmp_path: Path) -> None:
    fill(session, 2)
    with backup_module.unfinished(tmp_path / "copy") as running:
        session.data("store.backup", path="copy")
        assert running.is_dir()


def test_somebody_else_takes_the_name_meanwhile(session: Session, tmp_path: Path) -> None:
    fill(session, 2)

    def take(name: str) -> None:
        if name == "backup.copied":
            (tmp_path / "copy").write_text("mine")

    failpoints.arm(take)
    try:
        error = session.error("store.backup", path="copy")
    finally:
        failpoints.arm(None)
    assert error["type"] == "resource.already_exists"
    assert (tmp_path / "copy").read_text() == "mine"
    assert left_over(tmp_path) == []


def test_a_damaged_log_is_not_copied(open_session: OpenSession, tmp_path: Path) -> None:
    session = open_session()
    fill(session, 3)
    [segment] = (session.store.folder / "log").iterdir()
    data = segment.read_bytes()
    segment.write_bytes(data.replace(b"number 1", b"number 7"))
    assert session.error("store.backup", path="copy")["type"] == "store.corrupt"
    assert not (tmp_path / "copy").exists()
    segment.write_bytes(data)


def test_lost_sources_are_told(session: Session, tmp_path: Path) -> None:
    fill(session, 4)
    missing, bad = (session.data("doc.get", id=id)["sha256"] for id in (3, 4))
    session.store.blobs.erase([missing])
    harm(session.store.folder, bad, lambda data: b"rotten")
    answer = session.ask("store.backup", path="copy")["result"]
    assert "2 sources are missing or damaged" in answer["meta"]["notice"][0]
    copied = b"".join(source_files(tmp_path / "copy").values())
    assert [bytes.fromhex(name) in copied for name in (missing, bad)] == [False, False]
    files = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert answer["data"]["files"] == len(files)


def test_stopped_between_two_files(session: Session, tmp_path: Path) -> None:
    fill(session, 3)
    stock = backup_module.take_stock(session.store, lambda: None)
    progress: list[int] = []

    def check() -> None:
        if progress:
            assert left_over(tmp_path) != []
            raise KbprocError("operation.cancelled", "Enough.")

    with pytest.raises(KbprocError, match="Enough"):
        backup_module.copy(
            stock, tmp_path / "copy", tell=lambda *_: progress.append(1), check=check
        )
    assert not (tmp_path / "copy").exists()
    assert left_over(tmp_path) == []
