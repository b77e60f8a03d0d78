"""Stores that were tampered with, and disks that run full and are freed again."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import failpoints
from kbproc.base.errors import KbprocError
from kbproc.base.settings.trust import Trust
from kbproc.engine.models import http
from kbproc.engine.models.weights import locate
from kbproc.engine.store.folder import write_settings
from kbproc.knowledge.app.health import doctor
from kbproc.knowledge.app.library import Library
from tests.conftest import OpenSession
from tests.kit.faults import everything_in, faults_of, note, small_disk
from tests.kit.fixed import FixedHost, model_of
from tests.kit.patience import all_or
from tests.kit.talk import Message, Process, Session

compared = faults_of("stores", counted=True, thinned=True)


# ------------------------------------------------------ a disk that runs full and is freed


class Writer:
    """Writes through a pipe and records the titles that the answers say were stored."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.there: set[str] = set()
        self.refused: list[Message] = []
        self._ids = itertools.count(1)

    def ask(self, method: str, /, **params: Any) -> Message:
        return self.process.ask(next(self._ids), method, **params)

    def write(self, size: int) -> bool:
        """Writes a knowledge base and a document of `size` words; False if one is refused."""
        number = next(self._ids)
        has_kb = self._put(
            f"kb-{number}", "kb.create", slug=f"kb-{number}", name="x" * min(size, 200)
        )
        text = f"word{number} " * size
        return self._put(f"T{number}", "doc.create", title=f"T{number}", text=text) and has_kb

    def _put(self, name: str, method: str, /, **params: Any) -> bool:
        answer = self.ask(method, **params)
        if "result" in answer:
            self.there.add(name)
            return True
        error = answer["error"]["data"]
        assert error["type"] == "store.io", answer
        self.refused.append(error)
        if error["detail"].get("kept"):
            self.there.add(name)
        return False

    def names(self) -> set[str]:
        documents = self.ask("doc.list", limit=1000, fields=["title"])["result"]["data"]
        kbs = self.ask("kb.list", limit=1000)["result"]["data"]
        return {row["title"] for row in documents} | {row["slug"] for row in kbs} - {"default"}


LEFT = 700  # kilobytes, few enough to fill quickly


@pytest.mark.parametrize(
    ("kilobytes", "size"),
    all_or([(4000, 900)], [(3000, 900), (4000, 900), (5200, 300), (5200, 50), (6000, 900)]),
)
def test_a_full_disk_that_is_freed(
    open_session: OpenSession, tmp_path: Path, kilobytes: int, size: int
) -> None:
    with contextlib.ExitStack() as ended:
        disk = ended.enter_context(small_disk(tmp_path, kilobytes))
        process = Process(disk / "store", cwd=tmp_path)
        ended.callback(process.stop)
        writer = Writer(process.ready())
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(max(0, shutil.disk_usage(disk).free - (LEFT << 10))))
        while len(writer.refused) < 12:
            if not writer.write(size):
                assert "result" in writer.ask("search", query="word1", mode="fts")
        assert writer.names() <= writer.there
        ballast.unlink()
        assert writer.write(size), writer.refused[-1]
        assert writer.names() == writer.there, "each answer said what was true"
        process.stop(15)
        session = open_session(disk / "store")
        titles = {row["title"] for row in session.data("doc.list", limit=1000)}
        assert titles <= writer.there
        assert session.store.log.verify() == session.store.seq
        assert not any(doctor.compare(session.store).values())
        session.close()
    note(
        "stores",
        "a file system runs full under writes, and is freed under the same process",
        "refused with store.io, each answer says whether the write is kept; reads went on; "
        "writes went on once there was room, without a restart",
    )


# Free kilobytes while the store is opened: each more lets the opening come further.
FREE = all_or(
    [0, 8, 16, 200, 400], [0, 4, 8, 12, 16, 24, 40, 60, 100, 200, 300, 400, 600, 800, 1200]
)


@pytest.mark.parametrize("state", ["new", "closed", "without views"])
def test_a_store_that_is_opened_on_a_full_disk(tmp_path: Path, state: str) -> None:
    """The process answers once there is room, without a restart."""
    with small_disk(tmp_path, 12_000) as disk:
        for free in FREE:
            store = disk / "store"
            if state != "new":
                first = Process(store, cwd=tmp_path).ready()
                assert "result" in first.ask(1, "doc.create", title="First", text="words " * 400)
                first.close()
                first.stop()
            if state == "without views":
                shutil.rmtree(store / "views")
            opened_on_full_disk(store, free)
            shutil.rmtree(store)
    note(
        "stores",
        "a full disk while the store is opened or made, which is freed under the process",
        "each request gets store.io until there is room; then it is answered, without a restart",
    )


def opened_on_full_disk(store: Path, free: int) -> None:
    """Opens the store with so many kilobytes free; frees the disk, and asks again."""
    ballast = store.parent / "ballast"
    ballast.write_bytes(bytes(max(0, shutil.disk_usage(store.parent).free - (free << 10))))
    with contextlib.ExitStack() as ended:
        process = Process(store, cwd=store.parent)
        ended.callback(process.stop)
        assert process.message()["params"]["type"] == "init"
        for method in ("doc.list", "status"):
            answer = process.ask(method, method)
            if "error" in answer:
                assert answer["error"]["data"]["type"] == "store.io", answer
        ballast.unlink()
        assert "result" in process.ask("list", "doc.list")
        assert "result" in process.ask("put", "doc.create", title="T", text="words " * 50)
        answer = process.ask("search", "search", query="words", mode="fts")
        assert answer["result"]["data"]["total_matches"] >= 1


def test_an_attached_process_that_becomes_the_owner_on_a_full_disk(tmp_path: Path) -> None:
    with contextlib.ExitStack() as ended:
        disk = ended.enter_context(small_disk(tmp_path, 12_000))
        owner = Process(disk / "store", cwd=tmp_path).ready()
        ended.callback(owner.stop)
        assert "result" in owner.ask(1, "doc.create", title="First", text="words " * 400)
        process = Process(disk / "store", cwd=tmp_path).ready()
        ended.callback(process.stop)
        shutil.rmtree(disk / "store" / "views")
        ballast = filled(disk)
        owner.stop()
        assert process.ask("full", "doc.list")["error"]["data"]["type"] == "store.io"
        ballast.unlink()
        assert "result" in process.ask("freed", "doc.list")
        assert "result" in process.ask("put", "doc.create", title="T", text="words")


def filled(disk: Path) -> Path:
    """Returns a file that takes all of the disk's room."""
    ballast = disk / "ballast"
    with pytest.raises(OSError, match="No space"), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


READS: list[tuple[str, dict[str, Any]]] = [
    ("doc.list", {"as_of": 3}),
    ("search", {"query": "words", "as_of": 2, "mode": "fts"}),
    ("sql.query", {"sql": "select count(*) from documents"}),
]


@pytest.mark.parametrize(("method", "params"), READS)
def test_what_a_read_must_write_on_a_full_disk(
    tmp_path: Path, method: str, params: dict[str, Any]
) -> None:
    with contextlib.ExitStack() as ended:
        disk = ended.enter_context(small_disk(tmp_path, 8000))
        process = Process(disk / "store", cwd=tmp_path)
        ended.callback(process.stop)
        process.ready()
        for number in range(1, 4):
            assert "result" in process.ask(number, "doc.create", title="A", text="words " * 99)
        ballast = filled(disk)
        error = process.ask("full", method, **params)["error"]["data"]
        assert error["type"] == "store.io", error
        ballast.unlink()
        assert "result" in process.ask("freed", method, **params)
    note(
        "stores",
        "a full disk, and a read that must write: `as_of`, `sql.query`",
        "refused with store.io; answered once there was room",
    )


# --------------------------------------------------------- strangers among the log's files


def finding(session: Session, name: str) -> Message:
    findings = session.data("doctor")["findings"]
    match: Message = next(one for one in findings if one["name"] == name)
    return match


def refused_here(store: Path) -> KbprocError:
    """Returns the error of opening the store."""
    with pytest.raises(KbprocError) as caught:
        Library.open(store, host=FixedHost(), cache=store.parent / "cache", model=model_of("hash"))
    return caught.value


def bytes_in(store: Path) -> dict[str, bytes]:
    """Returns the bytes of every file but the lock, which each opening writes."""
    paths = {str(path.relative_to(store)): path for path in store.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in paths.items() if name != "lock"}


def refused(store: Path) -> KbprocError:
    """Returns the error of opening the store, and checks that its log is unchanged."""
    before = {path.name: path.read_bytes() for path in (store / "log").iterdir()}
    error = refused_here(store)
    assert {path.name: path.read_bytes() for path in (store / "log").iterdir()} == before
    return error


STRANGERS = (
    "000000000001 (conflict).ndjson",
    "000000000001 (Anna's conflicted copy 2026-01-01).ndjson",
    "000000000001.sync-conflict-20260101-120000-ABCDEFG.ndjson",
    "000000000001.ndjson~",
    "000000000001.ndjson.bak",
    "000000000001.ndjson.tmp",
    "0000000000001.ndjson",
    "1.ndjson",
    "2.tmp",
    ".000000000001.ndjson.swp",
    ".DS_Store",
    "\udcff.ndjson",
)


def test_strangers_in_the_log_are_named_and_left_alone(
    open_session: OpenSession, subtests: pytest.Subtests
) -> None:
    one = open_session()
    one.data("doc.create", title="A", text="alpha")
    one.close()
    log = one.store.folder / "log"
    bytes_of_it = (log / "000000000001.ndjson").read_bytes()

    def check(name: str) -> None:
        (log / name).write_bytes(bytes_of_it)
        two = open_session()
        two.data("doc.create", title=ascii(name), text="beta")
        printed = name.replace("\udcff", r"\xff")
        assert printed in two.ask("doc.list")["result"]["meta"]["notice"][0]
        log_finding = finding(two, "log")
        assert (log_finding["status"], printed in log_finding["message"]) == ("warn", True)
        assert (log / name).read_bytes() == bytes_of_it
        (log / name).unlink()
        two.store.log.look()
        assert "notice" not in two.ask("doc.list")["result"]["meta"]
        two.close()
        note("stores", "a file that is no segment lies among the log's", _LEFT_ALONE)

    for name in STRANGERS:
        with subtests.test(ascii(name)):
            check(name)
    for name in STRANGERS:
        (log / name).write_bytes(bytes_of_it)
    three = open_session()
    three.data("doc.create", title="B", text="beta")
    three.close()
    four = open_session()
    titles = [row["title"] for row in four.data("doc.list")]
    assert titles == ["A", *map(ascii, STRANGERS), "B"]


_LEFT_ALONE = "named in every answer and by doctor; left alone; reads and writes go on"


# The name of a copy, and the lines of the first segment that it has.
COPIES = [
    ("000000000002.ndjson", slice(None)),
    ("000000000002.ndjson", slice(1, None)),
    ("000000000003.ndjson", slice(2, 3)),
    ("000000000004.ndjson", slice(None)),
    ("000000000009.ndjson", slice(None)),
    ("000000000002.ndjson", slice(0, 0)),
    ("000000000009.ndjson", slice(0, 0)),
    ("000000000000.ndjson", slice(None)),
]


def test_a_copy_with_a_segments_name_is_refused_before_anything_is_written(
    open_session: OpenSession,
    subtests: pytest.Subtests,
) -> None:
    one = open_session()
    for title in "AB":
        one.data("doc.create", title=title, text="alpha")
    one.close()
    store = one.store.folder
    first = (store / "log" / "000000000001.ndjson").read_bytes()

    def check(copy: tuple[str, slice]) -> None:
        name, lines = copy
        stray = store / "log" / name
        stray.write_bytes(b"".join(first.splitlines(keepends=True)[lines]))
        error = refused(store)
        assert error.type == "store.corrupt"
        assert "000000000" in error.message
        stray.unlink()
        note(
            "stores",
            "a copy of a segment, whole or in part, under the name of another one",
            "refused with store.corrupt, which names the file; nothing is written; without the "
            "copy all is as before",
        )

    for copy in COPIES:
        with subtests.test(f"{copy}"):
            check(copy)
    two = open_session()
    assert [row["title"] for row in two.data("doc.list")] == ["A", "B"]


def test_a_copy_that_comes_after_the_opening_takes_no_write(open_session: OpenSession) -> None:
    one = open_session()
    one.data("doc.create", title="A", text="alpha")
    one.close()
    two = open_session()
    log = two.store.folder / "log"
    first = log / "000000000001.ndjson"
    stray = log / "000000000002.ndjson"
    stray.write_bytes(before := first.read_bytes())
    error = two.error("doc.create", title="B", text="beta")
    assert error["type"] == "store.corrupt"
    assert stray.name in error["message"]
    assert stray.read_bytes() == first.read_bytes() == before
    stray.unlink()
    two.data("doc.create", title="B", text="beta")
    assert [row["title"] for row in two.data("doc.list")] == ["A", "B"]


# -------------------------------------------------------------------------------- symlinks


LINKED = (
    "store.toml",
    "lock",
    "kbproc.sock",
    "log",
    "log/000000000001.ndjson",
    "sources",
    "sources/*.pack",
    "sources/large",
    "sources/large/*",
    "views",
    "views/catalog-000001.sqlite",
    "views/fulltext",
    "views/fulltext/current.json",
    "views/files.seen",
    "views/log.seen",
    "views/vectors.manifest",
    "vectors",
    "vectors/*.pack",
    "notes",
    "notes/gitea",
    "damaged",
)


ABSENT = {"kbproc.sock", "damaged"}
LARGE = f"# A\n\nalpha beta\n\n{'and so on ' * 7000}"


def test_no_file_of_a_store_is_opened_through_a_symlink(
    open_session: OpenSession, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(LARGE)
    one = open_session()
    one.data("doc.ingest", paths=["docs"])
    one.data("agent.create", slug="gitea")
    one.data("note.put", agent="gitea", slug="todo", text="# Todo\n\nwater the plants")
    one.embedded()
    one.close()
    store = one.store.folder
    closed = bytes_in(store)

    def check(name: str) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        if name in ABSENT:
            path, target = store / name, outside / "other"
            target.mkdir()
        else:
            path = next(iter(sorted(store.glob(name))))
            target = outside / path.name
            path.rename(target)
        path.symlink_to(target)
        before = everything_in(outside)
        error = refused_here(store)
        assert error.type == "store.io"
        assert str(path) in error.message
        assert not error.retryable
        assert everything_in(outside) == before
        assert path.is_symlink()
        path.unlink()
        if name not in ABSENT:
            target.rename(path)
        shutil.rmtree(outside)
        assert bytes_in(store) == closed
        note(
            "stores",
            "a symlink in the place of a file or folder of the store",
            "refused with store.io, which names it; what it leads to is neither read nor changed",
        )

    for name in LINKED:
        with subtests.test(name):
            check(name)
    two = open_session()
    assert [row["title"] for row in two.data("doc.list")] == ["A", "Todo"]


PIPED = (
    "lock",
    "log/*",
    "sources/*",
    "views/files.seen",
    "views/log.seen",
    "vectors/*.pack",
    "notes/.gitea.held",
)


def test_no_file_of_a_store_is_a_pipe(
    open_session: OpenSession, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """Reading a pipe would wait for ever."""
    (tmp_path / "a.md").write_text("# A\n\nalpha beta")
    one = open_session()
    one.data("doc.ingest", paths=["a.md"])
    one.data("agent.create", slug="gitea")
    one.embedded()
    one.close()
    store, aside = one.store.folder, tmp_path / "aside"
    closed = bytes_in(store)

    def check(name: str) -> None:
        path = next(iter(sorted(store.glob(name))), store / name)
        if path.exists():
            path.rename(aside)
        os.mkfifo(path)
        error = refused_here(store)
        assert (error.type, error.retryable) == ("store.io", False)
        assert f"{path} is no regular file" in error.message
        path.unlink()
        if aside.exists():
            aside.rename(path)
        assert bytes_in(store) == closed
        note(
            "stores",
            "a pipe in the place of a file of the store",
            "refused with store.io, which names it, at once",
        )

    for name in PIPED:
        with subtests.test(name):
            check(name)
    two = open_session()
    assert [row["title"] for row in two.data("doc.list")] == ["A"]


def test_what_is_linked_while_the_store_is_open_is_not_read(
    open_session: OpenSession, tmp_path: Path
) -> None:
    """Folders are checked when the store is opened, files at each access."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(LARGE)
    one = open_session()
    one.data("doc.ingest", paths=["docs"])
    id = one.data("doc.list")[0]["id"]
    [large] = (one.store.folder / "sources" / "large").iterdir()
    secret = tmp_path / "secret"
    secret.write_text(LARGE)
    large.unlink()
    large.symlink_to(secret)
    assert one.error("doc.download", id=id)["type"] == "store.io"
    (tmp_path / "docs" / "b.md").write_text(LARGE)
    one.data("doc.ingest", paths=["docs"])
    assert not large.is_symlink()
    assert secret.read_text() == LARGE
    assert one.data("doc.download", id=id)["size_bytes"] == len(LARGE)


# ------------------------------------------------------------------ others who may write


OTHERS = "another user's store"
EXPOSED: dict[str, Any] = {
    "a store that all may write to": lambda store: store.chmod(0o777),
    "a store that a group may write to": lambda store: store.chmod(0o770),
    "a store whose log all may write to": lambda store: (store / "log").chmod(0o777),
    "a store whose settings all may write to": lambda store: (store / "store.toml").chmod(0o666),
    OTHERS: lambda store: os.chown(store, 65534, 65534),
}


def test_what_others_may_write_is_only_read(
    open_session: OpenSession, subtests: pytest.Subtests
) -> None:
    one = open_session()
    one.data("doc.create", title="A", text="alpha")
    one.embedded()
    one.close()
    store = one.store.folder

    def check(what: str) -> None:
        EXPOSED[what](store)
        before = everything_in(store)
        two = open_session()
        result = two.ask("search", query="alpha")["result"]
        assert result["data"]["total_matches"] == 1
        assert any("only read" in notice for notice in result["meta"]["notice"])
        error = two.error("doc.create", title="B", text="beta")
        assert (error["type"], error["retryable"]) == ("store.io", False)
        command = error["detail"]["command"]
        assert command in error["hint"]
        two.close()
        assert everything_in(store) == before
        subprocess.run(command, shell=True, check=True)
        three = open_session()
        three.data("doc.create", title="B", text="beta")
        assert "notice" not in three.ask("doc.list")["result"]["meta"]
        three.close()
        note(
            "stores",
            what,
            "read with a warning and not written: store.io, with the command that mends it",
        )

    may_give_away = os.geteuid() == 0
    for what in [what for what in EXPOSED if may_give_away or what != OTHERS]:
        with subtests.test(what):
            check(what)


def test_a_store_that_is_opened_to_others_takes_no_more_writes(session: Session) -> None:
    session.data("doc.create", title="A", text="alpha")
    session.store.folder.chmod(0o777)
    assert "chmod" in session.error("doc.create", title="B", text="beta")["hint"]
    session.store.folder.chmod(0o700)
    session.data("doc.create", title="B", text="beta")


def test_no_note_is_written_into_a_store_that_takes_no_writes(
    session: Session, tmp_path: Path
) -> None:
    """The note's file must not change when its record is refused."""
    folder = tmp_path / "ann"
    session.data("agent.create", slug="ann", notes_folder=str(folder))
    session.data("note.put", agent="ann", slug="tide", text="# Ebb")

    def open_to_others(point: str) -> None:
        if point == "blob.write":  # after the first check of the folder, before the commit
            session.store.folder.chmod(0o777)

    failpoints.arm(open_to_others)
    refused = session.error("note.put", agent="ann", slug="tide", text="# Flood")
    failpoints.arm(None)
    assert "chmod" in refused["hint"]
    assert (folder / "tide.md").read_text() == "# Ebb"
    session.store.folder.chmod(0o700)


# ------------------------------------------------------------------ names in the settings


NAMES = ("😀", 'a"b', "a\\b", "tab\tnewline\nreturn\r", "\x00\x1f\x7f\x85", "\u2028", "\ufeff")


def test_whatever_a_model_is_called_the_store_opens_again(
    open_session: OpenSession, subtests: pytest.Subtests
) -> None:
    one = open_session()
    one.data("doc.create", title="A", text="alpha")
    one.close()

    def check(name: str) -> None:
        two = open_session()
        before = two.data("status")["model_name"]
        answer = two.ask("model.use", kind="hash", name=name)
        is_accepted = "result" in answer
        assert is_accepted or answer["error"]["data"]["type"] == "input.invalid_params"
        assert is_accepted or name not in NAMES
        two.close()
        three = open_session()
        assert three.data("status")["model_name"] == (name if is_accepted else before)
        three.embedded()
        assert three.data("search", query="alpha", mode="vector")["returned"] == 1
        three.close()
        note(
            "stores",
            "a model with emoji, quotes, control characters or 70,000 letters in its name",
            "kept so that it is read back the same, or refused before anything has changed",
        )

    for name in [*NAMES, "x" * 70_000]:
        with subtests.test(f"{name!r:.80}"):
            check(name)


@pytest.mark.parametrize("wrong", ["\ud83d", "\udcff"])
def test_what_is_no_unicode_is_never_written_to_the_settings(tmp_path: Path, wrong: str) -> None:
    write_settings(tmp_path / "store.toml", {"kind": "hash", "name": "hash"})
    before = (tmp_path / "store.toml").read_bytes()
    for value in (wrong, float("nan")):
        with pytest.raises(KbprocError) as caught:
            write_settings(tmp_path / "store.toml", {"kind": "hash", "name": value})
        assert caught.value.type == "input.invalid_params"
    assert (tmp_path / "store.toml").read_bytes() == before


# ------------------------------------------------------------- an endpoint without approval


def test_an_endpoint_that_came_with_a_store_is_not_called(
    open_session: OpenSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "TRIES", 1)  # the endpoint never answers
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    with socket.create_server(("127.0.0.1", 0)) as theirs:
        theirs.setblocking(False)
        url = f"http://127.0.0.1:{theirs.getsockname()[1]}/v1"
        settings = {"kind": "openai", "name": "m", "url": url, "dim": 2, "timeout_s": 0.1}
        write_settings(store / "store.toml", settings)
        one = open_session()
        one.data("doc.create", title="A", text="alpha beta")
        result = one.ask("search", query="alpha")["result"]
        assert result["data"]["returned"] == 1
        assert any(url in notice for notice in result["meta"]["notice"])
        model_finding = finding(one, "model")
        assert model_finding["status"] == "warn"
        assert "kbproc link --trust" in model_finding["hint"]
        one.library.tidy()
        one.close()
        with pytest.raises(BlockingIOError):
            theirs.accept()
        Trust(tmp_path / "trusted.json").add_model(store, {**settings, "dim": 3})
        another = open_session()
        assert "not approved" in finding(another, "model")["message"]
        another.close()
        Trust(tmp_path / "trusted.json").add_model(store, settings)
        two = open_session()
        assert "not approved" not in str(two.ask("search", query="alpha"))
        assert "not approved" not in str(finding(two, "model"))
        theirs.setblocking(True)
        theirs.accept()[0].close()
    note(
        "stores",
        "a store whose settings name an endpoint that its user has not approved",
        "opened without the model: only words are searched, nobody is called, doctor says how to "
        "approve it",
    )


def evil(folder: Path, ran: Path) -> Path:
    """Makes a model whose files name code of their own."""
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "modules.json").write_text(
        '[{"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}]'
    )
    (model / "evil.py").write_text(f"open({str(ran)!r}, 'w').close()\nclass Evil: pass\n")
    return model


@pytest.mark.parametrize("kind", ["onnx", "sentence-transformers"])
@pytest.mark.parametrize("name", [None, "somebody/their-model", "model"])
def test_a_model_that_came_with_a_store_is_not_loaded(
    open_session: OpenSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    name: str | None,
) -> None:
    """A foreign model's files may hold code, or a file that fills the memory."""
    store, ran = tmp_path / "store", tmp_path / "ran"
    model = evil(tmp_path, ran)
    monkeypatch.chdir(tmp_path)
    store.mkdir(mode=0o700)
    settings = {"kind": kind, "name": name or str(model)}
    write_settings(store / "store.toml", settings)
    one = open_session()
    one.data("doc.create", title="A", text="alpha beta")
    result = one.ask("search", query="alpha")["result"]
    assert result["data"]["returned"] == 1
    assert "not approved" in str(result["meta"]["notice"])
    model_finding = finding(one, "model")
    assert model_finding["status"] == "warn" and "kbproc link --trust" in model_finding["hint"]
    [current] = [row for row in one.data("model.list") if row["current"]]
    assert "not approved" in current["status"]
    one.close()
    Trust(tmp_path / "trusted.json").add_model(store, settings)
    two = open_session()
    assert "not approved" not in finding(two, "model")["message"]
    two.close()
    assert not ran.exists()
    note(
        "stores",
        "a store whose settings name a model that its user has not approved",
        "opened without the model: only words are searched, none of the model's files is read",
    )


def test_a_folder_where_one_works_is_no_model_by_its_name(
    open_session: OpenSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder in a cloned repository may have the same name as a model of the hub."""
    model = evil(tmp_path, tmp_path / "ran")
    monkeypatch.chdir(tmp_path)
    assert locate("model").folder is None
    one = open_session(model="none")
    error = one.error("model.use", name="model", dry_run=True)
    assert error["type"] == "model.unavailable"
    assert locate(str(model)).folder == model
    assert "on this machine" not in str(one.ask("model.use", name="./model", dry_run=True))


WRONG_SETTINGS: dict[str, Any] = {
    "a pipe": os.mkfifo,
    "a gigabyte": lambda path: (path.touch(), os.truncate(path, 1 << 30)),
    "nested deeply": lambda path: path.write_text("a = " + "[" * 20_000 + "]" * 20_000),
    "a folder": Path.mkdir,
    "not TOML": lambda path: path.write_text("= 1"),
    "not UTF-8": lambda path: path.write_bytes(b"\xff"),
    "without a model that is a table": lambda path: path.write_text("format = 2\nmodel = 3"),
    "of an unknown key": lambda path: path.write_text('format = 2\n[model]\nrun = "sh"'),
}


def test_settings_that_are_wrong(open_session: OpenSession, subtests: pytest.Subtests) -> None:
    one = open_session()
    one.data("doc.create", title="A", text="alpha")
    one.close()
    file = one.store.folder / "store.toml"
    sound = file.read_bytes()

    def check(what: str) -> None:
        file.unlink()
        WRONG_SETTINGS[what](file)
        tracemalloc.start()
        try:
            error = refused_here(one.store.folder)
            assert tracemalloc.get_traced_memory()[1] < 1 << 27
        finally:
            tracemalloc.stop()
            (file.rmdir if file.is_dir() else file.unlink)()
            file.write_bytes(sound)
        assert error.type in {"store.corrupt", "store.io", "input.invalid_params"}, error
        assert "store.toml" in error.message or "The model's settings" in error.message
        note(
            "stores", f"a store.toml that is {what}", "refused by name, at once; nothing is changed"
        )

    for what in WRONG_SETTINGS:
        with subtests.test(what):
            check(what)
