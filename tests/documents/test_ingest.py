"""Ingest: which files it reads, the outcome of each, and the same answers after a replay."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbproc.engine.events.document import ChunkText, DocWritten, FileFailed
from kbproc.engine.sources import walk
from kbproc.engine.store.lane import Lane, Ticket
from kbproc.knowledge.documents import content
from kbproc.methods.calls import call as calling
from kbproc.surfaces.wire.in_flight import InFlight
from tests.conftest import OpenSession
from tests.kit.patience import PATIENCE
from tests.kit.sources import source_files
from tests.kit.talk import Session, as_bytes

BAD_PDF = b"%PDF-1.4\nnot really\n"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


def put(folder: Path, **files: str) -> None:
    """Writes files: `a_md="text"` writes a.md; a double underscore stands for a folder."""
    for name, text in files.items():
        *parents, last = name.split("__")
        path = folder.joinpath(*parents, ".".join(last.rsplit("_", 1)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def paths(session: Session, **params: Any) -> list[str]:
    """The documents' paths, relative to docs/."""
    documents = session.data("doc.list", limit=1000, **params)
    return sorted(str(doc["source"]["path"]).partition("/docs/")[2] for doc in documents)


COUNTS = (
    *("added", "updated", "moved", "unchanged", "removed", "gone"),
    *("empty", "failed", "unsupported"),
)


def ingest(session: Session, *paths: str, **params: Any) -> dict[str, int]:
    data = session.data("doc.ingest", paths=list(paths or ["docs"]), **params)
    return counts(data)


def counts(data: dict[str, Any]) -> dict[str, int]:
    return {name: data[name] for name in COUNTS if data[name]}


def confirmed(session: Session, **params: Any) -> dict[str, int]:
    plan = session.error("doc.ingest", **params)["plan"]
    return counts(session.data("doc.ingest", **params, confirm=plan["plan_hash"]))


# ------------------------------------------------------------ new, changed, unchanged


def test_new_changed_and_unchanged(session: Session, docs: Path) -> None:
    put(docs, a_md="# A\n\nAlpha.", b_txt="Beta.", sub__c_py="def gamma():\n    pass\n")
    assert ingest(session) == {"added": 3}
    seq = session.store.seq
    assert ingest(session) == {"unchanged": 3}
    assert session.store.seq == seq, "nothing is written for nothing"
    put(docs, a_md="# A\n\nAlpha again.", d_md="Delta.")
    result = session.data("doc.ingest", paths=["docs"])
    assert counts(result) == {"added": 1, "updated": 1, "unchanged": 2}
    [updated, added] = result["documents"]
    assert (updated["id"], updated["action"], added["action"]) == (1, "updated", "added")
    assert session.data("doc.get", id=1)["revision"] == 2
    assert result["chunks"] == 2


def test_touching_a_file_changes_nothing(session: Session, docs: Path) -> None:
    put(docs, a_md="Alpha.")
    ingest(session)
    os.utime(docs / "a.md", (0, 0))
    assert ingest(session) == {"unchanged": 1}


def test_the_old_text_is_gone_and_the_new_is_found(session: Session, docs: Path) -> None:
    put(docs, a_md="Aardvark.")
    ingest(session)
    put(docs, a_md="Bonobo.")
    ingest(session)
    counts = [
        session.data("search", query=q, mode="fts")["total_matches"] for q in ("aardvark", "bonobo")
    ]
    assert counts == [0, 1]


def test_equal_bytes_elsewhere_are_another_document(session: Session, docs: Path) -> None:
    put(docs, a_md="Same.", b_md="Same.", sub__a_md="Same.")
    assert ingest(session) == {"added": 3}
    session.data("kb.create", slug="other")
    assert ingest(session, kb="other") == {"added": 3}
    documents = session.data("doc.list")
    assert len({doc["sha256"] for doc in documents}) == 1
    assert len({doc["id"] for doc in documents}) == 6
    assert len(session.store.blobs.names()) == 1


def test_a_file_named_twice_is_read_once(session: Session, docs: Path) -> None:
    put(docs, a_md="Alpha.")
    assert ingest(session, "docs", "docs/a.md", "./docs/../docs", str(docs / "a.md")) == {
        "added": 1
    }


def test_tags_that_cannot_be_kept_are_counted(session: Session, docs: Path) -> None:
    many = ", ".join(f"t{n}" for n in range(18))
    put(
        docs,
        a_md="---\ntags: [हिन्दी, '🎉', ok, '!']\n---\nAlpha.",
        b_md=f"---\ntags: [{many}]\n---\nB.",
    )
    ingest(session)
    first, second = (session.data("doc.get", id=id) for id in (1, 2))
    assert (first["tags"], first["unread"]) == (["हिन्दी", "ok"], {"tags": 2})
    assert (len(second["tags"]), second["unread"]) == (16, {"tags": 2})


def test_tags_beyond_the_limit_are_named(session: Session, docs: Path) -> None:
    """New, changed and unchanged files name them alike, because no tag may vanish in silence."""
    own = ", ".join(f"own-{n}" for n in range(14))
    put(docs, a_md=f"---\ntags: [{own}]\n---\nAlpha.", b_md="Beta.")
    tags = ["given-1", "given-2", "given-3", "own-0"]
    path = str(docs / "a.md")
    for action in ("added", "unchanged", "updated"):
        if action == "updated":
            put(docs, a_md=f"---\ntags: [{own}]\n---\nGamma.")
        result = session.ask("doc.ingest", paths=["docs"], tags=tags)["result"]
        assert result["data"][action] and result["data"]["left_out_tags"] == {path: ["given-3"]}
        assert result["meta"]["notice"] == [
            f"A document has at most 16 tags. Written were: {path} without given-3."
        ]
    assert len(session.data("doc.get", id=1)["tags"]) == 16
    within = session.ask("doc.ingest", paths=["docs"])["result"]
    assert "left_out_tags" not in within["data"] and "notice" not in within["meta"]


def test_tags_that_were_given_by_hand_stay(session: Session, docs: Path) -> None:
    put(docs, a_md="---\ntags: [own]\nauthor: ann\n---\nAlpha.")
    ingest(session, tags=["First Given"])
    session.data("doc.update", id=1, tags=["own", "first-given", "by-hand"], metadata={"k": 1})
    put(docs, a_md="---\ntags: [own, newer]\n---\nBeta.")
    ingest(session, tags=["again"])
    doc = session.data("doc.get", id=1)
    assert set(doc["tags"]) == {"own", "newer", "first-given", "by-hand", "again"}
    assert doc["metadata"]["k"] == 1


def test_a_document_that_was_deleted_comes_back_as_a_new_one(session: Session, docs: Path) -> None:
    put(docs, a_md="Alpha.", b_md="Beta.", c_md="Gamma.")
    ingest(session)
    plan = session.error("doc.delete", ids=[1])["plan"]
    session.data("doc.delete", ids=[1], confirm=plan["plan_hash"])
    assert ingest(session) == {"added": 1, "unchanged": 2}
    assert max(doc["id"] for doc in session.data("doc.list")) == 4


def test_a_lost_source_is_stored_again(session: Session, docs: Path) -> None:
    """An ingest restores a lost source, as doctor advises."""
    put(docs, a_md="Alpha.")
    ingest(session)
    sha256 = session.data("doc.get", id=1)["sha256"]
    session.store.blobs.erase([sha256])
    assert session.error("doc.download", id=1)["type"] == "store.corrupt"
    assert ingest(session) == {"unchanged": 1}
    assert session.data("doc.download", id=1)["size_bytes"] == 6


# -------------------------------------------------------------------------- failures


def test_one_bad_file_never_stops_the_rest(session: Session, docs: Path) -> None:
    put(docs, a_md="Alpha.", z_md="Omega.", empty_md="", image_bin="x")
    (docs / "m.pdf").write_bytes(BAD_PDF)
    (docs / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    result = session.ask("doc.ingest", paths=["docs"])["result"]
    partial = result["meta"]["partial"]
    assert (partial["type"], partial["exit_code"]) == ("operation.partial", 3)
    assert "m.pdf" in partial["first"]
    assert result["meta"]["seq"] == session.store.seq
    data = result["data"]
    assert data["added"] == len(data["documents"]) == 3 - ("image.bin" not in paths(session))
    assert all(document["id"] for document in data["documents"])
    [failure] = data["failures"]
    assert (data["failed"], Path(failure["path"]).name) == (1, "m.pdf")
    assert failure["type"] == "operation.failed" and failure["message"]
    assert data["empty"] == 1
    named = {Path(path).name for path in data["unsupported_paths"]}
    assert data["unsupported"] == len(named) and "p.png" in named
    assert {"a.md", "z.md"} <= set(paths(session))


def test_files_without_text_are_no_failure(session: Session, docs: Path) -> None:
    """Empty files are normal: every Python project has an empty __init__.py."""
    put(docs, a_py="x = 1")
    (docs / "__init__.py").write_text("")
    result = session.ask("doc.ingest", paths=["docs"])["result"]
    assert counts(result["data"]) == {"added": 1, "empty": 1}
    assert "partial" not in result["meta"]


def test_a_file_that_was_emptied_loses_its_text_and_keeps_its_document(
    session: Session, docs: Path
) -> None:
    """Logs are cut back in place; what a file no longer says is not found in it."""
    names = {"app.log": "One started.\n", "b.md": "# Two\n", "c.csv": "a,b\n1,2\n", "d.txt": "D\n"}
    for name, text in names.items():
        (docs / name).write_text(text)
    ingest(session)
    emptied = {"app.log": "", "b.md": "<!-- later -->", "c.csv": "\n\n", "d.txt": "D\n"}
    for name, text in emptied.items():
        (docs / name).write_text(text)
    result = session.ask("doc.ingest", paths=["docs"], dry_run=True)["result"]
    assert result["meta"]["plan"]["counts"]["updated"] == 3
    result = session.ask("doc.ingest", paths=["docs"])["result"]
    assert counts(result["data"]) == {"updated": 3, "unchanged": 1}
    assert "partial" not in result["meta"]
    assert "app.log is empty now" in result["meta"]["hint"]
    assert "doc.restore" in result["meta"]["hint"]
    assert session.data("search", query="started Two", mode="fts")["results"] == []
    assert ingest(session) == {"unchanged": 4}
    for id, (name, text) in enumerate(emptied.items(), 1):
        document = session.data("doc.get", id=id)
        assert (document["title"], document["chunk_count"]) == (name[:1] + name[1:], id // 4)
        assert session.data("doc.download", id=id)["size_bytes"] == len(text)
    check = session.data("kb.check", slug="default")
    assert (check["failed"], check["stale"]) == (0, 0)
    assert session.data("doc.restore", ids=[1], revision=1)["restored"] == 1
    (docs / "app.log").write_text("Three started.\n")
    assert ingest(session) == {"updated": 1, "unchanged": 3}
    [hit] = session.data("search", query="started", mode="fts")["results"]
    assert "Three" in hit["snippet"]


def test_a_failure_is_told_until_it_is_mended(session: Session, docs: Path) -> None:
    put(docs, a_md="Alpha.")
    (docs / "b.pdf").write_bytes(BAD_PDF)
    for _ in range(2):
        assert session.data("doc.ingest", paths=["docs"])["failed"] == 1
    result = session.ask("kb.check", slug="default")["result"]
    assert [Path(f["path"]).name for f in result["data"]["failed_files"]] == ["b.pdf"]
    hint = "Repair or replace b.pdf, then run doc.ingest again on its folder."
    assert result["meta"]["hint"] == hint
    (docs / "b.pdf").unlink()
    put(docs, b_md="Mended.")
    assert confirmed_or_plain(session, prune=True) == {"added": 1, "unchanged": 1}
    assert session.data("kb.check", slug="default")["failed"] == 0


def confirmed_or_plain(session: Session, **params: Any) -> dict[str, int]:
    return ingest(session, **params)


def test_what_can_not_be_looked_at_is_told_until_it_is_mended(session: Session, docs: Path) -> None:
    def failed_paths() -> list[str]:
        check = session.data("kb.check", slug="default")
        assert check["failed"] == len(check["failed_files"])
        return [str(Path(file["path"]).relative_to(docs)) for file in check["failed_files"]]

    put(docs, good_md="good")
    deep = docs.joinpath(*"d" * (walk.MOST_NESTED + 1))
    deep.mkdir(parents=True)
    loops = {"loop.md", "open/.gitignore"}
    for name in loops:
        path = docs / name
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(path.name)
    wrong = sorted([*loops, str(deep.relative_to(docs))])
    assert ingest(session) == {"added": 1, "failed": 3}
    assert sorted(failed_paths()) == wrong
    hint = session.ask("kb.check", slug="default")["result"]["meta"]["hint"]
    first = Path(failed_paths()[0]).name
    assert hint.startswith(f"Repair or replace {first} and 2 other files, then run doc.ingest")
    seq = session.store.seq
    assert ingest(session) == {"unchanged": 1, "failed": 3}
    assert session.store.seq == seq, "no news"
    for name in loops:
        (docs / name).unlink()
    (docs / "loop.md").symlink_to("nowhere")
    deep.parent.rename(docs / "d" / "up")
    ingest(session, exclude=["d", "open", "loop.md"])
    ingest(session, "docs/good.md")
    assert sorted(failed_paths()) == wrong, "nothing was looked at"
    assert ingest(session) == {"unchanged": 1}
    assert failed_paths() == [str(deep.relative_to(docs))], "it is gone, which is for prune"
    ingest(session, prune=True)
    assert failed_paths() == []


def test_the_first_hundred_failures_are_listed(session: Session, docs: Path) -> None:
    for n in range(105):
        (docs / f"{n:03}.docx").write_bytes(b"PK no docx")
    result = session.ask("doc.ingest", paths=["docs"])["result"]
    assert result["data"]["failed"] == 105
    names = [Path(failure["path"]).name for failure in result["data"]["failures"]]
    assert names == [f"{n:03}.docx" for n in range(100)]
    assert "failures has the first 100 of 105" in result["meta"]["hint"]


def test_what_no_parser_reads(session: Session, docs: Path) -> None:
    """Such a file is skipped in a folder, a failure beside other paths, an error if alone."""
    (docs / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    answer = session.ask("doc.ingest", paths=["docs"])["result"]
    assert counts(answer["data"]) == {"unsupported": 1}
    assert answer["data"]["unsupported_paths"] == [str(docs / "p.png")]
    assert answer["meta"]["hint"]
    put(docs, a_md="Alpha.")
    [failure] = session.data("doc.ingest", paths=["docs/p.png", "docs/a.md"])["failures"]
    assert failure["type"] == "input.unsupported_type"
    refused = session.error("doc.ingest", paths=["docs/p.png"])
    assert (refused["type"], refused["field"]) == ("input.unsupported_type", "$.params.paths[0]")
    put(docs, a_md=f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 9\n")
    fetch = "git lfs pull fetches the files themselves."
    answer = session.ask("doc.ingest", paths=["docs"])["result"]
    assert counts(answer["data"]) == {"unsupported": 2} and fetch in answer["meta"]["hint"]
    assert session.error("doc.ingest", paths=["docs/a.md"])["hint"] == fetch
    assert session.data("doc.get", id=1, text=True)["text"] == "Alpha."


def test_leftovers_of_programs_are_skipped_unless_they_are_named(
    session: Session, docs: Path
) -> None:
    put(docs, a_md="A.")
    leftovers = ["~$a.docx", "#a.md#", "a.md~", "a.bak", "b.pdf.crdownload", "desktop.ini"]
    for name in leftovers:
        (docs / name).write_text("Left over.")
    answer = session.ask("doc.ingest", paths=["docs"])["result"]
    assert counts(answer["data"]) == {"added": 1}
    assert answer["data"]["skipped"] == {"leftovers of programs": len(leftovers)}
    assert ingest(session, "docs/a.bak") == {"added": 1}


def test_a_text_with_the_name_of_a_pdf_is_read_and_told(session: Session, docs: Path) -> None:
    (docs / "notes.pdf").write_text("Nothing but words.")
    answer = session.ask("doc.ingest", paths=["docs"])["result"]
    assert counts(answer["data"]) == {"added": 1}
    assert answer["data"]["notes"] == ["notes.pdf is a text, and was read as that."]
    assert answer["data"]["notes"][0] in answer["meta"]["hint"]


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_file_in_a_folder_that_is_no_text_ends_no_ingest(
    session: Session, docs: Path, dry_run: bool
) -> None:
    """Only the parser finds the binary data, since it lies beyond the bytes that `detect` reads."""
    put(docs, a_md="Alpha.", b_md="Beta.", c_md="Gamma.", z_log="A line.\n" * 1500)
    first = session.data("doc.ingest", paths=["docs/z.log"])
    assert counts(first) == {"added": 1}, first["failures"]
    (docs / "z.log").write_bytes(b"A line.\n" * 1500 + bytes(20_000))
    if dry_run:
        answer = session.ask("doc.ingest", paths=["docs"], dry_run=True)["result"]
        counted = answer["meta"]["plan"]["counts"]
        assert (counted["added"], counted["failed"]) == (3, 1)
        return
    [failure] = session.data("doc.ingest", paths=["docs"])["failures"]
    assert (failure["type"], failure["path"]) == ("input.unsupported_type", str(docs / "z.log"))
    assert paths(session) == ["a.md", "b.md", "c.md", "z.log"], "it keeps its earlier text"
    put(docs, d_md="Delta.")
    assert ingest(session) == {"added": 1, "unchanged": 3, "failed": 1}
    refused = session.error("doc.ingest", paths=["docs/z.log"])
    assert (refused["type"], refused["field"]) == ("input.unsupported_type", "$.params.paths[0]")


def test_max_file_bytes(session: Session, docs: Path) -> None:
    put(docs, a_txt="x" * 100, b_txt="y" * 101)
    data = session.data("doc.ingest", paths=["docs"], max_file_bytes=100)
    assert data["added"] == 1
    assert data["failures"][0]["type"] == "input.too_large"
    assert paths(session) == ["a.txt"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file(session: Session, docs: Path) -> None:
    put(docs, a_md="Alpha.", b_md="Beta.")
    (docs / "a.md").chmod(0)
    assert session.data("doc.ingest", paths=["docs"])["failed"] == 1


def test_a_pipe_is_not_waited_for(session: Session, docs: Path) -> None:
    os.mkfifo(docs / "pipe.md")
    put(docs, a_md="Alpha.")
    assert ingest(session) == {"added": 1}
    [failure] = session.data("doc.ingest", paths=["docs/pipe.md"])["failures"]
    assert failure["type"] == "operation.failed"


def test_a_name_that_is_no_text(session: Session, docs: Path) -> None:
    """Linux allows any bytes in a name; JSON does not."""
    put(docs, a_md="Alpha.")
    try:
        Path(os.fsdecode(os.fsencode(docs) + b"/b\xff.md")).write_text("Beta.")
    except OSError:
        pytest.skip("this file system takes only text")
    data = session.data("doc.ingest", paths=["docs"])
    assert (data["added"], data["failed"]) == (1, 1)
    assert "b\\xff.md" in data["failures"][0]["path"]


def test_odd_names_make_clean_titles(session: Session, docs: Path) -> None:
    (docs / "evil\u202efdp.md").write_text("Alpha.")
    (docs / "two\nlines.md").write_text("Beta.")
    assert ingest(session) == {"added": 2}
    titles = [doc["title"] for doc in session.data("doc.list")]
    assert not any(c in title for title in titles for c in "\u202e\n")


def test_a_full_disk_is_not_the_files_failure(
    session: Session, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(docs, a_md="Alpha.")
    real = os.pwrite

    def full(fd: int, data: Any, offset: int) -> int:
        if b"Alpha." in bytes(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr("kbproc.base.disk.write_at", full)
        error = session.error("doc.ingest", paths=["docs"])
    assert (error["type"], error["retryable"]) == ("store.io", True)
    assert session.data("kb.check", slug="default")["failed"] == 0
    assert ingest(session) == {"added": 1}


# ----------------------------------------------------------------------- which files


def test_hidden_files_and_folders_are_skipped(session: Session, docs: Path) -> None:
    put(docs, a_md="A.", sub__b_md="B.")
    for name in (".hidden.md", ".git/c.md", ".obsidian/d.md", "sub/.e.md"):
        path = docs / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("Hidden.")
    ingest(session)
    assert paths(session) == ["a.md", "sub/b.md"]
    assert ingest(session, "docs/.hidden.md") == {"added": 1}, "one that is named is read"


def test_git_ignored_files_are_skipped(session: Session, docs: Path) -> None:
    (docs / ".git").mkdir()
    files = [
        "a.md",
        "a.log.md",
        "build/b.md",
        "sub/build/c.md",
        "sub/keep.tmp.md",
        "sub/other.tmp.md",
        "sub/deep/x.tmp.md",
        "top.txt",
        "sub/top.txt",
        "vendor/d.md",
        "vendor/important.md",
        "space name.md",
        "logs/today/e.md",
        "logs/keep/f.md",
        "#hash.md",
        "docs/only.md",
    ]
    for name in files:
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text(f"Text of {name}")
    (docs / ".gitignore").write_text(
        "# a comment\n*.log.md\nbuild/\n/top.txt\n*.tmp.md\nvendor/*\n!vendor/important.md\n"
        "space\\ name.md\nlogs/**\n!logs/keep/\n!logs/keep/**\n\\#hash.md\n"
    )
    (docs / "sub" / ".gitignore").write_text("!keep.tmp.md\n/deep/\n")
    ingest(session)
    assert paths(session) == [
        "a.md",
        "docs/only.md",
        "logs/keep/f.md",
        "sub/keep.tmp.md",
        "sub/top.txt",
        "vendor/important.md",
    ]


def test_what_git_says_of_the_same_folder(session: Session, docs: Path) -> None:
    """Compares with the files that git lists, if git is installed."""
    import subprocess

    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    names = [f"{d}{n}" for d in ("", "a/", "a/b/", "c/") for n in ("x.md", "y.md", "z.txt")]
    for name in names:
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text(f"Text of {name}")
    (docs / ".gitignore").write_text("/x.md\na/**/y.md\n*.txt\n!a/b/z.txt\nc\n!c/x.md\n")
    (docs / "a" / ".gitignore").write_text("x.md\n!b/x.md\n*\n!b/\n!b/*\n")
    subprocess.run(["git", "init", "-q"], cwd=docs, check=True)
    listing = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard"],
        cwd=docs,
        check=True,
        capture_output=True,
        text=True,
    )
    ingest(session)
    visible = sorted(name for name in listing.stdout.split() if not name.endswith(".gitignore"))
    assert paths(session) == visible


def test_a_gitignore_above_the_folder_counts(session: Session, docs: Path) -> None:
    (docs / ".git").mkdir()
    (docs / ".gitignore").write_text("*.tmp.md\n/sub/secret.md\n")
    put(docs, sub__a_md="A.", sub__secret_md="S.")
    (docs / "sub" / "b.tmp.md").write_text("B.")
    ingest(session, "docs/sub")
    assert paths(session) == ["sub/a.md"]


SELECTIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({"glob": "*.md"}, ["a.md", "sub/c.md"]),
    ({"glob": "sub/*"}, ["sub/c.md", "sub/d.txt"]),
    ({"exclude": ["*.txt"]}, ["a.md", "sub/c.md"]),
    ({"exclude": ["sub"]}, ["a.md", "b.txt"]),
    ({"exclude": ["sub/"]}, ["a.md", "b.txt"]),
    ({"exclude": ["sub/**"]}, ["a.md", "b.txt"]),
    ({"recursive": False}, ["a.md", "b.txt"]),
    ({"glob": "*.md", "exclude": ["a*"]}, ["sub/c.md"]),
    ({"glob": "[ab].*"}, ["a.md", "b.txt"]),
]


def test_glob_exclude_and_depth(session: Session, docs: Path) -> None:
    put(docs, a_md="A.", b_txt="B.", sub__c_md="C.", sub__d_txt="D.")
    wrong = []
    for number, (params, expected) in enumerate(SELECTIONS):
        session.data("kb.create", slug=f"kb-{number}")
        ingest(session, kb=f"kb-{number}", **params)
        if (read := paths(session, kb=f"kb-{number}")) != expected:
            wrong.append((params, expected, read))
    assert wrong == []


def test_symlinks_are_not_followed_out(session: Session, docs: Path, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "secret.md").write_text("Secret.")
    put(docs, a_md="A.", sub__b_md="B.")
    (docs / "leak.md").symlink_to(outside / "secret.md")
    (docs / "leaks").symlink_to(outside)
    (docs / "loop").symlink_to(docs)
    (docs / "dangling.md").symlink_to(docs / "nowhere.md")
    (docs / "alias.md").symlink_to(docs / "a.md")
    assert ingest(session) == {"added": 3}
    assert paths(session) == ["a.md", "alias.md", "sub/b.md"]
    for path in (
        str(outside),
        str(outside / "secret.md"),
        "docs/leak.md",
        "docs/leaks",
        "../..",
        "/etc",
        "~",
    ):
        error = session.error("doc.ingest", paths=[path])
        assert error["type"] == "path.outside_root", path
        assert error["field"] == "$.params.paths[0]"
    assert "secret" not in str(session.data("doc.list"))


def test_paths_that_make_no_sense(session: Session, docs: Path) -> None:
    assert session.error("doc.ingest", paths=["nowhere"])["type"] == "resource.not_found"
    assert session.error("doc.ingest", paths=["docs", "no/where"])["field"] == "$.params.paths[1]"
    assert session.error("doc.ingest", paths=["a\u0000b"])["type"] == "input.invalid_params"
    assert session.error("doc.ingest", paths=["x" * 4000])["exit_code"] in {1, 5}
    assert session.error("doc.ingest", paths=[])["type"] == "input.invalid_params"
    assert session.error("doc.ingest", paths=["docs"], kb="nope")["type"] == "resource.not_found"


# ----------------------------------------------------------------------------- prune


def test_prune_removes_what_is_gone_once_it_is_confirmed(session: Session, docs: Path) -> None:
    put(docs, a_md="A.", b_md="B.", c_md="C.", d_md="D.", e_md="E.")
    ingest(session)
    session.data("doc.create", title="Not a file", text="x")
    (docs / "a.md").unlink()
    assert ingest(session) == {"unchanged": 4, "gone": 1}, "only if asked to"
    error = session.error("doc.ingest", paths=["docs"], prune=True)
    assert error["type"] == "input.confirmation_required"
    assert error["risk"] == {"level": "medium", "action": "doc.ingest"}
    assert [target["id"] for target in error["plan"]["targets"]] == [1]
    assert "retry" not in error
    assert len(paths(session)) == 6
    plan = session.ask("doc.ingest", paths=["docs"], prune=True, dry_run=True)["result"]["meta"]
    assert plan["plan"]["plan_hash"] == error["plan"]["plan_hash"]
    assert plan["plan"]["risk"] == error["plan"]["risk"], "a preview shows the deed's risk"
    assert set(error["plan"]["changes"]) <= set(plan["plan"]["changes"])
    assert confirmed(session, paths=["docs"], prune=True) == {"unchanged": 4, "removed": 1}
    assert ingest(session, prune=True) == {"unchanged": 4}, "nothing to remove, nothing to confirm"


def test_pruning_more_than_half_is_bulk(session: Session, docs: Path) -> None:
    put(docs, **{f"{name}_md": name for name in "abcdefghij"})
    ingest(session)
    for name in "abcdef":
        (docs / f"{name}.md").unlink()
    error = session.error("doc.ingest", paths=["docs"], prune=True)
    assert error["risk"]["level"] == "bulk"


def test_prune_removes_nothing_elsewhere_and_nothing_excluded(session: Session, docs: Path) -> None:
    put(docs, one__a_md="A.", two__b_md="B.", two__c_txt="C.")
    ingest(session)
    (docs / "one" / "a.md").unlink()
    params = {"paths": ["docs/two"], "prune": True, "exclude": ["*.txt"]}
    assert counts(session.data("doc.ingest", **params)) == {"unchanged": 1}
    assert paths(session) == ["one/a.md", "two/b.md", "two/c.txt"]


def test_prune_of_a_file_and_a_folder_that_are_gone(session: Session, docs: Path) -> None:
    put(docs, a_md="A.", sub__b_md="B.", sub__c_md="C.", d_md="D.", e_md="E.", f_md="F.", g_md="G.")
    ingest(session)
    (docs / "a.md").unlink()
    shutil.rmtree(docs / "sub")
    assert confirmed(session, paths=["docs/a.md"], prune=True) == {"removed": 1}
    assert confirmed(session, paths=["docs/sub"], prune=True) == {"removed": 2}
    assert session.data("kb.check", slug="default")["failed"] == 0


def test_prune_of_what_never_was(session: Session) -> None:
    error = session.error("doc.ingest", paths=["nowhere"], prune=True)
    assert error["type"] == "resource.not_found"


def test_prune_is_stale_once_more_is_gone(session: Session, docs: Path) -> None:
    put(docs, a_md="A.", b_md="B.", c_md="C.", d_md="D.", e_md="E.")
    ingest(session)
    (docs / "a.md").unlink()
    plan = session.error("doc.ingest", paths=["docs"], prune=True)["plan"]
    (docs / "b.md").unlink()
    error = session.error("doc.ingest", paths=["docs"], prune=True, confirm=plan["plan_hash"])
    assert error["type"] == "resource.plan_stale"
    assert len(paths(session)) == 5


def test_prune_needs_the_scope_of_deletions(open_session: OpenSession, docs: Path) -> None:
    session = open_session(scopes="doc:read,doc:write")
    put(docs, a_md="A.", b_md="B.", c_md="C.")
    assert ingest(session, prune=True) == {"added": 3}
    (docs / "a.md").unlink()
    error = session.error("doc.ingest", paths=["docs"], prune=True)
    assert error["type"] == "auth.insufficient_scope"


# --------------------------------------------------------------------------- dry run


def test_a_plan_tells_new_changed_unchanged_and_unreadable(session: Session, docs: Path) -> None:
    put(docs, a_md="A.", b_md="B.")
    ingest(session)
    put(docs, a_md="AA.", c_md="C.", big_txt="x" * 500)
    (docs / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    (docs / "b.md").unlink()
    put(docs, d_md="D.", empty_md="")
    (docs / "e.pdf").write_bytes(BAD_PDF)
    before = source_files(session.store.folder)
    params: dict[str, Any] = {"paths": ["docs"], "max_file_bytes": 400, "prune": True}
    answer = session.ask("doc.ingest", **params, dry_run=True)["result"]
    plan = answer["meta"]["plan"]
    changes = plan["changes"]
    assert changes[0] == (
        "2 added, 1 updated, 0 moved, 0 unchanged, 1 removed, 0 gone, 1 empty, 2 failed, "
        "1 unsupported"
    )
    numbers = {"added": 2, "updated": 1, "unchanged": 0, "removed": 1, "empty": 1, "failed": 2}
    moves = {"moved": 0, "gone": 0}
    assert plan["counts"] == {**numbers, **moves, "unsupported": 1, "bytes": len("AA.C.D.")}
    assert "e.pdf" in next(line for line in changes if "e.pdf" in line and "failed" in line)
    assert [line.split(":")[0] for line in changes[1:]] == [
        "removed",
        "unsupported",
        "updated",
        "failed",
        "added",
        "added",
        "failed",
    ]
    assert len(paths(session)) == 2
    assert source_files(session.store.folder) == before
    foreseen = {name: count for name, count in plan["counts"].items() if count and name != "bytes"}
    done = confirmed(session, **params)
    assert {name: done.get(name) for name in foreseen} == foreseen


# ------------------------------------------------------------- cancelling, going on


def many(docs: Path, count: int = 80) -> None:
    for n in range(count):
        (docs / f"{n:03}.md").write_text(f"Document number {n} word{n}")


def cancel_at(session: Session, path: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Cancels request 1 when it comes to the file `path`; returns the error's data."""
    real = calling.progress

    def progress(*args: Any, **more: Any) -> dict[str, Any]:
        message = args[-1]
        if message == path:
            cancel = {"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": 1}}
            session.connection.receive(as_bytes(cancel))
        return real(*args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(calling, "progress", progress)
        return session.error("doc.ingest", paths=["docs"], client_token="t")


def test_a_cancelled_ingest_keeps_what_it_has_committed(
    session: Session, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(docs)
    error = cancel_at(session, "040.md", monkeypatch)
    assert (error["type"], error["exit_code"]) == ("operation.cancelled", 9)
    assert error["detail"]["added"] == 41
    assert "41 of 80 files were read: 41 added. These stay" in error["hint"]
    assert paths(session) == [f"{n:03}.md" for n in range(41)]


def test_an_ingest_whose_time_is_up_says_what_it_has_done(
    session: Session, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(docs)
    requests: list[InFlight] = []
    real_progress, real_run = calling.progress, InFlight.run

    def run(self: InFlight) -> Any:
        requests.append(self)
        return real_run(self)

    def progress(*args: Any, **more: Any) -> dict[str, Any]:
        if args[-1] == "040.md":
            requests[-1].expire()
        return real_progress(*args, **more)

    monkeypatch.setattr(InFlight, "run", run)
    monkeypatch.setattr(calling, "progress", progress)
    error = session.error("doc.ingest", paths=["docs"], timeout_ms=60_000)
    assert error["message"] == "doc.ingest was not finished in 60000 ms."
    assert error["detail"]["added"] == 41
    assert "41 of 80 files were read: 41 added. These stay" in error["hint"]
    assert "the same command goes on" in error["hint"]


def test_progress_moves_while_one_large_file_is_read(
    session: Session, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's clock stands still, so that no event is dropped."""
    monkeypatch.setattr("kbproc.surfaces.wire.in_flight._PROGRESS_EVERY_MS", 0)
    put(docs, a_md="A.")
    (docs / "b.log").write_text("1\n" * 300_000)
    request = {"jsonrpc": "2.0", "id": 1, "method": "doc.ingest", "params": {"paths": ["docs"]}}
    session.connection.receive(as_bytes(request))
    events: list[dict[str, Any]] = []
    while "id" not in (message := msgspec.json.decode(session.outbox.take())):
        events.append(message["params"])
    events = [event for event in events if event.get("request_id") == 1]
    assert counts(message["result"]["data"]) == {"added": 2}
    assert [event["index"] for event in events] == list(range(len(events)))
    progress = [event for event in events if event["type"] == "progress"]
    within = [event for event in progress if event["message"].startswith("b.log: ")]
    shares = [int(event["message"].split()[1]) for event in within]
    assert shares == sorted(shares)
    assert within
    assert all(event["message"].endswith(" % of its text") for event in within)
    assert {(event["stage"], event["total"]) for event in progress} == {("parse", 2)}
    assert [event["current"] for event in progress] == sorted(
        event["current"] for event in progress
    )
    assert all(event["current"] < 2 for event in within)
    assert (progress[-1]["current"], progress[-1]["message"]) == (2, "b.log")


def test_with_the_same_token_it_goes_on_where_it_stopped(
    session: Session, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many(docs)
    cancel_at(session, "040.md", monkeypatch)
    answer = session.ask("doc.ingest", paths=["docs"], client_token="t")["result"]
    assert "duplicate" not in answer["meta"]
    assert counts(answer["data"]) == {"added": 80}, "as if it had never been cut off"
    assert len(answer["data"]["documents"]) == 80
    again = session.ask("doc.ingest", paths=["docs"], client_token="t")["result"]
    assert again["meta"]["duplicate"] is True
    assert again["data"] == answer["data"]
    assert [doc["revision"] for doc in session.data("doc.list", limit=100)] == [1] * 80


def test_a_partial_outcome_is_told_again(session: Session, docs: Path) -> None:
    put(docs, a_md="A.")
    (docs / "b.pdf").write_bytes(BAD_PDF)
    first = session.ask("doc.ingest", paths=["docs"], client_token="t")["result"]
    put(docs, c_md="C.")
    again = session.ask("doc.ingest", paths=["docs"], client_token="t")["result"]
    assert (again["data"], again["meta"]["duplicate"]) == (first["data"], True)
    assert again["meta"]["partial"] == first["meta"]["partial"]
    assert paths(session) == ["a.md"]


def test_two_ingests_of_one_folder_at_once(session: Session, docs: Path) -> None:
    many(docs, 40)
    for id in ("one", "two"):
        request = {
            "jsonrpc": "2.0",
            "id": id,
            "method": "doc.ingest",
            "params": {"paths": ["docs"]},
        }
        session.connection.receive(as_bytes(request))
    results: list[dict[str, int]] = []
    while len(results) < 2:
        message = msgspec.json.decode(session.outbox.take())
        if "method" not in message:
            results.append(counts(message["result"]["data"]))
    assert len(paths(session)) == 40
    assert sum(result.get("added", 0) for result in results) == 40
    assert [sum(result.values()) for result in results] == [40, 40]


@pytest.fixture
def go_on(session: Session, docs: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """A function that lets an ingest, which is reading slow.md, go on; returns its counts."""
    put(docs, slow_md="Slow.")
    reading, going_on = threading.Event(), threading.Event()
    real: Callable[..., Any] = content.read_content

    def slow(*arguments: Any, **more: Any) -> Any:
        if arguments[3] == "slow.md" and not reading.is_set():
            reading.set()
            assert going_on.wait(PATIENCE)
        return real(*arguments, **more)

    def end() -> dict[str, int]:
        going_on.set()
        while b'"id":7,"result"' not in (line := session.outbox.take()):
            pass
        return counts(msgspec.json.decode(line)["result"]["data"])

    monkeypatch.setattr("kbproc.knowledge.documents.content.read_content", slow)
    request = {"jsonrpc": "2.0", "id": 7, "method": "doc.ingest", "params": {"paths": ["docs"]}}
    session.connection.receive(as_bytes(request))
    assert reading.wait(PATIENCE)
    return end


def test_other_writes_are_not_held_up(session: Session, go_on: Callable[[], Any]) -> None:
    """Slow files are read outside the lane."""
    assert session.data("kb.create", slug="quick")["slug"] == "quick"
    assert session.data("search", query="slow", mode="fts")["total_matches"] == 0
    assert go_on() == {"added": 1}
    assert paths(session) == ["slow.md"]


def test_what_another_has_ingested_meanwhile_is_unchanged(
    session: Session, docs: Path, go_on: Callable[[], Any]
) -> None:
    assert ingest(session) == {"added": 1}
    assert go_on() == {"unchanged": 1}
    assert paths(session) == ["slow.md"]


def test_what_another_has_changed_meanwhile_becomes_the_next_revision(
    session: Session, docs: Path, go_on: Callable[[], Any]
) -> None:
    put(docs, slow_md="Changed.")
    assert ingest(session) == {"added": 1}
    assert go_on() == {"updated": 1}, "to the bytes that it had read before"
    (document,) = session.data("doc.list")
    assert document["revision"] == 2


def test_what_another_has_written_meanwhile_stays(
    session: Session, docs: Path, go_on: Callable[[], Any]
) -> None:
    put(docs, other_md="Other.")
    assert ingest(session, "docs/other.md") == {"added": 1}
    assert go_on() == {"added": 1}
    assert paths(session) == ["other.md", "slow.md"]


def test_what_shares_a_commit_is_seen_by_who_comes_after_it(session: Session) -> None:
    """A ticket sees earlier events of its commit, also after one that was applied at once."""
    store, answers = session.store, list[Any]()
    source = store.blobs.put(b"P.")
    document = DocWritten(
        id=1,
        kb="default",
        revision=1,
        title="P",
        doc_type="text",
        source_sha256=source.name,
        size_bytes=2,
        first_chunk=1,
        chunks=[ChunkText(text="P.")],
        parser=1,
        origin="user",
        path="/p",
    )
    failed = FileFailed(
        kb="default", path="/q", error="operation.failed", message="Bad.", sha256=None
    )

    def append(event: Any) -> Ticket[Any]:
        return Ticket(lambda lane: lane.append([event], [source], actor="a", method="doc.ingest"))

    def look(lane: Lane) -> None:
        answers.append(lane.queries.documents_at("default", ["/p"]))

    with store.turns.lane:
        store._run([append(failed), append(document), Ticket(look)])
    assert [document.id for document in answers[0].values()] == [1]


# ------------------------------------------------------------------ the log alone


def test_after_edits_deletions_and_a_rebuild_the_answers_are_the_same(
    open_session: OpenSession, docs: Path
) -> None:
    one = open_session()
    for n in range(12):
        put(docs, **{f"f{n}_md": f"# Heading {n}\n\nGit backup number {n} of {n * n} archives."})
    ingest(one)
    for n in range(0, 12, 3):
        put(docs, **{f"f{n}_md": f"# Heading {n}\n\nNow about mirrors and {n} branches."})
    for n in range(1, 12, 3):
        (docs / f"f{n}.md").unlink()
    assert confirmed(one, paths=["docs"], prune=True) == {
        "updated": 4,
        "unchanged": 4,
        "removed": 4,
    }
    one.embedded()
    one.library.compact()
    questions: list[dict[str, Any]] = [
        {"query": "git backup"},
        {"query": "mirrors", "mode": "fts"},
        {"query": "archives", "mode": "vector"},
        {"query": "branches", "fusion": "rrf"},
    ]
    before = [one.data("search", **q) for q in questions], one.data("doc.list")
    one.data("index.rebuild")
    assert ([one.data("search", **q) for q in questions], one.data("doc.list")) == before
    one.close()
    shutil.rmtree(one.store.folder / "views")
    two = open_session()
    assert ([two.data("search", **q) for q in questions], two.data("doc.list")) == before


# ------------------------------------------------------------- moves and skipped files


def by_path(session: Session) -> dict[str, dict[str, Any]]:
    rows = session.data("doc.list", limit=1000)
    return {str(row["source"]["path"]).partition("/docs/")[2]: row for row in rows}


def test_a_renamed_file_keeps_id_tags_and_history(session: Session, docs: Path) -> None:
    put(docs, old_md="The harbour plan.", other_md="Another text.")
    ingest(session)
    before = by_path(session)["old.md"]
    session.data("doc.update", id=before["id"], tags=["by-hand"])
    (docs / "old.md").rename(docs / "new.md")
    answer = session.data("doc.ingest", paths=["docs"])
    assert (answer["moved"], answer["added"], answer["gone"]) == (1, 0, 0)
    assert answer["documents"] == [
        {"id": before["id"], "path": str(docs / "new.md"), "action": "moved"}
    ]
    after = by_path(session)
    assert after.keys() == {"new.md", "other.md"}
    assert after["new.md"]["id"] == before["id"]
    assert after["new.md"]["tags"] == ["by-hand"]
    history = session.data("doc.history", id=before["id"])
    assert [row["revision"] for row in history] == [3, 2, 1]
    assert f"file was {docs / 'old.md'}" in history[0]["summary"]
    hits = session.data("search", query="harbour plan", mode="fts")["results"]
    assert [hit["source"]["path"] for hit in hits] == [str(docs / "new.md")]


def test_a_renamed_folder_keeps_its_documents(session: Session, docs: Path) -> None:
    put(docs, a__one_md="One.", a__two_md="Two.", a__copy_md="One.")
    ingest(session)
    before = {path.removeprefix("a/"): row["id"] for path, row in by_path(session).items()}
    (docs / "a").rename(docs / "b")
    assert ingest(session, "docs/b") == {"moved": 3}
    after = {path.removeprefix("b/"): row["id"] for path, row in by_path(session).items()}
    assert after == before
    assert ingest(session, "docs/b") == {"unchanged": 3}


def test_a_copy_is_another_document(session: Session, docs: Path) -> None:
    put(docs, a_md="The same.")
    ingest(session)
    put(docs, b_md="The same.")
    assert ingest(session) == {"added": 1, "unchanged": 1}
    assert by_path(session).keys() == {"a.md", "b.md"}


def test_a_file_that_was_pruned_comes_back_with_id_and_tags(session: Session, docs: Path) -> None:
    put(docs, a_md="Kept text.", b_md="B.")
    ingest(session)
    before = by_path(session)["a.md"]
    session.data("doc.update", id=before["id"], tags=["mine"])
    (docs / "a.md").unlink()
    assert ingest(session) == {"unchanged": 1, "gone": 1}
    plan = session.error("doc.ingest", paths=["docs"], prune=True)["plan"]
    ingest(session, prune=True, confirm=plan["plan_hash"])
    assert by_path(session).keys() == {"b.md"}
    put(docs, a_md="Kept text.")
    assert ingest(session) == {"added": 1, "unchanged": 1}
    after = by_path(session)["a.md"]
    assert (after["id"], after["tags"]) == (before["id"], ["mine"])


def test_a_document_deleted_by_hand_does_not_come_back(session: Session, docs: Path) -> None:
    put(docs, a_md="Text.")
    ingest(session)
    id = by_path(session)["a.md"]["id"]
    plan = session.error("doc.delete", ids=[id])["plan"]
    session.data("doc.delete", ids=[id], confirm=plan["plan_hash"])
    assert ingest(session) == {"added": 1}
    assert by_path(session)["a.md"]["id"] != id


def test_an_ingest_says_how_many_files_are_gone(session: Session, docs: Path) -> None:
    put(docs, a_md="A.", b_md="B.", sub__c_md="C.")
    ingest(session)
    (docs / "a.md").unlink()
    (docs / "sub" / "c.md").unlink()
    answer = session.ask("doc.ingest", paths=["docs"])["result"]
    assert answer["data"]["gone"] == 2
    assert "2 documents came from files that are gone" in answer["meta"]["hint"]
    assert session.data("doc.ingest", paths=["docs/sub"])["gone"] == 1


def test_tags_apply_to_unchanged_files(session: Session, docs: Path) -> None:
    put(docs, a_md="A.", b_md="B.")
    ingest(session, tags=["one"])
    assert ingest(session, tags=["two"], metadata={"year": 2026}) == {"updated": 2}
    for row in by_path(session).values():
        assert (row["tags"], row["metadata"]) == (["one", "two"], {"year": 2026})
        assert row["revision"] == 2
    assert ingest(session, tags=["two"]) == {"unchanged": 2}


def test_labels_that_leave_the_source_leave_the_document(session: Session, docs: Path) -> None:
    put(docs, a_md="---\ntags: [draft, plan]\nauthor: Ada\nstate: open\n---\nText one.")
    ingest(session, tags=["given"], metadata={"desk": "north"})
    row = by_path(session)["a.md"]
    assert row["tags"] == ["draft", "plan", "given"]
    session.data("doc.update", id=row["id"], tags=["draft", "plan", "given", "mine"])
    put(docs, a_md="---\ntags: [plan, done]\nstate: closed\n---\nText two.")
    ingest(session)
    row = by_path(session)["a.md"]
    assert row["tags"] == ["plan", "done", "given", "mine"]
    assert row["metadata"] == {"state": "closed", "desk": "north"}


def test_a_label_that_was_removed_by_hand_stays_removed(session: Session, docs: Path) -> None:
    put(docs, a_md="---\ntags: [draft, plan]\n---\nText one.")
    ingest(session)
    id = by_path(session)["a.md"]["id"]
    session.data("doc.update", id=id, tags=["plan"], metadata={"author": "Grace"})
    put(docs, a_md="---\ntags: [draft, plan]\nauthor: Ada\n---\nText two.")
    ingest(session)
    row = by_path(session)["a.md"]
    assert (row["tags"], row["metadata"]) == (["plan"], {"author": "Grace"})


def test_a_field_given_by_hand_stays_when_the_source_begins_to_state_it(
    session: Session, docs: Path
) -> None:
    put(docs, a_md="Text one.")
    ingest(session, metadata={"author": "Grace"})
    put(docs, a_md="---\nauthor: Ada\nstate: open\n---\nText two.")
    ingest(session)
    assert by_path(session)["a.md"]["metadata"] == {"author": "Grace", "state": "open"}


def test_a_head_that_yaml_refuses_is_named(session: Session, docs: Path) -> None:
    put(docs, a_md="---\ntitle: Plan: two\ntags: [port]\n---\nText.", b_md="---\na: b\n---\nB.")
    answer = session.data("doc.ingest", paths=["docs"])
    assert answer["unread"] == {"refused_heads": 1}
    assert [document.get("unread") for document in answer["documents"]] == [answer["unread"], None]
    (row,) = session.data("kb.check", slug="default")["partly_read_documents"]
    assert (row["title"], row["unread"]) == ("Plan: two", {"refused_heads": 1})


def test_skipped_links_are_listed_with_their_targets(session: Session, docs: Path) -> None:
    put(docs, a_md="A.")
    (docs / "out.md").symlink_to("/etc/hostname")
    (docs / "folder").symlink_to(docs)
    (docs / "nowhere.md").symlink_to(docs / "missing.md")
    answer = session.ask("doc.ingest", paths=["docs"])["result"]
    links = {Path(link["path"]).name: link for link in answer["data"]["skipped_links"]}
    assert links.keys() == {"out.md", "folder", "nowhere.md"}
    assert links["folder"]["reason"] == "links to folders are not followed"
    assert links["nowhere.md"]["reason"] == "its target does not exist"
    assert links["folder"]["target"] == str(docs)
    assert links["out.md"]["reason"].startswith("it leads out of ")
    assert "name that target" in answer["meta"]["hint"]


def test_dependencies_and_build_results_are_skipped_by_default(
    session: Session, docs: Path
) -> None:
    put(docs, package_json="{}", readme_md="Read me.", build__out_md="Built.")
    put(docs, node_modules__x__readme_md="Theirs.", src__main_py="print()")
    (docs / "package-lock.json").write_text('{"lock": true}')
    (docs / "python").mkdir()
    (docs / "python" / "pyvenv.cfg").write_text("home = /usr")
    put(docs, python__lib__y_py="y = 1")
    answer = session.ask("doc.ingest", paths=["docs"])["result"]
    assert answer["data"]["skipped"] == {
        "build results: build/": 1,
        "dependencies: node_modules/": 1,
        "lock files": 1,
        "virtual environments: python/": 1,
    }
    assert paths(session) == ["package.json", "readme.md", "src/main.py"]
    assert "all_files" in answer["meta"]["hint"]
    assert ingest(session, all_files=True)["added"] == 5


def test_a_build_folder_without_a_project_is_read(session: Session, docs: Path) -> None:
    put(docs, build__how_to_md="How to build.", out__of__office_md="Away.")
    assert ingest(session) == {"added": 2}


def test_a_folder_that_ignores_itself_says_which_rule_left_all_out(
    session: Session, docs: Path
) -> None:
    put(docs, notes__a_md="A.")
    (docs / "notes" / ".gitignore").write_text("*\n")
    answer = session.ask("doc.ingest", paths=["docs/notes"])["result"]
    assert f"`*` in {docs}/notes/.gitignore" in answer["meta"]["hint"]
    assert ingest(session, "docs/notes", all_files=True) == {"added": 1}


def test_the_exclude_file_of_a_repository_is_honoured(session: Session, docs: Path) -> None:
    put(docs, a_md="A.", private__b_md="B.", sub__draft_txt="Draft.")
    (docs / ".git" / "info").mkdir(parents=True)
    (docs / ".git" / "info" / "exclude").write_text("private/\n*.txt\n")
    assert ingest(session) == {"added": 1}
    assert ingest(session, "docs/sub") == {}


def test_what_is_unread_is_summed_and_checked(session: Session, docs: Path) -> None:
    uri = "data:image/png;base64," + "QUJD" * 20_000
    put(docs, a_md=f"A picture ![of a crane]({uri}) in a text.", b_md="B.")
    answer = session.ask("doc.ingest", paths=["docs"])["result"]
    assert answer["data"]["unread"] == {"embedded_files": 1}
    assert "The text does not include: 1 embedded file." in answer["meta"]["hint"]
    assert answer["data"]["chunks"] == 2
    documents = by_path(session)
    assert documents["a.md"]["unread"] == {"embedded_files": 1}
    assert "unread" not in documents["b.md"]
    check = session.data("kb.check", slug="default")
    assert (check["partly_read"], check["unread"]) == (1, {"embedded_files": 1})
    assert check["partly_read_documents"][0]["document_id"] == documents["a.md"]["id"]
    assert session.data("doc.get", id=documents["a.md"]["id"])["unread"] == {"embedded_files": 1}


def test_a_file_that_is_only_a_comment_is_empty(session: Session, docs: Path) -> None:
    put(docs, a_md="<!-- nothing yet -->\n", b_txt="\N{BYTE ORDER MARK}")
    assert ingest(session) == {"empty": 2}
    assert ingest(session) == {"empty": 2}
