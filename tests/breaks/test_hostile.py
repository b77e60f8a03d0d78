"""Files, folders and pages made to hang kbproc, to fill its memory or to lead it astray."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import paths
from kbproc.engine.sources import gitignore, walk, web
from kbproc.knowledge.documents import ingest as documents_ingest
from tests.conftest import OpenSession
from tests.kit import faults
from tests.kit.faults import everything_in
from tests.kit.notes import attach, get, put
from tests.kit.patience import PATIENCE, all_or
from tests.kit.processes import Crowd
from tests.kit.shell import environment
from tests.kit.site import Site
from tests.kit.talk import Process, Session, as_bytes, request

GROUP = "hostile"
told_in_docs = faults.faults_of(GROUP, counted=True, thinned=True)

REST = "told in data.failures (exit 3); every other file is read"


def note(attack: str, outcome: str) -> None:
    faults.note(GROUP, attack, outcome)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "good.md").write_text("Good.")
    return folder


def ingest(session: Session, **params: Any) -> tuple[list[str], list[dict[str, str]]]:
    """Names that were read, and the failures; there is no other outcome."""
    result = session.ask("doc.ingest", **{"paths": ["docs"], **params})["result"]
    data, partial = result["data"], result["meta"].get("partial")
    assert (partial["exit_code"] if partial else 0) == (3 if data["failures"] else 0)
    return [Path(d["path"]).name for d in data["documents"]], data["failures"]


# ------------------------------------------------------------------------ patterns

STARS = [
    "*a" * 100 + "*b",
    "**/" * 300 + "b",
    "*" * 900 + "b",
    "[!b]*" * 190 + "b",
    "?*" * 400 + "b",
]
LONG = "a" * 200


@pytest.mark.parametrize("pattern", STARS)
def test_patterns_that_backtrack(open_session: OpenSession, docs: Path, pattern: str) -> None:
    (docs / f"{LONG}.md").write_text("Long.")
    (docs / ".gitignore").write_text(f"{pattern}\n")
    assert ingest(open_session())[0] == [f"{LONG}.md", "good.md"]
    note("a .gitignore whose patterns have hundreds of stars, and a long name", "read in time")


@pytest.mark.parametrize("member", ["glob", "exclude"])
@pytest.mark.parametrize("pattern", [star[-500:] for star in STARS])
def test_globs_that_backtrack(
    open_session: OpenSession, docs: Path, member: str, pattern: str
) -> None:
    (docs / f"{LONG}.md").write_text("Long.")
    params: Any = {"glob": pattern} if member == "glob" else {"exclude": [pattern]}
    names, failures = ingest(open_session(), **params)
    assert (names, failures) == ([] if member == "glob" else [f"{LONG}.md", "good.md"], [])
    note("`glob` and `exclude` with hundreds of stars, and a long name", "read in time")


def test_a_walk_over_many_rules_can_be_cancelled(docs: Path, tmp_path: Path) -> None:
    """The file holds as many slow rules as it may; the folder holds many names."""
    (docs / ".gitignore").write_text("\n".join(["?*?*?*b"] * 8000))
    for n in range(1000):
        (docs / f"{n:03}{'a' * 200}").touch()
    process = Process(tmp_path / "store", cwd=tmp_path).ready()
    try:
        process.send(as_bytes(request(1, "doc.ingest", paths=["docs"])))
        assert process.message()["params"]["type"] == "init"
        process.send(as_bytes({"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": 1}}))
        answer = process.message()
        assert answer["error"]["data"]["type"] == "operation.cancelled"
        assert process.stop(signal.SIGTERM) == 0
    finally:
        process.stop()
    note("thousands of slow rules over a thousand names", "`$/cancel` and SIGTERM end it")


# --------------------------------------------------------------- what is no .gitignore


def fifo(path: Path) -> None:
    os.mkfifo(path)


def to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def linked(path: Path) -> None:
    (path.parent / "rules").write_text("*.md\n")
    path.symlink_to("rules")


def looping(path: Path) -> None:
    path.symlink_to(path.name)


def large(path: Path) -> None:
    path.write_text("*.md\n" * (gitignore.MOST_BYTES // 5 + 1))


def long_line(path: Path) -> None:
    path.write_text("[" * 2000 + "\n# fine\n")


def deep(path: Path) -> None:
    """Each file is small enough; together they are too large."""
    size = gitignore.MOST_BYTES
    for _ in range(gitignore.MOST_BYTES_TOGETHER // size + 1):
        path.write_text("#" * 99 + "\n" + ("x" * 99 + "\n") * (size // 100 - 1))
        path = path.parent / "deeper" / ".gitignore"
        path.parent.mkdir()
    path.parent.joinpath("low.md").write_text("Low.")


ODD = {
    "a pipe": fifo,
    "a link to /dev/zero": to_zero,
    "a link to rules": linked,
    "a link to itself": looping,
    "a folder": Path.mkdir,
    "too large": large,
    "a line that is too long": long_line,
    "too large together with those above": deep,
}


@pytest.mark.parametrize("what", ODD)
def test_what_is_no_gitignore(open_session: OpenSession, docs: Path, what: str) -> None:
    ODD[what](docs / ".gitignore")
    names, [failure] = ingest(open_session())
    assert "good.md" in names
    assert failure["path"].endswith("/.gitignore")
    assert "was not applied" in failure["message"]
    note(f"a .gitignore that is {what}", f"passed over; {REST}")


# ----------------------------------------------------- paths that can't be looked into


def test_links_that_lead_back_to_themselves(open_session: OpenSession, docs: Path) -> None:
    (docs / "loop.md").symlink_to("loop.md")
    (docs / "one.md").symlink_to("two.md")
    (docs / "two.md").symlink_to("one.md")
    names, failures = ingest(open_session())
    assert names == ["good.md"]
    assert [Path(f["path"]).name for f in failures] == ["loop.md", "one.md", "two.md"]
    assert {f["type"] for f in failures} == {"operation.failed"}
    note("links that lead back to themselves", REST)


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100], ids=oct)
def test_a_folder_without_permission(docs: Path, tmp_path: Path, mode: int) -> None:
    closed = docs / "closed"
    closed.mkdir()
    (closed / "in.md").write_text("In.")
    (closed / "folder").mkdir()
    closed.chmod(mode)
    process = Process(tmp_path / "store", cwd=tmp_path, program=WITHOUT_PRIVILEGES).ready()
    try:
        data = process.ask(1, "doc.ingest", paths=["docs"])["result"]["data"]
        plan = process.ask(2, "doc.ingest", paths=["docs"], dry_run=True)["result"]["meta"]["plan"]
    finally:
        process.stop()
        closed.chmod(0o700)
    assert [Path(d["path"]).name for d in data["documents"]] == ["good.md"]
    assert data["failures"]
    assert {f["path"].partition("/docs/")[2].split("/")[0] for f in data["failures"]} == {"closed"}
    assert any(change.startswith("failed: ") for change in plan["changes"])
    note("a folder that may not be listed or entered", REST)


# Root may look into everything, until its capabilities are given up: see capset(2).
WITHOUT_PRIVILEGES = """
import ctypes, runpy, sys
header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capset(header, none) == 0
runpy.run_module("tests.kit.fixed", run_name="__main__")
"""


def test_folders_that_are_nested_deeper_than_calls(open_session: OpenSession, docs: Path) -> None:
    """The folders are nested deeper than the system's longest path, too."""
    here = os.open(docs, os.O_RDONLY)
    for _ in range(2500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        names, [failure] = ingest(open_session())
    finally:  # pytest itself can't remove them
        subprocess.run(["rm", "-rf", docs / "d"], check=True)
    assert names == ["good.md"]
    assert f"more than {walk.MOST_NESTED} folders deep" in failure["message"]
    note("folders nested 2,500 deep", REST)


def test_a_deep_folder_whose_name_is_not_utf_8(open_session: OpenSession, docs: Path) -> None:
    """A token stores the outcome in the log, and the log holds only valid JSON."""
    deepest = docs.joinpath(*["d"] * walk.MOST_NESTED, os.fsdecode(b"\xff"))
    deepest.mkdir(parents=True)
    names, [failure] = ingest(open_session(), client_token="deep")
    assert names == ["good.md"]
    assert failure["message"].startswith(r"\xff is not looked into")


# ------------------------------------------------- what changes after it was looked at


def file_to_link(docs: Path, outside: Path) -> None:
    (docs / "sub" / "a.md").unlink()
    (docs / "sub" / "a.md").symlink_to(outside / "a.md")


def folder_to_link(docs: Path, outside: Path) -> None:
    (docs / "sub").rename(docs / ".was")
    (docs / "sub").symlink_to(outside)


def file_to_pipe(docs: Path, outside: Path) -> None:
    (docs / "sub" / "a.md").unlink()
    os.mkfifo(docs / "sub" / "a.md")


# The function that kbproc calls at that moment.
MOMENTS = {
    "while the folder above is walked": (gitignore, "ignored"),
    "after the walk": (documents_ingest, "find_files"),
    "after what it leads to was judged": (os.path, "realpath"),
}


@pytest.mark.parametrize("swap", [file_to_link, folder_to_link, file_to_pipe])
@pytest.mark.parametrize("moment", MOMENTS)
def test_what_takes_a_files_place(
    open_session: OpenSession,
    docs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    swap: Callable[[Path, Path], None],
) -> None:
    """docs/ is the root; files outside it are never read."""
    for folder in (docs / "sub", tmp_path / "outside"):
        folder.mkdir()
        (folder / "a.md").write_text(f"Secret of {folder.name}.")
    session = open_session(folder=docs)
    module, name = MOMENTS[moment]
    real, find = getattr(module, name), documents_ingest.find_files
    walked = threading.Event()

    def finding(*args: Any, **named: Any) -> Any:
        result = find(*args, **named)
        walked.set()
        return result

    def swapping(*args: Any, **named: Any) -> Any:
        result = real(*args, **named)
        of = {"ignored": docs / "sub", "realpath": docs / "sub"}.get(name, args[0])
        if args[0] == of and (name != "realpath" or walked.is_set()):  # the walk asks, too
            monkeypatch.undo()
            swap(docs, tmp_path / "outside")
        return result

    monkeypatch.setattr(documents_ingest, "find_files", finding)
    monkeypatch.setattr(module, name, swapping)
    names, failures = ingest(session, paths=["."])
    assert name not in vars(module) or getattr(module, name) is real, "it was swapped"
    assert names == ["good.md"]
    assert session.data("search", query="outside", mode="fts")["total_matches"] == 0
    is_noticed = moment == "while the folder above is walked" and swap is not folder_to_link
    assert len(failures) == (0 if is_noticed else 1), failures
    what = swap.__name__.replace("_to_", " swapped for a ")
    note(f"a {what} {moment}", "not read" if is_noticed else f"not read; {REST}")


def test_an_import_that_becomes_a_link(
    open_session: OpenSession, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("Secret.")
    session = open_session(folder=docs)
    real = paths.resolve

    def swapping(*args: Any, **named: Any) -> Path:
        path = real(*args, **named)
        path.unlink()
        path.symlink_to(tmp_path / "secret")
        return path

    monkeypatch.setattr(paths, "resolve", swapping)
    error = session.error("store.import", path="good.md")
    assert error["type"] == "path.outside_root"
    note("an export swapped for a link before it is imported", "path.outside_root")


LINKED = {
    "the notes folder": lambda top: top / "sub" / "notes",
    "a folder above the notes folder": lambda top: top / "sub",
    "the store's folder of an agent's notes": lambda top: top / "store" / "notes" / "gitea",
}


@pytest.mark.parametrize("what", LINKED)
def test_a_notes_folder_that_becomes_a_link(
    open_session: OpenSession, tmp_path: Path, what: str
) -> None:
    """Nothing is read, written or removed where the link leads, and no note goes for it."""
    (tmp_path / "sub").mkdir()
    session = open_session()
    attach(session)
    named = {} if "store" in what else {"notes_folder": "sub/notes"}
    agent = session.data("agent.create", slug="gitea", **named)
    for slug in ("one", "two"):
        put(session, slug, f"# {slug}")
    linked = LINKED[what](tmp_path)
    folder, outside = Path(agent["notes_folder"]), tmp_path / "outside"
    linked.rename(aside := tmp_path / "aside")
    linked.symlink_to(outside)
    there = outside / folder.relative_to(linked)
    there.mkdir(parents=True)
    (there / "one.md").write_text("# Secret")
    (there / "private.md").write_text("# Secret")
    before = everything_in(outside)
    outcome = session.data("note.sync", agent="gitea")
    assert (outcome["added"], outcome["changed"], outcome["removed"]) == (0, 0, 0)
    [warning] = outcome["warnings"]
    assert f"{linked} is a symlink" in warning and "agent.update" in warning
    for method, more in CHANGES.items():
        error = session.error(method, agent="gitea", **more)
        assert (error["type"], error["detail"].get("code")) == ("store.io", "linked"), error
    findings = {one["name"]: one for one in session.data("agent.check", slug="gitea")["findings"]}
    assert (findings["notes folder"]["status"], findings["notes"]["status"]) == ("fail", "warn")
    assert everything_in(outside) == before
    assert get(session, "one")["text"] == "# one"
    linked.unlink()
    aside.rename(linked)
    assert session.data("note.sync", agent="gitea")["unchanged"] == 2
    put(session, "new", "# New")
    assert (folder / "new.md").read_text() == "# New"
    note(
        f"{what} swapped for a symlink",
        "nothing is read or written there: store.io names the link; no note is removed",
    )


CHANGES: dict[str, dict[str, Any]] = {
    "note.put": {"slug": "new", "text": "# New"},
    "note.delete": {"slug": "one", "dry_run": True},
}


@pytest.mark.parametrize("how", ["agent.create", "note.put", "note.sync"])
def test_no_notes_folder_is_made_behind_a_link(
    open_session: OpenSession, tmp_path: Path, how: str
) -> None:
    outside, session = tmp_path / "outside", open_session()
    outside.mkdir()
    attach(session)
    if how != "agent.create":
        session.data("agent.create", slug="gitea")
    notes = session.store.folder / "notes"
    if notes.exists():
        shutil.rmtree(notes)
    notes.symlink_to(outside)
    params: dict[str, Any] = {"slug": "gitea"} if how == "agent.create" else {"agent": "gitea"}
    if how == "note.put":
        params |= {"slug": "new", "text": "# New"}
    answer = session.ask(how, **params)
    text = str(answer["error"]["data"] if "error" in answer else answer["result"]["data"])
    assert f"{notes} is a symlink" in text, answer
    assert not list(outside.iterdir())


def test_a_pipe_in_a_documents_place(open_session: OpenSession, docs: Path) -> None:
    session = open_session()
    ingest(session)
    (docs / "good.md").unlink()
    os.mkfifo(docs / "good.md")
    [stale] = session.data("kb.check", slug="default")["stale_files"]
    assert stale["state"] == "changed"
    note("a document's file swapped for a pipe, then kb.check", "told as changed")


# ------------------------------------------------------------------------------ pages

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
MOST = 1000  # bytes of a page


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


def refused(open_session: OpenSession, url: str, type: str, **params: Any) -> dict[str, Any]:
    """Returns the error, checks its type, and that the process did not use much memory."""
    session = open_session(allow_private=True)
    tracemalloc.start()
    try:
        error = session.error("doc.fetch", url=url, **{"max_bytes": MOST, **params})
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert error["type"] == type, error["message"]
    assert most < 16 << 20
    assert session.data("status")["total_documents"] == 0
    return error


def deflated(data: bytes) -> bytes:
    return zlib.compress(data, 9)


@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("deflate", deflated)])
def test_a_page_that_unpacks_to_very_much(
    open_session: OpenSession, site: Site, name: str, pack: Callable[[bytes], bytes]
) -> None:
    packed = pack(bytes(100_000_000))
    url = site.page("/a", packed, type="text/plain", Content_Encoding=name)
    refused(open_session, url, "input.too_large", max_bytes=len(packed))
    note("a body that unpacks to a thousand times its size", "input.too_large, at the limit")


def test_a_page_that_is_packed_three_times(open_session: OpenSession, site: Site) -> None:
    packed = gzip.compress(gzip.compress(gzip.compress(bytes(10_000_000))))
    url = site.page("/a", packed, Content_Encoding="gzip, gzip, gzip")
    error = refused(open_session, url, "input.unsupported_type")
    assert "gzip, gzip, gzip" in error["message"]
    note("a body packed three times", "input.unsupported_type, before anything is unpacked")


@pytest.mark.parametrize("name", ["br", "zstd", "compress", "gzip, br", "x" * 5000])
def test_packings_that_are_not_undone(open_session: OpenSession, site: Site, name: str) -> None:
    url = site.page("/a", b"x" * 100, Content_Encoding=name)
    refused(open_session, url, "input.unsupported_type")
    note("a body packed in another way than gzip and deflate", "input.unsupported_type")


WRONGLY_PACKED = {
    "not packed": b"no gzip",
    "cut": gzip.compress(b"Cut." * 9)[:-9],
    "two of them": gzip.compress(b"One.") * 2,
    "empty": b"",
}


@pytest.mark.parametrize("body", WRONGLY_PACKED.values(), ids=WRONGLY_PACKED)
def test_bodies_that_are_packed_wrongly(open_session: OpenSession, site: Site, body: bytes) -> None:
    url = site.page("/a", body, type="text/plain", Content_Encoding="gzip")
    refused(open_session, url, "network.failed")
    note("a packed body that is cut, is none, or is followed by another", "network.failed")


def endless(site: Site, begin: bytes, again: bytes, pause: float = 0) -> str:
    def answer(handler: Any) -> None:
        handler.wfile.write(begin)
        while not site.ended.wait(pause):
            handler.wfile.write(again)

    site.pages["/a"] = answer
    return site.url + "/a"


ENDLESS = {
    "a body": (PLAIN + b"\r\n", b"x" * 100, "input.too_large"),
    "a chunked body": (
        PLAIN + b"Transfer-Encoding: chunked\r\n\r\n",
        b"5\r\nwords\r\n",
        "input.too_large",
    ),
    "a packed body of nothing": (
        PLAIN + b"Content-Encoding: gzip\r\n\r\n\x1f\x8b\x08" + bytes(7),
        b"\x00\x00\x00\xff\xff" * 100,
        "input.too_large",
    ),
    "a header": (PLAIN + b"X-Long: ", b"x" * 100, "network.failed"),
    "a list of headers": (PLAIN, b"X-Many: x\r\n" * 10, "network.failed"),
    "a chunk's extension": (
        PLAIN + b"Transfer-Encoding: chunked\r\n\r\n5;a=",
        b"x" * 100,
        "network.failed",
    ),
    "a list of trailers": (
        PLAIN + b"Transfer-Encoding: chunked\r\n\r\n0\r\n",
        b"X-Many: x\r\n" * 10,
        "network.failed",
    ),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_what_has_no_end(open_session: OpenSession, site: Site, what: str) -> None:
    begin, again, type = ENDLESS[what]
    refused(open_session, endless(site, begin, again), type)
    note(f"{what} without end", type)


SLOW = {
    "a body": (PLAIN + b"\r\n", b"x"),
    "a header": (PLAIN + b"X-Slow: ", b"x"),
    "provisional answers": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
}


@pytest.mark.parametrize("what", SLOW)
def test_what_comes_slowly_and_never_ends(open_session: OpenSession, site: Site, what: str) -> None:
    url = endless(site, *SLOW[what], pause=0.01)
    refused(open_session, url, "network.failed", timeout_ms=400)
    note(f"{what} that comes byte by byte, for ever", "network.failed, at timeout_ms")


def test_redirects_in_a_circle(open_session: OpenSession, site: Site) -> None:
    site.page("/a", status=302, Location="/b")
    refused(open_session, site.page("/b", status=302, Location="/a"), "network.failed")
    assert len(site.asked) == web.MAX_REDIRECTS + 1
    note("redirects in a circle", "network.failed")


def test_a_name_server_that_never_answers(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    def silent(*args: Any, **named: Any) -> list[Any]:
        answered.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    try:
        refused(open_session, "http://silent.test/", "network.failed", timeout_ms=400)
    finally:
        answered.set()
    note("a name server that never answers", "network.failed, at timeout_ms")


PRIVATE = [
    "192.0.0.192",
    "[64:ff9b:1::7f00:1]",
    "[fec0::1]",
    "[::ffff:0:127.0.0.1]",
    "[5f00::1]",
    "168.63.129.16",
    "[2002:7f00:1::]",
    "[64:ff9b::a9fe:a9fe]",
    "[2001:0:7f00:1::]",
    "[::ffff:169.254.169.254]",
    "0x7f.1",
]


def test_addresses_that_lead_inwards(session: Session, subtests: pytest.Subtests) -> None:
    def check(host: str) -> None:
        error = session.error("doc.fetch", url=f"http://{host}/")
        assert (error["type"], error["exit_code"]) == ("network.blocked", 6)
        note("private and special addresses, plain and within others", "network.blocked (exit 6)")

    for host in PRIVATE:
        with subtests.test(host):
            check(host)


# ------------------------------------------------------- descriptors that are closed

CLOSED = ("<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-")


def run_with(closed: str, folder: Path, *argv: str) -> subprocess.CompletedProcess[bytes]:
    """Runs a command; `serve` gets one write through its stdin."""
    request_line = as_bytes(request(1, "kb.create", slug="served")) + b"\n"
    return subprocess.run(
        ["sh", "-c", f'exec "$0" -m kbproc "$@" {closed}', sys.executable, *argv],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environment(folder), "KBPROC_FORMAT": "json"},
        input=request_line,
        check=False,
        capture_output=True,
        timeout=PATIENCE,
    )


# An attached process holds no file of the store, so one way of closing covers all.
@pytest.mark.parametrize(
    ("closed", "attached"),
    all_or(
        [("<&-", False), (">&-", False), ("2>&-", False), ("<&- >&- 2>&-", True)],
        product(CLOSED, [False, True]),
    ),
)
def test_descriptors_that_are_closed(
    open_session: OpenSession, docs: Path, tmp_path: Path, closed: str, attached: bool
) -> None:
    """No file of the store gets the number of a closed descriptor, which output would overwrite."""
    environment(tmp_path)
    owner = Process(tmp_path / "store", cwd=tmp_path).ready() if attached else None
    silent = closed.replace("2>&-", "").find(">&-") >= 0
    try:
        for argv in (["call", "kb.create", "slug=called"], ["add", "docs"], ["serve"]):
            done = run_with(closed, tmp_path, *argv)
            assert done.returncode == (2 if silent and argv != ["serve"] else 0), done
            assert b"Traceback" not in done.stderr
            if silent and argv != ["serve"] and "2>&-" not in closed:
                assert json.loads(done.stderr)["error"]["type"] == "store.io"
            assert (done.stdout == b"") == silent
    finally:
        if owner is not None:
            owner.stop(signal.SIGTERM)
    for path in (tmp_path / "store").rglob("*"):
        assert not path.is_file() or b'"jsonrpc"' not in path.read_bytes(), path
        assert not path.is_file() or b'"ok":' not in path.read_bytes(), path
    session = open_session()
    assert session.store.log.verify() == session.store.seq
    assert [Path(row["source"]["path"]).name for row in session.data("doc.list")] == ["good.md"]
    slugs = {row["slug"] for row in session.data("kb.list")}
    assert slugs - {"served"} == {"called", "default"}
    if "<&-" in closed or not silent:  # else kbproc may have noticed first that its client had left
        assert ("served" in slugs) == ("<&-" not in closed)
    answer = "a command ends with store.io (exit 2), `serve` with exit 0" if silent else "exit 0"
    note(f"started with `{closed}`", f"no file of the store takes their place; {answer}")


def test_a_text_of_openings_keeps_no_owner_busy(tmp_path: Path) -> None:
    """A look for secrets in it takes moments, other requests go on, and SIGTERM ends the owner."""
    openings = ("<private>", "<system-reminder>", "&lt;private&gt;")
    with Crowd(tmp_path) as crowd:
        owner = crowd.spawn().ready()
        for opening in openings:
            owner.data("doc.create", title="Openings", text=opening * 60_000 + "</")
        looking = owner.start("doctor", secrets=True)
        assert owner.data("ping")["seq"] > 0
        findings = {
            each["name"]: each for each in owner.answer(looking)["result"]["data"]["findings"]
        }
        assert findings["secrets"]["message"] == "no text holds a secret of a known shape"
        owner.start("doctor", secrets=True)
        owner.kill(signal.SIGTERM)
        assert owner.gone() == 0
    note(
        "a text of 60,000 openings of a private passage, and a look for secrets",
        "it is read through",
    )
