"""The methods of documents, chunks, tags and knowledge bases."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kbproc.engine.embedding.background import Embedding
from kbproc.knowledge.documents.document import document_of
from kbproc.knowledge.documents.entry import entry_of
from tests.conftest import OpenSession
from tests.kit.fixed import NOW_MS, FixedHost
from tests.kit.pdfs import pdf, text_page
from tests.kit.talk import Session

LONG = "\n\n".join(
    f"Paragraph {n} is about subject{n}. " + "It goes on and on. " * 12 for n in range(30)
)


def create(session: Session, title: str = "A", text: str = "alpha", **more: Any) -> dict[str, Any]:
    document: dict[str, Any] = session.data("doc.create", title=title, text=text, **more)
    return document


def confirmed(session: Session, method: str, **params: Any) -> Any:
    plan = session.error(method, **params)["plan"]
    return session.data(method, **params, confirm=plan["plan_hash"])


def ids(session: Session, **params: Any) -> list[int]:
    return [doc["id"] for doc in session.data("doc.list", **params)]


def pages(session: Session, method: str, limit: int, **params: Any) -> list[Any]:
    """The rows of all pages of a list; checks each page's meta."""
    rows: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        result = session.ask(method, limit=limit, **params, **cursor)["result"]
        meta = result["meta"]
        rows += result["data"]
        assert meta["count"] == len(result["data"]) <= limit
        assert meta["has_more"] == ("next_cursor" in meta)
        if not meta["has_more"]:
            return rows
        cursor = {"cursor": meta["next_cursor"]}


# ------------------------------------------------------------------------ doc.create


def test_a_short_text_asks_no_other_process(session: Session) -> None:
    """Short plain texts need no parser; long texts and odd encodings go to a worker."""
    session.data("doc.create", title="Short", text="alpha beta " * 300)
    assert session.library.parsers.pool is not None
    session.data("doc.create", title="Release notes 2.1", text="The importer reads DOCX.")
    assert session.library.parsers.pool.pids == []
    session.data("doc.create", title="Odd", text="a \x1b$B escape")
    assert len(session.library.parsers.pool.pids) == 1
    session.data("doc.create", title="Long", text="alpha beta " * 400)
    session.data("doc.create", title="Marked up", text="# alpha", type="markdown")
    assert [doc["chunk_count"] for doc in session.data("doc.list")] == [4, 1, 1, 5, 1]
    manual = ".TH KBPROC 1\n.SH NAME\nkbproc"
    page = session.data("doc.create", title="kbproc.1", text=manual)
    [chunk] = session.data("chunk.list", document_id=page["id"])
    assert chunk["section"] == "NAME"


def test_create_answers_what_get_shows(session: Session) -> None:
    created = create(
        session,
        "Release notes",
        "The importer reads DOCX.",
        tags=["Release Notes"],
        metadata={"n": 1, "s": "x", "b": True, "f": 0.5, "z": None},
        source_id="notes/1",
    )
    assert created["tags"] == ["release-notes"]
    assert (created["id"], created["revision"], created["chunk_count"]) == (1, 1, 1)
    assert created["source"] == {"path": None, "url": None, "source_id": "notes/1"}
    assert created["index_status"] == "pending"
    session.embedded()
    document = session.data("doc.get", id=1)
    assert document == {**created, "index_status": "ready", "text": None, "text_length": None}
    assert session.data("doc.list") == [{**created, "index_status": "ready"}]


@pytest.mark.parametrize("model", ["hash", "none", "onnx"])
def test_documents_without_a_ready_model(open_session: OpenSession, model: str) -> None:
    """While a model is missing or off, everything except the vectors works."""
    session = open_session(model=model)
    create(session, "A", "alpha beta")
    expected = {"hash": {"pending", "ready"}, "none": {"ready"}, "onnx": {"pending"}}[model]
    assert session.data("doc.list")[0]["index_status"] in expected
    assert session.data("doc.get", id=1)["index_status"] in expected
    assert session.data("doc.update", id=1, title="B")["title"] == "B"
    assert session.data("kb.check", slug="default")["documents"] == 1
    assert session.data("search", query="alpha")["total_matches"] == 1
    assert session.data("status")["total_documents"] == 1
    if model == "onnx":
        assert ids(session, status="pending") == [1]
        assert ids(session, status="ready") == []
        assert session.error("doc.wait", ids=[1])["type"] == "model.unavailable"
    if model == "none":
        assert session.data("doc.wait") == {"ready": 1}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"title": "", "text": "x"}, "title"),
    ({"title": "   ", "text": "x"}, "title"),
    ({"title": "a\u202eb", "text": "x"}, "title"),
    ({"title": "a\nb", "text": "x"}, "title"),
    ({"title": "a\u200bb", "text": "x"}, "title"),
    ({"title": "a\u0000b", "text": "x"}, "title"),
    ({"title": "a" * 301, "text": "x"}, "title"),
    ({"title": "a", "text": ""}, "text"),
    ({"title": "a", "text": "x", "tags": ["a\u202eb"]}, "tags[0]"),
    ({"title": "a", "text": "x", "tags": ["ok", "what?"]}, "tags[1]"),
    ({"title": "a", "text": "x", "tags": [f"t{n}" for n in range(17)]}, "tags"),
    ({"title": "a", "text": "x", "metadata": {"k": [1]}}, "metadata"),
    ({"title": "a", "text": "x", "metadata": {"k": "v" * 1001}}, "metadata.k"),
    ({"title": "a", "text": "x", "metadata": {"\u200b": "v"}}, "metadata"),
    ({"title": "a", "text": "x", "metadata": {"k" * 201: "v"}}, "metadata"),
    ({"title": "a", "text": "x", "source_id": "\u202e"}, "source_id"),
    ({"title": "a", "text": "x", "type": "pdf"}, "type"),
    ({"title": "a", "text": "x", "kb": "No"}, "kb"),
    ({"title": "a", "text": "x", "colour": "red"}, "colour"),
    ({"title": "a"}, "text"),
]


def test_what_create_refuses(session: Session) -> None:
    for params, field in REFUSED:
        error = session.error("doc.create", **params)
        assert (error["type"], error["exit_code"]) == ("input.invalid_params", 1)
        assert error["field"].startswith(f"$.params.{field}")
        assert session.store.seq == 1


def test_create_needs_a_text_and_a_kb(session: Session) -> None:
    error = session.error("doc.create", title="A", text=" \n\t ")
    assert (error["type"], error["field"]) == ("input.invalid_params", "$.params.text")
    error = session.error("doc.create", title="A", text="<p> </p>", type="html")
    assert (error["type"], "scanned" in error["hint"]) == ("operation.failed", False)
    create(session)
    assert session.error("doc.update", id=1, text=" ")["field"] == "$.params.text"
    error = session.error("doc.create", title="A", text="x", kb="defualt")
    assert (error["type"], error["valid_values"][0]) == ("resource.not_found", "default")


def test_a_source_id_is_taken_once_in_a_kb(session: Session) -> None:
    session.data("kb.create", slug="other")
    create(session, source_id="s")
    error = session.error("doc.create", title="B", text="x", source_id="s")
    assert error["type"] == "resource.already_exists"
    assert error["detail"] == {"id": 1, "revision": 1}
    create(session, source_id="s", kb="other")
    confirmed(session, "doc.delete", ids=[1])
    assert create(session, source_id="s")["id"] == 3


def test_strange_texts_come_back(session: Session) -> None:
    for text in (
        "tab\tand 日本語 and 🎉",
        "a \\ b \" c ' d",
        "\ufeffbom",
        "x" * 50_000,
        "null",
        '{"type":"kb.deleted"}',
    ):
        document = create(session, "A", text)
        assert session.data("doc.get", id=document["id"], text=True)["text"] == text


# -------------------------------------------------------------------------- doc.list


@pytest.fixture
def library(session: Session) -> Session:
    session.data("kb.create", slug="other")
    create(session, "Git Guide", "one", tags=["git", "admin"], metadata={"lang": "en", "n": 1})
    create(session, "Setup Notes", "two", tags=["git"], metadata={"lang": "de", "n": 2})
    create(
        session,
        "# Heading",
        "# three\n",
        type="markdown",
        source_id="s/3",
        metadata={"lang": "en", "n": 1.5, 'quo"te': "x", "a/b~c": True},
    )
    create(session, "100% _done_", "four", kb="other", tags=["admin"], metadata={"gone": None})
    create(
        session,
        "Überblick",
        "def five(): pass",
        type="code",
        kb="other",
        metadata={"text": 'a "b" \\ \n \u2028 ü/'},
    )
    return session


FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [1, 2, 3, 4, 5]),
    ({"kb": "other"}, [4, 5]),
    ({"kb": ["default", "other"]}, [1, 2, 3, 4, 5]),
    ({"types": ["markdown", "code"]}, [3, 5]),
    ({"tags": ["git"]}, [1, 2]),
    ({"tags": ["GIT", "Admin"]}, [1]),
    ({"tags": ["git", "admin"], "tags_mode": "any"}, [1, 2, 4]),
    ({"tags": ["nothing"]}, []),
    ({"title_contains": "git"}, [1]),
    ({"title_contains": "%"}, [4]),
    ({"title_contains": "_done_"}, [4]),
    ({"title_contains": "überBLICK"}, [5]),
    ({"source_id": "s/3"}, [3]),
    ({"url": "http://x.example"}, []),
    ({"path_prefix": "/"}, []),
    ({"created_after": "2025-12-31"}, [1, 2, 3, 4, 5]),
    ({"created_after": "2026-01-01T00:00:00Z"}, []),
    ({"created_before": "2026-01-01T01:00:00.001+01:00"}, [1, 2, 3, 4, 5]),
    ({"created_before": "2026-01-01"}, []),
    ({"kb": "default", "tags": ["git"], "title_contains": "setup"}, [2]),
]


def test_filters(library: Session) -> None:
    for params, expected in FILTERS:
        answer = library.ask("doc.list", **params)["result"]
        assert [doc["id"] for doc in answer["data"]] == expected, params
        assert answer["meta"]["total"] == answer["meta"]["count"] == len(expected)


METADATA: list[tuple[dict[str, Any], list[int]]] = [
    ({"lang": "en"}, [1, 3]),
    ({"lang": "en", "n": 1}, [1]),
    ({"n": 1.0}, [1]),
    ({"n": 1.5}, [3]),
    ({"n": "1"}, []),
    ({'quo"te': "x"}, [3]),
    ({"a/b~c": True}, [3]),
    ({"a/b~c": False}, []),
    ({"gone": None}, [4]),
    ({"lang": None}, []),
    ({"$": 1}, []),
    ({"text": 'a "b" \\ \n \u2028 ü/'}, [5]),
    ({"'; drop table documents": 1}, []),
]


def test_the_connections_kb_is_meant_where_none_is_named(session: Session) -> None:
    session.data("kb.create", slug="papers")
    peer = session.connection.peer
    session.connection.peer = msgspec.structs.replace(peer, kb="papers")
    assert create(session, "One", "x")["kb"] == "papers"
    assert create(session, "Two", "x", kb="default")["kb"] == "default"
    assert len(session.data("doc.list")) == 2  # lists cover every kb


def test_great_integers_are_told_apart(session: Session) -> None:
    ids = [create(session, f"n{n}", "x", metadata={"n": n})["id"] for n in (2**53, 2**53 + 1)]
    create(session, "half", "x", metadata={"n": 2**53 + 0.5})
    for id, number in zip(ids, (2**53, 2**53 + 1), strict=True):
        plan = session.ask("doc.delete", where={"metadata": {"n": number}}, dry_run=True)
        targets = [t["id"] for t in plan["result"]["meta"]["plan"]["targets"]]
        assert id in targets
        assert set(targets) & set(ids) == {id}


def test_filter_by_metadata(library: Session) -> None:
    """The metadata filter, shared by search and deletions; a dry run lists its targets."""
    for metadata, expected in METADATA:
        result = library.ask("doc.delete", where={"metadata": metadata}, dry_run=True)["result"]
        ids = [target["id"] for target in result["meta"]["plan"]["targets"]]
        assert ids == expected, metadata


def test_times_that_are_none(session: Session) -> None:
    for time in ("2026-13-01", "2026-02-30", "yesterday", "2026-01-01T25:00:00Z"):
        error = session.error("doc.list", created_after=time)
        assert (error["type"], error["field"]) == ("input.invalid_params", "$.params.created_after")


def test_what_has_changed_since(session: Session) -> None:
    host: Any = session.store.host
    host.pass_until("2026-01-01T10:00:00+00:00")
    for title in ("A", "B"):
        create(session, title)
    session.data("knowledge.store", title="Old", body="x")
    host.pass_until("2026-01-02T10:00:00+00:00")
    session.data("doc.update", id=1, tags=["new"])
    create(session, "C")
    session.data("knowledge.store", title="New", body="y")
    assert ids(session, updated_after="2026-01-02", types=["text"]) == [1, 4]
    assert ids(session, updated_after="2026-01-02T10:00:00Z") == []
    entries = session.data("knowledge.list", updated_after="2026-01-02")
    assert [entry["title"] for entry in entries] == ["New"]
    error = session.error("doc.list", updated_after="2026-13-01")
    assert error["field"] == "$.params.updated_after"


def test_paging_shows_each_once(library: Session) -> None:
    for limit in (1, 2, 4, 5, 6):
        assert [doc["id"] for doc in pages(library, "doc.list", limit)] == [1, 2, 3, 4, 5]


def test_paging_is_not_shaken_by_writers(library: Session) -> None:
    first = library.ask("doc.list", limit=2)["result"]
    confirmed(library, "doc.delete", ids=[1, 2])
    create(library, "New", "six")
    rest = library.data("doc.list", cursor=first["meta"]["next_cursor"])
    assert [doc["id"] for doc in rest] == [3, 4, 5, 6]


def test_a_limit_out_of_range_is_refused(session: Session) -> None:
    for limit in (0, -1, 1001, 10**9):
        for method in ("doc.list", "kb.list", "tag.list"):
            assert session.error(method, limit=limit)["field"] == "$.params.limit"


CURSORS = [
    "",
    "x",
    "!!!",
    "AAAA",
    "bnVsbA",
    "e30",
    "ImEi",
    "MS41",
    "dHJ1ZQ",
    "é",
    base64.urlsafe_b64encode(b"9" * 60).decode(),
    base64.urlsafe_b64encode(b"-5").decode(),
]


def test_a_made_up_cursor_is_harmless(session: Session) -> None:
    create(session)
    for cursor in CURSORS:
        error = session.error("doc.list", cursor=cursor)
        assert (error["type"], error["field"]) == ("input.invalid_params", "$.params.cursor")


def test_filter_by_status(session: Session) -> None:
    session.embedded()
    for n in range(3):
        create(session, f"T{n}", f"text {n}")
    session.embedded()
    assert ids(session, status="ready") == [1, 2, 3]
    assert ids(session, status="pending") == ids(session, status="failed") == []


# ------------------------------------------------------------------ get and download


def test_a_long_text_comes_in_parts(session: Session) -> None:
    create(session, "Long", LONG)
    whole = session.data("doc.get", id=1, text=True)
    assert whole["chunk_count"] > 5
    assert whole["text_length"] == len(whole["text"])
    assert whole["text"] == LONG
    parts, more = "", True
    while more:
        got = session.ask("doc.get", id=1, text=True, offset=len(parts), length=1000)["result"]
        parts += got["data"]["text"]
        more = got["meta"]["has_more"]
    assert parts == LONG
    assert session.data("doc.get", id=1, text=True, offset=10**9)["text"] == ""


SOURCES = {
    "a.md": "---\ntags: [x]\n---\n\n# T\n\n\n```sh\nx = 1\n\n\ny = 2\n```\n\n***\n中文。\n中文\n",
    "a.txt": "\n\nOne.\r\n\r\n\r\nTwo\tand\x0cthree.   \n",
    "a.html": "<p>One &amp; two</p>\n<!-- no -->\n<script>x()</script>\n",
    "a.py": "\n\ndef f():\n\n    return 1\n\n\nx = 2",
}


def test_the_text_of_a_text_is_its_own(session: Session, tmp_path: Path) -> None:
    wrong = []
    for name, source in SOURCES.items():
        text = source + "z" * 5000 + " 知识库可以存储文档" * 300
        (tmp_path / name).write_bytes(text.encode())
        [document] = session.data("doc.ingest", paths=[str(tmp_path / name)])["documents"]
        data = session.data("doc.get", id=document["id"], text=True)
        if (data["text"], data["text_length"]) != (text, len(text)):
            wrong.append((name, data))
    assert wrong == []


def test_the_text_of_another_encoding_is_told_in_unicode(session: Session, tmp_path: Path) -> None:
    text = "Žluťoučký kůň příšerně úpěl ďábelské ódy.\r\n"
    (tmp_path / "a.txt").write_bytes(text.encode("utf-16"))
    session.data("doc.ingest", paths=[str(tmp_path)])
    assert session.data("doc.get", id=1, text=True)["text"] == text


def test_the_text_of_a_pdf_has_no_seams(session: Session, tmp_path: Path) -> None:
    """Chunks that end between sentences, between words or inside a word join without a trace."""
    lines = [f"word{n} " * 9 + "and so on, and" for n in range(40)] + ["Q" * 60] * 30
    (tmp_path / "a.pdf").write_bytes(pdf(text_page(lines[:35]), text_page(lines[35:])))
    session.data("doc.ingest", paths=[str(tmp_path)])
    data = session.data("doc.get", id=1, text=True)
    assert data["chunk_count"] > 3
    assert "\n" not in data["text"]
    assert data["text"] == " ".join(lines).replace("  ", " ")


def test_downloads_come_in_parts_too(session: Session) -> None:
    create(session, "A", "alpha ünï")
    data = "alpha ünï".encode()
    got, offset = b"", 0
    while True:
        answer = session.ask("doc.download", id=1, offset=offset, length=4)["result"]
        got += base64.b64decode(answer["data"]["content"])
        assert answer["data"]["size_bytes"] == len(data)
        offset += 4
        if not answer["meta"]["has_more"]:
            break
    assert got == data


def test_a_download_to_a_file(session: Session, tmp_path: Path) -> None:
    create(session, "A", "alpha")
    done = session.data("doc.download", id=1, path="copy.txt")
    assert (done["content"], done["length"]) == (None, 5)
    assert (tmp_path / "copy.txt").read_text() == "alpha"
    error = session.error("doc.download", id=1, path="copy.txt")
    assert error["type"] == "resource.already_exists"
    assert session.error("doc.download", id=1, path="/etc/x")["type"] == "path.outside_root"
    error = session.error("doc.download", id=1, path="no/dir.txt")
    assert (error["type"], error["field"]) == ("resource.not_found", "$.params.path")
    (tmp_path / "link").symlink_to("/tmp")
    assert session.error("doc.download", id=1, path="link/x")["type"] == "path.outside_root"
    (tmp_path / "dangling").symlink_to("/tmp/kbproc-nowhere")
    assert session.error("doc.download", id=1, path="dangling")["exit_code"] in {6, 7}
    assert not Path("/tmp/kbproc-nowhere").exists()


def test_writing_files_needs_the_scope(open_session: OpenSession, tmp_path: Path) -> None:
    session = open_session(scopes="doc:read,doc:write")
    create(session)
    error = session.error("doc.download", id=1, path="copy.txt")
    assert error["type"] == "auth.insufficient_scope"
    assert not (tmp_path / "copy.txt").exists()


NOT_THERE: list[tuple[str, dict[str, Any]]] = [
    ("doc.get", {"id": 99}),
    ("doc.update", {"id": 99, "title": "x"}),
    ("doc.delete", {"ids": [1, 99]}),
    ("doc.download", {"id": 99}),
    ("doc.reparse", {"ids": [99]}),
    ("doc.wait", {"ids": [99]}),
    ("chunk.list", {"document_id": 99}),
    ("chunk.get", {"id": 99}),
    ("chunk.delete", {"ids": [1, 99]}),
    ("kb.get", {"slug": "nope"}),
    ("kb.update", {"slug": "nope", "name": "x"}),
    ("kb.delete", {"slug": "nope"}),
    ("kb.status", {"slug": "nope"}),
    ("kb.check", {"slug": "nope"}),
    ("doc.list", {"kb": "nope"}),
    ("tag.list", {"kb": "nope"}),
    ("doc.list", {"kb": ["default", "nope"]}),
    ("search", {"query": "x", "kb": "nope"}),
    ("doc.reparse", {"kb": "nope"}),
    ("doc.delete", {"where": {"kb": "nope"}}),
]


def test_what_is_not_there(session: Session) -> None:
    create(session)
    for method, params in NOT_THERE:
        error = session.error(method, **params)
        assert (error["type"], error["exit_code"]) == ("resource.not_found", 5)
        assert error["field"].startswith("$.params.")


# ------------------------------------------------------------------------ doc.update


def test_update_keeps_what_is_not_named(session: Session) -> None:
    create(session, "Old", "alpha", tags=["a"], metadata={"k": 1}, source_id="s")
    document = session.data("doc.update", id=1, title="New")
    assert (document["title"], document["tags"], document["metadata"], document["revision"]) == (
        "New",
        ["a"],
        {"k": 1},
        2,
    )
    document = session.data("doc.update", id=1, text="beta gamma")
    assert (document["title"], document["tags"], document["revision"]) == ("New", ["a"], 3)
    assert document["source"]["source_id"] == "s"
    document = session.data("doc.update", id=1, tags=[], metadata={})
    assert (document["tags"], document["metadata"]) == ([], {})
    assert session.data("doc.get", id=1, text=True)["text"] == "beta gamma"
    counts = [
        session.data("search", query=q, mode="fts")["total_matches"]
        for q in ("alpha", "gamma", "new")
    ]
    assert counts == [0, 1, 1]


def test_update_answers_what_get_shows(session: Session) -> None:
    create(session, "Old", "alpha")
    session.embedded()
    for params in ({"title": "New"}, {"text": "beta"}, {"tags": ["x"]}):
        updated = session.data("doc.update", id=1, **params)
        session.embedded()
        document = session.data("doc.get", id=1)
        del document["text"], document["text_length"]
        assert document == {**updated, "index_status": "ready"}


def test_a_stale_revision_is_a_conflict(session: Session) -> None:
    create(session)
    session.data("doc.update", id=1, title="B", expected_revision=1)
    error = session.error("doc.update", id=1, title="C", expected_revision=1)
    assert (error["type"], error["detail"]) == ("resource.conflict", {"revision": 2})
    assert session.data("doc.get", id=1)["title"] == "B"


def test_an_update_of_nothing_is_refused(session: Session) -> None:
    create(session)
    error = session.error("doc.update", id=1)
    assert error["type"] == "input.invalid_params"
    assert set(error["valid_values"]) == {"title", "tags", "metadata", "text"}


# ------------------------------------------------------------------------ doc.delete


def test_a_deleted_document_is_hidden_from_every_read(library: Session) -> None:
    confirmed(library, "doc.delete", ids=[1])
    assert ids(library) == [2, 3, 4, 5]
    error = library.error("doc.get", id=1)
    assert (error["type"], list(error["detail"])) == ("resource.not_found", ["deleted_at"])
    for method, params in (
        ("chunk.list", {"document_id": 1}),
        ("doc.download", {"id": 1}),
        ("chunk.get", {"id": 1}),
    ):
        assert library.error(method, **params)["type"] == "resource.not_found"
    assert library.data("search", query="one", mode="fts")["total_matches"] == 0
    assert library.data("search", query="setup notes", mode="vector")["results"]
    assert 1 not in [
        hit["source"]["document_id"] for hit in library.data("search", query="git guide")["results"]
    ]
    assert library.data("tag.list") == [{"name": "admin", "count": 1}, {"name": "git", "count": 1}]
    assert library.data("status")["total_documents"] == 4


def test_deletion_by_filter(library: Session) -> None:
    done = confirmed(library, "doc.delete", where={"tags": ["git"], "kb": "default"})
    assert done == {"deleted": 2, "ids": [1, 2]}
    assert library.error("doc.delete")["field"] == "$.params"
    assert library.error("doc.delete", ids=[3], where={"kb": "other"})["field"] == "$.params"
    assert library.error("doc.delete", where={})["field"] == "$.params.where"
    nothings: list[dict[str, Any]] = [{"tags_mode": "any"}, {"tags": []}, {"metadata": {}}]
    for nothing in nothings:
        assert library.error("doc.delete", where=nothing)["field"] == "$.params.where"
    assert ids(library) == [3, 4, 5]


def test_missing_ids_are_named(library: Session) -> None:
    error = library.error("doc.delete", ids=[98, 1, 99])
    assert error["message"] == "There are no documents 98, 99."
    error = library.error("doc.delete", ids=[99])
    assert error["message"] == "There is no document 99."


def test_an_update_lasts_until_the_next_ingest(session: Session, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Title\n\nOld words.")
    session.data("doc.ingest", paths=["a.md"])
    session.data("doc.update", id=1, title="Own", tags=["t"])
    assert session.data("doc.ingest", paths=["a.md"])["unchanged"] == 1
    assert session.data("doc.get", id=1)["title"] == "Own", "only new text is undone"
    session.data("doc.update", id=1, text="New words.")
    assert session.data("doc.ingest", paths=["a.md"])["updated"] == 1
    doc = session.data("doc.get", id=1, text=True)
    assert ("Old words." in doc["text"], doc["title"], doc["tags"]) == (True, "Title", ["t"])


def test_an_id_twice_is_deleted_once(library: Session) -> None:
    assert confirmed(library, "doc.delete", ids=[2, 2, 1]) == {"deleted": 2, "ids": [2, 1]}


# ---------------------------------------------------------------------- doc.reparse


def test_reparsing_at_once_changes_nothing(session: Session, tmp_path: Path) -> None:
    """Every type is cut into the same chunks again, whatever title the caller gave."""
    create(session, "Text", LONG)
    create(session, "Own title", "# Heading\n\nWords below.\n\n## Deeper\n\nMore.", type="markdown")
    create(session, "Page", "<html><title>Other</title><p>Words.</p>", type="html")
    create(session, "code.py", "def f():\n    return 1\n", type="code")
    (tmp_path / "a.md").write_text("---\ntitle: Front\ntags: [x]\n---\n# Head\n\nWords.\n")
    session.data("doc.ingest", paths=["a.md"])
    result = session.data("doc.reparse")
    assert result == {"updated": 0, "unchanged": 5, "failed": 0, "failures": []}
    assert {doc["revision"] for doc in session.data("doc.list")} == {1}


def test_reparsing_brings_deleted_chunks_back(session: Session) -> None:
    create(session, "Long", LONG, tags=["t"])
    [first, *_] = session.data("chunk.list", document_id=1)
    before = session.data("doc.get", id=1)["chunk_count"]
    confirmed(session, "chunk.delete", ids=[first["id"]])
    assert session.data("doc.reparse", ids=[1])["updated"] == 1
    doc = session.data("doc.get", id=1)
    assert (doc["chunk_count"], doc["revision"], doc["tags"]) == (before, 3, ["t"])


def test_reparsing_without_the_source_is_a_failure(session: Session) -> None:
    create(session, "A", "alpha")
    create(session, "B", "beta")
    session.store.blobs.erase([session.data("doc.get", id=1)["sha256"]])
    result = session.ask("doc.reparse")["result"]
    assert result["meta"]["partial"]["type"] == "operation.partial"
    assert (result["data"]["failed"], result["data"]["unchanged"]) == (1, 1)


# -------------------------------------------------------------------------- doc.wait


def test_waiting(session: Session) -> None:
    assert session.data("doc.wait") == {"ready": 0}
    create(session, "A", LONG)
    create(session, "B", "beta")
    assert session.data("doc.wait", ids=[2]) == {"ready": 1}
    assert session.data("doc.wait") == {"ready": 2}
    status = session.ask("status")["result"]
    freshness = status["meta"]["freshness"]
    assert freshness["pending_embeddings"] == 0
    assert freshness["vector_seq"] == freshness["fulltext_seq"] == freshness["seq"]


def test_a_failure_is_told_first(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from kbproc.base.errors import KbprocError
    from kbproc.engine.models.hashing import HashEmbedder

    real = HashEmbedder.embed

    def embed(self: HashEmbedder, text: str) -> Any:
        if "poison" in text:
            raise KbprocError("operation.failed", "This text can't be embedded.")
        return real(self, text)

    monkeypatch.setattr(HashEmbedder, "embed", embed)
    texts = [{"title": "A", "text": "poison"}, {"title": "B", "text": "beta"}]
    session.data("doc.create", documents=texts)  # one batch to embed
    error = session.error("doc.wait")
    assert (error["type"], error["detail"]["failed"]) == ("operation.failed", [1])
    assert session.data("doc.wait", ids=[2]) == {"ready": 1}
    assert ids(session, status="failed") == [1]
    assert session.data("doc.get", id=1)["index_status"] == "failed"
    session.data("doc.update", id=1, text="antidote")
    assert session.data("doc.wait", ids=[1]) == {"ready": 1}
    assert ids(session, status="failed") == []
    confirmed(session, "doc.delete", ids=[1])
    assert session.data("doc.wait") == {"ready": 1}


# --------------------------------------------------------------------------- chunks


def test_chunks_in_order_with_neighbours(session: Session) -> None:
    create(session, "Long", LONG)
    chunks = pages(session, "chunk.list", 3, document_id=1)
    assert [chunk["chunk_index"] for chunk in chunks] == list(range(len(chunks)))
    middle = chunks[3]
    got = session.data("chunk.get", id=middle["id"], before=2, after=50)
    assert got["chunk"] == middle
    assert got["before"] == chunks[1:3]
    assert got["after"] == chunks[4:]
    assert (got["title"], got["total_chunks"]) == ("Long", len(chunks))
    assert session.data("chunk.get", id=chunks[0]["id"], before=50)["before"] == []


def test_a_chunk_is_told_as_the_catalog_has_it_whatever_is_indexed(
    session: Session, catch_up: Callable[[], None]
) -> None:
    """The chunk's document is written, replaced, loses a chunk, and is deleted."""

    def look() -> None:
        catch_up()
        with session.store.reading() as snapshot:
            rows = {id: snapshot.queries.chunks_of(id) for id in (1, 2)}
        there = {chunk.id: chunks for chunks in rows.values() for chunk in chunks}
        for id in range(1, session.store.published.head.next_chunk):
            if id not in there:
                assert session.error("chunk.get", id=id)["type"] == "resource.not_found"
                continue
            answer = session.data("chunk.get", id=id, before=50, after=50)
            around = [*answer["before"], answer["chunk"], *answer["after"]]
            assert [one["id"] for one in around] == [chunk.id for chunk in there[id]]
            assert [one["text"] for one in around] == [chunk.text for chunk in there[id]]
            assert [one["chunk_index"] for one in around] == [chunk.idx for chunk in there[id]]
            assert answer["total_chunks"] == len(around)
            assert session.data("chunk.get", id=id)["chunk"] == answer["chunk"]

    create(session, "Long", LONG)
    look()
    create(session, "Other", "other words")
    look()
    session.data("doc.update", id=2, text=LONG, title="Others")
    look()
    confirmed(session, "chunk.delete", ids=[session.data("chunk.list", document_id=2)[1]["id"]])
    look()
    confirmed(session, "doc.delete", ids=[1])
    look()


def test_a_document_is_told_as_the_catalog_has_it_whatever_is_indexed(
    session: Session, catch_up: Callable[[], None]
) -> None:
    """The document is created, changed, replaced, superseded, deleted, and restored."""

    def look() -> None:
        catch_up()
        with session.store.reading() as snapshot:
            for id in range(1, session.store.published.head.next_document):
                row = snapshot.queries.document(id)
                if row is None or row.deleted_at is not None:
                    assert session.error("doc.get", id=id)["type"] == "resource.not_found"
                    continue
                expected = msgspec.to_builtins(document_of(row, session.library.embedding))
                answer = session.data("doc.get", id=id)
                assert {name: answer[name] for name in expected} == expected

    create(session, "Long", LONG)
    facts = {"tags": ["one", "two"], "metadata": {"a": 1, "b": "ü"}, "source_id": "mine"}
    create(session, "Short", "other words", **facts)
    entries = [session.data("knowledge.store", title=t, body="words")["id"] for t in ("old", "new")]
    look()
    session.data("doc.update", id=2, tags=["three"])
    look()
    session.data("knowledge.supersede", old_id=entries[0], new_id=entries[1])
    look()
    session.data("doc.update", id=1, text="replaced")
    look()
    confirmed(session, "doc.delete", ids=[2])
    look()
    session.data("doc.restore", ids=[2])
    look()


def test_an_entry_is_told_as_the_catalog_has_it_whatever_is_indexed(
    session: Session, catch_up: Callable[[], None]
) -> None:
    """The entry is superseded twice, revived, deleted, restored, and moved to another chain."""

    def look() -> None:
        catch_up()
        model, now = session.library.embedding, FixedHost().now()
        with session.store.reading() as snapshot:
            for id in range(1, session.store.published.head.next_document):
                row = snapshot.queries.entry(id)
                if row is None or row.deleted_at is not None:
                    assert session.error("knowledge.get", id=id)["type"] == "resource.not_found"
                    continue
                answer = session.data("knowledge.get", id=id)
                expected = msgspec.to_builtins(entry_of(row, model, now))
                assert {name: answer[name] for name in expected} == expected
                before = [one.id for one in snapshot.queries.superseded_by([id])]
                assert (answer["supersedes"], answer["body"]) == (before, f"words of {row.title}")

    def stored(title: str, **more: Any) -> int:
        entry = session.data("knowledge.store", title=title, body=f"words of {title}", **more)
        return int(entry["id"])

    task = {"task_id": "T-1", "kind": "produced"}
    one = stored("one", tags=["a"], confidence=7, task_ref=task, expires_at="2999-01-01T00:00:00Z")
    two, three = stored("two", task_ref={"task_id": "T-2"}), stored("three")
    create(session, "No entry", LONG)
    look()
    session.data("knowledge.supersede", old_id=one, new_id=two)
    look()
    session.data("knowledge.supersede", old_id=two, new_id=three)
    look()
    session.data("knowledge.unsupersede", old_id=one, new_id=two)
    look()
    deleted = session.store.seq + 1
    confirmed(session, "knowledge.delete", ids=[three])
    look()
    confirmed(session, "events.revert", seqs=[deleted])
    look()
    session.data("knowledge.supersede", old_id=one, new_id=three)
    look()
    confirmed(session, "knowledge.delete", ids=[one])
    look()


class PanicException(BaseException):
    """Has the name of the exception that pyo3 raises for a Rust panic."""


def test_an_index_that_has_rotted_is_not_believed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads need no index; searches report its damage."""
    create(session, "Long", LONG)
    session.embedded()
    session.data("search", query="words")
    [first, *_] = chunks = session.data("chunk.list", document_id=1)
    assert session.store.indexed is not None
    fulltext = session.store.indexed.fulltext
    real, wrong = fulltext.searcher, []
    sound = SimpleNamespace(fast_field_values=real.fast_field_values, num_docs=real.num_docs)
    for error in (PanicException, ValueError, IndexError):

        def fail(*_: Any, error: type[BaseException] = error, **__: Any) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(fulltext, "searcher", SimpleNamespace(**vars(sound), search=fail))
            title = session.data("doc.get", id=1)["title"]
            answer = session.data("chunk.get", id=first["id"], after=50)
            failed = session.error("search", query="paragraph", mode="fts")["type"]
        around = [answer["chunk"], *answer["after"]]
        if (title, around, failed) != ("Long", chunks, "store.corrupt"):
            wrong.append((error, title, around, failed))
    assert wrong == []


def test_deleting_chunks(session: Session) -> None:
    create(session, "Long", LONG)
    create(session, "Other", "other words")
    chunks = session.data("chunk.list", document_id=1)
    deleted = [chunks[1]["id"], chunks[2]["id"], chunks[1]["id"]]
    assert confirmed(session, "chunk.delete", ids=deleted) == {"deleted": 2, "documents": [1]}
    doc = session.data("doc.get", id=1)
    assert (doc["chunk_count"], doc["revision"]) == (len(chunks) - 2, 2)
    assert session.error("chunk.get", id=deleted[0])["type"] == "resource.not_found"
    remaining = [chunk["id"] for chunk in session.data("chunk.list", document_id=1)]
    assert remaining == [chunk["id"] for chunk in chunks if chunk["id"] not in deleted]
    around = session.data("chunk.get", id=chunks[0]["id"], after=1)
    assert around["after"][0]["id"] == chunks[3]["id"]
    confirmed(session, "chunk.delete", ids=remaining)
    assert session.data("doc.get", id=1, text=True)["text"] == ""
    assert session.data("doc.wait", ids=[1]) == {"ready": 1}


# ------------------------------------------------------------------------------ tags


def test_tags_are_counted(library: Session) -> None:
    assert library.data("tag.list") == [{"name": "admin", "count": 2}, {"name": "git", "count": 2}]
    assert library.data("tag.list", kb="other") == [{"name": "admin", "count": 1}]
    assert pages(library, "tag.list", 1) == library.data("tag.list")


def test_tags_are_normalised_on_write_and_on_query(session: Session) -> None:
    document = create(
        session, tags=["Install Guide", "install-guide", "C++", "snake_case", "a / b"]
    )
    assert document["tags"] == ["install-guide", "c++", "snake-case", "a-b"]
    assert ids(session, tags=["INSTALL GUIDE", "c++"]) == [1]


# --------------------------------------------------------------------- knowledge bases


def test_the_life_of_a_kb(session: Session) -> None:
    base = session.data("kb.create", slug="handbook", description="How we work.")
    assert (base["name"], base["revision"]) == ("handbook", 1)
    assert session.data("kb.get", slug="handbook") == base
    refusal = session.error("kb.create", slug="handbook")
    assert (refusal["type"], refusal["exit_code"]) == ("resource.already_exists", 7)
    base = session.data("kb.update", slug="handbook", name="Handbook", expected_revision=1)
    assert (base["name"], base["description"], base["revision"]) == ("Handbook", "How we work.", 2)
    stale = session.error("kb.update", slug="handbook", name="X", expected_revision=1)
    assert (stale["type"], stale["detail"]) == ("resource.conflict", {"revision": 2})
    create(session, kb="handbook")
    error = session.error("kb.delete", slug="handbook")
    assert error["risk"]["level"] == "medium"
    assert {target["kind"] for target in error["plan"]["targets"]} == {"kb", "document"}
    assert confirmed(session, "kb.delete", slug="handbook") == {"slug": "handbook", "documents": 1}
    assert [kb["slug"] for kb in session.data("kb.list")] == ["default"]
    assert session.data("search", query="alpha")["results"] == []
    session.data("kb.create", slug="handbook")
    assert session.data("kb.status", slug="handbook")["documents"] == 0


def test_a_kb_made_anew_is_another_one(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.data("kb.create", slug="handbook")
    plan = session.error("kb.delete", slug="handbook")["plan"]
    confirmed(session, "kb.delete", slug="handbook")
    monkeypatch.setattr(FixedHost, "now_ms", lambda self: NOW_MS + 1)
    session.data("kb.create", slug="handbook")
    error = session.error("kb.delete", slug="handbook", confirm=plan["plan_hash"])
    assert error["type"] == "resource.plan_stale"


def test_the_default_kb_stays(session: Session) -> None:
    assert session.error("kb.delete", slug="default")["field"] == "$.params.slug"


def test_slugs(session: Session) -> None:
    for slug in ("a", "A1", "-a", "a-", "a_b", "a b", "", "x" * 65, "ä1", "ab\n"):
        assert session.error("kb.create", slug=slug)["field"] == "$.params.slug"


def test_a_kb_list_in_pages(session: Session) -> None:
    for slug in ("zz", "aa", "mm"):
        session.data("kb.create", slug=slug)
    assert [kb["slug"] for kb in pages(session, "kb.list", 2)] == ["aa", "default", "mm", "zz"]


def test_kb_check_finds_stale_files(session: Session, tmp_path: Path) -> None:
    for name in ("same", "changed", "size", "gone"):
        (tmp_path / f"{name}.md").write_text("Some words.")
    session.data("doc.ingest", paths=["."])
    session.embedded()
    (tmp_path / "changed.md").write_text("Some WORDS.")
    (tmp_path / "size.md").write_text("More.")
    (tmp_path / "gone.md").unlink()
    result = session.ask("kb.check", slug="default")["result"]
    check = result["data"]
    assert "prune" in result["meta"]["hint"]
    assert (check["documents"], check["stale"], check["failed"], check["pending"]) == (4, 3, 0, 0)
    states = {Path(f["path"]).stem: f["state"] for f in check["stale_files"]}
    assert states == {"changed": "changed", "size": "changed", "gone": "gone"}


def test_kb_status_counts(session: Session) -> None:
    create(session, "A", LONG)
    create(session, "B", "beta")
    status = session.data("kb.status", slug="default")
    assert status["documents"] == 2
    assert status["chunks"] == session.data("status")["total_chunks"] > 2
    assert status["source_bytes"] == len(LONG.encode()) + 4


def test_waiting_for_what_was_changed_since(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """doc.wait with after_seq waits for later documents only, not for earlier ones of others."""
    monkeypatch.setattr(Embedding, "start", lambda self: None)
    session = open_session()
    others = session.data("doc.create", title="another's", text="words")["id"]
    before = session.data("ping")["seq"]
    own = session.data("doc.create", title="own", text="words")["id"]
    assert session.error("doc.wait", timeout_ms=0)["detail"] == {"pending": 2}
    assert session.error("doc.wait", after_seq=before, timeout_ms=0)["detail"] == {"pending": 1}
    now = session.data("ping")["seq"]
    assert session.data("doc.wait", after_seq=now) == {"ready": 0}
    assert session.data("doc.wait", after_seq=before, ids=[others]) == {"ready": 0}
    error = session.error("doc.wait", after_seq=before, ids=[others, own], timeout_ms=0)
    assert error["detail"] == {"pending": 1}
