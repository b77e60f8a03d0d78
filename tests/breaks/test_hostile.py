"""Files, folders and pages made to hang kbproc, to fill its memory or to lead it astray."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbproc.base import paths
from kbproc.documents import ingest as documents_ingest
from kbproc.sources import gitignore, walk
from tests.conftest import OpenSession
from tests.kit import faults
from tests.kit.talk import Process, Session, as_bytes, request

GROUP = "hostile"
told_in_docs = faults.faults_of(GROUP, counted=True)

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
    """The names that were read, and the failures; there is no other outcome."""
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
    given: Any = {"glob": pattern} if member == "glob" else {"exclude": [pattern]}
    names, failures = ingest(open_session(), **given)
    assert (names, failures) == ([] if member == "glob" else [f"{LONG}.md", "good.md"], [])
    note("`glob` and `exclude` with hundreds of stars, and a long name", "read in time")


def test_a_walk_over_many_rules_can_be_cancelled(docs: Path, tmp_path: Path) -> None:
    """The rules are as many and as slow as a file may hold; the names are many, too."""
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


def endless(path: Path) -> None:
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
    """Each is small enough; together they are not."""
    size = gitignore.MOST_BYTES
    for _ in range(gitignore.MOST_BYTES_TOGETHER // size + 1):
        path.write_text("#" * 99 + "\n" + ("x" * 99 + "\n") * (size // 100 - 1))
        path = path.parent / "deeper" / ".gitignore"
        path.parent.mkdir()
    path.parent.joinpath("low.md").write_text("Low.")


ODD = {
    "a pipe": fifo,
    "a link to /dev/zero": endless,
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
    assert "is passed over: " in failure["message"]
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
    """Deeper, too, than the longest path that the system takes."""
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


# What is called at that moment.
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
    """docs/ is the root, and what lies outside is never read."""
    for folder in (docs / "sub", tmp_path / "outside"):
        folder.mkdir()
        (folder / "a.md").write_text(f"Secret of {folder.name}.")
    session = open_session(folder=docs)
    module, name = MOMENTS[moment]
    real = getattr(module, name)

    def swapping(*given: Any, **named: Any) -> Any:
        found = real(*given, **named)
        of = {"ignored": docs / "sub", "realpath": docs / "sub" / "a.md"}.get(name, given[0])
        if given[0] == of:
            monkeypatch.undo()
            swap(docs, tmp_path / "outside")
        return found

    monkeypatch.setattr(module, name, swapping)
    names, failures = ingest(session, paths=["."])
    assert name not in vars(module) or getattr(module, name) is real, "it was swapped"
    assert names == ["good.md"]
    assert session.data("search", query="outside", mode="fts")["total_matches"] == 0
    seen = moment == "while the folder above is walked" and swap is not folder_to_link
    assert len(failures) == (0 if seen else 1), failures
    what = swap.__name__.replace("_to_", " swapped for a ")
    note(f"a {what} {moment}", "not read" if seen else f"not read; {REST}")


def test_an_import_that_becomes_a_link(
    open_session: OpenSession, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("Secret.")
    session = open_session(folder=docs)
    real = paths.resolve

    def swapping(*given: Any, **named: Any) -> Path:
        found = real(*given, **named)
        found.unlink()
        found.symlink_to(tmp_path / "secret")
        return found

    monkeypatch.setattr(paths, "resolve", swapping)
    error = session.error("store.import", path="good.md")
    assert error["type"] == "path.outside_root"
    note("an export swapped for a link before it is imported", "path.outside_root")


def test_a_pipe_in_a_documents_place(open_session: OpenSession, docs: Path) -> None:
    session = open_session()
    ingest(session)
    (docs / "good.md").unlink()
    os.mkfifo(docs / "good.md")
    [stale] = session.data("kb.check", slug="default")["stale_files"]
    assert stale["state"] == "changed"
    note("a document's file swapped for a pipe, then kb.check", "told as changed")
